"""A shell command with placeholders. Values reach the shell as variables, so that no value is ever read as code."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence

PLACEHOLDERS = ("PROMPT", "PROMPT_FILE", "GUIDELINES", "EVAL_ID", "ATTEMPT", "FILES", "OUTPUT_FILE")
PLACEHOLDER = re.compile(r"(?<!\$)\{(?P<name>[A-Z][A-Z0-9_]*)\}")
"""`{UPPER}`; a shell's own `${UPPER}` is left to the shell."""

_FILE_PLACEHOLDER = re.compile(r"(?<!\$)\{(?P<name>path|basename)\}")
_PREFIX = "AGENTV_"


class CommandTemplate:
    """A command parsed once. A placeholder is one word, quoted, whether the user put quotes around it or not."""

    def __init__(self, text: str, files_format: str = "{path}") -> None:
        self._parts = list(_parts(text, PLACEHOLDER))
        self._file_parts = list(_parts(files_format, _FILE_PLACEHOLDER))
        self.names = frozenset(name for _, name, _ in self._parts if name)

    def render(self, values: Mapping[str, str], files: Sequence[str] = ()) -> tuple[str, dict[str, str]]:
        """The command, and the variables it needs: one for each placeholder it uses, one or two for each file."""
        variables = {f"{_PREFIX}{name}": value for name, value in values.items() if name in self.names}
        rendered_files = ""
        if "FILES" in self.names:
            rendered_files, of_files = self._render_files(files)
            variables |= of_files
        text = "".join(
            literal + (_inside(rendered_files, quotes) if name == "FILES" else _variable(f"{_PREFIX}{name}", quotes))
            if name
            else literal
            for literal, name, quotes in self._parts
        )
        return text, variables

    def _render_files(self, files: Sequence[str]) -> tuple[str, dict[str, str]]:
        variables: dict[str, str] = {}
        words = []
        for number, path in enumerate(dict.fromkeys(map(os.path.abspath, files)), 1):
            values = {"path": path, "basename": os.path.basename(path)}
            word = ""
            for literal, name, quotes in self._file_parts:
                word += literal
                if name:
                    variable = f"{_PREFIX}FILE_{number}_{name.upper()}"
                    variables[variable] = values[name]
                    word += _variable(variable, quotes)
            words.append(word)
        return " ".join(words), variables


def unknown_placeholders(text: str) -> list[str]:
    """Names in braces that mean nothing."""
    used = dict.fromkeys(found["name"] for found in PLACEHOLDER.finditer(text))
    return [name for name in used if name not in PLACEHOLDERS]


def _parts(text: str, placeholder: re.Pattern[str]) -> Iterator[tuple[str, str, str]]:
    """Literal text, the placeholder behind it (empty at the end), and the quotes that the placeholder stands in."""
    quotes_at = list(_quotes(text))
    last = 0
    for found in placeholder.finditer(text):
        yield text[last : found.start()], found["name"], quotes_at[found.start()]
        last = found.end()
    yield text[last:], "", ""


def _quotes(text: str) -> Iterator[str]:
    """For each character of a shell command, the quotes around it.

    Follows the common forms only. Where it is wrong about a rare one, a value is split at its spaces; it is not run.
    """
    stack: list[str] = [""]
    skip = False
    before = " "
    for position, char in enumerate(text):
        here = stack[-1]
        yield here if here in ('"', "'") else ""
        if skip:
            skip = False
        elif here in ("'", "#"):
            if char == ("'" if here == "'" else "\n"):
                stack.pop()
        elif char == "\\":
            skip = True
        elif char == '"':
            stack[-1:] = [] if here == '"' else [here, '"']
        elif char == "(" and (here != '"' or before == "$"):
            stack.append("(")
        elif char == ")" and here == "(":
            stack.pop()
        elif here != '"' and char == "'":
            stack.append("'")
        elif here != '"' and char == "#" and (position == 0 or before in " \t\n;(&|"):
            stack.append("#")
        before = char


def _variable(name: str, quotes: str) -> str:
    """A variable as one word, in the quotes that stand around it."""
    return f"${{{name}}}" if quotes == '"' else _inside(f'"${{{name}}}"', quotes)


def _inside(words: str, quotes: str) -> str:
    """Words of a command where quotes are open: these are closed before and opened again after."""
    return f"{quotes}{words}{quotes}"
