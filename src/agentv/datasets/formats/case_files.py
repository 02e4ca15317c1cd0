"""Cases that a YAML document reads from other files: `tests: ./file`, `tests: ./folder` and `file://` items."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from agentv.datasets.files import refusal
from agentv.datasets.formats import dataset_format as formats
from agentv.datasets.variables import MARK, insert_environment
from agentv.errors import AgentvError, DatasetError, DatasetWarning, InvalidDatasetError
from agentv.model.diagnostics import type_word
from agentv.settings.project import project_root
from agentv.support import patterns as globs
from agentv.support.yaml.yaml_parser import Map, Seq, locate

PREFIX = "file://"
_CASE_NAMES = ("case.yaml", "case.yml")
Parse = Callable[["CaseFile", list[DatasetWarning]], Any]


class CaseFile(msgspec.Struct, frozen=True):
    """A file with cases of a document. `folder` is set if it has a single case, named after the folder by default."""

    path: str
    document: str
    folder: str = ""

    @property
    def document_folder(self) -> str:
        """The folder of the document, which decides about the project and its variables."""
        return os.path.dirname(self.document) or "."


def is_reference(case: Any) -> bool:
    """Whether an item of a list of cases names a file."""
    return isinstance(case, str) and case.startswith(PREFIX)


def files_named(cases: Any, document: str, line: int = 1) -> list[CaseFile]:
    """Return the files that the list of cases of a document names. Raises InvalidDatasetError if one is missing.

    `line` is that of a name instead of a list.
    """
    if isinstance(cases, str):
        return _files_of(cases, document, line)
    if not isinstance(cases, Seq):
        return []
    places = ((case, cases.marks[index].line + 1) for index, case in enumerate(cases) if is_reference(case))
    return [file for case, line in places for file in _files_of(case, document, line)]


def folders_without_case(cases: Any, document: str) -> list[str]:
    """Return the folders below a folder of cases that have no `case.yaml`."""
    folder = _beside(document, cases) if isinstance(cases, str) else ""
    if not os.path.isdir(folder):
        return []
    return [path for path in _subfolders(folder) if _case_file(path) is None]


def read_cases(file: CaseFile, options: formats.ReadOptions, parse: Parse) -> Iterator[formats.Batch]:
    """Yield the cases of a file in batches. `parse` parses a YAML file, and adds what was read in another way."""
    if "jsonl" in formats.suggested(file.path):
        source = formats.source_of(file.path, "jsonl")
        for batch in source.format.read(formats.Document(source), options):
            yield _with_variables(batch, file)
        return
    losses: list[DatasetWarning] = []
    data = parse(file, losses)
    if file.folder:
        data = _single(file, data)
    if not isinstance(data, Seq):
        what = "an object" if file.folder else "a list of cases"
        detail = f"Expected {what}, got {type_word(data)}"
        raise InvalidDatasetError(f"Invalid case file: {file.path}", detail, path=file.path, line=1)
    for index, case in enumerate(data):
        mark = locate(data, (index,))
        row: formats.Row = (
            case if isinstance(case, Map) else formats.BadRow(f"Expected an object, got {type_word(case)}")
        )
        yield formats.Batch(file.path, mark.line if mark else 1, [row], warnings=() if index else losses)


def _single(file: CaseFile, data: Any) -> Any:
    """Return the case of a folder as a list. A folder `workspace` next to the file is its workspace's template."""
    if not isinstance(data, Map):
        return data
    added: dict[str, Any] = {}
    if data.get("id") is None:
        added["id"] = os.path.basename(file.folder)
    template = os.path.join(file.folder, "workspace")
    if data.get("workspace") is None and os.path.isdir(template):
        inside = os.path.relpath(os.path.realpath(template), project_root(file.document_folder))
        added["workspace"] = {"template": "/" + inside.replace(os.sep, "/")}
    cases = Seq([data.with_values({**data, **added})])
    cases.start, cases.marks = data.start, [data.start]
    return cases


def _with_variables(batch: formats.Batch, file: CaseFile) -> formats.Batch:
    """Insert variables of the environment into the rows of a batch that name any."""
    if not any(line is not None and MARK in line for line in batch.lines):
        return batch
    rows: list[formats.Row] = []
    losses: list[DatasetWarning] = []
    for offset, row in enumerate(batch.rows):
        if isinstance(row, formats.PlainRow):
            row = msgspec.json.decode(batch.lines[offset])
        is_data = isinstance(row, dict)
        place = (file.path, file.document_folder, batch.line + offset)
        rows.append(insert_environment(row, *place, losses) if is_data else row)
    return formats.Batch(batch.file, batch.line, rows, warnings=losses)


def _files_of(reference: str, document: str, line: int) -> list[CaseFile]:
    path = _beside(document, reference)
    if os.path.isdir(path):
        inside = ((_case_file(folder), folder) for folder in _subfolders(path))
        files = [CaseFile(case, document, folder) for case, folder in inside if case is not None]
    elif globs.has_magic(path) and not os.path.exists(path):
        files = [CaseFile(match, document) for match in _matching(path, document, line)]
    else:
        files = [CaseFile(path, document)] if os.path.isfile(path) else []
    if not files:
        what = f"Folder '{reference}' has no subfolder with a case.yaml" if os.path.isdir(path) else ""
        raise _unusable(document, line, what or f"File '{reference}' was not found", f"Looked for {path}")
    for file in files:
        _check(file, line)
    return files


def _matching(pattern: str, document: str, line: int) -> list[str]:
    try:
        return globs.glob_files(pattern.replace(os.sep, "/"))
    except AgentvError as error:
        raise _unusable(document, line, error.headline, "List fewer alternatives, or several patterns") from None


def _check(file: CaseFile, line: int) -> None:
    """Refuse files outside the project and files in other formats."""
    path, document = file.path, file.document
    folder = os.path.realpath(file.document_folder)
    if why := refusal(os.path.realpath(path), folder, project_root(folder)):
        raise _unusable(document, line, f"File '{path}' {why} and was not read", "Copy the file into the project")
    if not {"yaml", "jsonl"}.intersection(formats.suggested(path)) and not path.lower().endswith(".json"):
        what = f"Cases cannot be read from '{path}'"
        raise _unusable(document, line, what, "List cases in a .yaml, .yml, .json or .jsonl file")


def _unusable(document: str, line: int, what: str, hint: str) -> DatasetError:
    headline = f"Invalid dataset at line {line} in {document}"
    return InvalidDatasetError(headline, what, hint, path=document, line=line)


def _beside(document: str, reference: str) -> str:
    return os.path.normpath(os.path.join(os.path.dirname(document), reference.removeprefix(PREFIX)))


def _subfolders(folder: str) -> list[str]:
    paths = (os.path.join(folder, name) for name in sorted(os.listdir(folder)) if not name.startswith("."))
    return [path for path in paths if os.path.isdir(path)]


def _case_file(folder: str) -> str | None:
    paths = (os.path.join(folder, name) for name in _CASE_NAMES)
    return next((path for path in paths if os.path.isfile(path)), None)
