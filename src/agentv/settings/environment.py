"""Environment variables of the process and of `.env`: lookup and secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, unquote_plus

import msgspec

from agentv.errors import AgentvError
from agentv.model.diagnostics import KeyPath, Problems, did_you_mean, field_name
from agentv.model.sandbox_settings import RunSandbox
from agentv.settings.frozen_settings import check_settings_file
from agentv.support.patterns import upward
from agentv.trust.roots import advice, distrust, is_trusted

SHORTEST_SECRET = 8
"""Shorter values are not redacted: they occur too often in ordinary text."""

_SECRET_WORDS = "KEY|TOKEN|SECRETS?|PAT|CREDENTIALS?|DSN|AUTHORIZATION|COOKIE"
_SECRET_NAME = re.compile(
    rf"""(?:^|_)(?:{_SECRET_WORDS}|JWT|BEARER|WEBHOOK|CONN_STR)(?:_|$) | PASSWORD | PASSWD | PASSPHRASE | APIKEY
    | TOKEN(?:_|$) | TOKENS$ | (?:^|_)PASS\d*$ | _PWD$""",
    re.VERBOSE,
)
_COUNT_NAME = re.compile(r"(?:^|_)(?:MAX|MIN|NUM|TOTAL|INPUT|OUTPUT|PROMPT|COMPLETION|CONTEXT|BUDGET)_(?:\w+_)?TOKENS$")
"""Numbers of tokens, such as `MAX_TOKENS`."""
_PLACE_NAME = re.compile(r"_(?:FILE|PATH|DIR|SOCK)$")
"""Variables that name a file with a secret, not the secret."""

_ADDRESS_NAME = re.compile(r"(?:^|_)(?:URL|URI|CONNECTION_STRING)$")
_ADDRESS_PASSWORD = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/?#@:]*:([^\s/?#@]+)@", re.IGNORECASE)
_ADDRESS_PARAMETER = re.compile(
    r"[?&;](?:[\w.-]*(?:key|token|secret|password|passwd|signature|credential)|sig|pwd|auth)=([^\s&#;]+)", re.IGNORECASE
)

REFERENCE = re.compile(r"\$\{\{\s*(?P<variable>[A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
"""`${{ VAR }}` anywhere in a text."""

_SECRET_FIELD = re.compile(rf"(?:^|_)(?:{_SECRET_WORDS}|PASSWORD|PASSWD|PASSPHRASE|APIKEY|JWT|BEARER)$")
_SHORTEST_LINE = 16
_ENTRY = re.compile(
    r"""[ \t]*
    (?: (?:export[ \t]+)? (?P<name>[A-Za-z_][\w.\-]*) [ \t]*
        (?: = [ \t]* (?P<value> '[^']*' | "(?:[^"\\]|\\.)*" | (?!['"])[^\n]*? ) )?
    )?
    [ \t]* (?: (?:(?<=[ \t])|(?<![^\n])) \#[^\n]* )? (?:\n|\Z)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([nrt\"\\$])")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}


class Environment(msgspec.Struct, frozen=True):
    """The variables for `${{ VAR }}`. It can be sent to other processes; each adds its own process environment.

    `file` has the variables of `path`, the `.env` file; `secret_names` are variables that are secret because of their
    use. `sandbox` isolates the programs of the run, and `pass_env` are variables that all of them get.
    """

    file: dict[str, str] = {}
    path: str | None = None
    secret_names: frozenset[str] = frozenset()
    sandbox: RunSandbox = RunSandbox()
    pass_env: tuple[str, ...] = ()

    @property
    def variables(self) -> dict[str, str]:
        """All variables; those of the process override those of the file."""
        return {**self.file, **os.environ}

    @property
    def secrets(self) -> frozenset[str]:
        """The values that must never be written."""
        return frozenset(self.secret_variables)

    @property
    def secret_variables(self) -> dict[str, str]:
        """Secret values, each with the name of a variable that has it."""
        # A value of the file stays secret even if the process overrides it.
        both = [*self.file.items(), *os.environ.items()]
        forms = ((form, name) for name, value in both for form in self._secrets_in(name, value))
        return {form: name for form, name in forms if len(form) >= SHORTEST_SECRET}

    def _secrets_in(self, name: str, value: str) -> Iterator[str]:
        parts = tuple(address_secrets(value)) if "://" in value else ()
        if self.is_secret(name) or (parts and _ADDRESS_NAME.search(name.upper())):
            # HTTP clients strip a key, so servers may repeat it without its trailing newline.
            yield from (value, value.strip())
            # A message may show some lines of a private key.
            yield from (line for line in value.split("\n") if len(line) >= _SHORTEST_LINE and "-----" not in line)
        yield from parts

    def elsewhere(self) -> Environment:
        """Return the environment for another machine: without values; the same `.env` is read there."""
        path = None if self.path is None else os.path.abspath(self.path)
        return Environment({}, path, self.secret_names, self.sandbox, self.pass_env)

    def read_here(self) -> Environment:
        """Return the environment with the values of its `.env`, if the file exists on this machine."""
        if self.path is None or not os.path.isfile(self.path):
            return self
        return msgspec.structs.replace(self, file=_read_file(self.path))

    def with_secret_names(self, names: Iterable[str]) -> Environment:
        """Return a copy with more secret variables."""
        return msgspec.structs.replace(self, secret_names=self.secret_names | frozenset(names))

    def is_secret(self, name: str) -> bool:
        """Whether a variable is secret by its name or by its use."""
        return name in self.secret_names or is_secret_name(name)


def is_secret_name(name: str) -> bool:
    """Whether a variable with this name has a secret: `GITHUB_TOKEN`, `PGPASSWORD`, `OPENAI_API_KEY_2`."""
    name = name.upper()
    return _SECRET_NAME.search(name) is not None and not (_PLACE_NAME.search(name) or _COUNT_NAME.search(name))


def address_secrets(text: str) -> Iterator[str]:
    """Yield the passwords and keys in addresses, as written and decoded: `://user:x@host`, `?api_key=x`."""
    for pattern in (_ADDRESS_PASSWORD, _ADDRESS_PARAMETER):
        for found in pattern.finditer(text):
            yield from {found[1], unquote(found[1]), unquote_plus(found[1])}


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


class Reference(NamedTuple):
    """One `${{ VAR }}` in a structure. `whole`: the text at `path` is nothing but this reference."""

    path: KeyPath
    variable: str
    whole: bool


def load_environment(folder: str, root: str) -> Environment:
    """Load the nearest `.env` from a folder up to the root, or else that of the working directory.

    Only a trusted folder is searched. Raises AgentvError if the file is a link out of it.
    """
    for parent in dict.fromkeys((*filter(is_trusted, upward(folder, root)), os.getcwd())):
        path = os.path.join(parent, ".env")
        if os.path.isfile(path):
            if distrust(path):
                continue
            if not is_trusted(path):
                headline = f"{path} is a link out of your project, and was not read"
                raise AgentvError(headline, f"It leads to {os.path.realpath(path)}", advice(os.path.realpath(path)))
            return Environment(_read_file(path), path)
    return Environment()


def environment_of(home: str) -> Environment:
    """Return the environment of a home; for a plain folder, load it."""
    return home.environment if isinstance(home, Home) else load_environment(home, home)


def read_dotenv(text: str, path: str = ".env") -> dict[str, str]:
    """Parse the text of a `.env` file: `KEY=VALUE`, `export`, multi-line quotes and comments.

    Variables in values are not expanded. `KEY` alone sets nothing.
    """
    text = text.replace("\r\n", "\n")
    values: dict[str, str] = {}
    position = 0
    while position < len(text):
        entry = _ENTRY.match(text, position)
        if entry is None:
            # Do not show the line: it may contain a secret.
            line = text.count("\n", 0, position) + 1
            hint = "Write KEY=VALUE, put quotes around values with spaces, and close every quote"
            raise AgentvError(f"Invalid line {line} in {path}", "Expected KEY=VALUE", hint)
        if entry["value"] is not None:
            values[entry["name"]] = _unquoted(entry["value"])
        position = entry.end()
    return values


def references(value: Any, path: KeyPath = ()) -> Iterator[Reference]:
    """Yield every `${{ VAR }}` in the values of a nested structure."""
    if isinstance(value, str):
        for found in REFERENCE.finditer(value):
            yield Reference(path, found["variable"], found.group() == value.strip())
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


def _read_file(path: str) -> dict[str, str]:
    try:
        content = Path(path).read_bytes()
        check_settings_file(path, content)
        text = content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
        return read_dotenv(text, path)
    except OSError as error:
        raise AgentvError(f"Cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise AgentvError(f"Cannot read {path}", "The file is not UTF-8 text") from None


def _unquoted(value: str) -> str:
    if value[:1] == "'":
        return value[1:-1]
    if value[:1] == '"':
        return _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), value[1:-1])
    return value


def _interpolated(text: str, variables: Mapping[str, str], path: KeyPath, problems: Problems, of: str) -> str:
    def value_of(found: re.Match[str]) -> str:
        variable = found["variable"]
        value = variables.get(variable, "")
        if not value:
            state = "is empty" if variable in variables else "is not set"
            similar = did_you_mean(variable, variables) if variable not in variables else ""
            hint = f"Set {variable} in the environment or in .env"
            message = f"{of}: '{field_name(path)}' uses ${{{{ {variable} }}}}, which {state}"
            problems.error(path, message, similar or hint)
        return value

    return REFERENCE.sub(value_of, text)
