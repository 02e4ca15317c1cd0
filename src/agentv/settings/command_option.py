"""Fields of a struct that command-line options set. One declaration has the spelling, the help and the default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import msgspec

Group = Literal["Selection", "Search", "Targets", "Scoring", "Limits", "Output", "Resume"]
GROUPS: tuple[Group, ...] = get_args(Group)
"""The headings of the options in the help of commands with many of them, in their order."""

Reader = Callable[[str], Any] | Literal["path", "file", "folder"]


class CommandOption(msgspec.Struct, frozen=True):
    """An option as declared. Its type and range are those of the field."""

    spec: str
    text: str
    group: Group
    default: Any
    read: Reader | None
    value_is_optional: bool
    names_run: bool
    affects_scores: bool


def option_field(
    spec: str,
    text: str,
    group: Group = "Output",
    read: Reader | None = None,
    *,
    default: Any = None,
    value_is_optional: bool = False,
    names_run: bool = False,
    affects_scores: bool = True,
) -> Any:
    """Declare a field that an option sets. `spec` is its spelling, such as "--filter -f FILTER"; `text` is its help.

    `read` converts the value, or is the kind of file that it names. An option with `value_is_optional` sets an empty
    text if it has none. The value of `names_run` may be an earlier run. Without `affects_scores`, the value may change
    when a run is resumed.
    """
    return CommandOption(spec, text, group, default, read, value_is_optional, names_run, affects_scores)


class _OptionsMeta(msgspec.StructMeta):
    """Replaces declarations by their defaults, and keeps them in `__options__`."""

    __options__: dict[str, CommandOption]

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **config: Any) -> Any:
        own = {field: value for field, value in namespace.items() if isinstance(value, CommandOption)}
        defaults = {field: option.default for field, option in own.items()}
        kind: _OptionsMeta = super().__new__(mcls, name, bases, {**namespace, **defaults}, **config)
        kind.__options__ = {**getattr(kind, "__options__", {}), **own}
        return kind


class OptionStruct(msgspec.Struct, metaclass=_OptionsMeta, frozen=True):
    """A frozen struct whose fields may be declared with `option_field`."""


def declared_options(kind: type[OptionStruct]) -> dict[str, CommandOption]:
    """Return the options of a struct by the names of their fields."""
    return kind.__options__
