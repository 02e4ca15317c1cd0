"""Regular expressions that are compiled at their first use: compiling them all would take an eighth of a small run."""

import re
from typing import Any, AnyStr, cast


class _LazyRegex:
    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(*self._arguments), name)
        setattr(self, name, value)  # later uses find it without this method
        return value


def lazy_regex(pattern: AnyStr, flags: re.RegexFlag | int = 0) -> re.Pattern[AnyStr]:
    """Return an object with the methods and attributes of a compiled pattern."""
    return cast("re.Pattern[AnyStr]", _LazyRegex(pattern, flags))
