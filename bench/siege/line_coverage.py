"""Count the lines of a reader's modules that run, with `sys.settrace`, which works in every version of Python."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

SOURCE = Path(__file__).resolve().parents[2] / "src" / "agentv"


class LineCoverage:
    """The lines that ran in some packages, such as `datasets` and `sessions/formats`."""

    def __init__(self, packages: tuple[str, ...]) -> None:
        self.lines: set[tuple[str, int]] = set()
        self._starts = tuple(str(SOURCE / package) for package in packages)
        self._unseen: dict[CodeType, set[int]] = {}
        """Lines of functions that did not run yet. Functions without such lines are not traced: that is slow."""

    def __enter__(self) -> LineCoverage:
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:  # noqa: ARG002
        code = frame.f_code
        unseen = self._unseen.get(code)
        if unseen is None:
            is_counted = code.co_filename.startswith(self._starts)
            unseen = {line for _, _, line in code.co_lines() if line is not None} if is_counted else set()
            self._unseen[code] = unseen
            unseen.discard(code.co_firstlineno)
        return self._line if unseen else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:  # noqa: ARG002
        if event == "line":
            self.lines.add((frame.f_code.co_filename, frame.f_lineno))
            self._unseen[frame.f_code].discard(frame.f_lineno)
        return self._line

    def counts(self) -> tuple[int, int]:
        """Return how many lines in functions of the imported modules ran, and how many there are."""
        files = {str(module.__file__) for module in list(sys.modules.values()) if getattr(module, "__file__", None)}
        lines = {(file, line) for file in files if file.startswith(self._starts) for line in _function_lines(file)}
        return len(lines & self.lines), len(lines)


def _function_lines(path: str) -> set[int]:
    """Return the lines of a file that are in functions: those of modules and classes run when they are imported."""
    code = compile(Path(path).read_text("utf-8"), path, "exec")
    lines = ((inner.co_firstlineno, line) for inner in _functions(code) for _, _, line in inner.co_lines())
    return {line for first, line in lines if line is not None and line > first}


def _functions(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & 0x2:  # not the body of a class
                yield constant
            yield from _functions(constant)
