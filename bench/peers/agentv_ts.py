"""Record AgentV's verdicts: `agentv eval` on each file, whose answers a command copies from the input of the case."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from peer_tools import PeerError, copied, npm_package, npm_version, pair_files, run_tool, temporary_folder

VERSION = "4.42"
_ENDINGS = (0, 1)
"""The exit code is 1 if a test fails."""
_SCORED = ("ok", "quality_failure")
_ATTEMPTS = 3


def records() -> Iterator[dict[str, Any]]:
    """Yield a record for each evaluator and answer."""
    package = npm_package("agentv", "AGENTV_PACKAGE", VERSION)
    folder = copied("agentv_ts")
    run_tool(["git", "init", "--quiet", "."], folder)
    for path in pair_files("agentv_ts", ".yaml"):
        common = {"tool": "agentv_ts", "version": npm_version(package), "file": path.name}
        yield from ({**common, **each} for each in _checks(package, folder, path.name))


def _checks(package: Path, folder: Path, name: str) -> Iterator[dict[str, Any]]:
    """Yield the checks of a file. It is run again if some are missing, for example because a grader timed out."""
    for _ in range(_ATTEMPTS):
        out = _run(package, folder, name)
        rows = [json.loads(line) for line in (out / "index.jsonl").read_text("utf-8").splitlines()]
        missing = missing_checks(yaml.safe_load((folder / name).read_text("utf-8")), rows)
        if not missing:
            break
    else:
        raise PeerError(f"agentv gave no verdict in {_ATTEMPTS} attempts: {name}, {'; '.join(missing)}")
    for row in rows:
        answer = (out / row["answer_path"]).read_text("utf-8") if row.get("answer_path") else ""
        for score in row["scores"]:
            yield {
                **{"case": row["test_id"], "evaluator": score["name"], "answer": answer},
                **{"passed": score["verdict"] == "pass", "score": round(score["score"], 6)},
            }
        passed = row["execution_status"] == "ok"
        whole = {"case": row["test_id"], "evaluator": None, "answer": answer}
        yield {**whole, "passed": passed, "score": round(row["score"], 6)}


def _run(package: Path, folder: Path, name: str) -> Path:
    out = temporary_folder("agentv-results")
    program = package / json.loads((package / "package.json").read_text("utf-8"))["bin"]["agentv"]
    command = ["node", str(program), "eval", name, "--target", "default", "--workers", "1", "--output", str(out)]
    ended = run_tool(command, folder, codes=_ENDINGS)
    if not (out / "index.jsonl").is_file():
        raise PeerError(f"agentv wrote no results for {name}:\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}")
    return out


def missing_checks(suite: dict[str, Any], rows: list[dict[str, Any]]) -> list[str]:
    """Return the tests and graders of a file without a verdict, each with the reason that is known."""
    missing = []
    by_test = {row["test_id"]: row for row in rows}
    for test in suite["tests"]:
        row = by_test.get(test["id"], {"scores": [], "execution_status": "no result"})
        if row["execution_status"] not in _SCORED:
            missing.append(f"test {test['id']}: {row.get('error') or row['execution_status']}")
            continue
        scores = {score["name"]: score for score in row["scores"]}
        shared = [] if test.get("execution", {}).get("skip_defaults") else suite.get("assertions", [])
        for entry in [*shared, *test.get("assertions", [])]:
            score = scores.get(entry["name"])
            if score is None or _timed_out(score):
                reason = "no score" if score is None else "timeout"
                missing.append(f"test {test['id']}, grader {entry['name']}: {reason}")
    return missing


def _timed_out(score: dict[str, Any]) -> bool:
    texts = (str(each.get("text", "")).lower() for each in score.get("assertions", []))
    return any("timed out" in text or "timeout" in text for text in texts)
