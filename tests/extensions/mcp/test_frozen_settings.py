"""An agent that edits settings while `agentv mcp` runs: nothing is called with them until the server is restarted."""

import json
import os

import pytest
from connection import connected, served

from agentv.model.result import TokenUsage
from agentv_testing import Answer, FaultyServer

COSTLY = Answer("good", usage=TokenUsage(100_000, 0))
ROW = {"id": "a", "input": "x", "expected_outcome": "y", "evaluators": [{"type": "contains", "value": "good"}]}


def target(url, price=1, **more):
    return {
        "name": "default",
        "provider": "openai",
        "model": "m",
        "base_url": url,
        "api_key": "${{ OWN_KEY }}",
        "prices": {"input": price, "output": price},
        **more,
    }


def suite(url):
    provider = {"id": "openai:chat:m", "label": "own", "config": {"apiBaseUrl": url, "apiKey": "{{ env.OWN_KEY }}"}}
    checks = [{"type": "contains", "value": "good"}]
    return {"prompts": ["Say {{x}}"], "providers": [provider], "tests": [{"vars": {"x": "y"}, "assert": checks}]}


@pytest.fixture
def models():
    """Start the user's model server, and another one that must not be called."""
    with FaultyServer(COSTLY) as own, FaultyServer(COSTLY) as other:
        yield own, other


@pytest.fixture
def project(folder, models):
    (folder.path / ".git").mkdir()
    folder.write("evals/cases.jsonl", [ROW])
    folder.write("evals/deep/cases.jsonl", [ROW])
    folder.write("other/cases.jsonl", [ROW])
    folder.write("other/targets.yaml", {"targets": [target(models[0].url)]})
    folder.write(".env", f"OWN_KEY=secret-of-the-user\nADDRESS={models[0].url}\n")
    folder.write(".agentv/config.yaml", {"execution": {"trials": 1}})
    use = {"name": "by-address", "use_target": "default"}
    by_variable = {**target("${{ ADDRESS }}"), "name": "by-variable"}
    folder.write(".agentv/targets.yaml", {"targets": [target(models[0].url), use, by_variable]})
    return folder


def reprice(project, own, other):
    project.write(".agentv/targets.yaml", {"targets": [target(own, price=0.000001)]})


def redirect(project, own, other):
    project.write(".agentv/targets.yaml", {"targets": [target(other)]})


def add_nearer_targets(project, own, other):
    project.write("evals/targets.yaml", {"targets": [target(other)]})


def add_preferred_targets(project, own, other):
    project.write("evals/.agentv/targets.yml", {"targets": [target(other)]})


def link_to_other_targets(project, own, other):
    project.write("elsewhere.yaml", {"targets": [target(other)]})
    (project.path / ".agentv/targets.yaml").unlink()
    (project.path / ".agentv/targets.yaml").symlink_to(project.path / "elsewhere.yaml")


def edit_variables(project, own, other):
    project.write(".env", f"OWN_KEY=secret-of-the-user\nADDRESS={other}\n")


def add_nearer_variables(project, own, other):
    project.write("evals/.env", f"OWN_KEY=secret-of-the-user\nADDRESS={other}\n")


def edit_defaults(project, own, other):
    project.write(".agentv/config.yaml", {"execution": {"pass_env": ["OWN_KEY"]}})


def remove_defaults(project, own, other):
    (project.path / ".agentv/config.yaml").unlink()


def remove_targets(project, own, other):
    (project.path / ".agentv/targets.yaml").unlink()
    project.write("targets.yaml", {"targets": [target(other)]})


def make_a_repository(project, own, other):
    (project.path / "evals/.git").mkdir()


ATTACKS = {
    reprice: ".agentv/targets.yaml has changed",
    redirect: ".agentv/targets.yaml has changed",
    add_nearer_targets: "evals/targets.yaml was added",
    add_preferred_targets: "evals/.agentv/targets.yml was added",
    link_to_other_targets: ".agentv/targets.yaml has changed",
    edit_variables: ".env has changed",
    add_nearer_variables: "evals/.env was added",
    edit_defaults: ".agentv/config.yaml has changed",
    remove_defaults: ".agentv/config.yaml was removed",
    remove_targets: ".agentv/targets.yaml was removed",
    make_a_repository: "evals became a project of its own",
}


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda each: each.__name__)
def test_changed_settings_are_refused_until_the_server_is_restarted(project, models, attack):
    own, other = models
    with served(usd=1) as server:
        attack(project, own.url, other.url)
        for name in ("default", "by-variable"):
            message = server.error("run_cases", datasets=["evals/cases.jsonl"], targets=[name])
            assert ATTACKS[attack] in message and "restart the server" in message
    assert (own.counts.requests, other.counts.requests) == (0, 0)


STORED_OPTIONS = {
    "targets_file": ("elsewhere.yaml", "elsewhere.yaml was added"),
    "executor": ("ray", "on other machines"),
    "variants": ([{"name": "v", "base": "default", "settings": {"base_url": "http://x"}}], "only its folder names"),
}


@pytest.mark.filterwarnings("default::agentv.errors.RunWarning")
@pytest.mark.parametrize("name", STORED_OPTIONS)
def test_a_run_folder_cannot_change_settings(project, models, name):
    value, reason = STORED_OPTIONS[name]
    with served(usd=1) as server:
        run = server.call("run_cases", datasets=["evals/cases.jsonl"])["run"]
        project.write("elsewhere.yaml", {"targets": [target(models[1].url)]})
        store(project, run, {name: value})
        assert reason in server.error("run_cases", resume=run)
    assert models[1].counts.requests == 0


@pytest.mark.filterwarnings("default::agentv.errors.RunWarning")
def test_a_resumed_run_has_the_sandbox_that_the_user_chose(project):
    project.write(".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mock", "response": "good"}]})
    with connected(project.path, "--max-jobs", "9", "--sandbox", "auto") as server:
        run = server.call("run_cases", datasets=["evals/cases.jsonl"])["run"]
        store(project, run, {"sandbox": None})
        assert "was not started with --sandbox auto" in server.error("run_cases", resume=run)


def store(project, run, options):
    """Change the options in a run folder, as if the run had not ended."""
    manifest = project.path / ".agentv/results" / run / "run.json"
    data = json.loads(manifest.read_text())
    changed = {"finished_at": None, "digests": {}, "options": {**data["options"], **options}}
    manifest.write_text(json.dumps({**data, **changed}))


def test_the_price_of_a_target_is_not_that_of_another_model(project, models):
    with served(usd=1) as server:
        for name in ("default:costly", "by-address:costly"):
            message = server.error("run_cases", datasets=["evals/cases.jsonl"], targets=[name])
            assert f"price of '{name}' is unknown" in message and "are for the model 'm'" in message
        server.call("run_cases", datasets=["evals/cases.jsonl"], targets=["default:m"])
    with served(jobs=9) as server:
        server.call("run_cases", datasets=["evals/cases.jsonl"], targets=["default:costly"])
    assert models[0].counts.requests == 2


def test_targets_of_a_dataset_are_frozen_but_not_its_tests(project, models):
    own, other = models
    project.write("evals/promptfooconfig.yaml", suite(own.url))
    (project.path / ".agentv/targets.yaml").unlink()
    with served(jobs=9) as server:
        more = suite(own.url)
        more["tests"].append({"vars": {"x": "z"}, "assert": [{"type": "contains", "value": "good"}]})
        project.write("evals/promptfooconfig.yaml", more)
        server.call("run_cases", datasets=["evals/promptfooconfig.yaml"])
        server.call("run_cases", datasets=[str(project.path / "evals/promptfooconfig.yaml")])
        assert own.counts.requests == 4
        for name in ("evals/promptfooconfig.yaml", "evals/new.yaml"):
            project.write(name, suite(other.url))
            message = server.error("run_cases", datasets=[name])
            assert f"Target 'own' in {name} was added or changed since the server was started" in message
    assert other.counts.requests == 0


def test_cases_and_targets_of_other_folders_still_run(project, models):
    with served(usd=1) as server:
        project.write("evals/cases.jsonl", [ROW, {**ROW, "id": "b"}])
        project.write("evals/new/cases.jsonl", [ROW])
        for datasets, cases in (("evals/cases.jsonl", 2), ("evals/new", 1), ("other", 1)):
            assert server.call("run_cases", datasets=[datasets])["targets"]["default"]["jobs"] == cases
        project.write("other/targets.yaml", {"targets": []})
        assert "other/targets.yaml has changed" in server.error("run_cases", datasets=["other"])
        server.call("run_cases", datasets=["evals/deep"])
    assert models[0].counts.requests == 5


def test_files_that_cannot_be_read_do_not_stop_the_server(project):
    os.mkfifo(project.path / "pipe.yaml")
    (project.path / "gone.yaml").symlink_to("nowhere")
    (project.path / "evals/deep/.env").mkdir()
    project.write("broken.yaml", "providers: [")
    project.write("odd.json", {"prompts": [1], "providers": {"a": [None]}, "tests": 3})
    with served(usd=1) as server:
        assert server.call("run_cases", datasets=["evals/deep"])["run"]


def test_a_changed_policy_and_named_targets_file_are_refused_and_accepted_after_a_restart(project, models):
    own, _ = models
    policy = project.path.parent / "settings/agentv/policy.yaml"
    policy.parent.mkdir(parents=True)
    variables = {"XDG_CONFIG_HOME": str(policy.parent.parent)}
    project.write("first.yaml", {"targets": [{"name": "default", "provider": "mock", "response": "good"}]})
    project.write("second.yaml", {"targets": [target(own.url)]})
    named = project.path / "first.yaml"
    limits = ("--budget-usd", "1", "--targets", "first.yaml")
    policy.write_text("hosts: []\n")
    with connected(project.path, *limits, variables=variables) as server:
        server.call("run_cases", datasets=["evals/cases.jsonl"])
        policy.unlink()
        assert "policy.yaml was removed" in server.error("run_cases", datasets=["evals/cases.jsonl"])
        policy.write_text("hosts: ['*']\n")
        assert "policy.yaml has changed" in server.error("run_cases", datasets=["evals/cases.jsonl"])
        policy.write_text("hosts: []\n")
        named.write_text((project.path / "second.yaml").read_text())
        assert "first.yaml has changed" in server.error("run_cases", datasets=["evals/cases.jsonl"])
        assert server.call("list_targets")["targets"], "reading still works"
    assert own.counts.requests == 0
    policy.unlink()
    with connected(project.path, *limits, variables=variables) as server:
        server.call("run_cases", datasets=["evals/cases.jsonl"])
    assert own.counts.requests == 1
