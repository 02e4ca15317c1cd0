"""Names of variables that programs did not get, for the message of a program that fails without one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_names: set[str] = set()


def note_withheld(names: Iterable[str]) -> None:
    """Note variables that were left out of the environment of a program."""
    _names.update(names)


def withheld_hint(output: str, env: Mapping[str, str]) -> str:
    """Return a hint on the variables that a program's output names, that are set, and that it did not get."""
    missing = [name for name in dict.fromkeys(_NAME.findall(output)) if name in _names and name not in env]
    if not missing:
        return ""
    verb = "is set, but was" if len(missing) == 1 else "are set, but were"
    return f" ({', '.join(missing)} {verb} not passed to the program: list it in `pass_env`)"
