"""The Python evaluator: a function of the user's that gets the answer and returns a score."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from agentv.evaluators.base import Evaluator, Seconds

_FUNCTION = re.compile(r"(.+\.py|[^\W\d][\w.]*):[^\W\d][\w.]*")


class PythonFunction(Evaluator, frozen=True, kw_only=True):
    """A function named as `file.py:name` or `module:name`."""

    aliases: ClassVar[dict[str, str]] = {"value": "function"}
    files: ClassVar[tuple[str, ...]] = ("function",)

    function: str
    timeout_seconds: Seconds = 60.0
    config: dict[str, Any] = {}

    def complaints(self) -> list[str]:
        """A function named in no known form, code written out included."""
        if _FUNCTION.fullmatch(self.function):
            return []
        return ["'function' must name a function as 'file.py:name' or 'module:name'; code itself is not run"]
