"""Read `.env`, if the folder that has it is trusted."""

import os
import re
from pathlib import Path

import msgspec

from agentv.errors import AgentvError
from agentv.lazy_regex import lazy_regex
from agentv.model.environment import Environment
from agentv.settings.environment import Home
from agentv.settings.frozen_settings import check_settings_file
from agentv.support.patterns import upward
from agentv.trust.roots import advice, distrust, is_trusted

_ENTRY = lazy_regex(
    r"""[ \t]*
    (?: (?:export[ \t]+)? (?P<name>[A-Za-z_][\w.\-]*) [ \t]*
        (?: = [ \t]* (?P<value> '[^']*' | "(?:[^"\\]|\\.)*" | (?!['"])[^\n]*? ) )?
    )?
    [ \t]* (?: (?:(?<=[ \t])|(?<![^\n])) \#[^\n]* )? (?:\n|\Z)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = lazy_regex(r"\\([nrt\"\\$])")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}


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


def read_here(environment: Environment) -> Environment:
    """Return an environment with the values of its `.env`, if the file exists on this machine."""
    if environment.path is None or not os.path.isfile(environment.path):
        return environment
    return msgspec.structs.replace(environment, file=_read_file(environment.path))


def read_dotenv(text: str, path: str = ".env") -> dict[str, str]:
    """Parse the text of a `.env` file: `KEY=VALUE`, `export`, multi-line quotes and comments.

    Variables in values are not expanded. `KEY` alone sets nothing.
    """
    text = text.replace("\r\n", "\n")
    values: dict[str, str] = {}
    position = 0
    while position < len(text):
        if (entry := _ENTRY.match(text, position)) is None:
            # Do not show the line: it may contain a secret.
            line = text.count("\n", 0, position) + 1
            hint = "Write KEY=VALUE, put quotes around values with spaces, and close every quote"
            raise AgentvError(f"Invalid line {line} in {path}", "Expected KEY=VALUE", hint)
        if entry["value"] is not None:
            values[entry["name"]] = _unquoted(entry["value"])
        position = entry.end()
    return values


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
        return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), value[1:-1])
    return value
