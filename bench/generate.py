"""Generate benchmark datasets and records: deterministic, about 325 bytes per case."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import IO, Any

Shape = Callable[[int], dict[str, Any]]
"""Returns the row of a case, given its number."""

_VOCABULARY = (
    "account agent answer balance batch branch cache city client clock code column contract country currency customer "
    "data date delivery device document draft email error event field file flight form graph group hotel index invoice "
    "item key label letter limit line list logic market member merge meter method model month name node note number "
    "offer order page parser part path payment phone plan price product profile query queue rate reader record refund "
    "region report request result river route row rule schema score season sensor server service session shape signal"
)
_OUTCOME_CHARS, _INPUT_CHARS, _EXPECTED_CHARS = 67, 110, 72
_RUN_ID = "20261115-000000-0000"
# Two primes, so that combinations of texts repeat only after a million cases.
_INPUTS, _ANSWERS = 1009, 997


def text(number: int) -> dict[str, Any]:
    """A row in the shorthand that most datasets use: only strings."""
    outcome, given, expected = _texts(number)
    return {"id": _id(number), "expected_outcome": outcome, "input": given, "expected_output": expected}


def messages(number: int) -> dict[str, Any]:
    """The same row with arrays of messages instead of strings."""
    row = text(number)
    system = {"role": "system", "content": "Answer in one sentence."}
    return {
        **row,
        "input": [system, {"role": "user", "content": row["input"]}],
        "expected_output": [{"role": "assistant", "content": row["expected_output"]}],
    }


def annotated(number: int) -> dict[str, Any]:
    """The same row with metadata and tags."""
    metadata = {"source": "generated", "difficulty": number % 5, "reviewed": number % 3 == 0}
    return {**text(number), "metadata": metadata, "tags": ["bench", f"group-{number % 10}"]}


def agentmark(number: int) -> dict[str, Any]:
    """A row of variables without an id, as in AgentMark."""
    outcome, given, expected = _texts(number)
    return {
        "input": {"userMessage": given, "topic": outcome, "customer": {"number": number, "premium": number % 2 == 0}},
        "expected_output": expected,
    }


def scored_job(number: int, score: float, verdict: str) -> dict[str, Any]:
    """The first fields of a record; two targets answer in turn."""
    hours, minutes, seconds = number // 3_600_000 % 24, number // 60_000 % 60, number // 1000 % 60
    return {
        "schema_version": 1,
        "timestamp": f"2026-11-15T{hours:02d}:{minutes:02d}:{seconds:02d}.{number % 1000:03d}Z",
        "run_id": _RUN_ID,
        "eval_id": f"case-{number:06d}",
        "dataset": "support",
        "dataset_path": "evals/support.jsonl",
        "target": ("one", "two")[number % 2],
        "trial": 1,
        "status": "ok",
        "score": score,
        "verdict": verdict,
    }


def write_manifest(folder: Path) -> None:
    """Write the manifest of a run that has just started."""
    started = {"run_id": _RUN_ID, "started_at": "2026-11-15T00:00:00.000Z"}
    (folder / "run.json").write_text(json.dumps({"schema_version": 1, **started}))


def write_jsonl(path: Path, shape: Shape, cases: int, opener: Callable[..., IO[bytes]] = open) -> Path:
    """Write a JSONL file and its sidecar; `opener` may compress."""
    path.with_name(f"{path.name.split('.')[0]}.yaml").write_text("description: Generated cases\n")
    encode = json.JSONEncoder(separators=(",", ":")).encode
    with opener(path, "wb") as stream:
        for number in range(cases):
            stream.write(encode(shape(number)).encode() + b"\n")
    return path


def write_yaml(path: Path, shape: Shape, cases: int) -> Path:
    """Write a YAML file in block style with plain scalars."""
    with path.open("w", encoding="utf-8") as stream:
        stream.write("description: Generated cases\nevalcases:\n")
        for number in range(cases):
            stream.writelines(f"{line}\n" for line in _yaml_item(shape(number), "  "))
    return path


def _yaml_item(mapping: dict[str, Any], indent: str) -> Iterator[str]:
    """The lines of one list entry. Values are strings or lists of mappings."""
    start = f"{indent}- "
    for key, value in mapping.items():
        if isinstance(value, str):
            yield f"{start}{key}: {value}"
        else:
            yield f"{start}{key}:"
            for entry in value:
                yield from _yaml_item(entry, f"{indent}    ")
        start = f"{indent}  "


def _id(number: int) -> str:
    return f"case-{number:07d}"


def _texts(number: int) -> tuple[str, str, str]:
    inputs, outcomes, answers = _pools()
    return outcomes[number % _ANSWERS], inputs[number % _INPUTS], answers[number % _ANSWERS]


@cache
def _pools() -> tuple[list[str], list[str], list[str]]:
    chosen = random.Random(0)
    inputs = [_sentence(chosen, _INPUT_CHARS, "?") for _ in range(_INPUTS)]
    outcomes = [_sentence(chosen, _OUTCOME_CHARS, ".") for _ in range(_ANSWERS)]
    return inputs, outcomes, [_sentence(chosen, _EXPECTED_CHARS, ".") for _ in range(_ANSWERS)]


def _sentence(chosen: random.Random, chars: int, end: str) -> str:
    """Words, cut to exactly `chars` characters."""
    words = " ".join(chosen.choices(_VOCABULARY.split(), k=chars // 3))
    return words[: chars - 2].capitalize().rstrip().ljust(chars - 1, "s") + end
