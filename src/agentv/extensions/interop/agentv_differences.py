"""What AgentV (TypeScript) reads in another way than agentv, and what it reads that agentv does not."""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from agentv.model.diagnostics import KeyPath, Problems
from agentv.settings.evaluator_reader import LISTS

_AGENTV_TOOLS = ("Bash", "Edit", "Read", "Skill", "Write")
_OPTIONS = {
    "maxCostUsd": "--budget-usd",
    "maxDurationMs": "--deadline (in seconds)",
    "maxRetries": "--max-retries",
    "agentTimeoutMs": "--timeout (in seconds)",
    "workers": "--workers",
    "threshold": "--min-score",
}
"""Settings that change what a run may do or when it fails, and the option of `agentv eval` for each."""

_LONGEST = 100_000


def warn_of_entries(entries: Any, path: KeyPath, problems: Problems) -> None:
    """Warn of entries in a file with `tests` that AgentV (TypeScript) reads in another way."""
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        for message in _agentv_differences(entry) if isinstance(entry, dict) else ():
            problems.warning((*path, index), f"AgentV (TypeScript) {message}", topic=message)


def _agentv_differences(entry: dict[str, Any]) -> Iterator[str]:
    if not _tools_of(entry).isdisjoint(_AGENTV_TOOLS):
        yield "calls tools of Copilot, Codex and Pi Bash, Edit, Read, Skill and Write; here they have the agent's names"
    yield from _differences_of_type(str(entry.get("type")), negate=entry.get("negate"))
    if any(not {"input", "output"}.isdisjoint(call) for call in _dicts(entry.get("expected"))):
        yield "ignores 'input' and 'output' of an expected call, and compares 'args'; here all are compared"
    if isinstance(entry.get("value"), int | float):
        yield "ignores an assertion whose value is not text. Put the value into quotes"
    if entry.get("type") == "rubrics" and isinstance(entry.get("criteria"), str):
        yield "ignores `rubrics` whose criteria are not a list"
    for field in _dicts(entry.get("fields")):
        if "DD/MM" in str(field.get("formats")):
            yield "reads 02/01/2024 as 1 February, whatever 'formats' has"
    for member in (member for key in LISTS for member in _dicts(entry.get(key))):
        if not {"weight", "negate"}.isdisjoint(member) or str(member.get("type")).startswith("not-"):
            yield "ignores 'weight' and 'negate' of the members of a composite. Use `weights` of its `aggregator`"


def _differences_of_type(type_name: str, *, negate: Any) -> Iterator[str]:
    kind = type_name.replace("_", "-")
    if kind.startswith("not-"):
        yield "scores assertions whose type begins with 'not-' 0, because it does not know them. Use `negate: true`"
    if kind in ("code-judge", "llm-judge"):
        yield f"skips the former type '{type_name}'. Use '{kind.replace('judge', 'grader')}'"
    if kind == "tool-trajectory" and negate:
        yield "gives calls that are partly as expected a part of the score, so that a negated trajectory may fail there"
    if kind == "skill-trigger":
        yield (
            "finds a skill's name in that of another one, reads it only from 'skill', and finds its folder only in "
            "results and in what Read is given"
        )


def _tools_of(entry: dict[str, Any]) -> set[str]:
    """Return the tools that a trajectory names."""
    minimums = entry.get("minimums")
    names = {str(item.get("tool")) for item in _dicts(entry.get("expected"))}
    return names | set(map(str, minimums if isinstance(minimums, dict) else ()))


def _dicts(items: Any) -> list[dict[str, Any]]:
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def settings_note(path: str) -> str:
    """Return what a settings file sets, with the options to use instead."""
    text = ""
    with suppress(OSError):
        text = Path(path).read_text(encoding="utf-8", errors="replace")[:_LONGEST]
    settings = ", ".join(f"{setting} ({option})" for setting, option in _replaced_settings(text))
    return f"is not read. It sets {settings}" if settings else "is not read"


def _replaced_settings(text: str) -> Iterator[tuple[str, str]]:
    """Yield the settings that matter, with their values, and the options that replace them."""
    code = re.sub(r"/\*.*?\*/|(?<!:)//[^\n]*", "", text, flags=re.DOTALL)
    for name, option in _OPTIONS.items():
        if match := re.search(rf"(?<![\w$])['\"]?{name}['\"]?\s*:\s*([\w.]+)?", code):
            yield (f"{name}: {match[1]}" if match[1] else name), option
