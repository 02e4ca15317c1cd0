"""What of a target's settings is shown and what is hashed, the files they name included: neither holds a secret."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from agentv.model.values import digest
from agentv.settings.diagnostics import KeyPath
from agentv.settings.environment import is_secret_field
from agentv.support.file_hashes import contents, file_of
from agentv.support.globs import upward
from agentv.targets.target import Target

MASK = "[secret]"

_NOT_IN_THE_ANSWER = ("name", "judge_target", "workers", "timeout_seconds", "max_retries", "cache")
"""Settings that say how a target is called and not what it answers; `retry_…` besides."""


def fingerprint_of(settings: Target, secrets: Iterable[str], files: Mapping[str, str]) -> str:
    """A hash of what shapes a target's answers, `files_of` it included. Empty: nobody can say whether it is the same.

    A new key, name or number of workers does not change it.
    """
    if not settings.has_stable_fingerprint:
        return ""
    found = digest(
        {
            key: shown(value, (key,), dict.fromkeys(secrets, MASK))
            for key, value in given_settings(settings).items()
            if key not in _NOT_IN_THE_ANSWER and not key.startswith("retry_") and not is_secret_field((key,))
        }
    )
    return digest([found, files]) if files else found


def files_of(settings: Target, home: str, folders: Iterable[str]) -> dict[str, str]:
    """A hash of each file that a target's settings name, by its path; `folders` are those of the datasets.

    What these files import or read in their turn is not looked for.
    """
    folders = tuple(folders)
    named = list(settings.files_named(home, folders))
    if ".py:" in settings.provider:
        named.append(file_of(settings.provider, home) or "")
    if settings.transform is not None and settings.transform.function is not None:
        parents = dict.fromkeys(parent for folder in folders for parent in upward(folder, home))
        named += [file_of(settings.transform.function, parent) or "" for parent in parents]
    return contents(filter(None, named), home)


def given_settings(settings: Target) -> dict[str, Any]:
    """The settings that differ from their defaults, as plain data."""
    return {
        field.encode_name: msgspec.to_builtins(value, enc_hook=_name_of)
        for field in msgspec.structs.fields(type(settings))
        if (value := getattr(settings, field.name)) != _default(field)
    }


def shown(value: Any, path: KeyPath, replaceable: Mapping[str, str]) -> Any:
    """A value without secrets. What a secret field holds is never shown, however short it is."""
    if isinstance(value, str):
        text = value
        for secret in sorted(replaceable, key=len, reverse=True):
            text = text.replace(secret, replaceable[secret])
        return MASK if text == value and is_secret_field(path) else text
    if isinstance(value, dict):
        return {key: shown(item, (*path, key), replaceable) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [shown(item, (*path, index), replaceable) for index, item in enumerate(value)]
    return value


def _name_of(value: Any) -> str:
    """A function that a program gives stands there by its name; the rest of it is in its file."""
    return str(getattr(value, "__qualname__", type(value).__qualname__))


def _default(field: msgspec.structs.FieldInfo) -> Any:
    factory: Any = field.default_factory
    return field.default if factory is msgspec.NODEFAULT else factory()
