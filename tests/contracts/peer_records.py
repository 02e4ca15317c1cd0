"""Compare our outcomes with the records of another tool, and explain the differences by the entries of a file.

`bench/peers/run` writes the records: one for each evaluator and answer, and one for each case as a whole, whose
evaluator is None. An entry of `differences.toml` explains the records of one file that differ in one way.
"""

import json
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

PEERS = Path(__file__).resolve().parent.parent / "data" / "peers"
TOLERANCE = 1e-6
WAYS = ("pass", "fail", "score", "error", "no error", "not kept")
"""What becomes of a check: another verdict, only another score, an error here, an error only there, or not kept."""

KEYS = {"tool", "file", "case", "evaluator", "answer", "becomes", "theirs", "ours", "reason", "note"}


class Outcome(NamedTuple):
    """A verdict and a score; `error` instead of both. An evaluator that was not kept has neither."""

    passed: bool | None = None
    score: float | None = None
    error: str = ""


class OurRun(NamedTuple):
    """Our outcomes by case, evaluator and answer, and all texts that the user sees."""

    outcomes: dict[tuple, Outcome]
    printed: str


def tools():
    return sorted(path.stem for path in PEERS.glob("*.jsonl"))


def records_of(tool):
    """Return the records of a tool by file."""
    found = {}
    for record in _lines(PEERS / f"{tool}.jsonl"):
        found.setdefault(record["file"], []).append(record)
    return found


def differences():
    return tomllib.loads((PEERS / "differences.toml").read_text("utf-8"))["difference"]


def our_run(folder, ended, case_name):
    """Return the outcomes in a run folder. `case_name` returns the name of a case in the records, given its id."""
    if not (folder / "results.jsonl").is_file():
        return OurRun({}, f"{ended.stdout}\n{ended.stderr}")
    cases = {case["id"]: case for case in _lines(folder / "cases.jsonl")}
    outcomes, errors = {}, []
    for record in _lines(folder / "results.jsonl"):
        variables = cases.get(record["eval_id"], {}).get("variables") or {}
        key = (case_name(record["eval_id"]), variables.get("answer", record.get("candidate_answer")))
        error = str(record.get("error") or "an error") if record["status"] == "error" else ""
        errors.append(error)
        verdict = {"pass": True, "fail": False, "borderline": False}.get(record.get("verdict"))
        outcomes[key[0], None, key[1]] = Outcome(verdict, record.get("score"), error)
        results = list(_flat(record.get("evaluator_results") or []))
        for result in results:
            outcome = Outcome(result.get("verdict") == "pass", result.get("score"), error)
            outcomes[key[0], result["name"], key[1]] = outcome
            if len(results) == 1:
                outcomes[key[0], "*", key[1]] = outcome
        if error:
            outcomes[key[0], "*", key[1]] = Outcome(error=error)
    return OurRun(outcomes, "\n".join([ended.stdout, ended.stderr, *errors]))


def _flat(results):
    """Yield results, and those of the members of each."""
    for result in results:
        yield result
        yield from _flat(result.get("evaluator_results") or [])


def _lines(path):
    return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]


def ours_for(record, run):
    """Return our outcome for a record: by the evaluator's name, or that of the only evaluator."""
    case, evaluator, answer = record["case"], record["evaluator"], record["answer"]
    names = [evaluator] if evaluator is None else [evaluator, "*"]
    return next((run.outcomes[case, name, answer] for name in names if (case, name, answer) in run.outcomes), None)


def way_of(record, ours):
    """Return how our outcome differs from a record; None if it does not."""
    if ours is None or (ours.score is None and not ours.error):
        return "not kept"
    if "error" in record or ours.error:
        return None if "error" in record and ours.error else "error" if ours.error else "no error"
    if ours.passed is not record["passed"]:
        return "pass" if ours.passed else "fail"
    return None if abs(ours.score - record["score"]) <= TOLERANCE else "score"


def problems_of(records, run, entries):
    """Return all problems of one file: differences without an entry, and entries that explain nothing or too much."""
    problems, used = [], [0] * len(entries)
    for record in records:
        ours = ours_for(record, run)
        way = way_of(record, ours)
        if way is None:
            continue
        number = next((index for index, entry in enumerate(entries) if explains(entry, record, way)), None)
        if number is None:
            theirs = {
                key: record[key] for key in ("case", "evaluator", "answer", "passed", "score", "error") if key in record
            }
            problems.append(f"unexplained ({way}): {theirs} here {tuple(ours or ())}")
            continue
        used[number] += 1
        if ours is not None and ours.passed and not record["passed"] and not entries[number].get("note"):
            problems.append(f"a failure there passes here without a note: {record['case']}, {record['answer']!r}")
    for entry, count in zip(entries, used, strict=True):
        if not count:
            problems.append(f"matches no difference: {entry}")
        if entry.get("note", "") not in run.printed:
            problems.append(f"the note is not printed: {entry['note']}")
    return problems


def explains(entry, record, way):
    """Whether an entry explains a record that differs in this way."""
    fields = ((entry.get("case"), record["case"]), (entry.get("evaluator"), record["evaluator"] or "test"))
    answers = entry.get("answer")
    answers = [answers] if isinstance(answers, str) else answers
    return (
        entry["becomes"] == way
        and all(_fits(pattern, value) for pattern, value in fields)
        and (answers is None or record["answer"] in answers)
    )


def _fits(pattern, value):
    patterns = pattern if isinstance(pattern, list) else [pattern or "*"]
    return any(fnmatchcase(str(value), each) for each in patterns)
