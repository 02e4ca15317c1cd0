"""Our verdicts and scores equal those that other tools gave to the same files and answers; see bench/peers."""

import shutil

import pytest
from peer_records import KEYS, PEERS, WAYS, OurRun, Outcome, differences, our_run, problems_of, records_of, tools

pytestmark = pytest.mark.ci

ARGUMENTS = {"inspect": ("--evaluator", "icontains"), "deepeval": ("--evaluator", "equals")}
"""Arguments of `agentv eval` for the files of a tool."""

CASE_NAMES = {"promptfoo": lambda id: id.partition(" [")[0]}
"""The name of a case in the records of a tool, for a case id of ours."""

FILES = [(tool, file) for tool in tools() if tool not in ("agentmark", "written") for file in records_of(tool)]
"""The records of AgentMark are rendered prompts, which tests/extensions/agentmark checks. `test_foreign_writers` checks
what was `written`."""


@pytest.mark.parametrize(("tool", "file"), FILES)
def test_our_outcomes_equal_the_records_or_an_entry_explains_them(tool, file, command, tmp_path, monkeypatch):
    folder = tmp_path / tool
    shutil.copytree(PEERS / tool, folder)
    monkeypatch.chdir(folder)
    ended = command("eval", file, "--out", "run", *ARGUMENTS.get(tool, ()))
    run = our_run(folder / "run", ended, CASE_NAMES.get(tool, str))
    entries = [entry for entry in differences() if (entry["tool"], entry["file"]) == (tool, file)]
    assert problems_of(records_of(tool)[file], run, entries) == []


def test_every_entry_is_complete_and_names_a_recorded_file():
    for entry in differences():
        assert set(entry) <= KEYS and {"tool", "file", "becomes", "theirs", "ours", "reason"} <= set(entry), entry
        assert entry["becomes"] in WAYS and (entry["tool"], entry["file"]) in FILES, entry


RECORD = {"case": "a", "evaluator": "contains", "answer": "x", "passed": False, "score": 0.0}
ENTRY = {"becomes": "pass", "case": "a", "note": "passes here"}


@pytest.mark.parametrize(
    ("record", "ours", "entries", "problem"),
    [
        (RECORD, Outcome(False, 0.0), [], None),
        (RECORD, Outcome(False, 0.5), [], "unexplained (score)"),
        (RECORD, Outcome(True, 1.0), [], "unexplained (pass)"),
        (RECORD, Outcome(error="no"), [], "unexplained (error)"),
        (RECORD, None, [], "unexplained (not kept)"),
        ({**RECORD, "error": "no"}, Outcome(error="no"), [], None),
        ({**RECORD, "error": "no"}, Outcome(False, 0.0), [], "unexplained (no error)"),
        (RECORD, Outcome(True, 1.0), [ENTRY], None),
        (RECORD, Outcome(True, 1.0), [{**ENTRY, "note": ""}], "without a note"),
        (RECORD, Outcome(True, 1.0), [{**ENTRY, "note": "other"}], "not printed"),
        (RECORD, Outcome(True, 1.0), [{**ENTRY, "answer": ["y"]}], "unexplained (pass)"),
        (RECORD, Outcome(False, 0.0), [ENTRY], "matches no difference"),
    ],
)
def test_differences_are_unexplained_without_an_entry_that_fits(record, ours, entries, problem):
    run = OurRun({} if ours is None else {("a", "contains", "x"): ours}, "Note: it passes here")
    problems = "\n".join(problems_of([record], run, entries))
    assert problem in problems if problem else not problems


def row(*scores, status="ok"):
    return {"test_id": "a", "execution_status": status, "scores": list(scores)}


@pytest.mark.parametrize(
    ("rows", "missing"),
    [
        ([], ["test a: no result"]),
        ([row(status="execution_error")], ["test a: execution_error"]),
        ([row({"name": "one"})], ["test a, grader two: no score"]),
        ([row({"name": "one", "assertions": [{"text": "Grader timed out"}]}, {"name": "two"})], ["one: timeout"]),
        ([row({"name": "one"}, {"name": "two"})], []),
    ],
)
def test_a_grader_without_a_verdict_is_named_when_agentv_is_recorded(rows, missing, monkeypatch):
    monkeypatch.syspath_prepend(PEERS.parents[2] / "bench" / "peers")
    agentv_ts = pytest.importorskip("agentv_ts")
    suite = {"assertions": [{"name": "one"}], "tests": [{"id": "a", "assertions": [{"name": "two"}]}]}
    problems = agentv_ts.missing_checks(suite, rows)
    assert len(problems) == len(missing) and all(part in "; ".join(problems) for part in missing)
