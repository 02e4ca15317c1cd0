"""Variables and secrets in settings: references to variables, and masks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from agentv.lazy_regex import lazy_regex
from agentv.model.diagnostics import KeyPath, Problems, did_you_mean, field_name
from agentv.model.environment import SECRET_WORDS, Environment

REFERENCE = lazy_regex(r"\$\{\{\s*(?P<variable>[A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
"""`${{ VAR }}` anywhere in a text."""

_SECRET_FIELD = lazy_regex(rf"(?:^|_)(?:{SECRET_WORDS}|PASSWORD|PASSWD|PASSPHRASE|APIKEY|JWT|BEARER)$")


MASK = "[secret]"


class SecretTexts:
    """Texts to replace in others, each with its replacement. The time depends on their lengths, not on their number."""

    def __init__(self, replacements: Mapping[str, str]) -> None:
        self._replacements = replacements
        self._lengths = sorted({*map(len, replacements)} - {0}, reverse=True)

    def replaced_in(self, text: str) -> str:
        """Return a text with all occurrences replaced, the longest first."""
        for length in self._lengths:
            parts = (text[start : start + length] for start in range(len(text) - length + 1))
            for secret in self._replacements.keys() & parts:
                text = text.replace(secret, self._replacements[secret])
        return text


class Home(str):
    """The folder that paths in a target's settings are relative to, with its environment."""

    environment: Environment

    def __new__(cls, folder: str, environment: Environment) -> Home:
        home = super().__new__(cls, os.path.abspath(folder))
        home.environment = environment
        return home

    def __reduce__(self) -> tuple[type[Home], tuple[str, Environment]]:
        return Home, (str(self), self.environment)


class Reference(msgspec.Struct, frozen=True):
    """One `${{ VAR }}` in a structure. `whole`: the text at `path` is nothing but this reference."""

    path: KeyPath
    variable: str
    whole: bool


def references(value: Any, path: KeyPath = ()) -> Iterator[Reference]:
    """Yield every `${{ VAR }}` in the values of a nested structure."""
    if isinstance(value, str):
        for match in REFERENCE.finditer(value) if "${{" in value else ():
            yield Reference(path, match["variable"], match.group() == value.strip())
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from references(item, (*path, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from references(item, (*path, index))


def interpolate(value: Any, variables: Mapping[str, str], path: KeyPath, problems: Problems, of: str) -> Any:
    """Replace every `${{ VAR }}` in a structure by its value; inserted values are not expanded again.

    Adds an error for a variable that is unset or empty. `of` names the owner of the settings in errors.
    """
    if isinstance(value, str):
        return _interpolated(value, variables, path, problems, of)
    if isinstance(value, dict):
        return {key: interpolate(item, variables, (*path, key), problems, of) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [interpolate(item, variables, (*path, index), problems, of) for index, item in enumerate(value)]
    return value


def plain_value(text: str) -> Any:
    """Convert the text of a variable to a number or boolean if it is one."""
    try:
        value = msgspec.json.decode(text.strip().lower())
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text
    return value if isinstance(value, bool | int | float) else text


def is_secret_field(path: KeyPath) -> bool:
    """Whether the last key of a path names a secret: `api_key`, `headers.Authorization`."""
    name = next((step for step in reversed(path) if isinstance(step, str)), "")
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_").upper()
    return _SECRET_FIELD.search(words) is not None


def mask_secrets(value: Any, path: KeyPath, replaceable: SecretTexts) -> Any:
    """Return a value with all secrets replaced. Values of secret fields are replaced whatever their length."""
    if isinstance(value, str):
        text = replaceable.replaced_in(value)
        return MASK if text == value and is_secret_field(path) else text
    if isinstance(value, dict):
        return {key: mask_secrets(item, (*path, key), replaceable) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [mask_secrets(item, (*path, index), replaceable) for index, item in enumerate(value)]
    return value


def redacted(text: str, secrets: Iterable[str]) -> str:
    """Return a text without secrets. The longest are replaced first: one secret may be a prefix of another."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "[redacted]")
    return text


def _interpolated(text: str, variables: Mapping[str, str], path: KeyPath, problems: Problems, of: str) -> str:
    def value_of(match: re.Match[str]) -> str:
        variable = match["variable"]
        if not (value := variables.get(variable, "")):
            state = "is empty" if variable in variables else "is not set"
            similar = did_you_mean(variable, variables) if variable not in variables else ""
            hint = f"Set {variable} in the environment or in .env"
            message = f"{of}: '{field_name(path)}' uses ${{{{ {variable} }}}}, which {state}"
            problems.error(path, message, f"{hint}. {similar}" if similar else hint)
        return value

    return REFERENCE.sub(value_of, text)
