"""The contract of every format of other tools' results: detection, complete records, and errors that name the file."""

import copy
import json
import os
import random

import pytest
from foreign_results import EXAMPLES, READABLE, REFUSED

from agentv.errors import AgentvError
from agentv.model.result import Result
from agentv.registry import RESULT_FORMATS
from agentv.runs.record import format_of
from agentv.runs.store import RunStore

FOREIGN = [name for name in RESULT_FORMATS.names() if getattr(RESULT_FORMATS.find(name), "is_imported", False)]
FIRST = {example.format: example for example in reversed(READABLE)}
SCORED = [name for name, example in FIRST.items() if example.data["records"][0].get("score", 0) is not None]


def seen(record):
    """The fields of a record that examples name."""
    metrics = record.execution_metrics
    usage = metrics and metrics.token_usage
    return {
        **{name: getattr(record, name) for name in record.__struct_fields__},
        "error": record.error and record.error.error_class,
        "evaluators": {result.name: result.score for result in record.evaluator_results},
        "tools": record.trace_summary and record.trace_summary.tool_calls_by_name,
        "tokens": usage and [usage.input, usage.output],
        "cost_usd": metrics and metrics.cost_usd,
        "duration_ms": metrics and metrics.duration_ms,
        "stop_reason": metrics and metrics.stop_reason,
    }


def test_every_format_has_three_examples_or_more():
    counts = {name: sum(example.format == name for example in EXAMPLES) for name in FOREIGN}
    assert min(counts.values()) >= 3 and set(counts) == {example.format for example in EXAMPLES}


@pytest.mark.parametrize("example", READABLE, ids=str)
def test_records_are_those_of_the_other_tool(example, tmp_path):
    run = RunStore.open(example.write(tmp_path))
    records = list(run.records())
    inputs = {case.id: case.fields["input"][-1]["content"] for case in run.cases() if case.fields.get("input")}
    for record, expected in zip(records, example.data["records"], strict=True):
        found = seen(record) | {"input": inputs.get(record.eval_id), "cases": sum(1 for _ in run.cases())}
        warning = expected.pop("warning", "")
        assert {key: found[key] for key in expected} == {**expected, **near(expected, found)}
        assert warning in " ".join(record.warnings) and (record.score is None) == (record.status != "ok")
    notes = " ".join(run.manifest.imported_from.notes)
    assert all(note in notes for note in example.data.get("notes", []))
    assert (run.manifest.finished_at is None) == example.data.get("unfinished", False)


def near(expected, found):
    """Scores that are equal within rounding."""
    same = "score" in expected and expected["score"] == pytest.approx(found["score"])
    return {"score": found["score"]} if same else {}


@pytest.mark.parametrize("example", READABLE, ids=str)
def test_a_run_has_no_damage_and_consistent_figures(example, tmp_path, command):
    path = example.write(tmp_path)
    with RunStore.open(path) as run:
        counts, figures = run.manifest.counts, run.figures()
        assert counts.ok + counts.unscored + counts.errors == figures.done == sum(1 for _ in run.records())
        assert all(run.get(record.key) == record for record in run.records())
    checked = command("runs", "check", str(path))
    assert checked.code == 0, checked.stderr


@pytest.mark.parametrize("name", SCORED)
def test_a_run_compared_with_itself_shows_no_change(name, tmp_path, command):
    first, second = (FIRST[name].write(tmp_path / side) for side in ("a", "b") if os.makedirs(tmp_path / side) is None)
    done = command("compare", str(first), str(second), "--json")
    found = json.loads(done.stdout)
    assert done.code == 0 and found["summary"]["mean_delta"] == 0 and not found["what_changed"]
    assert found["unmatched"] == {"file1": 0, "file2": 0}


@pytest.mark.parametrize("name", FIRST)
def test_reports_take_the_file(name, tmp_path, command):
    path = FIRST[name].write(tmp_path)
    for words in (("report", path, "--json"), ("report", path, tmp_path / "page.html"), ("report", path, "--csv")):
        done = command(*map(str, words))
        assert (done.code, done.stderr.replace(f"Wrote {tmp_path / 'page.html'}\n", "")) == (0, ""), done.stderr


@pytest.mark.parametrize("example", [each for each in READABLE if "run" not in each.data], ids=str)
def test_the_content_decides_not_the_name(example, tmp_path):
    path = example.write(tmp_path)
    renamed = path.rename(path.with_name("renamed.data"))
    assert type(format_of(renamed)) is RESULT_FORMATS.find(example.format)


@pytest.mark.parametrize("example", REFUSED, ids=str)
def test_a_file_without_results_is_refused_with_the_reason(example, tmp_path):
    with pytest.raises(AgentvError, match=r"Cannot read .*\n.*" + example.data["refused"]):
        RunStore.open(example.write(tmp_path))


@pytest.mark.parametrize("example", READABLE, ids=str)
def test_a_file_that_was_cut_off_is_refused(example, tmp_path):
    path = example.write(tmp_path)
    path = path if path.is_file() else tmp_path / example.data["file"]
    whole = path.read_bytes()
    for part in (0.3, 0.6, 0.95):
        path.write_bytes(whole[: int(len(whole) * part)].rstrip()[:-1])
        with pytest.raises(AgentvError, match=r"(Cannot read|Not a run|Invalid record)"):
            list(RunStore.open(path).records())


STRANGERS = {
    "issues.csv": "Key,Summary,Status\nA-1,Broken,Open\n",
    "jobs.csv": "Name,Status,Score\nlogin,PASS,0.5\n",
    "log.csv": "text,[main] Start,note\none,[PASS] two,three\n",
}


@pytest.mark.parametrize("name", STRANGERS)
def test_tables_of_other_programs_are_not_results(name, tmp_path):
    (tmp_path / name).write_text(STRANGERS[name])
    with pytest.raises(AgentvError, match="Not a run"):
        RunStore.open(tmp_path / name)


@pytest.mark.parametrize("line", ("[1]", '"x"', "{}", "null"))
@pytest.mark.parametrize(
    "example", [each for each in READABLE if each.data.get("file", "").endswith(".jsonl")], ids=str
)
def test_a_line_that_is_not_a_result_never_crashes_the_reader(example, line, tmp_path):
    path = example.write(tmp_path)
    path = path if path.is_file() else tmp_path / example.data["file"]
    path.write_bytes(path.read_bytes() + line.encode() + b"\n")
    try:
        assert list(RunStore.open(path).records())
    except AgentvError as error:
        assert error.detail


ODD = (None, True, -1, 1.5, 10**25, "", "x", "1e400", [], {}, [None], [[["x"]]], {"name": None})


@pytest.mark.parametrize("example", READABLE, ids=str)
def test_odd_values_are_read_or_refused_and_never_crash(example, tmp_path):
    draw = random.Random(str(example))
    for number in range(5):
        odd = copy.deepcopy(example)
        parts = [odd.data[name] for name in ("content", "members", "also") if name in odd.data]
        is_lines = odd.data.get("file", "").endswith(".jsonl")
        lines = [json.loads(line) for line in odd.data["text"].splitlines() if line] if is_lines else []
        for part in [*parts, *lines]:
            replace_one(part, draw)
        if lines:
            odd.data["text"] = "".join(json.dumps(line) + "\n" for line in lines)
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            with RunStore.open(odd.write(folder)) as run:
                assert all(isinstance(record, Result) for record in run.records())
        except AgentvError as error:
            assert error.detail


def replace_one(value, draw):
    """Replace one value inside an object or list, at any depth."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    if not keys:
        return
    key = draw.choice(list(keys))
    if isinstance(value[key], dict | list) and value[key] and draw.random() < 0.8:
        replace_one(value[key], draw)
    elif not str(key).endswith(".json"):
        value[key] = copy.deepcopy(draw.choice(ODD))
