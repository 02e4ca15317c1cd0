"""Record AgentV's verdicts: `agentv eval` on each file, whose answers a command copies from the input of the case."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peer_tools import PeerError, copied, npm_package, npm_version, pair_files, run_tool, temporary_folder

VERSION = "4.42"
_ENDINGS = (0, 1)
"""The exit code is 1 if a test fails."""


def records() -> Iterator[dict[str, Any]]:
    """Yield a record for each evaluator and answer."""
    package = npm_package("agentv", "AGENTV_PACKAGE", VERSION)
    folder = copied("agentv_ts")
    run_tool(["git", "init", "--quiet", "."], folder)
    for path in pair_files("agentv_ts", ".yaml"):
        common = {"tool": "agentv_ts", "version": npm_version(package), "file": path.name}
        yield from ({**common, **each} for each in _checks(package, folder, path.name))


def _checks(package: Path, folder: Path, name: str) -> Iterator[dict[str, Any]]:
    out = temporary_folder("agentv-results")
    program = package / json.loads((package / "package.json").read_text("utf-8"))["bin"]["agentv"]
    command = ["node", str(program), "eval", name, "--target", "default", "--workers", "1", "--output", str(out)]
    ended = run_tool(command, folder, codes=_ENDINGS)
    if not (out / "index.jsonl").is_file():
        raise PeerError(f"agentv wrote no results for {name}:\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}")
    for line in (out / "index.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        if row["execution_status"] == "execution_error":
            raise PeerError(f"agentv could not run {name}, test {row['test_id']}: {row.get('error')}")
        answer = (out / row["answer_path"]).read_text("utf-8") if row.get("answer_path") else ""
        for score in row["scores"]:
            yield {
                **{"case": row["test_id"], "evaluator": score["name"], "answer": answer},
                **{"passed": score["verdict"] == "pass", "score": round(score["score"], 6)},
            }
