"""Regular expressions that are compiled at their first use: compiling them all would take an eighth of a small run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, AnyStr, cast

_compile = re.compile


class _LazyRegex:
    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments

    def __getattr__(self, name: str) -> Any:
        value = getattr(_compile(*self._arguments), name)
        setattr(self, name, value)  # later uses find it without this method
        return value


def lazy_regex(pattern: AnyStr, flags: re.RegexFlag | int = 0) -> re.Pattern[AnyStr]:
    """Return an object with the methods and attributes of a compiled pattern."""
    return cast("re.Pattern[AnyStr]", _LazyRegex(pattern, flags))


@contextmanager
def lazy_compilation() -> Iterator[None]:
    """Import a package whose patterns are rarely used: `re.compile` returns lazy ones, in all threads."""
    re.compile = lazy_regex  # type: ignore[assignment]
    try:
        yield
    finally:
        re.compile = _compile
