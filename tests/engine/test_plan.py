"""The jobs of a run, and the checks before the first of them starts."""

import json

import pytest
from run_project import PASSING, jobs_of

CALLED = """
def answer(prompt):
    open("called", "a").write(prompt + "\\n")
    return prompt
"""


@pytest.fixture
def watched(project):
    """A project whose target leaves a trace of every call."""
    project.write("agent.py", CALLED)
    project.targets({"name": "default", "provider": "python", "function": "agent.py:answer"})
    return project


def refused(project, *arguments):
    """Return the error of a run that must not start: nothing called, no run folder, exit code 2."""
    ended = project.eval(*arguments)
    assert ended.code == 2, ended
    assert not (project.path / "called").exists()
    assert project.runs == [] and not (project.path / "out").exists()
    assert "Traceback" not in ended.stderr
    return ended.stderr


def jobs(project, *arguments):
    assert project.eval("--out", "out", "--quiet", *arguments).code == 0
    return [(record["eval_id"], record["target"], record["trial"]) for record in project.records()]


TWO = ({"name": "default", "provider": "mock"}, {"name": "other", "provider": "mock", "response": "no"})


def test_targets_and_trials_are_crossed_with_cases(project):
    project.targets(*TWO)
    project.dataset("yes", "yes")
    found = jobs(project, "--target", "default", "--target", "other", "--trials", "3")
    assert sorted(found) == [
        (case, target, trial) for case in ("c0", "c1") for target in ("default", "other") for trial in (1, 2, 3)
    ]


def test_prompts_are_crossed_with_targets(project):
    prompts = [{"id": "short", "prompt": "{{ word }}"}, {"id": "long", "prompt": "Say {{ word }} now"}]
    project.dataset({"input": {"word": "yes"}}, {"input": {"word": "no"}}, prompts=prompts)
    assert project.eval("--out", "out", "--trials", "2", "--quiet").code == 0
    found = {(record["eval_id"], record["prompt"], record["trial"]): record for record in project.records()}
    assert len(found) == len(project.records()) == 8
    assert found["c0", "long", 2]["candidate_answer"] == "Say yes now"
    assert found["c1", "short", 1]["score"] == 0.0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), {"c0": ["default"], "c1": ["other"], "c2": ["default", "other"]}),
        (("--target", "other"), {"c0": ["other"], "c1": ["other"], "c2": ["other"]}),
        (("--target", "other", "--target", "other"), {"c0": ["other"], "c1": ["other"], "c2": ["other"]}),
    ],
)
def test_targets_of_the_command_override_those_of_a_case(project, arguments, expected):
    project.targets(*TWO)
    project.dataset(
        "yes",
        {"input": "yes", "execution": {"target": "other"}},
        {"input": "yes", "execution": {"targets": ["default", "other", "default"]}},
    )
    found: dict[str, list[str]] = {}
    for case, target, _ in jobs(project, *arguments):
        found.setdefault(case, []).append(target)
    assert {case: sorted(targets) for case, targets in found.items()} == expected


@pytest.mark.parametrize(("arguments", "expected"), [((), {"c0": 2, "c1": 3}), (("--trials", "1"), {"c0": 1, "c1": 1})])
def test_trials_of_the_command_override_those_of_a_case(project, arguments, expected):
    project.dataset("yes", {"input": "yes", "execution": {"trials": 3}}, execution={"trials": 2})
    found = [case for case, _, _ in jobs(project, *arguments)]
    assert {case: found.count(case) for case in found} == expected


@pytest.mark.parametrize(
    ("case", "target", "arguments", "timed_out"),
    [
        ({}, {}, (), False),
        ({"timeout_seconds": 0.02}, {}, (), True),
        ({}, {"timeout_seconds": 0.02}, (), True),
        ({"timeout_seconds": 30}, {"timeout_seconds": 0.02}, (), False),
        ({"timeout_seconds": 30}, {}, ("--timeout", "0.02"), True),
        ({"timeout_seconds": 0.02}, {}, ("--timeout", "30"), False),
    ],
)
def test_the_timeout_is_the_commands_else_the_cases_else_the_targets(project, case, target, arguments, timed_out):
    delay_ms = 60_000 if timed_out else 60
    project.targets({"name": "default", "provider": "mock", "delay_ms": delay_ms, "max_retries": 0, **target})
    project.dataset({"input": "yes", "execution": case})
    project.eval("--out", "out", "--quiet", *arguments)
    (record,) = project.records()
    assert record["status"] == ("error" if timed_out else "ok")
    if timed_out:
        assert record["error"]["class"] == "timeout"


def test_the_only_target_is_the_default(project):
    project.targets({"name": "mine", "provider": "mock"})
    project.dataset("yes")
    assert jobs(project) == [("c0", "mine", 1)]


def test_several_targets_without_a_default_are_listed_in_the_error(project):
    project.targets({"name": "a", "provider": "mock"}, {"name": "b", "provider": "mock"})
    project.dataset("yes")
    output = refused(project)
    assert "No target is named" in output and "a, b" in output and "--target" in output


def test_a_missing_targets_file_is_an_error_with_its_path(project):
    (project.path / "targets.yaml").unlink()
    project.dataset("yes")
    output = refused(project)
    assert "There is no targets file" in output and "provider: openai" in output


BAD = {
    "an unknown target": ({"input": "q", "execution": {"target": "defualt"}}, "Did you mean 'default'?"),
    "one of several targets unknown": (
        {"input": "q", "execution": {"targets": ["default", "nobody"]}},
        "Unknown target 'nobody'",
    ),
    "a missing file": (
        {"input": [{"role": "user", "content": [{"type": "file", "value": "gone.md"}]}]},
        "File 'gone.md' was not found",
    ),
    "no judge": (
        {"input": "q", "evaluators": [{"type": "llm_judge"}]},
        "Evaluator 'llm_judge' needs a judge, but none is configured",
    ),
    "an unknown judge": (
        {"input": "q", "evaluators": [{"type": "rubric", "target": "defalt"}]},
        "Unknown judge 'defalt' of evaluator 'rubric'\n\n  Hint: Did you mean 'default'?",
    ),
    "an unknown judge of a member": (
        {
            "input": "q",
            "evaluators": [
                {
                    "type": "composite",
                    "evaluators": [{"type": "composite", "evaluators": ["x"], "aggregator": "weighted_average"}],
                    "aggregator": "weighted_average",
                    "target": "nobody",
                }
            ],
        },
        "Unknown judge 'nobody' of evaluator 'rubric'",
    ),
    "a judge's prompt that is not there": (
        {"input": "q", "evaluators": [{"type": "llm_judge", "target": "default", "prompt": "gone.md"}]},
        "Evaluator 'llm_judge': File 'gone.md' was not found",
    ),
    "an unknown variable in a judge's prompt": (
        {"input": "q", "evaluators": [{"type": "llm_judge", "target": "default", "prompt": "Is {{ anwser }} good?"}]},
        "Evaluator 'llm_judge': The prompt uses an unknown variable 'anwser'",
    ),
    "an invalid template of a judge prompt": (
        {"input": "q", "evaluators": [{"type": "rubric", "target": "default", "prompt": "Is {{ question good?"}]},
        "Evaluator 'rubric': The prompt is not a valid template",
    ),
    "an unknown evaluator": ({"input": "q", "evaluators": [{"type": "contans", "value": "x"}]}, "contains"),
    "an evaluator's function that is not there": (
        {"input": "q", "evaluators": [{"type": "python", "name": "mine", "function": "gone.py:check"}]},
        "Evaluator 'mine': File 'gone.py' was not found",
    ),
    "an evaluator's file without the function": (
        {"input": "q", "evaluators": [{"type": "python", "name": "mine", "function": "agent.py:anwser"}]},
        "Evaluator 'mine': There is no 'anwser' in file 'agent.py'\n\n  Hint: Did you mean 'answer'?",
    ),
    "an evaluator file that is not valid Python": (
        {"input": "q", "evaluators": [{"type": "python", "name": "mine", "function": "broken.py:check"}]},
        "Evaluator 'mine': File 'broken.py' is not valid Python: ",
    ),
    "a check with nothing to compare with": (
        {"input": "q", "evaluators": [{"type": "contains"}]},
        "Evaluator 'contains' needs a reference answer, but the case has no 'expected_output'",
    ),
    "a member with nothing to compare with": (
        {
            "input": "q",
            "evaluators": [
                {"type": "composite", "evaluators": [{"type": "equals"}], "aggregator": "weighted_average"},
            ],
        },
        "Evaluator 'composite' needs a reference answer",
    ),
    "a turn with nothing to compare with": (
        {"input": "q", "expected_output": "x", "turns": [{"input": "and?", "evaluators": [{"type": "equals"}]}]},
        "Evaluator 'turn-1.equals' needs a reference answer, but turn 1 has no 'expected_output'",
    ),
    "a simulated user without a target": (
        {"input": "q", "user": {"goal": "x"}},
        "No target is configured for the simulated user",
    ),
    "a repeated id": ({"id": "c0", "input": "q"}, "c0"),
    "no input": ({}, "Missing required field: 'input'"),
}


@pytest.mark.parametrize("case", BAD)
def test_an_invalid_case_at_the_end_of_a_file_prevents_all_calls(watched, case):
    row, message = BAD[case]
    watched.write("broken.py", "def check(:\n")
    rows = [{"id": f"c{number}", "expected_outcome": "x", "input": "yes"} for number in range(50)]
    watched.write("d.jsonl", [*rows, {"id": "last", "expected_outcome": "x", **row}])
    watched.write("d.yaml", {"evaluators": [PASSING]})
    output = refused(watched, "d.jsonl")
    assert message in output
    if case != "an unknown evaluator":
        assert "51" in output


def test_an_unknown_target_is_an_error_with_a_suggestion(watched):
    watched.dataset("yes")
    output = refused(watched, "--target", "defalt")
    assert "Unknown target 'defalt'" in output and "Did you mean 'default'?" in output


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({"provider": "python", "function": "gone.py:answer"}, "gone.py"),
        ({"provider": "python", "function": "agent.py:gone"}, "gone"),
        ({"provider": "openai", "model": "m", "api_key": "${{ UNSET_KEY }}"}, "UNSET_KEY"),
        ({"provider": "replay", "from": "gone.jsonl"}, "gone.jsonl"),
        ({"provider": "anthropic", "model": "m", "temperature": 0.5, "thinking_budget": 2000}, "temperature"),
    ],
)
def test_a_target_that_cannot_be_opened_leaves_no_run_folder(watched, target, message):
    watched.targets({"name": "default", **target})
    watched.dataset("yes")
    assert message in refused(watched)


def test_several_datasets_make_one_run_and_keep_their_paths(project):
    project.dataset("yes", name="a.yaml")
    project.dataset("yes", name="b.yaml")
    assert project.eval("a.yaml", "b.yaml", "--out", "out", "--quiet").code == 0
    assert [(path, id) for path, id, *_ in jobs_of(project.records())] == [("a.yaml", "c0"), ("b.yaml", "c0")]
    assert [entry["cases"] for entry in project.manifest()["datasets"]] == [1, 1]


def test_the_same_file_twice_is_read_once(project):
    project.dataset("yes")
    assert project.eval("d.yaml", "d.yaml", "--out", "out", "--quiet").code == 0
    assert len(project.records()) == 1


def test_cases_are_selected_by_filter_shard_sample_and_limit(project):
    project.dataset(*(["yes"] * 40))
    assert jobs(project, "--case", "c7", "--case", "c3") == [("c3", "default", 1), ("c7", "default", 1)]
    for out, arguments, count in (("o1", ("--limit", "5"), 5), ("o2", ("--sample", "10%", "--seed", "3"), 4)):
        assert project.eval("--out", out, "--quiet", *arguments).code == 0
        assert len(project.records(out)) == count
    shards = [f"s{part}" for part in (1, 2, 3)]
    for out in shards:
        assert project.eval("--out", out, "--quiet", "--shard", f"{out[1:]}/3").code == 0
    ids = [record["eval_id"] for out in shards for record in project.records(out)]
    assert sorted(ids) == sorted(f"c{number}" for number in range(40))


def test_invalid_cases_can_be_skipped_and_are_counted(project):
    good = {"expected_outcome": "x", "input": "yes"}
    project.write("d.jsonl", [{"id": "a", **good}, {"id": "b"}, {"id": "c", **good}, {"input": "q"}])
    project.write("d.yaml", {"evaluators": [PASSING]})
    assert project.eval("d.jsonl", "--out", "out").code == 2
    ended = project.eval("d.jsonl", "--out", "out", "--on-error", "skip")
    assert ended.code == 0
    assert sorted(project.by_id()) == ["a", "c"]
    assert "Skipped 2 invalid cases" in ended.stdout
    assert ended.stderr.count("Skipped a case at line") == 2
    (dataset,) = project.manifest()["datasets"]
    assert (dataset["cases"], dataset["skipped_lines"]) == (2, [2, 4])


def test_a_dry_run_calls_nothing_and_prints_the_plan(watched):
    watched.dataset("yes", "no", execution={"trials": 2})
    ended = watched.eval("--dry-run")
    assert ended.code == 0
    assert not (watched.path / "called").exists() and watched.runs == []
    assert "4 jobs" in ended.stdout and "default" in ended.stdout and "2 cases" in ended.stdout


def test_cases_with_their_own_evaluators_are_checked_in_bounded_memory(project):
    import tracemalloc

    from agentv.datasets.loader import case_source
    from agentv.engine.prepare import prepare
    from agentv.engine.run_options import EvalOptions

    rows = (
        json.dumps(
            {
                "id": f"c{number}",
                "expected_outcome": "x",
                "input": "q",
                "evaluators": [{"type": "contains", "value": f"word {number}"}],
            }
        )
        for number in range(2_000)
    )
    project.write("d.jsonl", "\n".join(rows) + "\n")
    source = case_source("d.jsonl", warn=lambda _: None, note=lambda _: None)
    tracemalloc.start()
    assert prepare(EvalOptions(paths=("d.jsonl",)), source).checked.total == 2_000
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 1_000_000


def test_an_evaluator_compares_with_its_value_else_the_reference(project):
    project.dataset(
        {"input": "yes", "evaluators": [{"type": "equals", "value": "yes"}]},
        {"input": "yes", "expected_output": "yes", "evaluators": [{"type": "equals"}]},
    )
    assert len(jobs(project)) == 2


def test_a_threshold_for_an_unknown_evaluator_is_an_error(watched):
    watched.dataset("yes", execution={"thresholds": {"say-yes": 0.9}})
    output = refused(watched)
    assert "'execution.thresholds' names an unknown evaluator 'say-yes'" in output
    assert "d.yaml" in output and "Did you mean 'says-yes'?" in output


def test_a_threshold_may_name_an_evaluator_of_an_unselected_case(project):
    other = {"type": "contains", "value": "y", "name": "other"}
    project.dataset("yes", {"input": "yes", "evaluators": [other]}, execution={"thresholds": {"other": 0.9}})
    assert project.eval("--quiet").code == 0
    assert project.eval("--quiet", "--limit", "1").code == 1


def test_a_missing_script_is_a_warning_before_the_run(project):
    project.dataset("yes", "yes", evaluators=[{"type": "code_judge", "script": ["python3", "gone.py"]}])
    warning = "Warning: d.yaml, line 1: Evaluator 'code_judge': The script 'gone.py' was not found in "
    assert project.eval("--dry-run").stderr.count(warning) == 1
    assert project.eval("--dry-run", "--quiet").stderr == ""


@pytest.mark.parametrize("at", ["evaluator", "target"])
@pytest.mark.parametrize(
    ("function", "output"), [("gone.py:clean", "File 'gone.py' was not found"), ("w.py:claen", "Did you mean 'clean'?")]
)
def test_transforms_are_checked_before_the_first_call(project, at, function, output):
    project.write("w.py", "def clean(text):\n    return text\n")
    transform = {"transform": {"function": function}}
    project.targets({"name": "default", "provider": "mock", **(transform if at == "target" else {})})
    check = {"type": "contains", "value": "yes", **(transform if at == "evaluator" else {})}
    project.dataset("yes", evaluators=[check])
    ended = project.eval("--out", "out")
    assert ended.code == 2 and not (project.path / "out").exists()
    assert output in ended.stderr


def test_an_unknown_default_target_is_an_error_only_if_a_case_needs_it(project):
    project.targets({"name": "mine", "provider": "mock"}, {"name": "other", "provider": "mock"})
    project.write(".agentv/config.yaml", {"execution": {"target": "nobody"}})
    project.dataset("yes")
    assert "Unknown target 'nobody'" in refused(project)
    project.dataset("yes", execution={"target": "mine"})
    assert project.command("validate", "d.yaml").code == 0
    assert jobs(project) == [("c0", "mine", 1)]
