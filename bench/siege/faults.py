"""Run every behaviour of a server against every kind of model API, and compare the error class with the expected one.

    python bench/siege/faults.py
    python bench/siege/faults.py --only reset,503

Prints a Markdown table. The exit code is 1 if an answer has another class, or if a fault was scored.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from fork_server import ForkServer
from shapes import BENCH

PROVIDERS = {"openai": "url", "anthropic": "origin", "gemini": "origin"}
OK = "ok"
_AUTH, _TIMEOUTS, _LIMITS = (401, 402, 403, 407), (408,), (429,)
_STATUSES = (
    *range(400, 419), *(421, 422, 423, 424, 425, 426, 428, 429, 431, 451),
    *(500, 501, 502, 503, 504, 505, 507, 508, 511, 520, 522, 524, 529, 530, 599),
)  # fmt: skip
_FAULTS = {
    "reset": "network",
    "half_closed": "network",
    "truncated": "invalid_response",
    "hang": "timeout",
    "wrong_usage": OK,
    "slow_drip": OK,
    "latency": OK,
}
_BODIES = {
    "an empty body": b"",
    "null": b"null",
    "a number": b"17",
    "a list": b"[]",
    "an empty object": b"{}",
    "a page of HTML": b"<html><body>Bad gateway</body></html>",
    "bytes that are not UTF-8": b"\xff\xfe\x00",
    "a text": b'"yes"',
    "an answer of the wrong type": b'{"choices": 3, "content": 3, "candidates": 3}',
    "deep nesting": b"[" * 100_000,
    "10 MB of spaces": b" " * 10_000_000,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="comma-separated names of behaviours")
    wanted = set(filter(None, parser.parse_args().only.split(",")))
    print(f"| behaviour | expected | {' | '.join(PROVIDERS)} |\n|---|---|{'---|' * len(PROVIDERS)}", flush=True)
    rows = wrong = 0
    with ForkServer() as server:
        for name, (expected, options) in behaviours().items():
            if wanted and name not in wanted:
                continue
            found = outcomes(server, options)
            rows, wrong = rows + len(found), wrong + sum(each != expected for each in found)
            shown = (each if each == expected else f"**{each}**" for each in found)
            print(f"| {name} | {expected} | {' | '.join(shown)} |", flush=True)
    print(f"faults: {rows} behaviours of APIs, {wrong} wrong")
    return 1 if wrong else 0


def behaviours() -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the expected outcome and the options of the server for each behaviour."""
    from agentv_testing import RawReply

    found: dict[str, tuple[str, dict[str, Any]]] = {
        str(status): (class_of(status), {"faults": {str(status): 1.0}}) for status in _STATUSES
    }
    found |= {kind: (expected, {"faults": {kind: 1.0}}) for kind, expected in _FAULTS.items()}
    found |= {name: ("invalid_response", {"answers": RawReply(body)}) for name, body in _BODIES.items()}
    return found


def class_of(status: int) -> str:
    """Return the class of errors with this status."""
    if status in _AUTH:
        return "auth"
    if status in _TIMEOUTS:
        return "timeout"
    if status in _LIMITS:
        return "rate_limit"
    return "server" if status >= 500 else "invalid_response"


def outcomes(server: ForkServer, options: dict[str, Any]) -> list[str]:
    """Run one case with each provider; return the error class of each, or `ok`."""
    from agentv_testing import FaultyServer

    with tempfile.TemporaryDirectory() as name, FaultyServer(**{"answers": "yes", "keep": 0, **options}) as faulty:
        folder = Path(name)
        common = {"model": "m", "api_key": "none", "max_retries": 0, "timeout_seconds": 2}
        targets = [
            {"name": provider, "provider": provider, "base_url": getattr(faulty, address), **common}
            for provider, address in PROVIDERS.items()
        ]
        (folder / ".agentv").mkdir()
        (folder / ".agentv" / "targets.yaml").write_text(json.dumps({"targets": targets}))
        (folder / "d.yaml").write_text(json.dumps({"evaluators": [{"type": "contains", "value": "yes"}]}))
        (folder / "d.jsonl").write_text('{"id": "a", "input": "yes?", "expected_outcome": "x"}\n')
        chosen = [part for provider in PROVIDERS for part in ("--target", provider)]
        server.run(folder, ["eval", "d.jsonl", *chosen, "--out", "out", "--quiet", "--keep-going", "--max-outage", "0"])
        records = folder / "out" / "results.jsonl"
        lines = map(json.loads, records.read_text().splitlines() if records.exists() else ())
        found = {record["target"]: outcome_of(record) for record in lines}
    return [found.get(provider, "no record") for provider in PROVIDERS]


def outcome_of(record: dict[str, Any]) -> str:
    if record["status"] == "error":
        return str(record["error"]["class"])
    return OK if record["score"] == 1.0 else f"scored {record['score']}"


if __name__ == "__main__":
    sys.path.insert(0, str(BENCH.parent / "packages" / "agentv-testing" / "src"))
    sys.exit(main())
