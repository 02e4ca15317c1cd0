"""The targets of a project: finding the file, reading settings, selecting targets, masking secrets."""

import pytest

from agentv.errors import AgentvError, TargetsError
from agentv.model.environment import Environment
from agentv.support.yaml.yaml_parser import locate, parse_yaml
from agentv.targets.catalog import (
    find_targets_file,
    load_targets,
    named_targets_file,
    without_targets,
)
from agentv.targets.target import fingerprint_of

SECRET = "sk-0123456789"


def load(*entries, variables=None, path="targets.yaml"):
    return load_targets({"targets": list(entries)}, path, Environment(variables or {}))


def entry(name="main", provider="mock", **settings):
    return {"name": name, "provider": provider, **settings}


def fingerprint(targets, name):
    return fingerprint_of(targets.get(name), targets.secrets, {})


def load_text(text, **variables):
    data = parse_yaml(text.encode())
    return load_targets(data, "targets.yaml", Environment(variables), lambda path: locate(data, path).line)


@pytest.mark.parametrize("name", [".agentv/targets.yaml", ".agentv/targets.yml", "targets.yaml", "targets.yml"])
def test_the_file_is_found_from_a_folder_up_to_the_root(folder, name):
    folder.write(name, "x")
    (folder.path / "evals/deep").mkdir(parents=True)
    assert find_targets_file("evals/deep", ".") == name


def test_the_nearest_file_wins_and_the_project_folder_comes_first(folder):
    for name in ("evals/targets.yaml", "evals/.agentv/targets.yml", "targets.yaml"):
        folder.write(name, "x")
    assert find_targets_file("evals", ".") == "evals/.agentv/targets.yml"


def test_the_working_directory_is_searched_last(folder):
    folder.write("targets.yaml", "x")
    folder.write("project/evals/d.yaml", "x")
    assert find_targets_file("project/evals", "project") == "targets.yaml"


def test_folders_above_the_root_are_not_searched(folder, monkeypatch):
    folder.write("targets.yaml", "x")
    (folder.path / "project").mkdir()
    monkeypatch.chdir(folder.path / "project")
    assert find_targets_file(".", ".") is None


def test_the_path_may_be_a_file_or_a_folder(folder):
    folder.write("ci/targets.yaml", "x")
    assert named_targets_file("ci/targets.yaml") == named_targets_file("ci") == "ci/targets.yaml"
    for path in ("nowhere.yaml", "."):
        with pytest.raises(AgentvError, match="No targets file at"):
            named_targets_file(path)


@pytest.mark.parametrize(("path", "home"), [("targets.yaml", "."), (".agentv/targets.yaml", "."), ("ci/t.yaml", "ci")])
def test_paths_are_relative_to_the_targets_file(folder, path, home):
    assert load(entry(), path=path).home == str((folder.path / home).resolve())


def test_variables_are_converted_to_the_field_type():
    settings = {"model": "${{ MODEL }}", "temperature": "${{ T }}", "workers": "${{ W }}", "seed": "${{ S }}"}
    variables = {"MODEL": "4", "T": "0.5", "W": "8", "S": "1"}
    target = load(entry(provider="openai", **settings), variables=variables).get("main")
    assert (target.model, target.temperature, target.workers, target.seed) == ("4", 0.5, 8, 1)


def test_nested_variables_are_converted():
    data = entry(delay_ms=["${{ LOW }}", 5], token_usage={"input": "${{ N }}", "output": 1})
    target = load(data, variables={"LOW": "2", "N": "3"}).get("main")
    assert (target.delay_ms, target.token_usage.input) == ([2, 5], 3)


def test_booleans_can_be_variables():
    data = entry(provider="cli", command="x", batch_requests="${{ B }}")
    assert load(data, variables={"B": "true"}).get("main").provider_batching is True


def test_provider_aliases_become_canonical():
    targets = load(entry(provider="google", api_key="k"), entry("b", "${{ P }}"), variables={"P": "mock"})
    assert [targets.get(name).provider for name in targets.names] == ["gemini", "mock"]


def test_a_target_may_be_a_users_class(folder):
    folder.write(
        "own.py",
        "from agentv.targets.mock import Mock\nclass Echo(Mock, frozen=True, kw_only=True):\n    loud: bool = False\n",
    )
    assert load(entry(provider="own.py:Echo", loud=True)).get("main").loud is True
    with pytest.raises(AgentvError, match="Unknown field"):
        load(entry(provider="own.py:Echo", lowd=True)).get("main")
    folder.write("other.py", "Echo = 1")
    with pytest.raises(AgentvError, match="is not a subclass of"):
        load(entry(provider="other.py:Echo")).get("main")


def test_unset_variables_only_affect_their_target():
    targets = load(entry("a", api_key="${{ NOT_THERE }}", provider="openai", model="m"), entry("b"))
    assert targets.get("b").name == "b"
    with pytest.raises(TargetsError, match="'api_key' uses"):
        targets.get("a")


FILE = """\
targets:
  - name: main
    provider: openai
    model: m
    base_url: ${{ URL }}
    temperature: ${{ T }}
"""
WRONG = {
    "an unset variable": ({"T": "1"}, 5, "Target 'main': 'base_url' uses ${{ URL }}, which is not set"),
    "an invalid number": ({"URL": "http://x", "T": "warm"}, 6, "Field 'temperature' must be a number, got string"),
    "a number out of bounds": ({"URL": "http://x", "T": "-1"}, 6, "Field 'temperature' must be a number of at least 0"),
    "an invalid address": ({"URL": "x", "T": "1"}, 2, "Target 'main': 'base_url' must be an address"),
}


@pytest.mark.parametrize(("variables", "line", "message"), WRONG.values(), ids=WRONG)
def test_an_invalid_variable_is_an_error_with_its_line(variables, line, message):
    with pytest.raises(TargetsError) as raised:
        load_text(FILE, **variables).get("main")
    error = raised.value
    assert (error.path, error.line) == ("targets.yaml", line)
    assert error.headline == f"Invalid target at line {line} in targets.yaml"
    assert message in error.detail


def test_an_invalid_target_is_rejected_with_all_its_problems_when_it_is_used():
    targets = load_text(
        "targets:\n  - name: a\n    provider: mock\n    respnse: x\n    workers: 0\n  - {name: b, provider: mock}"
    )
    assert targets.get("b").name == "b"
    with pytest.raises(TargetsError) as raised:
        targets.get("a")
    assert str(raised.value) == (
        "Invalid targets file: targets.yaml\n"
        "  Line 4: Unknown field 'targets[0].respnse' (Did you mean 'response'?)\n"
        "  Line 5: Field 'targets[0].workers' must be an integer of at least 1"
    )
    assert (raised.value.line, raised.value.field) == (4, "targets[0].respnse")


UNUSABLE = {
    "an unsupported provider": {"provider": "vscode", "workspace_template": "${{ W }}"},
    "an unsupported key": {"provider": "mock", "max_budget_usd": 1},
    "no provider": {},
    "a provider that is not text": {"provider": 3},
    "a malformed variable": {"provider": "mock", "response": "${{ }}"},
    "an unknown fallback": {"provider": "mock", "fallback_targets": ["nobody"]},
}


@pytest.mark.parametrize("settings", UNUSABLE.values(), ids=UNUSABLE)
def test_an_unusable_target_does_not_affect_the_others(settings):
    targets = load({"name": "bad", **settings}, entry("good"))
    assert targets.get("good").name == "good"
    for read in (targets.get, targets.unresolved):
        with pytest.raises(TargetsError, match="Invalid target"):
            read("bad")


def test_a_repeated_name_is_an_error_only_if_it_is_used():
    targets = load(entry("a"), entry("b"), entry("a"))
    assert targets.get("b").name == "b"
    with pytest.raises(TargetsError, match="'a' is used twice"):
        targets.get("a")


def test_a_target_may_use_the_settings_of_another_one():
    gpt = entry("gpt", "openai", deployment="m", temperature=0, workers=4)
    alias = {"name": "default", "use_target": "${{ MODEL }}", "workers": 2, "model": "n"}
    target = load(alias, gpt, variables={"MODEL": "gpt"}).get("default")
    assert (target.name, target.provider, target.model) == ("default", "openai", "n")
    assert (target.temperature, target.workers, target.use_target) == (0, 2, None)


DELEGATIONS = {
    "an unset variable": ({"use_target": "${{ MODEL }}"}, "'use_target' uses ${{ MODEL }}, which is not set"),
    "an unknown target": ({"use_target": "nobody"}, "'targets[0].use_target' refers to target 'nobody'"),
    "a circle": ({"use_target": "b"}, "'use_target' leads back to the same target: a → b → a"),
    "a blank name": ({"use_target": " "}, "Field 'targets[0].use_target' is blank"),
}


@pytest.mark.parametrize(("settings", "message"), DELEGATIONS.values(), ids=DELEGATIONS)
def test_a_target_that_leads_nowhere_is_an_error(settings, message):
    with pytest.raises(TargetsError) as raised:
        load({"name": "a", **settings}, {"name": "b", "useTarget": "a"}).get("a")
    assert message in raised.value.detail


def test_a_problem_of_the_target_that_is_used_is_found_at_its_line():
    targets = load_text("targets:\n  - {name: a, use_target: b}\n  - name: b\n    provider: mock\n    workers: 0\n")
    with pytest.raises(TargetsError) as raised:
        targets.get("a")
    assert raised.value.line == 5


def test_settings_of_an_agent_may_be_unset_variables():
    data = entry("codex", "codex", cwd="${{ CODEX_WORKSPACE_DIR }}", log_dir="${{ LOGS }}", executable="${{ CODEX }}")
    targets = load(data)
    target = targets.get("codex")
    assert (target.cwd, target.log_dir, target.executable) == (None, None, "codex")
    assert (
        "targets.yaml: Target 'codex': 'cwd' is ignored, because ${{ CODEX_WORKSPACE_DIR }} is not set"
        in targets.warnings
    )
    with pytest.raises(TargetsError, match="'model' uses"):
        load(entry("codex", "codex", model="${{ CODEX_MODEL }}")).get("codex")


@pytest.mark.parametrize(("variables", "judge"), [({"J": "mian"}, "mian"), ({}, "${{ J }}")])
def test_a_judge_that_is_unknown_or_unset_is_left_to_the_run(variables, judge):
    """It is an error only if an evaluator needs a judge."""
    assert load(entry(judge_target="${{ J }}"), variables=variables).get("main").judge_target == judge


def test_suspicious_settings_are_warnings():
    assert list(load().warnings) == ["targets.yaml: Field 'targets' has no entries"]


PICKED = {
    "the named ones": (["a", "b"], ["b", "a"], ("b", "a")),
    "once each": (["a", "b"], ["a", "a"], ("a",)),
    "the default": (["a", "default"], [], ("default",)),
    "the only one": (["a"], [], ("a",)),
}


@pytest.mark.parametrize(("names", "named", "picked"), PICKED.values(), ids=PICKED)
def test_a_target_is_picked(names, named, picked):
    assert load(*map(entry, names)).pick(named) == picked


def test_several_targets_need_a_selection():
    with pytest.raises(AgentvError) as raised:
        load(entry("a"), entry("b")).pick()
    assert str(raised.value) == (
        "No target is named, and there is no target named 'default'\n"
        "  Targets in targets.yaml: a, b\n\n"
        "  Hint: Pass --target NAME"
    )


@pytest.mark.parametrize("use", ["pick", "get"])
def test_an_unknown_name_is_an_error_with_the_known_names(use):
    targets = load(entry("main"), entry("other"))
    with pytest.raises(AgentvError) as raised:
        targets.pick(["mian"]) if use == "pick" else targets.get("mian")
    assert str(raised.value) == (
        "Unknown target 'mian'\n  Targets in targets.yaml: main, other\n\n  Hint: Did you mean 'main'?"
    )


@pytest.mark.parametrize("named", [[], ["main"]])
def test_without_a_file_the_error_shows_an_example(named):
    with pytest.raises(AgentvError) as raised:
        without_targets(Environment()).pick(named)
    message = str(raised.value)
    assert message.startswith("There is no targets file")
    assert "create .agentv/targets.yaml" in message
    assert "    - name: default\n      provider: openai" in message


@pytest.fixture
def secretive(monkeypatch):
    monkeypatch.setenv("MINE", SECRET)
    monkeypatch.setenv("A_TOKEN", "token-0123456789")
    monkeypatch.setenv("MODEL", "m1")
    return entry(
        provider="openai",
        model="${{ MODEL }}",
        api_key="${{ MINE }}",
        headers={"Authorization": "Bearer literal-0123", "X-Api-Key": "tiny", "X-Plain": "plain"},
        base_url="https://x/${{ A_TOKEN }}/v1",
        workers=3,
    )


def test_secrets_come_from_the_environment_and_the_file(secretive):
    secrets = load(secretive).secrets
    assert {SECRET, "token-0123456789", "Bearer literal-0123", "literal-0123"} <= secrets
    assert not {"m1", "tiny", "plain"} & secrets


def test_settings_are_shown_without_secrets(secretive):
    assert load(secretive).public("main") == {
        "name": "main",
        "provider": "openai",
        "model": "m1",
        "api_key": "${{ MINE }}",
        "headers": {"Authorization": "[secret]", "X-Api-Key": "[secret]", "X-Plain": "plain"},
        "base_url": "https://x/${{ A_TOKEN }}/v1",
        "workers": 3,
    }


SAME = {
    "a new key": ({}, {"MINE": "another-value"}),
    "a new key in an address": ({}, {"A_TOKEN": "another-value"}),
    "another number of workers": ({"workers": 9, "max_retries": 1, "retry_max_delay_ms": 5, "timeout_seconds": 2}, {}),
    "another name": ({"name": "other"}, {}),
    "another spelling": ({"maxRetries": 3}, {}),
    "an explicit default": ({"api": "chat"}, {}),
}
OTHER = {
    "another model": ({"model": "m2"}, {}),
    "another model in a variable": ({}, {"MODEL": "m2"}),
    "another header": ({"headers": {"X-Plain": "other"}}, {}),
    "a transform": ({"transform": {"strip": ["fences"]}}, {}),
}


@pytest.mark.parametrize(
    ("changes", "variables", "same"),
    [*((*row, True) for row in SAME.values()), *((*row, False) for row in OTHER.values())],
    ids=[*SAME, *OTHER],
)
def test_the_fingerprint_depends_on_settings_that_affect_answers(secretive, monkeypatch, changes, variables, same):
    before = fingerprint(load(secretive), "main")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    changed = {**secretive, **changes}
    assert (fingerprint(load(changed), changed["name"]) == before) is same


def test_the_folder_of_a_command_may_be_an_unset_variable():
    targets = load(entry("script", "cli", command="echo hi > {OUTPUT_FILE}", cwd="${{ CLI_EVALS_DIR }}"))
    assert targets.get("script").cwd is None
    assert any("'cwd' is ignored, because ${{ CLI_EVALS_DIR }} is not set" in text for text in targets.warnings)
