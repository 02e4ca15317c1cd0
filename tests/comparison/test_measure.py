"""Comparable runs: the same inputs, references, evaluators and judges; otherwise no verdict."""

import json
import shlex
import shutil

import pytest

import agentv
from agentv.runs.folder import FolderLock

CASES = 24
AGENT = """
def answer(prompt):
    return "yes " * (len(prompt) % 2) + prompt
"""
CHECKS = """
def check(context):
    return float(context.candidate_answer.startswith("yes"))
"""
JUDGE = """
import json

def strict(prompt):
    return json.dumps({"score": float("yes" in prompt.lower()), "hits": [], "misses": [], "reasoning": "r"})

def mild(prompt):
    return json.dumps({"score": 1.0, "hits": [], "misses": [], "reasoning": "r"})
"""
TARGETS = (
    {"name": "default", "provider": "python", "function": "agent.py:answer"},
    {"name": "judge", "provider": "python", "function": "judge.py:strict"},
    {"name": "mild", "provider": "python", "function": "judge.py:mild"},
)
CHECK = {"type": "python", "function": "checks.py:check", "name": "check"}
QUALITY = {"type": "llm_judge", "name": "quality", "prompt": "quality.md"}
NO_VERDICT = 5


@pytest.fixture(scope="module")
def measured_project(tmp_path_factory):
    """Where the first test leaves a copy of its project for the others."""
    return tmp_path_factory.mktemp("measured") / "project"


@pytest.fixture
def measured(project, measured_project):
    """A project with the run `a`, scored by a function and a judge."""
    if measured_project.exists():
        shutil.copytree(measured_project, project.path, dirs_exist_ok=True)
        return project
    project.write(".git/HEAD", "")
    for name, text in (("agent.py", AGENT), ("checks.py", CHECKS), ("judge.py", JUDGE)):
        project.write(name, text)
    project.write("quality.md", "Is this good? {{ candidate_answer }}")
    project.targets(*TARGETS)
    write(project)
    run(project, "a")
    shutil.copytree(project.path, measured_project)
    return project


def cases(**changes):
    return [{"input": "q" * (number + 1), "expected_output": "good", **changes} for number in range(CASES)]


def write(project, *rows, **document):
    project.dataset(*(rows or cases()), **{"evaluators": [CHECK, QUALITY], **document})


def run(project, out, *options):
    ended = project.eval("--out", out, "--quiet", "--workers", "1", *options)
    assert ended.code == 0, ended.stderr
    return ended


def compare(project, *arguments):
    """Return the exit code, the lines of text and the JSON of a comparison."""
    ended = project.command("compare", *arguments)
    data = project.command("compare", *arguments, "--json")
    assert ended.code == data.code, data.stderr
    return ended.code, ended.stdout.splitlines(), json.loads(data.stdout or "{}")


def edit_references(project):
    write(project, *cases(expected_output="bad"))


def replace_an_evaluator(project):
    write(project, evaluators=[{"type": "contains", "value": "no", "name": "check"}, QUALITY])


def add_an_evaluator(project):
    write(project, evaluators=[CHECK, QUALITY, {"type": "contains", "value": "no", "name": "more"}])


def change_a_weight(project):
    write(project, evaluators=[CHECK, {**QUALITY, "weight": 3}])


def edit_the_code_of_an_evaluator(project):
    project.write("checks.py", CHECKS.replace("yes", "no"))


def edit_the_judge_prompt(project):
    project.write("quality.md", "Is this bad? {{ candidate_answer }}")


def change_the_judge(project):
    project.targets(TARGETS[0], {**TARGETS[1], "function": "judge.py:mild"}, TARGETS[2])


def edit_the_code_of_the_judge(project):
    project.write("judge.py", JUDGE + "# changed\n")


def name_another_judge(project):
    project.targets({**TARGETS[0], "judge_target": "mild"}, *TARGETS[1:])


def change_the_verdict_limits(project):
    write(project, execution={"verdicts": {"pass": 0.4, "borderline": 0.2}})


CHANGES = [
    (edit_references, "expected_output differs", "references: expected_output good → bad"),
    (replace_an_evaluator, "evaluator 'check' differs", "evaluator check: type python → contains"),
    (add_an_evaluator, "evaluator 'more' is only in B", "evaluator more: only in B"),
    (change_a_weight, "evaluator 'quality' differs", "evaluator quality: weight none → 3"),
    (edit_the_code_of_an_evaluator, "evaluator 'check' differs", "evaluator check: checks.py "),
    (edit_the_judge_prompt, "evaluator 'quality' differs", "evaluator quality: quality.md "),
    (change_the_judge, "judge 'judge' changed", "judge judge: function judge.py:strict → judge.py:mild"),
    (edit_the_code_of_the_judge, "judge 'judge' changed", "judge judge: judge.py "),
    (name_another_judge, "evaluator 'quality' has another judge", "evaluator quality: judge judge → mild"),
    (change_the_verdict_limits, "the verdict limits differ", "verdict limits: pass 0.8 → 0.4"),
]
NAMES = [change.__name__.replace("_", " ") for change, *_ in CHANGES]


@pytest.mark.parametrize(("change", "headline", "line"), CHANGES, ids=NAMES)
def test_a_changed_measure_has_no_verdict_until_the_older_run_is_rescored(measured, change, headline, line):
    change(measured)
    run(measured, "b")
    code, lines, data = compare(measured, "a", "b")
    assert (code, lines[0]) == (NO_VERDICT, f"The measure changed: {headline}. No verdict.")
    assert any(each.startswith(f"  {line}") for each in lines), lines
    assert data["summary"]["measure_changed"] and data["summary"]["answer"] is None
    assert not {"better", "worse"} & {each["answer"] for each in data["evaluators"]}
    *rescore, again = data["summary"]["remedy"]
    assert f"  {again}" in lines
    for command in rescore:
        ended = measured.command(*shlex.split(command)[1:], "--quiet")
        assert ended.code == 0, ended.stderr
    code, lines, data = compare(measured, *shlex.split(again)[2:])
    assert not data["summary"]["measure_changed"], lines
    assert (code, lines[0].split(".")[0]) == (0, "Can't tell yet")


def test_a_changed_measure_can_be_allowed(measured):
    replace_an_evaluator(measured)
    run(measured, "b")
    code, lines, data = compare(measured, "a", "b", "--allow-changed-measure")
    assert (code, lines[0].split(" by ")[0]) == (1, "The judge scores B lower")
    assert lines[1].startswith("Note: The measure changed: evaluator 'check' differs. Compared anyway")
    assert data["summary"]["measure_changed"] and data["summary"]["answer"] == "worse"


def test_the_newer_run_sets_the_measure_whatever_the_order(measured):
    edit_references(measured)
    run(measured, "b")
    _, _, data = compare(measured, "b", "a")
    assert data["summary"]["remedy"] == ["agentv rescore a --out a-rescored", "agentv compare b a-rescored"]


def test_a_judge_named_by_the_command_is_part_of_the_measure(measured):
    run(measured, "b", "--judge", "mild")
    code, lines, data = compare(measured, "a", "b")
    assert (code, lines[0]) == (NO_VERDICT, "The measure changed: evaluator 'quality' has another judge. No verdict.")
    assert data["summary"]["remedy"][0] == "agentv rescore a --judge mild --out a-rescored"


def test_several_runs_with_a_changed_measure_have_no_verdict(measured):
    run(measured, "b")
    edit_references(measured)
    run(measured, "c")
    code, lines, data = compare(measured, "a", "b", "c")
    assert (code, lines[0]) == (NO_VERDICT, "The measure changed: in C, expected_output differs. No verdict.")
    assert {each["answer"] for each in data["differences"]} == {None}
    *rescore, again = data["summary"]["remedy"]
    assert len(rescore) == 2
    for command in rescore:
        assert measured.command(*shlex.split(command)[1:], "--quiet").code == 0
    assert compare(measured, *shlex.split(again)[2:])[2]["summary"]["measure_changed"] is False


@pytest.mark.parametrize(
    "document",
    [
        {"evaluators": [QUALITY, CHECK]},
        {"description": "another"},
        {"rows": cases(metadata={"owner": "ada"}, tags=["new"])},
    ],
    ids=["the order of evaluators", "the description", "metadata and tags"],
)
def test_edits_that_do_not_affect_scores_keep_the_measure(measured, document):
    write(measured, *document.pop("rows", ()), **document)
    run(measured, "b")
    code, lines, data = compare(measured, "a", "b")
    assert (code, data["summary"]["measure_changed"]) == (0, False), lines


def test_only_cases_with_the_same_input_are_paired(measured):
    rows = cases()
    for number in (3, 5):
        rows[number]["input"] = "another question"
    write(measured, *rows)
    run(measured, "b")
    code, lines, data = compare(measured, "a", "b")
    assert code == 0
    assert lines[1] == "Note: 2 cases have the same id but another input; not paired"
    assert (data["summary"]["matched"], data["summary"]["total"]) == (CASES - 2, CASES)
    assert data["other_inputs"] == [{"dataset": "d", "eval_id": "c3"}, {"dataset": "d", "eval_id": "c5"}]
    assert "  dataset d: 2 cases with another input (not paired)" in lines
    matrix = compare(measured, "a", "a", "b")[2]
    assert (matrix["matched"], matrix["other_inputs"]) == (CASES - 2, data["other_inputs"])


def test_runs_with_the_same_ids_and_other_inputs_decide_nothing(measured):
    write(measured, *({**row, "input": row["input"] + "?"} for row in cases()))
    run(measured, "b")
    code, lines, data = compare(measured, "a", "b")
    assert (code, lines[0]) == (NO_VERDICT, "Can't tell: no case was scored in both A and B.")
    assert lines[1] == "Note: 24 cases have the same id but another input; not paired"
    assert len(data["other_inputs"]) == CASES


def test_a_changed_prompt_is_tested_with_the_same_cases(project):
    rows = [{"input": {"name": f"N{number}"}} for number in range(CASES)]
    project.dataset(*rows, prompt="Be kind.\nWrite to {{ name }}.")
    run(project, "a")
    project.dataset(*rows, prompt="Be kind.\nWrite yes to {{ name }}.")
    run(project, "b")
    code, lines, data = compare(project, "a", "b")
    assert (code, data["summary"]["answer"]) == (0, "better")
    start = lines.index("  prompt: messages changed (24 of 24 cases, for example c0)")
    diff = ["--- A", "+++ B", "@@ -1,2 +1,2 @@", " user: Be kind.", "-Write to N0.", "+Write yes to N0."]
    assert [line.removeprefix(" " * 6) for line in lines[start + 1 : start + 7]] == diff


def test_results_without_fingerprints_are_matched_by_id_and_get_no_verdict(measured):
    rows = measured.records("a")
    text = "".join(json.dumps({k: v for k, v in row.items() if k != "fingerprint"}) + "\n" for row in rows)
    measured.write("b.jsonl", text)
    code, lines, _ = compare(measured, "a", "b.jsonl")
    assert code == NO_VERDICT
    assert lines[0].startswith("The measure changed: A is a run of agentv and B is a results file without fingerprints")
    assert lines[2].startswith("Note: Cases matched by id only: b.jsonl stores no fingerprints")
    unknown = "What changed between A and B is not fully known: B stores no settings, evaluators, versions or commit"
    assert unknown in lines


def test_results_without_their_cases_are_not_claimed_to_be_scored_alike(measured):
    shutil.copytree("a", "b")
    measured.path.joinpath("b", "cases.jsonl").unlink()
    assert changed_lines(measured, "a", "b")[0].startswith("What changed between A and B is not fully known: B stores")
    write(measured, *cases(expected_output="bad"))
    run(measured, "c")
    code, lines, _ = compare(measured, "b", "c")
    assert (code, lines[0]) == (NO_VERDICT, "The measure changed: input or references differ. No verdict.")


def changed_lines(project, *arguments):
    """Return the lines below "What changed"."""
    lines = compare(project, *arguments)[1]
    start = next(number for number, line in enumerate(lines) if line.startswith(("What changed", "Nothing")))
    return lines[start : [*lines, ""].index("", start)]


SYSTEM = "You are a support agent.\nBe brief.\nNever promise a refund."


def test_changed_settings_are_listed_with_a_diff_of_the_system_prompt(project, monkeypatch):
    monkeypatch.setenv("MODEL_KEY", "sk-a-long-secret-key")

    def written(**changes):
        common = {"name": "default", "provider": "openai", "api_key": "${{ MODEL_KEY }}", "model": "m-1"}
        project.targets({**common, "base_url": "http://127.0.0.1:9/v1", "max_retries": 0, **changes})

    project.dataset("yes", "no")
    written(system_prompt=SYSTEM)
    project.eval("--out", "a", "--quiet", "--max-outage", "0")
    monkeypatch.setenv("MODEL_KEY", "sk-another-long-secret")
    written(system_prompt=SYSTEM.replace("brief", "friendly"), model="m-2", temperature=0.5)
    project.eval("--out", "b", "--quiet", "--max-outage", "0")
    assert changed_lines(project, "a", "b") == [
        "What changed between A and B",
        "  target default: model m-1 → m-2",
        "  target default: system_prompt changed",
        *(
            f"      {line}"
            for line in (
                "--- A",
                "+++ B",
                "@@ -1,3 +1,3 @@",
                " You are a support agent.",
                "-Be brief.",
                "+Be friendly.",
                " Never promise a refund.",
            )
        ),
        "  target default: temperature none → 0.5",
    ]
    assert "secret" not in project.command("compare", "a", "b", "--json").stdout


def test_a_changed_commit_is_named(project):
    project.dataset("yes", "no", "yes no")
    commits = "a" * 40, "b" * 40
    for out, commit in zip("ab", commits, strict=True):
        project.write(".git/HEAD", commit)
        run(project, out)
    assert changed_lines(project, "a", "b") == ["Nothing but the git commit changed between A and B: aaaaaaa → bbbbbbb"]
    run(project, "c")
    same = "Nothing changed between A and B: same settings, cases, scoring and versions"
    assert changed_lines(project, "b", "c") == [same]


def test_targets_of_one_run_are_compared_by_their_settings(project):
    project.targets(
        {"name": "short", "provider": "mock", "response": "yes"},
        {"name": "long", "provider": "mock", "response": "no"},
    )
    project.dataset("a", "b", "c")
    run(project, "a", "--target", "short", "--target", "long")
    assert changed_lines(project, "a")[1:] == ["  target: short → long", "  target long: response yes → no"]


def test_judges_of_the_targets_of_one_run_are_part_of_the_measure(measured):
    measured.targets(*TARGETS, {**TARGETS[0], "name": "other", "judge_target": "mild"})
    run(measured, "b", "--target", "default", "--target", "other")
    code, lines, data = compare(measured, "b")
    assert (code, lines[0]) == (NO_VERDICT, "The measure changed: evaluator 'quality' has another judge. No verdict.")
    rescore, again = data["summary"]["remedy"]
    assert measured.command(*shlex.split(rescore)[1:], "--quiet").code == 0
    assert compare(measured, *shlex.split(again)[2:])[0] == 0


def test_cases_in_only_one_run_are_listed_by_dataset(measured):
    write(measured, *cases()[:-2])
    run(measured, "b")
    assert changed_lines(measured, "a", "b")[1:] == ["  dataset d: 2 cases only in A"]


def test_markdown_has_the_changes_and_the_commands(measured):
    edit_references(measured)
    measured.write("agent.py", AGENT + "# changed\n")
    run(measured, "b")
    text = measured.command("compare", "a", "b", "--markdown").stdout
    assert text.startswith("### The measure changed&#58; expected&#95;output differs. No verdict.")
    assert "```text\nagentv rescore a --out a-rescored\nagentv compare a-rescored b\n```" in text
    assert "#### What changed between A and B" in text


STOPS = {
    "fail-fast": (["--fail-fast", "--workers", "1"], "stopped by --fail-fast"),
    "budget": (["--budget-usd", "3", "--workers", "1"], "stopped by its budget"),
}


@pytest.mark.parametrize(("options", "reason"), STOPS.values(), ids=STOPS)
def test_a_run_that_was_stopped_is_compared_with_a_warning(project, options, reason):
    project.write("priced.py", "def answer(prompt): return {'text': prompt, 'cost_usd': 1.0}")
    project.targets({"name": "default", "provider": "python", "function": "priced.py:answer"})
    project.dataset(*["no", "yes"] * 20)
    run(project, "a")
    assert project.eval("--out", "b", "--quiet", *options).code == (4 if "--budget-usd" in options else 1)
    _, lines, data = compare(project, "a", "b")
    stopped = data["runs"][1]["unfinished"]
    assert (stopped["planned"], stopped["unit"], data["runs"][0]["unfinished"]) == (40, "case", None)
    assert 0 < stopped["done"] < 40
    assert lines[1] == f"Note: B is unfinished: {stopped['done']} of 40 cases ({reason})"


def test_a_run_in_progress_is_compared_with_a_warning(project):
    project.dataset("yes", "no", "yes no")
    run(project, "a", "--trials", "2")
    shutil.copytree("a", "b")
    *kept, _ = project.path.joinpath("b", "results.jsonl").read_bytes().splitlines(keepends=True)
    project.path.joinpath("b", "results.jsonl").write_bytes(b"".join(kept))
    project.write("b/run.json", {**project.manifest("b"), "finished_at": None})
    assert compare(project, "a", "b")[1][1] == "Note: B is unfinished: 5 of 6 jobs (stopped)"
    project.write("b/run.json", {**project.manifest("b"), "exit_code": 130})
    assert compare(project, "a", "b")[1][1] == "Note: B is unfinished: 5 of 6 jobs (interrupted)"
    with FolderLock(project.path / "b"):
        assert compare(project, "a", "b")[1][1] == "Note: B is unfinished: 5 of 6 jobs (still running)"
    assert compare(project, "a", "b", "a")[1][1].startswith("Note: B is unfinished")


def test_a_trend_compares_only_runs_with_the_same_measure(measured):
    def trend():
        return json.loads(measured.command("runs", "trend", "--in", ".", "--json").stdout)

    run(measured, "b")
    assert (trend()["shared_cases"], trend()["other_measures"]) == (CASES, {})
    replace_an_evaluator(measured)
    run(measured, "c")
    assert (trend()["shared_cases"], list(trend()["other_measures"].values())) == (0, [CASES])
    run(measured, "d")
    found = trend()
    assert (found["shared_cases"], len(found["other_measures"]), found["changes"]) == (CASES, 1, [])
    lines = measured.command("runs", "trend", "--in", ".").stdout.splitlines()
    assert "  measure changed here: 24 cases asked or scored differently than before" in lines


def test_rescored_answers_differ_only_in_their_measure(measured):
    assert measured.command("rescore", "a", "--judge", "mild", "--out", "b", "--quiet").code == 0
    code, lines, data = compare(measured, "a", "b")
    assert (code, data["summary"]["remedy"]) == (NO_VERDICT, [])
    assert "Note: Both runs have the same answers, which were scored again" in lines


def test_only_the_prompt_that_changed_is_shown(project):
    rows = [{"input": {"name": f"N{number}"}} for number in range(3)]
    for out, greeting in (("a", "Hi"), ("b", "Hello")):
        prompts = [{"id": "short", "prompt": "To {{ name }}"}, {"id": "long", "prompt": greeting + " {{ name }}"}]
        project.dataset(*rows, prompts=prompts)
        run(project, out)
    assert len(changed_lines(project, "a:long", "b:long")) == 2
    assert "  prompt: messages user: Hi N0 → user: Hello N0 (3 of 3 cases, for example c0)" in (
        changed_lines(project, "a:long", "b:long")
    )
    assert changed_lines(project, "a:short", "b:short")[0].startswith("Nothing changed")
    both = changed_lines(project, "a", "b")
    assert both[1] == "  prompt: messages user: Hi N0 → user: Hello N0 (3 of 6 cases, for example c0)"
    project.dataset(*rows, prompts=[{"id": "short", "prompt": "To {{ name }}"}, {"id": "new", "prompt": "{{ name }}"}])
    run(project, "c")
    assert changed_lines(project, "a", "c")[1:2] == ["  prompt: short, long → short, new"]
    assert not any("messages" in line for line in changed_lines(project, "a", "c"))


def test_changed_values_are_shown_as_plain_text(project):
    hostile = "\x1b[2J<script>alert(1)</script>\u202e@everyone"
    for out, value in (("a", "x"), ("b", hostile)):
        rows = ({"input": "yes", "expected_output": value} for _ in range(3))
        project.dataset(*rows, evaluators=[{"type": "equals"}])
        run(project, out)
    for style in ((), ("--markdown",)):
        shown = project.command("compare", "a", "b", *style).stdout
        assert "\x1b" not in shown and "\u202e" not in shown
    assert "<script>" not in shown


def test_many_changes_are_cut_off(project):
    for out in "ab":
        for number in range(40):
            project.dataset("yes" * (number + 1), f"{out} {number}", name=f"evals/d{number}.yaml")
        assert project.command("eval", "evals", "--out", out, "--quiet").code == 0
    lines = changed_lines(project, "a", "b")
    assert (len(lines), lines[-1]) == (32, "  and 10 more; use --json for all")
    text = project.command("compare", "a", "b", "--markdown").stdout
    assert "- and 10 more; use --json for all" in text


def test_options_that_affect_answers_are_listed(project):
    project.dataset("yes", "no", "yes no")
    run(project, "a")
    run(project, "b", "--trials", "2", "--timeout", "9", "--limit", "2")
    assert changed_lines(project, "a", "b")[1:] == [
        "  option trials: none → 2",
        "  option timeout_seconds: none → 9.0",
        "  option limit: none → 2",
        "  dataset d: 1 case only in A",
    ]


def test_a_run_is_rescored_with_the_datasets_of_the_other_one(measured):
    moved = cases(expected_output="bad")
    measured.dataset(*moved, name="new/d.yaml", evaluators=[CHECK, QUALITY])
    assert measured.command("eval", "new/d.yaml", "--out", "b", "--quiet").code == 0
    rescore, again = compare(measured, "a", "b")[2]["summary"]["remedy"]
    assert rescore == "agentv rescore a new/d.yaml --out a-rescored"
    assert measured.command(*shlex.split(rescore)[1:], "--quiet").code == 0
    assert compare(measured, *shlex.split(again)[2:])[2]["summary"]["measure_changed"] is False


def test_evaluators_given_in_python_have_no_command(folder, command):
    def passes(answer):
        return 1.0

    def fails(answer):
        return 0.0

    rows = [{"id": str(number), "input": "a", "expected_outcome": "x"} for number in range(CASES)]
    for out, check in (("a", passes), ("b", fails)):
        check.__name__ = "check"
        agentv.evaluate(rows, lambda prompt: prompt, evaluators=[check], out=out)
    found = agentv.compare("a", "b")
    assert (found.is_comparable, found.remedy) == (False, ())
    assert agentv.compare("a", "b", allow_changed_measure=True).is_comparable
    assert "Score the runs in the same way with `agentv rescore`" in command("compare", "a", "b").stdout


@pytest.mark.parametrize(("served", "changed"), [("m-1", False), ("m-2", True)])
def test_the_model_that_a_judge_responded_with_is_part_of_the_measure(measured, served, changed):
    for out, model in (("b", "m-1"), ("c", served)):
        shutil.copytree("a", out)
        for record in (rows := measured.records(out)):
            for found in record["evaluator_results"]:
                for call in found.get("evaluator_provider_request", {}).get("calls", ()):
                    call["model"] = model
        measured.write(f"{out}/results.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    _, lines, data = compare(measured, "b", "c")
    assert data["summary"]["measure_changed"] is changed
    assert ("  judge judge: model m-1 → m-2" in lines) is changed
