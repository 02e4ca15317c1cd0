"""Our side of the load benchmarks: the two public functions that load cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def load_list(path: str) -> Callable[[], Any]:
    """Load all cases into a list."""
    from agentv import load_cases  # late: the floor's process must not import it

    _import_formats()
    return lambda: load_cases(path)


def load_stream(path: str) -> Callable[[], Any]:
    """Stream all cases without keeping them."""
    from agentv import stream_cases  # late: the floor's process must not import it

    _import_formats()
    return lambda: sum(1 for _ in stream_cases(path))


def _import_formats() -> None:
    """Find and import all formats. A process does this once, at its first file; `startup.py` measures start-up."""
    from agentv.registry import FORMATS

    for name in FORMATS.all_names():
        FORMATS.find(name)
