"""The Python target: a function of the user's that answers."""

from __future__ import annotations

import re
from typing import ClassVar

from agentv.targets.base import COMMON_ALIASES, INTERPOLATION, Target

_FUNCTION = re.compile(r"(.+\.py|[^\W\d][\w.]*):[^\W\d][\w.]*")


class PythonFunction(Target, frozen=True, kw_only=True):
    """A function, plain or async, named as `module:name` or `file.py:name`."""

    aliases: ClassVar[dict[str, str]] = {**COMMON_ALIASES, "callable": "function"}

    function: str

    def complaints(self) -> list[str]:
        """A function named in no known form."""
        if _FUNCTION.fullmatch(self.function) or INTERPOLATION.search(self.function):
            return []
        return [f"'function' must be of the form 'module:name' or 'file.py:name', got '{self.function}'"]
