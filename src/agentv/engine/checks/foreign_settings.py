"""Notes on what another tool's project would mean there: settings files that are not read, and `--threshold`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from agentv.datasets.formats.dataset_format import Source
from agentv.datasets.formats.yaml_dataset import case_list_key
from agentv.engine.checks.project_files import parsed_or_none
from agentv.settings.project import project_root
from agentv.support.patterns import upward

THRESHOLD_NOTE = (
    "--threshold is the mean of all cases. In AgentV (TypeScript) it is that of every case: use --min-score for that."
)
_NAMES = (
    *(f"agentv.config.{suffix}" for suffix in ("ts", "mts", "js", "mjs", "cjs")),
    *(f"agentmark.config.{suffix}" for suffix in ("ts", "js", "mjs")),
)
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


def uses_tests(sources: Sequence[Source]) -> bool:
    """Whether a dataset is a document of AgentV (TypeScript) with `tests`."""
    documents = (parsed_or_none(source.path) for source in sources if source.kind == "yaml")
    return any(isinstance(document, dict) and case_list_key(document) == "tests" for document in documents)


def unread_settings(sources: Sequence[Source]) -> dict[str, str]:
    """Return settings files of other tools, from the datasets up to the root of their project, with a note on each."""
    folders = dict.fromkeys(
        parent for source in sources for parent in upward(source.folder, project_root(source.folder))
    )
    paths = (os.path.join(folder, name) for folder in folders for name in _NAMES)
    return {os.path.relpath(path): _note(path) for path in paths if os.path.isfile(path)}


def _note(path: str) -> str:
    text = ""
    with suppress(OSError):
        text = Path(path).read_text(encoding="utf-8", errors="replace")[:_LONGEST]
    settings = ", ".join(f"{setting} ({option})" for setting, option in _settings_in(text))
    return f"is not read. It sets {settings}" if settings else "is not read"


def _settings_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield the settings that matter, with their values, and the options that replace them."""
    code = re.sub(r"/\*.*?\*/|(?<!:)//[^\n]*", "", text, flags=re.DOTALL)
    for name, option in _OPTIONS.items():
        if match := re.search(rf"(?<![\w$])['\"]?{name}['\"]?\s*:\s*([\w.]+)?", code):
            yield (f"{name}: {match[1]}" if match[1] else name), option
