"""The files of a run: one record per job with the specified fields, cases, manifest, summary."""

import json
import os
import re

import pytest
from run_project import PASSING, jobs_of

from agentv.datasets.case.prompts import resolved_data
from agentv.datasets.loader import load_cases
from agentv.engine.cases.pending_jobs import CaseLines
from agentv.model.case import EvalCase, texts_of
from agentv.model.evaluator import Execution
from agentv.model.message import Message
from agentv.model.origin import Origin, Place
from agentv.model.values import FrozenDict
from agentv_testing import Answer

FIELDS = {
    "schema_version",
    "timestamp",
    "run_id",
    "eval_id",
    "dataset",
    "dataset_path",
    "target",
    "trial",
    "status",
    "score",
    "verdict",
    "attempts",
    "fingerprint",
}


def test_a_record_has_the_fields_of_the_specification(project):
    usage = {"input": 7, "output": 3, "cached": 2}
    calls = [{"tool": "search", "input": {"q": "x"}, "duration_ms": 12.5}, {"tool": "search"}, {"tool": "read"}]
    project.targets(
        {"name": "default", "provider": "mock", "response": "yes", "token_usage": usage, "tool_calls": calls}
    )
    case = {"input": "q", "conversation_id": "talk", "tags": ["a"], "metadata": {"k": [1, {"deep": None}]}}
    project.dataset(case, dataset="My cases")
    assert project.eval("--out", "out", "--quiet").code == 0
    (record,) = project.records()
    manifest = project.manifest()
    assert set(record) >= FIELDS
    assert record["schema_version"] == 1
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", record["timestamp"])
    assert (record["run_id"], record["dataset"], record["dataset_path"]) == (manifest["run_id"], "My cases", "d.yaml")
    assert (record["status"], record["score"], record["verdict"]) == ("ok", 1.0, "pass")
    assert (record["conversation_id"], record["tags"], record["metadata"]) == ("talk", ["a"], case["metadata"])
    assert record["candidate_answer"] == "yes" and record["attempts"] == 1
    assert [call["tool"] for call in record["output_messages"][0]["tool_calls"]] == ["search", "search", "read"]
    assert record["trace_summary"] == {
        "event_count": 3,
        "tool_names": ["read", "search"],
        "tool_calls_by_name": {"read": 1, "search": 2},
        "error_count": 0,
    }
    metrics = record["execution_metrics"]
    assert metrics["token_usage"] == usage and metrics["tool_durations"] == {"search": [12.5]}
    assert metrics["duration_ms"] >= 0
    (found,) = record["evaluator_results"]
    assert (found["name"], found["type"], found["score"], found["weight"]) == ("says-yes", "contains", 1.0, 1.0)
    assert record["hits"] == found["hits"]
    (loaded,) = load_cases("d.yaml")
    assert record["fingerprint"] == loaded.fingerprint


def test_absent_fields_are_omitted_except_score_and_verdict(project):
    project.targets({"name": "default", "provider": "mock", "fault_rate": 1, "max_retries": 0})
    project.dataset("q")
    assert project.eval("--out", "out", "--quiet").code == 3
    (record,) = project.records()
    assert set(record) == (FIELDS | {"error", "execution_metrics"})
    assert set(record["execution_metrics"]) == {"duration_ms"}
    assert (record["status"], record["score"], record["verdict"]) == ("error", None, None)
    assert record["error"] == {"class": "server", "message": record["error"]["message"], "stage": "target"}


def test_a_single_text_answer_is_not_repeated_as_messages(project):
    project.dataset("yes")
    assert project.eval("--out", "out", "--quiet").code == 0
    assert "output_messages" not in project.records()[0]


@pytest.mark.parametrize(
    ("evaluators", "status"), [([], "unscored"), ([{**PASSING, "weight": 0}], "unscored"), ([PASSING], "ok")]
)
def test_a_case_without_evaluators_is_unscored(project, evaluators, status):
    project.dataset("yes", evaluators=evaluators)
    assert project.eval("--out", "out", "--quiet").code == 0
    (record,) = project.records()
    assert record["status"] == status
    assert (record["score"] is None) == (status == "unscored")
    assert project.summary()["unscored"] == (status == "unscored")


def test_a_failing_evaluator_is_an_error_and_keeps_the_other_results(project):
    project.write("checks.py", "def broken(context):\n    raise KeyError('gone')\n")
    broken = {"type": "python", "name": "mine", "function": "checks.py:broken", "negate": True}
    project.dataset("yes", "no", evaluators=[PASSING, broken])
    assert project.eval("--out", "out", "--quiet").code == 3
    record = project.by_id()["c0"]
    assert (record["status"], record["score"], record["verdict"], record["partial_score"]) == ("error", None, None, 1.0)
    assert record["error"]["class"] == record["error"]["stage"] == "evaluator"
    assert "mine" in record["error"]["message"] and "gone" in record["error"]["message"]
    assert record["candidate_answer"] == "yes"
    good, bad = record["evaluator_results"]
    assert (good["score"], bad["score"]) == (1.0, None)
    summary = project.summary()
    assert (summary["errors"], summary["scored"], summary["mean"]) == (2, 0, None)


UNUSUAL = ["Grüße, 東京 🗼", "line\nbreak \u2028 and \x85", 'quotes " and \\ and \x00', "\ud83d\ude00 ok", "  spaces  "]


@pytest.mark.parametrize("text", UNUSUAL)
def test_any_text_is_recorded_unchanged(project, text):
    text = text.encode("utf-16", "surrogatepass").decode("utf-16")
    case = {"id": "fälle/1 ☃", "expected_outcome": text, "input": text, "tags": [text], "metadata": {text: text}}
    project.write("d.jsonl", [case])
    project.write("d.yaml", {"evaluators": [{"type": "equals", "value": text}]})
    assert project.eval("d.jsonl", "--out", "out", "--quiet").code == 0
    (record,) = project.records()
    assert (record["eval_id"], record["candidate_answer"], record["score"]) == ("fälle/1 ☃", text, 1.0)
    assert (record["tags"], record["metadata"]) == ([text], {text: text})
    (written,) = project.lines("cases.jsonl")
    assert written["input"] == [{"role": "user", "content": text}]
    raw = (project.path / "out" / "results.jsonl").read_bytes()
    assert raw.count(b"\n") == 1 and (text.isascii() or text.split()[0].encode() in raw)


def test_each_case_is_written_once_before_its_first_record(project):
    project.dataset(*(["yes"] * 20), execution={"trials": 3})
    assert project.eval("--out", "out", "--quiet").code == 0
    written = project.lines("cases.jsonl")
    assert [case["id"] for case in written] == [f"c{number}" for number in range(20)]
    first = {**written[0]}
    (loaded, *_) = load_cases("d.yaml")
    assert first.pop("fingerprint") == loaded.fingerprint
    assert first.pop("input_fingerprint") == loaded.input_fingerprint
    assert first.pop("dataset_path") == "d.yaml" and first.pop("line") == loaded.line
    assert first.pop("evaluators_fingerprint")
    assert list(first.pop("evaluator_fingerprints")) == ["says-yes"]
    assert first == json.loads(json.dumps(resolved_data(loaded)))


def test_cases_are_written_shortly_before_their_jobs(project):
    project.write(
        "agent.py",
        "from pathlib import Path\n"
        "def answer(prompt):\n"
        "    return str(Path('out/cases.jsonl').read_bytes().count(b'\\n'))\n",
    )
    project.targets({"name": "default", "provider": "python", "function": "agent.py:answer", "workers": 1})
    project.dataset(*(["q"] * 70))
    assert project.eval("--out", "out", "--quiet").code == 0
    assert [record["candidate_answer"] for record in project.records()] == ["64"] * 64 + ["70"] * 6


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"expected_outcome": "Names it", "conversation_id": "c", "tags": ("a",), "metadata": FrozenDict({"n": 1})},
        {"place": Place(Origin(path="a.jsonl"), 0), "execution": Execution(target="fast", trials=3)},
        {"expected_output": ()},
    ],
)
def test_a_case_of_plain_texts_is_stored_like_any_other(fields):
    place = Place(Origin(path="b.jsonl", dataset="b"), 3)
    case = EvalCase("1", **{"input": 'a "quoted" é', "expected_output": "", "place": place, **fields})
    lines = CaseLines(None)
    assert lines.line(case, ("a", "b"), texts_of(case)) == lines.line(case, ("a", "b"), None)


@pytest.mark.parametrize(
    "case", [EvalCase("1"), EvalCase("1", input="a", expected_output=(Message("assistant", "b"),))]
)
def test_only_cases_of_plain_texts_have_texts(case):
    assert texts_of(case) is None


def test_files_are_stored_with_the_cases_that_name_them(project):
    project.write("note.md", "the contents")
    content = [{"type": "text", "value": "read"}, {"type": "file", "value": "note.md"}]
    project.dataset({"input": [{"role": "user", "content": content}]})
    project.eval("--out", "out", "--quiet")
    (case,) = project.lines("cases.jsonl")
    assert case["input"][0]["content"][1]["text"] == "the contents"
    assert '<file path="note.md">\nthe contents\n</file>' in project.records()[0]["candidate_answer"]


def test_the_summary_does_not_depend_on_the_order_of_jobs(project):
    project.targets({"name": "default", "provider": "mock", "delay_ms": [0, 20], "workers": 8})
    project.dataset(*(["yes", "no"] * 10), execution={"trials": 3})
    summaries = []
    for out, workers in (("one", "1"), ("many", "8")):
        assert project.eval("--out", out, "--quiet", "--workers", workers).code == 0
        summary = project.summary(out)
        summaries.append({key: value for key, value in summary.items() if key != "duration_ms"})
    assert [record["eval_id"] for record in project.records("one")] != [
        record["eval_id"] for record in project.records("many")
    ]
    assert jobs_of(project.records("one")) == jobs_of(project.records("many"))
    one, many = summaries
    assert (one["mean"], one["scored"], one["pass_rate"]) == (many["mean"], many["scored"], many["pass_rate"])
    assert one["ci95"] == pytest.approx(many["ci95"])


def test_trials_of_a_case_are_one_cluster_of_the_interval(project):
    project.dataset(*(["yes", "no"] * 5))
    for out, trials in (("once", "1"), ("often", "20")):
        assert project.eval("--out", out, "--quiet", "--trials", trials).code == 0
    once, often = (project.summary(out)["ci95"] for out in ("once", "often"))
    assert often[1] - often[0] > 0.7 * (once[1] - once[0])


def test_the_manifest_has_the_inputs_and_outcome_of_the_run(project):
    project.write(".git/HEAD", "")
    project.dataset("yes", "no")
    ended = project.eval("--out", "out", "--quiet", "--trials", "2", "--seed", "5", "--threshold", "0.9")
    assert ended.code == 1
    manifest = project.manifest()
    assert manifest["paths"] == ["d.yaml"] and manifest["seed"] == 5 and manifest["exit_code"] == 1
    assert manifest["options"] == {
        "paths": ["d.yaml"],
        "trials": 2,
        "seed": 5,
        "gates": {"threshold": 0.9},
    }
    assert manifest["counts"] == {"cases": 2, "jobs": 4, "ok": 4, "unscored": 0, "errors": 0, "skipped": 0}
    assert manifest["started_at"] <= manifest["finished_at"]
    assert set(manifest["versions"]) >= {"agentv", "python"}
    (target,), (dataset,) = manifest["targets"], manifest["datasets"]
    assert (target["name"], target["provider"]) == ("default", "mock") and target["fingerprint"]
    assert (dataset["path"], dataset["name"], dataset["cases"]) == ("d.yaml", "d", 2)
    assert manifest["fingerprints"].keys() == {"says-yes"}


def test_the_default_run_folder_is_below_the_project_root(project):
    project.write(".git/HEAD", "")
    project.dataset("yes", name="evals/d.yaml")
    assert project.eval("evals/d.yaml", "--quiet").code == 0
    (run,) = project.runs
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{4}", run)
    assert sorted(os.listdir(project.path / ".agentv" / "results" / run)) == [
        "cases.jsonl",
        "results.jsonl",
        "run.json",
        "summary.json",
    ]


def test_an_existing_folder_is_refused_and_unchanged(project):
    project.dataset("yes")
    assert project.eval("--out", "out", "--quiet").code == 0
    before = (project.path / "out" / "results.jsonl").read_bytes()
    ended = project.eval("--out", "out")
    assert ended.code == 2
    assert "already exists: out" in ended.stderr and "--resume" in ended.stderr
    assert (project.path / "out" / "results.jsonl").read_bytes() == before


@pytest.mark.parametrize("name", ["all.jsonl", "all.yaml", "ALL.YML"])
def test_an_export_of_records_replaces_the_file(project, name):
    project.write(".git/HEAD", "")
    project.write(name, "something else")
    project.dataset("yes", "nein ☃")
    assert project.eval("--out", name, "--quiet").code == 0
    (run,) = project.runs
    kept = project.lines("results.jsonl", f".agentv/results/{run}")
    text = (project.path / name).read_text(encoding="utf-8")
    if name.endswith("jsonl"):
        assert [json.loads(line) for line in text.splitlines()] == kept
    else:
        from agentv.runs.store import RunStore

        assert text.count("\n---\n") + text.startswith("---\n") == 2 and "☃" in text
        assert [result.candidate_answer for result in RunStore.open(project.path / name).records()] == [
            record["candidate_answer"] for record in kept
        ]


def test_an_unwritable_file_is_an_error_before_any_call(project):
    project.dataset("yes")
    ended = project.eval("--out", "nowhere/all.jsonl")
    assert ended.code == 2 and "The folder nowhere does not exist" in ended.stderr
    assert project.runs == []


@pytest.mark.parametrize("text", ["plain", *UNUSUAL[:3], ""])
def test_shorthand_has_the_fingerprint_of_its_messages(text):
    shorthand = EvalCase("a", text, text, text)
    written_out = EvalCase("a", text, (Message("user", text),), (Message("assistant", text),))
    assert shorthand.fingerprints == written_out.fingerprints
    assert shorthand.fingerprints == (shorthand.input_fingerprint, shorthand.fingerprint)


def test_logprobs_are_recorded_if_requested(project, agentv_server):
    server = agentv_server("yes indeed")
    target = {"provider": "openai", "base_url": server.url, "model": "m"}
    project.targets({"name": "default", **target}, {"name": "with", "logprobs": 1, **target})
    project.dataset("Go on")
    assert project.eval("--out", "out", "--target", "default", "--target", "with").code == 0
    metrics = {record["target"]: record["execution_metrics"] for record in project.records()}
    assert "logprobs" not in metrics["default"]
    assert [token["token"] for token in metrics["with"]["logprobs"]["content"]] == ["yes ", "indeed"]


def test_the_record_of_a_truncated_answer_has_its_stop_reason(project, agentv_server):
    server = agentv_server(Answer("yes, b", stop_reason="length"))
    project.targets({"name": "default", "provider": "openai", "base_url": server.url, "model": "m"})
    project.dataset("Go on")
    ended = project.eval("--out", "out")
    [record] = project.records()
    assert (record["status"], record["execution_metrics"]["stop_reason"]) == ("ok", "length")
    assert project.summary()["truncated"] == 1
    assert "truncated   1 of 1 answer ended at a token or turn limit" in ended.stdout


WAITS_FOR_1200_CALLS = """
import asyncio

started, all_started = [], asyncio.Event()

async def wait_for_all(prompt):
    started.append(prompt)
    if len(started) == 1200:
        all_started.set()
    await all_started.wait()
    return "yes"
"""


@pytest.mark.parametrize(("options", "in_order"), [((), True), (("--workers", "8"), False)])
def test_a_dataset_can_limit_concurrent_calls_and_the_command_overrides_it(project, options, in_order):
    project.targets({"name": "default", "provider": "mock", "delay_ms": [0, 20], "workers": 8})
    project.dataset(*(["yes"] * 12), execution={"workers": 1})
    assert project.eval("--out", "out", "--quiet", *options).code == 0
    ids = [record["eval_id"] for record in project.records()]
    assert (ids == [f"c{number}" for number in range(12)]) is in_order


def test_more_than_a_thousand_workers_are_used_if_requested(project):
    project.targets({"name": "default", "provider": "python", "function": "late.py:wait_for_all"})
    project.write("late.py", WAITS_FOR_1200_CALLS)
    project.dataset(*(["q"] * 1200))
    assert project.eval("--out", "out", "--quiet", "--workers", "5000", "--timeout", "60").code == 0
    assert project.summary()["scored"] == 1200


def test_skip_eval_records_answers_that_can_be_scored_later(project):
    project.dataset("yes", "no")
    assert project.eval("--out", "out", "--quiet", "--skip-eval").code == 0
    assert [(record["status"], record["score"]) for record in project.records()] == [("unscored", None)] * 2
    assert project.command("rescore", "out", "--out", "scored", "--quiet").code == 0
    assert [record["score"] for record in project.records("scored")] == [1.0, 0.0]
