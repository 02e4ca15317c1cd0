"""The environment variables of a run: those of the process and of `.env`, and which of them are secret."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from urllib.parse import unquote, unquote_plus

import msgspec

from agentv.lazy_regex import lazy_regex
from agentv.model.sandbox_settings import RunSandbox

SHORTEST_SECRET = 8
"""Shorter values are not redacted: they occur too often in ordinary text."""

SECRET_WORDS = "KEY|TOKEN|SECRETS?|PAT|CREDENTIALS?|DSN|AUTHORIZATION|COOKIE"
_SECRET_NAME = lazy_regex(
    rf"""(?:^|_)(?:{SECRET_WORDS}|JWT|BEARER|WEBHOOK|CONN_STR)(?:_|$) | PASSWORD | PASSWD | PASSPHRASE | APIKEY
    | TOKEN(?:_|$) | TOKENS$ | (?:^|_)PASS\d*$ | _PWD$""",
    re.VERBOSE,
)
_COUNT_NAME = lazy_regex(r"(?:^|_)(?:MAX|MIN|NUM|TOTAL|INPUT|OUTPUT|PROMPT|COMPLETION|CONTEXT|BUDGET)_(?:\w+_)?TOKENS$")
"""Numbers of tokens, such as `MAX_TOKENS`."""
_PLACE_NAME = lazy_regex(r"_(?:FILE|PATH|DIR|SOCK)$")
"""Variables that name a file with a secret, not the secret."""

_ADDRESS_NAME = lazy_regex(r"(?:^|_)(?:URL|URI|CONNECTION_STRING)$")
_ADDRESS_PASSWORD = lazy_regex(r"[a-z][a-z0-9+.-]*://[^\s/?#@:]*:([^\s/?#@]+)@", re.IGNORECASE)
_ADDRESS_PARAMETER = lazy_regex(
    r"[?&;](?:[\w.-]*(?:key|token|secret|password|passwd|signature|credential)|sig|pwd|auth)=([^\s&#;]+)", re.IGNORECASE
)

_SHORTEST_LINE = 16


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
        for match in pattern.finditer(text):
            yield from {match[1], unquote(match[1]), unquote_plus(match[1])}
