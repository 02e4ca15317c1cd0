"""What of a target's settings is shown and what is hashed: neither holds a secret."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from agentv.environment import is_secret_field
from agentv.model.values import digest
from agentv.problems import KeyPath
from agentv.targets.base import Target

MASK = "[secret]"

_NOT_IN_THE_ANSWER = ("name", "judge_target", "workers", "timeout_seconds", "max_retries", "cache")
"""Settings that say how a target is called and not what it answers; `retry_…` besides."""


def fingerprint_of(settings: Target, secrets: Iterable[str]) -> str:
    """A hash of what shapes a target's answers. A new key, name or number of workers does not change it."""
    return digest(
        {
            key: shown(value, (key,), dict.fromkeys(secrets, MASK))
            for key, value in given_settings(settings).items()
            if key not in _NOT_IN_THE_ANSWER and not key.startswith("retry_") and not is_secret_field((key,))
        }
    )


def given_settings(settings: Target) -> dict[str, Any]:
    """The settings that differ from their defaults, as plain data."""
    return {
        field.encode_name: msgspec.to_builtins(value)
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


def _default(field: msgspec.structs.FieldInfo) -> Any:
    factory: Any = field.default_factory
    return field.default if factory is msgspec.NODEFAULT else factory()
