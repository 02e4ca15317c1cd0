"""The data of served runs: rows, records and cases of every kind of run that can be read, and their errors."""

import json
import os

import msgspec
import pytest

from agentv.extensions.view.row_store import RowStore, find_case
from agentv.extensions.view.run_reader import RunReader
from contracts.foreign_results import READABLE
from made_results import made


def record(eval_id, **values):
    """A record as it is written to a line."""
    return msgspec.to_builtins(made(eval_id=eval_id, dataset_path="evals/texts.jsonl", **values))


def test_the_page_opens_in_a_browser(folder, served):
    folder.write("rows.jsonl", [{"test_id": "first", "score": 1.0}, {"test_id": "second", "score": 0.2}])
    with served("rows.jsonl") as page:
        page.get_by_text("second", exact=True).wait_for()
        assert page.locator(".window .row").count() == 2


def test_rows_records_and_cases_are_those_of_the_run(evaluated, server):
    run = evaluated("abc")
    with server("run") as view:
        [id] = view.login().run_ids()
        rows, names = view.rows(id)
        assert sorted(row["id"] for row in rows) == ["a", "b", "c"]
        assert names["datasets"] == [{"name": "letters", "path": "evals/letters.yaml"}]
        for place, row in enumerate(rows):
            [rest] = view.get(f"/api/runs/{id}/results?rows={place}")
            assert rest["candidate_answer"] == row["id"].upper()
            assert view.get(f"/api/runs/{id}/case?row={place}")["id"] == row["id"]
        head = view.head(id)
        assert (head["total"], head["complete"], head["live"], head["covers"]) == (3, True, False, None)
        stored = json.loads((run / "summary.json").read_text())
        assert head["summary"]["targets"] == stored["targets"]
        assert ["scored", "3 of 3"] in head["facts"]["upper"]


def test_a_run_with_three_targets_has_cost_and_quality(folder, server):
    costs = {"cheap": 0.01, "dear": 0.03, "waste": 0.05}
    folder.write(
        "results.jsonl",
        [
            record(str(n), target=target, score=float(target == "dear"), execution_metrics={"cost_usd": cost})
            for target, cost in costs.items()
            for n in range(9)
        ],
    )
    with server("results.jsonl") as view:
        [id] = view.login().run_ids()
        view.rows(id)
        points = view.head(id)["frontier"]["points"]
        assert [(point["name"], point["is_dominated"]) for point in points] == [
            ("cheap", False),
            ("dear", False),
            ("waste", True),
        ]


def test_blocks_continue_anywhere_and_name_only_what_is_new(folder, server):
    rows = [record(f"case-{n}", target=f"t{n // 10_000}", tags=(f"tag{n % 7}",)) for n in range(20_000)]
    folder.write("results.jsonl", rows)
    with server("results.jsonl") as view:
        [id] = view.login().run_ids()
        found, names = view.rows(id)
        assert [row["id"] for row in found] == [row["eval_id"] for row in rows]
        assert [names["targets"][row["target"]] for row in found] == [row["target"] for row in rows]
        assert [names["tagSets"][row["tags"]] for row in found] == [list(row["tags"]) for row in rows]
        for first, count, targets in ((0, 16_384, ["t0", "t1"]), (10_000, 6_384, ["t1"]), (10_001, 6_383, [])):
            block = view.get(f"/api/runs/{id}/rows?first={first}")
            assert (block["n"], block["names"]["targets"], block["total"]) == (count, targets, 20_000)
            times = block["ended"] if isinstance(block["ended"], list) else [block["ended"]] * count
            assert sum(times) == 1_767_323_045_000
        assert view.get(f"/api/runs/{id}/rows?first=20000")["n"] == 0
        assert view.get(f"/api/runs/{id}/rows?first=90000000")["n"] == 0


def test_all_rows_are_read_only_when_the_last_ones_are_stored(folder):
    folder.write("run/results.jsonl", [record(f"case-{n}") for n in range(20)])
    reader, were_all_read = RunReader(folder.path / "run"), []

    class Watched(RowStore):
        def add(self, records):
            were_all_read.append(reader.has_all_rows)
            super().add(records)

    reader.rows = Watched()
    reader.follow()
    reader.wait(lambda: reader.is_at_end)
    assert were_all_read == [False] and reader.has_all_rows and reader.rows.total == 20


def test_figures_of_a_part_of_the_records_say_how_many_they_cover(folder, server):
    total = 30_000
    metrics = {"cost_usd": 0.5}
    rows = [record(f"case-{n}", target=f"t{n // 10_000}") | {"execution_metrics": metrics} for n in range(total)]
    folder.write("run/results.jsonl", rows)
    folder.write("run/run.json", {"schema_version": 1, "run_id": "foreign", "started_at": "2026-11-15"})
    with server("run") as view:
        [id] = view.login().run_ids()
        covered = []
        while not covered or covered[-1] is not None:
            head = view.get(f"/api/runs/{id}/head")
            covered.append(head["covers"])
            targets = head["summary"]["targets"].values()
            n = total if head["covers"] is None else head["covers"]
            assert sum(target["scored"] for target in targets) == n
            assert sum(target["cost_usd"] for target in targets) == n / 2
            assert head["complete"] == (head["covers"] is None)
        assert max(covered[:-1], default=0) < total  # a busy machine may have read all of them before the first request


def test_results_of_every_other_tool_are_shown(tmp_path, server):
    examples = {example.format: example for example in reversed(READABLE)}
    paths = []
    for name, example in examples.items():
        (tmp_path / name).mkdir()
        paths.append(example.write(tmp_path / name))
    with server(*paths) as view:
        listed = view.login().get("/api/runs")["runs"]
        assert len(listed) == len(examples) and {run["state"] for run in listed} == {"foreign"}
        for run in listed:
            rows, _ = view.rows(run["id"])
            places = ",".join(map(str, range(len(rows))))
            head = view.head(run["id"])
            assert len(view.get(f"/api/runs/{run['id']}/results?rows={places}")) == len(rows)
            assert head["total"] == run["done"] == len(rows)
            assert head["notes"][0].startswith("Read ") and head["complete"]
            assert head["again"] == {"reason": "another tool wrote it"}


def test_folders_of_runs_and_several_runs_are_listed(evaluated, folder, server):
    evaluated(out="runs/first")
    evaluated(out="runs/second")
    folder.write("runs/notes.txt", "not a run")
    os.mkfifo("runs/eval_pipe.json")
    os.symlink("nowhere", "runs/broken")
    folder.write("eval_old.jsonl", [{"test_id": "x", "score": 1.0}])
    with server("runs", "eval_old.jsonl", "runs/first") as view:
        listed = view.login().get("/api/runs")["runs"]
        assert sorted(run["path"] for run in listed) == ["eval_old.jsonl", "runs/first", "runs/second"]
        assert view.first_line.startswith("Serving 3 runs at ")


DAMAGE = {
    "run.json": b"{",
    "results.jsonl": b'{"schema_version":1,"eval_id":\n{}\n',
}


@pytest.mark.parametrize("file", DAMAGE)
def test_a_damaged_run_is_listed_with_the_reason(evaluated, folder, server, file):
    run = evaluated()
    evaluated(out="good")
    (run / file).write_bytes(DAMAGE[file])
    with server("run", "good") as view:
        found = {entry["path"]: entry for entry in view.login().get("/api/runs")["runs"]}
        assert found["good"]["state"] == "finished" and not found["good"]["problem"]
        if file == "run.json":
            assert found["run"]["state"] == "unreadable" and "run.json" in found["run"]["problem"]
        error = view.get(f"/api/runs/{found['run']['id']}/rows?first=0")["error"]
        assert file in error["message"] and "agentv runs repair" in error["hint"]
        (run / file).write_bytes((folder.path / "good" / file).read_bytes())
        assert len(view.rows(found["run"]["id"])[0]) == 3


def test_a_damaged_last_line_of_a_file_is_an_error(folder, server):
    lasts = ('{"test_id": "b", "sco', '[{"test_id": "b", "score": 1}]', '{"test_id": "b", "score": 2}')
    for number, last in enumerate(lasts):
        folder.write(f"eval_{number}.jsonl", '{"test_id": "a", "score": 1}\n' + last)
    with server(*(f"eval_{number}.jsonl" for number in range(len(lasts)))) as view:
        for id in view.login().run_ids():
            for part in ("head", "rows?first=0", "search?text=a"):
                error = view.get(f"/api/runs/{id}/{part}")["error"]
                assert error["message"].startswith("Invalid record at line 2")


def test_search_finds_answers_findings_and_inputs(folder, server):
    rows = [
        record("answer", candidate_answer="It is a ZEBRA"),
        record("nothing", candidate_answer="a horse"),
        record("finding", misses=("names no zebra",)),
        record("escaped", candidate_answer="Größe \\/ \n über"),
        record("quoted", candidate_answer='He said "SCHÖN" in C:\\Übung'),
        record("input", candidate_answer=""),
        record("kelvin sign", candidate_answer="at 300 \N{KELVIN SIGN}"),
    ]
    folder.write("run/results.jsonl", rows)
    case = {"id": "input", "dataset_path": "evals/texts.jsonl", "input": [{"role": "user", "content": "a zebra?"}]}
    folder.write("run/cases.jsonl", [case, {**case, "dataset_path": "other.jsonl"}])
    with server("run") as view:
        [id] = view.login().run_ids()

        def search(text):
            answer = view.request(f"/api/runs/{id}/search?text={text}")
            parts = [json.loads(line) for line in answer.text.splitlines()]
            assert {part["total"] for part in parts} == {7} and parts[-1]["searched"] == 7
            return [rows[row]["eval_id"] for part in parts for row in part["rows"]]

        assert search("zebra") == ["answer", "finding", "input"]
        assert search("%C3%BCBER") == search("gr%C3%B6%C3%9Fe") == ["escaped"]
        assert search("%22sch%C3%B6n%22") == search("c:%5C%C3%BCbung") == ["quoted"]
        assert search("300%20k") == search("300%20%E2%84%AA") == ["kelvin sign"]
        assert search("eval_id") == search("fingerprint") == []
        assert "1 to 1,000 characters" in view.get(f"/api/runs/{id}/search?text=")["error"]["message"]


def test_large_records_are_sent_in_several_answers(folder, server):
    folder.write("rows.jsonl", [record(f"c{n}", candidate_answer="x" * 9_000_000) for n in range(4)])
    with server("rows.jsonl") as view:
        [id] = view.login().run_ids()
        last = view.get(f"/api/runs/{id}/results?rows=3")  # before any row was asked for
        assert [len(each["candidate_answer"]) for each in last] == [9_000_000]
        assert len(view.get(f"/api/runs/{id}/results?rows=0,1,2,3")) == 2


def test_wrong_rows_are_errors(evaluated, server):
    evaluated("a")
    with server("run") as view:
        [id] = view.login().run_ids()
        for path, status in (
            ("rows?first=-1", 400),
            ("rows?first=1e3", 400),
            ("results?rows=0,99", 200),
            ("results?rows=" + "1," * 3000, 400),
            ("case?row=7", 200),
        ):
            answer = view.request(f"/api/runs/{id}/{path}")
            assert answer.status == status and answer.json["error"]["message"]


@pytest.mark.parametrize("spaces", [None, (",", ":")], ids=["as written by others", "as written by agentv"])
def test_the_case_of_a_row_is_found_wherever_it_is_stored(tmp_path, spaces):
    path = tmp_path / "cases.jsonl"
    cases = [{"id": f"c{n % 3000}", "dataset_path": f"d{n // 3000}.jsonl", "input": "x" * 2000} for n in range(6000)]
    lines = [json.dumps(case, separators=spaces).encode() + b"\n" for case in cases]
    path.write_bytes(b"".join(lines) + b'{"id":"cut')
    offset = sum(map(len, lines[:4500]))
    for near in (0.0, 0.3, 0.75, 1.0):
        assert find_case(path, "d1.jsonl", "c1500", near) == offset
        assert find_case(path, "d0.jsonl", "c0", near) == 0
        assert find_case(path, "d2.jsonl", "c0", near) == find_case(path, "d0.jsonl", "c", near) == -1
