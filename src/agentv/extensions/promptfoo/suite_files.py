"""The files that a promptfoo configuration names, limited to its project."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from datetime import date
from typing import Any
from urllib.parse import unquote

from agentv.datasets.files import FileError, FileFinder
from agentv.datasets.foreign.records import Record, RecordFile, items_of
from agentv.extensions.promptfoo.functions import CodeNotRun
from agentv.extensions.promptfoo.functions.calls import FUNCTION_FILE, call_function, check_allowed
from agentv.extensions.promptfoo.promptfoo_cells import TABLES, test_of_row
from agentv.model.values import to_json
from agentv.settings.project import project_root
from agentv.support.json_values import MISSING
from agentv.support.patterns import braces
from agentv.support.yaml.yaml_file import read_yaml_file
from agentv.support.yaml.yaml_parser import parse_yaml
from agentv.support.yaml.yaml_writer import replace_written_integers, resolve
from agentv.trust.inventory import NamedUse

_MOST_FILES = 10_000
_MOST_REFERENCES = 100_000
_DATE = re.compile(rb"[0-9]{4}-[0-9]{1,2}-[0-9]")
_TIMESTAMP = re.compile(
    r"(?P<year>[0-9]{4})-(?P<month>[0-9]{1,2})-(?P<day>[0-9]{1,2})"
    r"(?:(?<=-[0-9]{2}-[0-9]{2})|(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]*)?"
    r"(?:[ \t]*(?:Z|[-+][0-9]{1,2}(?::[0-9]{2})?))?)"
)
_PATTERN = re.compile(r"[*?\[]|(?<!\{)\{[^{}]*,[^{}]*\}")


def is_pattern(name: str) -> bool:
    """Whether the name of a file is a pattern with `*`, `?`, `[…]` or `{a,b}`."""
    return _PATTERN.search(name) is not None


class SuiteFiles:
    """Finds and reads the files of one configuration. Every file that was found is in `used`, and code in `programs`.

    With `reads_dates`, a date without quotes is an empty object, as in promptfoo; `dates` has the first of each file.
    """

    tests_function = "generate_tests"
    """The function of a Python file that returns tests, if no other one is named."""

    tests_in_folder = "*"
    """Which files of a folder have tests."""

    def __init__(self, folder: str, *, reads_dates: bool = False) -> None:
        self.folder = folder or "."
        self._reads_dates = reads_dates
        self.dates: dict[str, str] = {}
        self.used: dict[str, None] = {}
        self.programs: dict[NamedUse, None] = {}
        self._references = 0
        self.finder = FileFinder(self.folder, project_root(self.folder))

    def path(self, name: str) -> str:
        """Return the path of a file. Raises ValueError if it is missing or outside the project."""
        name = name.removeprefix("file://")
        try:
            real_path = self.finder.find(name).path
        except FileError as error:
            raise ValueError(f"{error.message}. {error.hint}".removesuffix(". ")) from None
        path = os.path.normpath(os.path.join(self.folder, os.path.relpath(real_path, os.path.realpath(self.folder))))
        self.used[path] = None
        return path

    def matching(self, pattern: str) -> list[str]:
        """Return the files that a path or pattern names; none if there is no such file."""
        pattern = pattern.removeprefix("file://")
        if not is_pattern(pattern):
            place = os.path.join(self.folder, pattern)
            return [self.path(pattern)] if os.path.isfile(place) or os.path.isabs(pattern) else self._found(pattern)
        options = braces(pattern) if "," in pattern else [pattern]
        names = sorted({name for item in options for name in glob.glob(item, root_dir=self.folder, recursive=True)})
        names = names[:_MOST_FILES]
        return [self.path(name) for name in names if os.path.isfile(os.path.join(self.folder, name))]

    def _found(self, name: str) -> list[str]:
        try:
            return [self.path(name)]
        except ValueError:
            return []

    def text(self, path: str) -> str:
        """Return the text of a file."""
        return RecordFile(path).text.replace("\r\n", "\n")

    def code_text(self, code: str) -> str:
        """Return the code of a function, of a file or inline."""
        match = FUNCTION_FILE.match(code.removeprefix("file://"))
        return self.text(self.path(match["file"])) if match else code

    def data(self, path: str) -> Any:
        """Return the content of a JSON or YAML file."""
        return self.with_dates(path, RecordFile(path).document)

    def with_references(self, value: Any, document: Any) -> Any:
        """Return data in a document with `$ref` replaced by what it points to: `#/a/b`, or `file.yaml#/a/b`.

        Keys next to a reference replace those of its value. A reference to nothing stays, such as one of a schema.
        """
        if isinstance(value, list):
            return [self.with_references(item, document) for item in value]
        if not isinstance(value, dict):
            return value
        more = {key: self.with_references(item, document) for key, item in value.items() if key != "$ref"}
        reference = value.get("$ref")
        if not isinstance(reference, str):
            return more | ({"$ref": reference} if "$ref" in value else {})
        self.count_reference()
        file, _, pointer = reference.partition("#")
        source = self.data(self.path(file)) if file else document
        target = _pointed(source, pointer)
        if target is MISSING or f'"$ref":{to_json(reference).decode()}' in to_json(target).decode():
            return {"$ref": reference, **more}
        target = self.with_references(target, source)
        return {**target, **more} if isinstance(target, dict) else target

    def count_reference(self, cost: int = 1) -> None:
        """Raise ValueError for too many: references to references can multiply without end."""
        self._references += cost
        if self._references > _MOST_REFERENCES:
            raise ValueError(f"It has more than {_MOST_REFERENCES:,} references to its parts and to files")

    def with_dates(self, path: str, document: Any) -> Any:
        """Return the document in a file, with the dates of promptfoo."""
        if not self._reads_dates or not path.lower().endswith((".yaml", ".yml")):
            return document
        data = read_yaml_file(path)

        def value_of(text: str) -> Any:
            if not _is_date(text):
                return resolve(text)
            self.dates.setdefault(path, text)
            return {}

        return replace_written_integers(parse_yaml(data, value_of)) if _DATE.search(data) else document

    def call(self, reference: str, arguments: list[Any], default: str = "", *, is_transform: bool = False) -> Any:
        """Return what `file.py:name` or `file.js:name` returns. Raises CodeNotRun or ValueError."""
        match = FUNCTION_FILE.match(reference)
        if match is None:
            raise ValueError(f"'{reference}' does not name a function")
        path, name = os.path.abspath(self.path(match["file"])), match["name"] or default
        self.add_program(path, name)
        return call_function(path, name, arguments, is_transform=is_transform)

    def add_program(self, path: str, name: str = "") -> None:
        """Note that a file is run, for the question of trust."""
        if path.endswith(".py"):
            self.programs["code", f"{path}:{name}" if name else path] = None
        else:
            self.programs["command", f"node {path}" if FUNCTION_FILE.match(path) else path] = None

    def allow_script(self, code: str) -> None:
        """Note inline code for the question of trust. Raises CodeNotRun or ValueError if it may not run."""
        self.programs["script", code] = None
        check_allowed("transformVars", self.folder)

    def content(self, name: str) -> Any:
        """Return the data in a JSON or YAML file, or the text of any other file. Raises ValueError."""
        path = self.path(name)
        return self.data(path) if path.lower().endswith((".json", ".yaml", ".yml")) else self.text(path).strip()

    def prompt_text(self, value: Any) -> str:
        """Return the text of a judge's prompt: a text or messages, the text of a file, or what JavaScript returns."""
        match = FUNCTION_FILE.match(value) if isinstance(value, str) and value.startswith("file://") else None
        if match is not None and not match["file"].endswith(".py"):
            try:
                value = self.call(value, [])
            except CodeNotRun:
                return f"(the prompt that {match['file']} returns)"
        elif isinstance(value, str) and value.startswith("file://"):
            value = self.text(self.path(value))
        return value if isinstance(value, str) else to_json(value).decode()

    def records(self, path: str) -> Iterator[Record]:
        """Yield the records of a table, a list, or lines of JSON."""
        file = RecordFile(path)
        return items_of(self.data(path)) if file.kind == "yaml" else file.records()

    def test_in_file(self, path: str, data: Any) -> Any:
        """Return the test in a row of a table; other data as they are."""
        return test_of_row(data) if path.lower().endswith(TABLES) and isinstance(data, dict) else data


def _pointed(value: Any, pointer: str) -> Any:
    """Return the value that a JSON pointer leads to; MISSING if there is none."""
    for step in filter(None, pointer.split("/")):
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        elif isinstance(value, dict) and name in value:
            value = value[name]
        else:
            return MISSING
    return value


def _is_date(text: str) -> bool:
    """Whether promptfoo reads a scalar as a date: one of the calendar, and with seconds if it has a time."""
    match = _TIMESTAMP.fullmatch(text)
    try:
        return match is not None and bool(date(*(int(match[name]) for name in ("year", "month", "day"))))
    except ValueError:
        return False
