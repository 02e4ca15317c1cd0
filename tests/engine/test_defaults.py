"""Precedence of settings: command line, case, dataset, target, configuration, default."""

import asyncio
import json
from contextlib import suppress
from pathlib import Path

import pytest

from agentv.engine.calls.open_targets import API_TIMEOUT_S, PROCESS_TIMEOUT_S, OpenTargets, concurrency_of
from agentv.engine.job.request import CaseRequest
from agentv.engine.job.spec import RunSpec
from agentv.engine.run_defaults import default_target, first_given, load_defaults
from agentv.errors import AgentvError, UsageError
from agentv.executors.executor import LocalLimits
from agentv.model.case import EvalCase
from agentv.model.evaluator import Execution
from agentv.model.response import TargetFailure
from agentv.settings.settings_reader import RunDefaults
from agentv.targets.apis.openai import OpenAI
from agentv.targets.http import Http
from agentv.targets.mock import Mock

CASE = {"id": "one", "expected_outcome": "Answers", "input": "Hello"}


@pytest.fixture
def run(folder, command):
    """Return the records of a run with settings in the configuration, the dataset, the case and the command."""

    def start(*options, config=None, dataset=None, case=None, targets=None, expect=0):
        if config is not None:
            folder.write(".agentv/config.yaml", {"execution": config})
        folder.write("cases.jsonl", [{**CASE, **({"execution": case} if case else {})}])
        sidecar = {"evaluators": [{"type": "python", "function": "half.py:score"}], "execution": dataset or {}}
        folder.write("cases.yaml", sidecar)
        folder.write("half.py", "def score(context):\n    return 0.7\n")
        folder.write("targets.yaml", {"targets": targets or [{"name": "default", "provider": "mock"}]})
        done = command("eval", "cases.jsonl", "--json", "-q", *options)
        assert done.code == expect, done.stderr
        lines = (Path(done.printed[0]["run"]) / "results.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    return start


def mocks(*names, **settings):
    return [{"name": name, "provider": "mock", **settings} for name in names]


TARGETS = {
    "the command line": (["-t", "a"], {"target": "b"}, {"target": "c"}, {"target": "d"}, "a"),
    "then the case": ([], {"target": "b"}, {"target": "c"}, {"target": "d"}, "b"),
    "then the dataset": ([], {}, {"target": "c"}, {"target": "d"}, "c"),
    "then the configuration": ([], {}, {}, {"target": "d"}, "d"),
    "then the one called default": ([], {}, {}, {}, "default"),
}


@pytest.mark.parametrize(("options", "case", "dataset", "config", "name"), TARGETS.values(), ids=TARGETS)
def test_precedence_of_the_target(run, options, case, dataset, config, name):
    records = run(*options, case=case, dataset=dataset, config=config, targets=mocks("a", "b", "c", "d", "default"))
    assert [record["target"] for record in records] == [name]


TRIALS = {
    "the command line": (["--trials", "1"], {"trials": 2}, {"trials": 3}, {"trials": 4}, 1),
    "then the case": ([], {"trials": 2}, {"trials": 3}, {"trials": 4}, 2),
    "then the dataset": ([], {}, {"trials": 3}, {"trials": 4}, 3),
    "then the configuration": ([], {}, {}, {"trials": 4}, 4),
    "then one": ([], {}, {}, {}, 1),
}


@pytest.mark.parametrize(("options", "case", "dataset", "config", "trials"), TRIALS.values(), ids=TRIALS)
def test_precedence_of_trials(run, options, case, dataset, config, trials):
    assert len(run(*options, case=case, dataset=dataset, config=config)) == trials


VERDICTS = {
    "the case": ({"verdicts": {"pass": 0.7}}, {"verdicts": {"pass": 1}}, {"verdicts": {"pass": 1}}, "pass"),
    "then the dataset": ({}, {"verdicts": {"pass": 0.7}}, {"verdicts": {"pass": 1}}, "pass"),
    "then the configuration": ({}, {}, {"verdicts": {"pass": 0.9, "borderline": 0.8}}, "fail"),
    "then the usual limits": ({}, {}, {}, "borderline"),
}


@pytest.mark.parametrize(("case", "dataset", "config", "verdict"), VERDICTS.values(), ids=VERDICTS)
def test_precedence_of_verdict_limits(run, case, dataset, config, verdict):
    [record] = run(case=case, dataset=dataset, config=config)
    assert record["verdict"] == verdict
    assert record["evaluator_results"][0]["verdict"] == verdict


RETRIES = {
    "the command line": (["--max-retries", "1"], {"max_retries": 2}, {"max_retries": 4}, 2),
    "then the target": ([], {"max_retries": 2}, {"max_retries": 4}, 3),
    "then the target, even with the default number": ([], {"max_retries": 3}, {"max_retries": 4}, 4),
    "then the configuration": ([], {}, {"max_retries": 4}, 5),
    "then three": ([], {}, {}, 4),
    "none at all": ([], {}, {"max_retries": 0}, 1),
}


@pytest.mark.parametrize(("options", "target", "config", "attempts"), RETRIES.values(), ids=RETRIES)
def test_precedence_of_retries(run, options, target, config, attempts):
    failing = mocks("default", fault_rate=1.0, retry_initial_delay_ms=0, **target)
    [record] = run(*options, config=config, targets=failing, expect=3)
    assert record["attempts"] == attempts


def timeout_of_a_call(settings, case_timeout=None, **options):
    """The limit that a request carries once its target was called."""
    spec = RunSpec(run_id="r", targets=(settings,), **options)
    case = EvalCase("one", input="Hello", execution=Execution(timeout_seconds=case_timeout))
    request = CaseRequest(case)

    async def main():
        targets = OpenTargets(spec, LocalLimits())
        with suppress(TargetFailure):
            await targets.get("t").responder.respond(request)
        await targets.aclose()

    asyncio.run(main())
    return request.timeout_s


TIMEOUTS = {
    "the command line": ({"timeout_s": 1.0}, 2.0, 3.0, 4.0, 1.0),
    "then the case or its dataset": ({}, 2.0, 3.0, 4.0, 2.0),
    "then the target": ({}, None, 3.0, 4.0, 3.0),
    "then the configuration": ({}, None, None, 4.0, 4.0),
    "then the kind of target": ({}, None, None, None, PROCESS_TIMEOUT_S),
}


@pytest.mark.parametrize(("options", "case", "target", "config", "timeout_s"), TIMEOUTS.values(), ids=TIMEOUTS)
def test_precedence_of_timeouts(options, case, target, config, timeout_s):
    settings = Mock(name="t", provider="mock", timeout_seconds=target)
    defaults = RunDefaults(timeout_seconds=config)
    assert timeout_of_a_call(settings, case, defaults=defaults, **options) == timeout_s


@pytest.mark.parametrize(
    "settings",
    [
        OpenAI(name="t", provider="openai", model="m", base_url="http://127.0.0.1:9/v1", max_retries=0),
        Http(name="t", provider="http", url="http://127.0.0.1:9", max_retries=0),
    ],
)
def test_apis_have_a_shorter_timeout_than_agents(settings):
    assert timeout_of_a_call(settings, max_outage_s=0.0) == API_TIMEOUT_S


def test_a_timeout_of_the_dataset_applies_to_its_cases(run):
    slow = mocks("default", delay_ms=60_000, max_retries=0)
    [record] = run(dataset={"timeout_seconds": 0.01}, config={"timeout_seconds": 50}, targets=slow, expect=3)
    assert record["error"]["class"] == "timeout"


WORKERS = {
    "the command line": (1, 2, 3, (1, 1)),
    "then the target": (None, 2, 3, (2, 2)),
    "then the configuration": (None, None, 3, (3, 3)),
    "then the kind of target": (None, None, None, (10, 200)),
}


@pytest.mark.parametrize(("said", "target", "config", "expected"), WORKERS.values(), ids=WORKERS)
def test_precedence_of_concurrency(said, target, config, expected):
    settings = OpenAI(name="t", provider="openai", model="m", workers=target)
    assert concurrency_of(settings, said, config) == expected


def test_the_configuration_is_the_nearest_one_up_to_the_root(folder):
    folder.write(".agentv/config.yaml", {"execution": {"trials": 2}})
    folder.write("inner/.agentv/config.yaml", {"execution": {"trials": 3}})
    (folder.path / "inner" / "evals").mkdir()
    root = str(folder.path)
    assert load_defaults(str(folder.path / "inner" / "evals"), root, pytest.fail).trials == 3
    assert load_defaults(root, root, pytest.fail).trials == 2


@pytest.mark.parametrize("text", ["", "guideline_patterns: ['*.md']\n", "# nothing\n"])
def test_a_configuration_may_have_no_run_defaults(folder, text):
    folder.write(".agentv/config.yaml", text)
    assert load_defaults(".", ".", pytest.fail) == RunDefaults()


def test_an_invalid_configuration_is_an_error_with_its_line(folder):
    folder.write(".agentv/config.yaml", "execution:\n  trials: 1\n  workers: 0\n")
    with pytest.raises(AgentvError, match=r"Invalid configuration at line 3 in .*config\.yaml") as raised:
        load_defaults(".", ".", pytest.fail)
    assert "'execution.workers' must be an integer of at least 1" in str(raised.value)


def test_an_unknown_default_target_is_an_error(folder, command):
    folder.write(".agentv/config.yaml", {"execution": {"target": "sonet"}})
    folder.write("cases.jsonl", [CASE])
    folder.write("targets.yaml", {"targets": mocks("sonnet", "other")})
    done = command("eval", "cases.jsonl", "-q")
    assert done.code == 2
    assert "Unknown target 'sonet'" in done.stderr
    assert "Did you mean 'sonnet'?" in done.stderr


def test_there_is_no_default_among_several_targets():
    assert default_target(("a", "b"), RunDefaults()) is None
    assert default_target(("a",), RunDefaults()) == "a"
    with pytest.raises(UsageError, match="Unknown target 'b'"):
        default_target(("a",), RunDefaults(target="b"))


def test_a_run_is_not_resumed_with_other_defaults(folder, command, run):
    run("--out", "kept", config={"trials": 2})
    folder.write(".agentv/config.yaml", {"execution": {"trials": 3}})
    done = command("eval", "--resume", "--out", "kept", "-q")
    assert done.code == 2
    assert "`execution` of .agentv/config.yaml changed since the run started" in done.stderr


def test_the_first_given_value_wins():
    assert first_given(None, 0, 1) == 0
    assert first_given(None, None) is None


def test_a_misspelt_configuration_key_is_a_warning(project):
    project.write(".agentv/config.yaml", "execution:\n  trails: 3\n")
    project.dataset("yes")
    said = project.eval("--out", "out").stderr
    assert said.count("Warning: ") == 1 and "config.yaml, line 2: " in said and "'trials'" in said
    assert project.eval("--out", "quiet", "--quiet").stderr == ""


@pytest.mark.parametrize("place", ["configuration", "dataset", "case"])
def test_borderline_above_pass_is_an_error(project, place):
    execution = {"verdicts": {"pass": 0.5, "borderline": 0.9}}
    if place == "configuration":
        project.write(".agentv/config.yaml", {"execution": execution})
    case = {"input": "yes", "execution": execution} if place == "case" else "yes"
    project.dataset(case, **({"execution": execution} if place == "dataset" else {}))
    ended = project.eval("--out", "out")
    assert ended.code == 2 and "'borderline' (0.9) is above 'pass' (0.5)" in ended.stderr


def test_pass_alone_may_be_below_the_usual_borderline(project):
    project.dataset("yes", execution={"verdicts": {"pass": 0.5}})
    assert project.eval("--quiet").code == 0
