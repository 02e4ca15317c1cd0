"""The data of served runs: rows, records and cases of every kind of run that can be read, and their errors."""

import json


def test_the_page_opens_in_a_browser(folder, served):
    folder.write("rows.jsonl", [{"test_id": "first", "score": 1.0}, {"test_id": "second", "score": 0.2}])
    with served("rows.jsonl") as page:
        page.get_by_text("second", exact=True).wait_for()


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
        head = view.get(f"/api/runs/{id}/head")
        assert (head["total"], head["complete"], head["live"]) == (3, True, False)
        stored = json.loads((run / "summary.json").read_text())
        assert head["summary"]["targets"] == stored["targets"]
        assert head["details"]["upper"]["passed"] == 1
