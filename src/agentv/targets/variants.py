"""Variants of targets: the arms of a comparison, made from targets of the file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from agentv.errors import UsageError


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """A target of the file under another name, with some other settings."""

    name: str
    base: str
    settings: dict[str, Any] = {}


def variant_entries(
    variants: Iterable[Variant], known: Mapping[str, tuple[int, dict[str, Any]]]
) -> dict[str, tuple[int, dict[str, Any]]]:
    """Return entries of a targets file for variants, numbered after the known ones. Raises UsageError."""
    found: dict[str, tuple[int, dict[str, Any]]] = {}
    for number, each in enumerate(variants, len(known)):
        if each.name in known or each.name in found:
            raise UsageError(f"This command needs the target name '{each.name}'", hint="Rename your own target")
        found[each.name] = number, {"name": each.name, "use_target": each.base, **each.settings}
    return found
