"""The inventory of a run: the commands, code, hosts and variables that its files would use, and who names them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec

from agentv.errors import plural
from agentv.support.hashes import short

UseKind = Literal["command", "code", "script", "template", "file", "session", "host", "variable"]

KINDS: dict[UseKind, str] = {
    "command": "command",
    "code": "Python import",
    "script": "inline check",
    "template": "tool configuration",
    "file": "output file",
    "session": "recorded session",
    "host": "host",
    "variable": "variable",
}
NamedUse = tuple[UseKind, str]
"""What a target's settings name: the kind and the value of a `Use`."""

ANY_HOST = "any host"
"""The host of a target that does not declare which hosts it calls."""


class Use(msgspec.Struct, frozen=True, omit_defaults=True):
    """One command, import, host or variable that a file names. Of a variable, only the name is known.

    `used_by` is the setting, evaluator or target that names it. `cwd` is the working directory of a command, if given.
    """

    kind: UseKind
    value: str
    file: str
    used_by: str = ""
    cwd: str = ""


class Inventory:
    """What a run would use, each item once. `files` are the files that were read for it.

    `has_values` is whether variables were inserted into the files before.
    """

    def __init__(self, uses: Iterable[Use] = (), files: Iterable[str] = (), *, has_values: bool = False) -> None:
        self._uses = dict.fromkeys(uses)
        self.has_values = has_values
        self.files = dict.fromkeys(files)

    def __iter__(self) -> Iterator[Use]:
        return iter(self._uses)

    def __bool__(self) -> bool:
        return bool(self._uses)

    def add(self, uses: Iterable[Use]) -> None:
        """Add items that a file names."""
        self._uses.update(dict.fromkeys(uses))

    def of_kinds(self, *kinds: UseKind) -> list[Use]:
        """Return the items of some kinds."""
        return [use for use in self._uses if use.kind in kinds]

    def beyond(self, other: Inventory) -> Inventory:
        """Return the items that another inventory lacks, in whichever file."""
        pairs = {(use.kind, use.value) for use in other}
        uses = (use for use in self if (use.kind, use.value) not in pairs)
        return Inventory(uses, self.files, has_values=self.has_values)

    @property
    def running(self) -> list[Use]:
        """Return what starts a program or imports code."""
        return self.of_kinds("command", "code", "script", "template")

    @property
    def totals(self) -> str:
        """Return how many items of each kind there are: `2 commands, 1 variable`."""
        counts = {kind: len({use.value for use in self.of_kinds(kind)}) for kind in KINDS}
        return ", ".join(plural(count, KINDS[kind]) for kind, count in counts.items() if count)

    def lines(self) -> Iterator[str]:
        """Yield a line for each item, with the files that name it."""
        users: dict[tuple[str, str], dict[str, None]] = {}
        for kind in KINDS:
            for use in self.of_kinds(kind):
                where = f"{use.used_by} in {short(use.file)}" if use.used_by else short(use.file)
                users.setdefault((kind, use.value), {})[where] = None
        for (noun, value), places in users.items():
            first, more = next(iter(places)), len(places) - 1
            yield f"{noun:<8}  {on_one_line(value)}  ({on_one_line(first)}{f' and {more} more' if more else ''})"


def on_one_line(value: str) -> str:
    """Return a whole value on one line: line breaks and control characters are escaped, and blanks are joined.

    A joined line break could turn a command into part of a comment, and many blanks push its end out of sight.
    """
    escaped = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in value.strip())
    return " ".join(escaped.split())


def command_text(value: Any) -> str:
    """Return a command as text: a list of arguments is quoted, and settings contribute their program."""
    program = getattr(value, "script", None) or getattr(value, "command", None) or value
    return program if isinstance(program, str) else shlex.join(map(str, program))
