"""A stranger's workspace template: what Git and agents execute in it, and links out of it, need trust."""

import pytest
from stranger import Stranger

from agentv.engine.cases.case_survey import workspace_uses
from agentv.model.workspace_settings import Workspace, WorkspaceFile
from agentv.trust import template_search

CONFIG = '[core]\nrepositoryformatversion = 0\nbare = false\nworktree = .\nfsmonitor = "touch {marker}; false"\n'


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    made = Stranger(tmp_path)
    monkeypatch.chdir(made.mine)
    made.write(made.mine, "secret.txt", "planted")
    entry = {"name": "default", "provider": "cli", "command_template": "git status; (cd sub && git status); echo hello"}
    made.write(made.mine, ".agentv/targets.yaml", {"targets": [entry]})
    return made


def repository(stranger, folder):
    for name in ("objects", "refs"):
        (stranger.theirs / folder / name).mkdir(parents=True)
    stranger.write(stranger.theirs, f"{folder}/HEAD", "ref: refs/heads/main\n")
    stranger.write(stranger.theirs, f"{folder}/config", CONFIG.format(marker=stranger.marker))


def evaluate(stranger, command, *options):
    return command("eval", stranger.dataset(workspace={"template": "tpl"}), *options)


@pytest.mark.parametrize("folder", ["tpl", "tpl/sub", "tpl/sub/.git", "tpl/a/b/.GIT"])
def test_git_runs_nothing_of_a_template_without_trust(stranger, command, folder):
    repository(stranger, folder)
    ended = evaluate(stranger, command)
    assert (ended.code, stranger.has_run) == (2, False)
    assert str(stranger.theirs / folder) in ended.stderr


def test_trust_in_a_template_ends_when_its_repository_is_configured_otherwise(stranger, command):
    repository(stranger, "tpl")
    stranger.write(stranger.theirs, "tpl/config", "[core]\nrepositoryformatversion = 0\n")
    assert evaluate(stranger, command, "--trust", "../theirs").code == 0
    assert evaluate(stranger, command).code == 0
    stranger.write(stranger.theirs, "tpl/config", CONFIG.format(marker=stranger.marker))
    assert (evaluate(stranger, command).code, stranger.has_run) == (2, False)


SETTINGS = (
    ".claude/settings.json", ".vscode/tasks.json", ".mcp.json", ".envrc", ".env", ".ENV", ".env.local",
    "opencode.jsonc", "bunfig.toml", ".github/hooks/start.json", ".copilot/mcp-config.json",
)  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_tools_in_a_folder_of_a_template_need_trust(stranger, command, name):
    stranger.write(stranger.theirs, f"tpl/a/b/{name}", "{}")
    ended = evaluate(stranger, command)
    assert (ended.code, "is not trusted" in ended.stderr) == (2, True)


@pytest.mark.parametrize(
    "target", ["{mine}/secret.txt", "../../../mine/secret.txt", "../up/mine", "{mine}", "../../no"]
)
def test_a_link_out_of_a_template_needs_trust(stranger, command, target):
    (stranger.theirs / "tpl/sub").mkdir(parents=True)
    (stranger.theirs / "tpl/up").symlink_to("../..")
    (stranger.theirs / "tpl/sub/leak").symlink_to(target.format(mine=stranger.mine))
    ended = evaluate(stranger, command)
    assert ended.code == 2
    assert f"link to {target.format(mine=stranger.mine)}" in ended.stderr


def test_a_plain_template_with_links_inside_it_needs_no_trust(stranger, command):
    stranger.write(stranger.theirs, "tpl/sub/data.txt", "data")
    (stranger.theirs / "tpl/data").symlink_to("sub/data.txt")
    (stranger.theirs / "tpl/sub/again").symlink_to("../data")
    ended = evaluate(stranger, command)
    assert ended.code == 0, ended.stderr


def test_a_template_too_large_to_search_needs_trust(stranger, command, monkeypatch):
    monkeypatch.setattr(template_search, "MOST_ENTRIES", 2)
    for number in range(3):
        stranger.write(stranger.theirs, f"tpl/{number}.txt", "data")
    assert "more than 2 files" in evaluate(stranger, command).stderr


def test_a_template_that_is_a_link_to_my_files_needs_trust(stranger, command):
    (stranger.theirs / "tpl").symlink_to(stranger.mine)
    ended = evaluate(stranger, command)
    assert ended.code != 0, ended.stderr


@pytest.mark.parametrize(
    ("path", "needs_trust"), [(".claude/settings.json", True), ("a/.mcp.json", True), ("data/a.csv", False)]
)
def test_a_file_that_tools_execute_needs_trust_wherever_it_comes_from(path, needs_trust):
    workspace = Workspace(files=(WorkspaceFile(path, "plain.txt", "", "/project/plain.txt"),))
    found = [(use.kind, use.value) for use in workspace_uses(workspace, "d.yaml")]
    assert found == ([("template", path)] if needs_trust else [])


@pytest.mark.parametrize("in_template", [(), ("HEAD",), ("objects/a", "refs/a"), ("HEAD", "refs/a")])
def test_files_that_make_a_repository_of_a_workspace_need_trust(tmp_path, in_template):
    """Git runs programs that the `config` of a folder with HEAD, objects and refs names."""
    for name in in_template:
        (tmp_path / "sub" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sub" / name).write_text("")
    paths = [f"sub/{name}" for name in ("HEAD", "config", "objects/a", "refs/a") if name not in in_template]
    files = tuple(WorkspaceFile(path, "plain.txt", "", "/project/plain.txt") for path in paths)
    workspace = Workspace(path=str(tmp_path), files=files)
    assert ("template", "sub (a Git repository)") in [
        (use.kind, use.value) for use in workspace_uses(workspace, "d.yaml")
    ]
