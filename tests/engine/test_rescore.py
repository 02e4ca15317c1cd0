"""Rescoring: no target is called, only changed evaluators run, and an answer that cannot be scored is an error."""

import json
import shutil
import signal
import subprocess
import sys

import pytest
from run_project import PASSING, jobs_of

from agentv.evaluators.judges import judge_prompt
from platforms import only_on_posix
from waiting import wait_until, whole_lines

AGENT = """
def answer(prompt):
    with open("calls.log", "a") as log:
        log.write(prompt + "\\n")
    if prompt == "broken":
        raise RuntimeError("does not work")
    return prompt
"""

CHECKS = """
import os, threading

def counted(context):
    with open("scored.log", "a") as log:
        log.write(context.candidate_answer + "\\n")
    return 1.0 if "yes" in context.candidate_answer else 0.0

def slowly(context):
    while os.path.exists("hold") and os.path.getsize("scored.log") > 400:  # the run does not end
        threading.Event().wait(0.01)
    return counted(context)
"""

COUNTED = {"type": "python", "function": "checks.py:counted", "name": "counted"}


@pytest.fixture(scope="module")
def answered_project(tmp_path_factory):
    """Where the first test leaves a copy of its project for the others."""
    return tmp_path_factory.mktemp("answered") / "project"


@pytest.fixture
def answered(project, answered_project):
    """A run of three cases, scored by a check and a function, and one that the target failed."""
    if answered_project.exists():
        shutil.copytree(answered_project, project.path, dirs_exist_ok=True)
        return project
    project.write(".git/HEAD", "")
    project.write("agent.py", AGENT)
    project.write("checks.py", CHECKS)
    project.targets({"name": "default", "provider": "python", "function": "agent.py:answer"})
    write(project)
    assert project.eval("--out", "first", "--quiet").code == 0
    forget(project)
    shutil.copytree(project.path, answered_project)
    return project


def write(project, *cases, evaluators=(PASSING, COUNTED), **document):
    project.dataset(*(cases or ("yes", "no", "maybe yes", "broken")), evaluators=list(evaluators), **document)


def forget(project):
    for name in ("calls.log", "scored.log"):
        (project.path / name).unlink(missing_ok=True)


def rescore(project, *arguments, code=0, run="first", out="second"):
    """What was called, what was scored, and what was said of each answer."""
    ended = project.command("rescore", run, *arguments, "--out", out, "--why")
    assert ended.code == code, ended
    assert not (project.path / "calls.log").exists()
    log = project.path / "scored.log"
    scored = sorted(log.read_text().split("\n")[:-1]) if log.exists() else []
    why = dict(line.split(" (default): ", 1) for line in ended.stderr.splitlines() if " (default): " in line)
    return scored, why, ended


def scores(project, out="second"):
    return {id: record["score"] for id, record in project.by_id(out).items()}


def test_unchanged_records_are_carried_over(answered):
    scored, why, _ = rescore(answered)
    assert scored == []
    assert why["c0"] == "no evaluator changed"
    assert why["c3"] == "has no answer to score"
    first, second = answered.by_id("first"), answered.by_id("second")
    own = {"run_id": answered.manifest("second")["run_id"], "carried_from": answered.manifest("first")["run_id"]}
    assert second == {id: {**record, **own} for id, record in first.items()}
    before, after = answered.summary("first"), answered.summary("second")
    durations = [each.pop("duration_ms") for each in (before, after)]
    assert durations[0] == pytest.approx(durations[1])  # summed in another order
    assert after == before


def test_the_new_run_names_its_source(answered):
    rescore(answered)
    link = answered.manifest("second")["rescored_from"]
    assert link["run_id"] == answered.manifest("first")["run_id"]
    assert link["path"] == str(answered.path / "first")
    assert answered.manifest("second")["targets"] == answered.manifest("first")["targets"]


CHANGES = {
    "a setting of it": ([{**PASSING, "value": "maybe"}, COUNTED], [], "runs says-yes (changed)"),
    "its weight": ([{**PASSING, "weight": 3}, COUNTED], [], "no evaluator changed"),
    "another order": ([COUNTED, PASSING], [], "no evaluator changed"),
    "one more": ([PASSING, COUNTED, {"type": "regex", "value": "y"}], [], "runs regex (new)"),
    "one less": ([PASSING], [], "no evaluator changed"),
    "its negation": ([{**PASSING, "negate": True}, COUNTED], [], "runs says-yes (changed)"),
    "the function's own": (
        [PASSING, {**COUNTED, "negate": True}],
        ["maybe yes", "no", "yes"],
        "runs counted (changed)",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_only_changed_evaluators_run(answered, change):
    evaluators, expected, reason = CHANGES[change]
    write(answered, evaluators=evaluators)
    scored, why, _ = rescore(answered)
    assert scored == expected
    assert why["c1"] == reason
    names = [entry.get("name", entry["type"]) for entry in evaluators]
    assert [result["name"] for result in answered.by_id("second")["c1"]["evaluator_results"]] == names


def test_an_evaluator_runs_again_if_its_file_changed(answered):
    answered.write("checks.py", CHECKS + "\n# another day\n")
    scored, why, _ = rescore(answered)
    assert scored == ["maybe yes", "no", "yes"]
    assert why["c0"] == "runs counted (changed)"


def test_an_evaluator_runs_again_if_its_transform_changed(answered):
    answered.write("clean.py", "def clean(text):\n    return text\n")
    write(answered, "yes", evaluators=[{**PASSING, "transform": {"function": "clean.py:clean"}}, COUNTED])
    assert answered.eval("--out", "cleaned", "--quiet").code == 0
    forget(answered)
    assert rescore(answered, run="cleaned")[1]["c0"] == "no evaluator changed"
    answered.write("clean.py", "def clean(text):\n    return 'no'\n")
    assert rescore(answered, run="cleaned", out="b")[1]["c0"] == "runs says-yes (changed)"
    assert scores(answered, "b") == {"c0": 0.5}


def test_all_evaluators_run_if_the_expected_output_changed(answered):
    write(answered, {"input": "yes", "expected_outcome": "new words"}, "no", "maybe yes", "broken")
    scored, why, _ = rescore(answered)
    assert scored == ["yes"]
    assert why["c0"] == "all evaluators run: the case changed"


def test_all_evaluators_run_if_requested(answered):
    scored, _, _ = rescore(answered, "--all")
    assert scored == ["maybe yes", "no", "yes"]
    assert answered.by_id("second")["c0"].get("carried_from") is None


def test_current_weights_and_limits_apply(answered):
    write(answered, evaluators=[{**PASSING, "weight": 3}, {"type": "contains", "value": "maybe", "name": "m"}])
    rescore(answered)
    assert scores(answered) == {"c0": 0.75, "c1": 0.0, "c2": 1.0, "c3": None}
    assert answered.by_id("second")["c0"]["verdict"] == "borderline"
    write(answered, evaluators=[{**PASSING, "weight": 3}], execution={"verdicts": {"pass": 1, "borderline": 0}})
    rescore(answered, out="third")
    assert answered.by_id("third")["c1"]["verdict"] == "borderline"


def test_evaluators_of_the_command_replace_those_of_the_cases(answered):
    answered.write("more.yaml", {"evaluators": [{"type": "regex", "value": "^maybe"}]})
    scored, _, _ = rescore(answered, "--evaluator", "{type: contains, value: e}", "-e", "more.yaml")
    assert scored == []
    assert [r["name"] for r in answered.by_id("second")["c0"]["evaluator_results"]] == ["contains", "regex"]
    assert scores(answered) == {"c0": 0.5, "c1": 0.0, "c2": 1.0, "c3": None}
    assert [entry["name"] for entry in answered.lines("cases.jsonl", "second")[0]["evaluators"]] == [
        "contains",
        "regex",
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("contain", "Unknown evaluator type 'contain'"),
        ("{type: contains", "--evaluator: "),
        ("{type: regex, value: 1}", "must be"),
        ("none.yaml", "No such file: none.yaml"),
    ],
)
def test_an_invalid_evaluator_is_an_error_before_anything_is_written(answered, given, message):
    ended = answered.command("rescore", "first", "--out", "second", "--evaluator", given)
    assert ended.code == 2
    assert message in ended.stderr
    assert not (answered.path / "second").exists()


def test_an_answer_to_a_changed_input_is_an_error_not_a_score(answered):
    write(answered, {"input": "yes, what?"}, "no", "maybe yes", "broken")
    rescore(answered, "--evaluator", "{type: contains, value: yes}")
    record = answered.by_id("second")["c0"]
    assert (record["status"], record["score"]) == ("error", None)
    assert record["error"]["message"].startswith("The input changed since the target answered")
    assert answered.summary("second")["errors"] == 2


def test_cases_and_answers_without_each_other_are_left_out_and_counted(answered):
    write(answered, "yes", "no", {"id": "new", "input": "yes"})
    _, _, ended = rescore(answered)
    assert "1 of 3 cases skipped: the run has no answer" in ended.stderr
    assert "2 of 4 answers skipped: their cases were not found" in ended.stderr
    assert sorted(answered.by_id("second")) == ["c0", "c1"]


def test_datasets_added_to_the_folder_since_are_ignored(answered):
    answered.dataset("yes", name="all/one.yaml")
    assert answered.command("eval", "all", "--out", "first-of-all", "--quiet").code == 0
    forget(answered)
    answered.dataset("yes", "no", name="all/two.yaml")
    _, _, ended = rescore(answered, run="first-of-all")
    assert "have no answer" not in ended.stderr
    assert [entry["name"] for entry in answered.manifest("second")["datasets"]] == ["one"]


def test_a_run_folder_without_a_manifest_is_an_error(answered):
    (answered.path / "first" / "run.json").unlink()
    ended = answered.command("rescore", "first")
    assert ended.code == 2
    assert "has no run.json, which is needed" in ended.stderr and "No cases.jsonl" not in ended.stderr


def test_a_run_is_rescored_from_its_folder_alone(answered):
    (answered.path / "d.yaml").unlink()
    scored, why, ended = rescore(answered, "--trust-run")
    assert "using the cases stored in its folder. Gates in the datasets are not checked" in ended.stderr
    assert (scored, why["c0"]) == ([], "no evaluator changed")
    rescore(answered, "--evaluator", "{type: contains, value: m}", run="second", out="third")
    assert scores(answered, "third") == {"c0": 0.0, "c1": 0.0, "c2": 1.0, "c3": None}


def test_cases_from_the_run_folder_contain_their_files(answered):
    answered.write("note.txt", "What they wrote")
    parts = ["Read this:", {"type": "file", "value": "note.txt"}]
    cases = [{"input": [{"role": "user", "content": parts}], "expected_output": [1, {"a": 2}]}]
    write(answered, *cases)
    assert answered.eval("--out", "files", "--quiet").code == 0
    forget(answered)
    for name in ("d.yaml", "note.txt"):
        (answered.path / name).unlink()
    answered.write("asked.py", "def seen(context):\n    return 1.0 if 'What they wrote' in context.question else 0.0\n")
    _, why, _ = rescore(answered, "--trust-run", run="files")
    assert why == {"c0": "no evaluator changed"}
    rescore(answered, "--evaluator", "{type: python, function: 'asked.py:seen'}", run="files", out="third")
    assert scores(answered, "third") == {"c0": 1.0}


def test_prompts_and_trials_are_separate_jobs(project):
    project.dataset(
        {"input": {"name": "yes"}},
        prompts=[{"id": "short", "prompt": "{{ name }}"}, {"id": "long", "prompt": "Say {{ name }} or maybe"}],
        execution={"trials": 2},
    )
    assert project.eval("--out", "first", "--quiet").code == 0
    for arguments in ((), ("--stored-cases",)):
        ended = project.command("rescore", "first", *arguments, "-e", "{type: regex, value: maybe}", "--json")
        assert ended.code == 0, ended
        records = project.records(json.loads(ended.stdout)["run"])
        assert jobs_of(records) == jobs_of(project.records("first"))
        assert {record["prompt"]: record["score"] for record in records} == {"short": 0, "long": 1}


def test_a_fixed_evaluator_removes_its_errors(answered):
    answered.write("checks.py", "def counted(context):\n    raise ValueError('not today')\n")
    assert answered.eval("--out", "bad", "--quiet").code == 3
    forget(answered)
    answered.write("checks.py", CHECKS)
    _, why, ended = rescore(answered, run="bad")
    assert why["c0"] == "runs counted (errored)"
    assert scores(answered) == {"c0": 1.0, "c1": 0.0, "c2": 1.0, "c3": None}
    assert "errors      4 → 1 of 4 (3 fixed, 0 new)" in ended.stdout


def test_the_current_transform_of_the_target_applies(answered):
    target = {"name": "default", "provider": "python", "function": "agent.py:answer"}
    answered.targets({**target, "transform": {"regex": "maybe (.*)"}})
    write(answered, "maybe yes", "maybe no")
    assert answered.eval("--out", "cleaned", "--quiet").code == 0
    forget(answered)
    assert answered.by_id("cleaned")["c0"]["candidate_answer"] == "yes"
    assert rescore(answered, run="cleaned")[0] == []
    answered.targets({**target, "transform": {"regex": "(.*) yes"}})
    _, why, _ = rescore(answered, run="cleaned", out="third")
    assert why["c0"] == "all evaluators run: the transform changed"
    assert answered.by_id("third")["c0"]["candidate_answer"] == "maybe"


def test_the_summary_shows_the_changes_and_their_number(answered):
    write(answered, evaluators=[{**PASSING, "value": "maybe"}])
    _, _, ended = rescore(answered)
    told = ended.stdout.split("Compared with first")[1]
    assert "mean        0.667 → 0.333 (-0.333), over 3 of 4 jobs scored in both runs" in told
    assert "passed      2 → 1 of 3" in told
    assert "errors      1 → 1 of 4" in told
    assert "changed     1 of 3 verdicts: 1 pass → fail\n    c0: pass 1.000 → fail 0.000" in told
    assert "says-yes  0.667 → 0.333 (-0.333), n = 3" in told
    ended = answered.command("rescore", "first", "--json", "--quiet")
    delta = json.loads(ended.stdout)["delta"]["default"]
    assert delta["scores"] == {"n": 3, "before": pytest.approx(2 / 3), "after": pytest.approx(1 / 3)}
    assert (delta["flips"], delta["carried"]) == ({"pass → fail": 1}, 1)


def test_gates_apply_to_a_rescore(answered):
    assert "is below the threshold" in rescore(answered, "--threshold", "0.9", "--max-errors", "1", code=1)[2].stderr
    assert "errored, more than allowed" in rescore(answered, "--threshold", "0.9", code=3, out="third")[2].stderr


JUDGE = """
def verdict(prompt):
    with open("judged.log", "a") as log:
        log.write("x")
    return '{"score": 1, "hits": [], "misses": [], "reasoning": "fine"}'

other = verdict
"""


def test_a_score_is_valid_while_its_judge_is_unchanged(answered):
    answered.write("judge.py", JUDGE)
    target = {"name": "default", "provider": "python", "function": "agent.py:answer"}
    judge = {"name": "judge", "provider": "python", "function": "judge.py:verdict"}
    answered.targets(target, judge, {**judge, "name": "other"})
    write(answered, "yes", evaluators=[{"type": "llm_judge", "name": "asks"}])
    assert answered.eval("--out", "judged", "--quiet").code == 0
    forget(answered)
    log = answered.path / "judged.log"
    assert rescore(answered, run="judged")[1]["c0"] == "no evaluator changed"
    assert rescore(answered, "--judge", "judge", run="judged", out="b")[1]["c0"] == "no evaluator changed"
    assert log.read_text() == "x"
    assert rescore(answered, "--judge", "other", run="judged", out="c")[1]["c0"] == "runs asks (was judged by judge)"
    assert (
        answered.by_id("c")["c0"]["evaluator_results"][0]["evaluator_provider_request"]["calls"][0]["target"] == "other"
    )
    answered.targets(target, {**judge, "function": "judge.py:other"}, {**judge, "name": "other"})
    assert rescore(answered, run="judged", out="d")[1]["c0"] == "runs asks (its judge judge changed)"
    answered.targets({**target, "judge_target": "other"}, judge, {**judge, "name": "other"})
    assert rescore(answered, run="judged", out="e")[1]["c0"] == "runs asks (has a different judge)"
    assert log.read_text() == "xxxx"


@pytest.mark.parametrize(
    ("entry", "prompt"),
    [
        ({"type": "llm_judge"}, "llm_judge.md"),
        ({"type": "llm_judge"}, "system.md"),
        ({"type": "llm_judge"}, "repair.md"),
        ({"type": "llm_judge", "prompt": "Judge {{ candidate_answer }}"}, "verdict.md"),
        ({"type": "answer_relevance"}, "answer_relevance.md"),
        (
            {"type": "composite", "aggregator": "weighted_average", "evaluators": [{"type": "llm_judge"}]},
            "llm_judge.md",
        ),
    ],
)
def test_changed_judge_prompts_run_the_evaluator_again(answered, entry, prompt, tmp_path, monkeypatch):
    answered.write("judge.py", JUDGE)
    target = {"name": "default", "provider": "python", "function": "agent.py:answer"}
    answered.targets(target, {"name": "judge", "provider": "python", "function": "judge.py:verdict"})
    write(answered, "yes", evaluators=[{**entry, "name": "asks"}])
    assert answered.eval("--out", "judged", "--quiet").code == 0
    forget(answered)
    assert rescore(answered, run="judged")[1]["c0"] == "no evaluator changed"
    # Another version of the program has other words in the same files.
    words = shutil.copytree(judge_prompt.PROMPTS, tmp_path / "words")
    (words / prompt).write_text((words / prompt).read_text() + "\nBe kind.\n")
    monkeypatch.setattr(judge_prompt, "PROMPTS", words)
    judge_prompt.prompt_text.cache_clear()
    try:
        assert rescore(answered, run="judged", out="b")[1]["c0"] == "runs asks (changed)"
        again = answered.eval("--out", "c", "--why", "--changed-since", "judged")
        assert "c0 (default): its evaluators changed" in again.stderr
    finally:
        judge_prompt.prompt_text.cache_clear()


def test_a_changed_script_runs_its_evaluator_again_in_any_folder(answered):
    answered.write("judges/check.sh", "echo '{\"score\": 0.25}'")
    entry = {"type": "code_judge", "script": ["sh", "check.sh"], "cwd": "judges", "name": "runs"}
    write(answered, "yes", evaluators=[entry])
    assert answered.eval("--out", "scripted", "--quiet").code == 0
    forget(answered)
    assert rescore(answered, run="scripted")[1]["c0"] == "no evaluator changed"
    answered.write("judges/check.sh", "echo '{\"score\": 0.75}'")
    assert rescore(answered, run="scripted", out="b")[1]["c0"] == "runs runs (changed)"
    assert scores(answered, "b") == {"c0": 0.75}


PAID = """
def verdict(prompt):
    with open("judged.log", "a") as log:
        log.write("x")
    return {"text": '{"score": 1, "hits": [], "misses": [], "reasoning": "good"}', "cost_usd": 1.0}
"""


@pytest.fixture
def judged(answered):
    """A run of six cases, with a judge that costs a dollar per call."""
    answered.write("judge.py", PAID)
    answered.targets(
        {"name": "default", "provider": "python", "function": "agent.py:answer"},
        {"name": "judge", "provider": "python", "function": "judge.py:verdict", "workers": 1},
    )
    write(answered, *"abcdef", evaluators=[{"type": "llm_judge", "name": "asks"}, PASSING])
    assert answered.eval("--out", "judged", "--quiet").code == 0
    forget(answered)
    (answered.path / "judged.log").unlink()
    return answered


def test_a_rescore_stops_at_its_budget_with_exit_code_4(judged):
    _, _, ended = rescore(judged, "--all", "--budget-usd", "2.5", run="judged", code=4)
    assert "the budget is used up" in ended.stderr
    assert "agentv rescore --resume --out second --budget-usd USD" in ended.stdout
    assert (judged.path / "judged.log").read_text() == "xxx"
    assert len(judged.records("second")) == 3
    assert judged.summary("second")["skipped"] == 3
    assert judged.command("rescore", "--resume", "--out", "second", "--quiet").code == 4
    assert (judged.path / "judged.log").read_text() == "xxx"


def test_a_rescore_pays_only_for_its_own_calls(judged):
    write(judged, *"abcdef", evaluators=[{"type": "llm_judge", "name": "asks"}, {**PASSING, "value": "a"}])
    rescore(judged, "--budget-usd", "0.5", run="judged")
    assert not (judged.path / "judged.log").exists()
    rescore(judged, "--all", "--budget-usd", "6.5", run="judged", out="b")
    assert (judged.path / "judged.log").read_text() == "x" * 6


def test_a_budget_needs_prices_of_judges_but_not_of_targets(judged):
    judged.targets(
        {"name": "default", "provider": "openai", "model": "nobody-knows", "api_key": "k"},
        {"name": "judge", "provider": "openai", "model": "nobody-knows", "api_key": "k"},
    )
    ended = judged.command("rescore", "judged", "--all", "--budget-usd", "1", "--out", "second")
    assert ended.code == 2
    assert "the price of target 'judge' is unknown" in ended.stderr


ROW = {"eval_id": "c0", "dataset": "d", "target": "gpt", "score": 0.2, "candidate_answer": "yes", "timestamp": "t"}
CALLS = [{"role": "assistant", "content": "yes", "tool_calls": [{"tool": "search", "input": {}}]}]
TRAJECTORY = {"type": "tool_trajectory", "mode": "any_order", "minimums": {"search": 1}}

COMPOSITE = {"type": "composite", "evaluators": [TRAJECTORY], "aggregator": {"type": "weighted_average"}}


@pytest.mark.parametrize(
    ("row", "evaluator", "expected"),
    [
        ({}, PASSING, 1.0),
        ({"candidate_answer": None, "answer": "yes"}, PASSING, 1.0),
        ({"eval_id": None, "test_id": "c0", "dataset": None, "suite": "d"}, PASSING, 1.0),
        ({"dataset": None}, PASSING, 1.0),
        ({"output_messages": CALLS}, TRAJECTORY, 1.0),
        ({"output": CALLS}, TRAJECTORY, 1.0),
        ({"trace_summary": {"event_count": 0}}, TRAJECTORY, 0.0),
        ({}, TRAJECTORY, "no messages"),
        ({"trace_summary": {"event_count": 2, "tool_names": ["search"]}}, TRAJECTORY, "no messages"),
        (
            {},
            {"type": "composite", "evaluators": [TRAJECTORY], "aggregator": {"type": "weighted_average"}},
            "no messages",
        ),
        ({}, {"type": "latency", "threshold": 5}, "duration"),
        ({"trace_summary": {"duration_ms": 3}}, {"type": "latency", "threshold": 5}, 1.0),
        ({"error": "429 rate limit", "candidate_answer": None}, PASSING, "429"),
        ({"candidate_answer": None}, PASSING, None),
    ],
)
def test_results_of_agentv_typescript_can_be_rescored(project, row, evaluator, expected):
    project.dataset("What?", evaluators=[evaluator])
    project.write("old.jsonl", [{key: value for key, value in {**ROW, **row}.items() if value is not None}])
    project.command("rescore", "old.jsonl", "d.yaml", "--out", "second", "--quiet")
    (record,) = project.records("second")
    assert record["target"] == "gpt"
    if isinstance(expected, str):
        assert (record["status"], record["score"]) == ("error", None)
        assert expected in record["error"]["message"]
    elif expected is None:
        assert record["carried_from"] and record["score"] == 0.2
    else:
        assert record["score"] == expected


def test_results_without_cases_need_datasets(project):
    project.write("old.jsonl", [ROW])
    ended = project.command("rescore", "old.jsonl")
    assert ended.code == 2
    assert "agentv rescore old.jsonl PATHS…" in ended.stderr


def test_unrelated_datasets_are_refused(answered):
    answered.dataset("yes", name="e.yaml")
    ended = answered.command("rescore", "first", "e.yaml")
    assert ended.code == 2
    assert "The run has results for: d" in ended.stderr


@pytest.mark.parametrize("run", ["nowhere", "targets.yaml"])
def test_an_invalid_run_is_refused(project, run):
    ended = project.command("rescore", run)
    assert (ended.code, ended.stdout) == (2, "")
    assert "Error: " in ended.stderr


def killed_once(project, *arguments):
    """Starts a rescoring and kills it when some of its records are there."""
    command = [sys.executable, "-m", "agentv", "rescore", *arguments, "--out", "second", "--quiet"]
    results = project.path / "second" / "results.jsonl"
    with subprocess.Popen(command, cwd=project.path) as process:
        wait_until(lambda: whole_lines(results) > 5, process)
        process.kill()
    return process.returncode


@only_on_posix("a signal cannot be sent to a process")
def test_a_killed_rescore_can_be_resumed(answered):
    write(answered, *(f"yes {number}" for number in range(200)))
    assert answered.eval("--out", "many", "--quiet").code == 0
    forget(answered)
    slowly = "{type: python, function: 'checks.py:slowly', name: slowly}"
    (answered.path / "hold").touch()
    (answered.path / "scored.log").touch()
    assert killed_once(answered, "many", "--evaluator", slowly) == -signal.SIGKILL
    (answered.path / "hold").unlink()
    assert answered.command("eval", "--resume", "--out", "second").code == 2
    done = len(answered.lines("results.jsonl", "second")[:-1])
    ended = answered.command("rescore", "--resume", "--out", "second", "--quiet", "--trust-run")
    assert ended.code == 0, ended
    assert jobs_of(answered.records("second")) == jobs_of(answered.records("many"))
    times = (answered.path / "scored.log").read_text().splitlines()
    # Nothing that is on disk is scored again; what was in flight may be.
    assert 200 <= len(times) <= 200 + 64 + 1
    assert done >= 5


def test_a_rescore_is_not_resumed_with_other_evaluators(answered):
    rescore(answered)
    manifest = json.loads((answered.path / "second" / "run.json").read_text())
    (answered.path / "second" / "run.json").write_text(json.dumps({**manifest, "finished_at": None}))
    write(answered, evaluators=[{**PASSING, "value": "other"}, COUNTED])
    ended = answered.command("rescore", "--resume", "--out", "second")
    assert ended.code == 2
    assert "Cannot resume" in ended.stderr


TALK = {
    "input": "yes 1",
    "turns": [
        {"input": "no 2", "evaluators": [PASSING]},
        {"input": "yes 3", "evaluators": [PASSING, {"type": "contains", "value": "3"}]},
    ],
    "evaluators": [{"type": "python", "function": "checks.py:counted", "name": "counted"}],
}


def test_turns_are_rescored_with_their_own_evaluators(answered):
    write(answered, TALK)
    assert answered.eval("--out", "talk", "--quiet").code == 0
    forget(answered)
    before = answered.by_id("talk")["c0"]
    assert len(before["output_messages"]) == 5
    assert rescore(answered, run="talk")[1]["c0"] == "no evaluator changed"
    rescore(answered, "--all", run="talk", out="third")
    after = answered.by_id("third")["c0"]
    for key in ("score", "verdict", "evaluator_results", "output_messages", "conversation", "candidate_answer"):
        assert after[key] == before[key]


def test_only_the_changed_evaluator_of_a_turn_runs(answered):
    write(answered, TALK)
    assert answered.eval("--out", "talk", "--quiet").code == 0
    forget(answered)
    first, second = TALK["turns"]
    changed = {**TALK, "turns": [{**first, "evaluators": [{**PASSING, "value": "no"}]}, second]}
    write(answered, changed)
    scored, why, _ = rescore(answered, run="talk")
    assert (scored, why["c0"]) == ([], "runs turn-1.says-yes (changed)")
    found = {result["name"]: result["score"] for result in answered.by_id("second")["c0"]["evaluator_results"]}
    assert found == {"turn-1.says-yes": 1, "turn-2.says-yes": 1, "turn-2.contains": 1, "counted": 1}


def test_turns_are_rescored_from_the_folder_alone(answered):
    write(answered, TALK)
    assert answered.eval("--out", "talk", "--quiet").code == 0
    forget(answered)
    (answered.path / "d.yaml").unlink()
    assert rescore(answered, "--trust-run", run="talk")[1]["c0"] == "no evaluator changed"
    rescore(answered, "--all", "--trust-run", run="talk", out="third")
    assert scores(answered, "third") == scores(answered, "talk")


@pytest.mark.parametrize("name", ["again.jsonl", "again.csv"])
def test_a_run_folder_named_like_a_file_is_refused(answered, name):
    ended = answered.command("rescore", "first", "--out", name)
    assert ended.code == 2 and name in ended.stderr
    assert not (answered.path / name).exists()
