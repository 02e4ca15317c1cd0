"""The prompt files of AgentMark as datasets: the prompt is rendered for each row of the dataset it names."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentv.datasets.case.shorthand import AGENTMARK
from agentv.datasets.files import FileError, FileFinder, refusal
from agentv.datasets.formats.dataset_format import (
    BadRow,
    Batch,
    DatasetFormat,
    Document,
    ReadOptions,
    Row,
    Source,
    read_head,
    source_of,
)
from agentv.errors import DatasetError, DatasetNotFoundError, DatasetWarning, InvalidDatasetError
from agentv.extensions.agentmark.prompt_file import PromptFileError, read_settings
from agentv.registry import EVALUATORS
from agentv.settings.project import project_root
from agentv.support.patterns import upward

if TYPE_CHECKING:
    from jsonschema_rs import Validator

Settings = dict[str, Any]
"""The front matter of a prompt file."""

_ENDING = ".prompt.mdx"
_MOST_REFERENCES = 1000
_EVALS = {"exact_match": "equals", "exact_match_json": "equals"}
"""Evals with a counterpart under another name."""


class _PromptMdx(DatasetFormat):
    suffixes = (".mdx",)
    strength = 0.9

    def sniff(self, head: bytes, path: str) -> bool:
        return path.endswith(_ENDING) and head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(
            (b"---", b"{/*", b"<!--")
        )

    def files(self, path: str) -> tuple[str, ...]:
        """Return the prompt file and its dataset; problems with these are reported when they are read."""
        try:
            rows = _rows_file(path, _parsed(path))
        except DatasetError:
            return (path,)
        return (path,) if rows is None else (path, rows)

    def open(self, source: Source) -> Document:
        path = source.files[0]
        file = _parsed(path)
        if _rows_file(path, file) is None and not isinstance(_tests(file).get("props"), dict):
            hint = "Set test_settings.dataset or test_settings.props in its front matter"
            raise InvalidDatasetError(f"No cases in {path}", "The prompt has no rows", hint, path=path, line=1)
        evals, unknown = _evaluators(file)
        header: dict[str, Any] = {"prompt": os.path.basename(path), "format": AGENTMARK}
        if isinstance(file.get("name"), str):
            header["dataset"] = file["name"]
        if evals:
            header["evaluators"] = evals
        if limits := _limits(path, file):
            header["execution"] = {"thresholds": limits}
        warnings = tuple(DatasetWarning(_unknown_eval(path, name), path=path) for name in unknown)
        return Document(source, header, path, is_agentmark=True, warnings=warnings)

    def read(self, document: Document, options: ReadOptions) -> Iterator[Batch]:
        """Yield the rows of the dataset, or the properties for tests as the only row."""
        path = document.source.files[0]
        file = _parsed(path)
        rows, validator = _rows_file(path, file), _validator(path, file)
        if rows is None:
            yield Batch(path, 1, [_checked({"input": dict(_tests(file)["props"])}, validator)])
            return
        source = source_of(rows, "jsonl")
        for batch in source.format.read(Document(source), ReadOptions(max_line_bytes=options.max_line_bytes)):
            yield Batch(batch.file, batch.line, [_checked(row, validator) for row in batch.rows])

    def regression_tolerance(self, source: Source) -> float | None:
        """Return the largest drop of the score of a row against a baseline that a prompt file allows, if it has one."""
        path = source.files[0]
        tolerance = _tests(_parsed(path)).get("regression_tolerance")
        if tolerance is not None and not _is_share(tolerance):
            raise _invalid(path, "'test_settings.regression_tolerance' must be a number from 0 to 1")
        return None if tolerance is None else float(tolerance)

    def why_not(self, path: str) -> str | None:
        """A prompt found in a folder is a dataset only if it names one. An invalid one is reported by the reader."""
        if not path.endswith(_ENDING):
            return "not a prompt of AgentMark"
        try:
            names_dataset = "dataset" in _tests(_parsed(path))
        except DatasetError:
            names_dataset = b"dataset:" in read_head(path)
        return None if names_dataset else "a prompt without a dataset"


PROMPT_MDX = _PromptMdx()


def _parsed(path: str) -> Settings:
    """Return the front matter of a prompt file."""
    try:
        return read_settings(Path(path).read_text(encoding="utf-8"))[0]
    except PromptFileError as error:
        headline = f"Invalid prompt file at line {error.line} in {path}"
        raise InvalidDatasetError(headline, error.message, error.hint, path=path, line=error.line) from None
    except OSError as error:
        raise DatasetNotFoundError(f"Cannot read {path}: {error.strerror or error}", path=path) from None
    except UnicodeDecodeError:
        raise _invalid(path, "The file is not UTF-8 text") from None


def _invalid(path: str, what: str, hint: str = "") -> InvalidDatasetError:
    return InvalidDatasetError(f"Invalid prompt file: {path}", what, hint, path=path, line=1)


def _tests(file: Settings) -> dict[str, Any]:
    settings = file.get("test_settings")
    return settings if isinstance(settings, dict) else {}


def _limits(path: str, file: Settings) -> dict[str, Any]:
    """Return the smallest mean of each eval, which is a gate of the run."""
    if (limits := _tests(file).get("score_thresholds")) is None:
        return {}
    if not isinstance(limits, dict) or not all(_is_share(limit) for limit in limits.values()):
        raise _invalid(path, "'test_settings.score_thresholds' must have a number from 0 to 1 for each eval")
    return {str(name): float(limit) for name, limit in limits.items()}


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _rows_file(path: str, file: Settings) -> str | None:
    """Find the dataset: next to the prompt, or below a parent folder, its `agentmark` or its `templates`."""
    if (name := _tests(file).get("dataset")) is None:
        return None
    if not isinstance(name, str):
        raise _invalid(path, "'test_settings.dataset' must be a string")
    folder = os.path.dirname(path) or "."
    root = project_root(folder)
    here = os.path.realpath(folder)
    for parent in upward(folder, root):
        for place in (name, os.path.join("agentmark", name), os.path.join("templates", os.path.basename(name))):
            candidate = os.path.normpath(os.path.join(parent, place))
            if os.path.isfile(candidate) and not refusal(os.path.realpath(candidate), here, root):
                return os.path.normpath(os.path.join(folder, os.path.relpath(candidate, here)))
    raise _invalid(path, f"The dataset '{name}' was not found", f"Put it next to {path}")


def _evaluators(file: Settings) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the evaluators for `evals`, and the names without a counterpart."""
    names = _tests(file).get("evals")
    entries, unknown = [], []
    for name in names if isinstance(names, list) else []:
        if (type_ := EVALUATORS.canonical(_EVALS.get(str(name), str(name)))) is None:
            unknown.append(str(name))
        else:
            entries.append({"type": type_, "name": str(name)})
    return entries, unknown


def _unknown_eval(path: str, name: str) -> str:
    return f"{path}: the eval '{name}' is code of an AgentMark client and does not run; add `evaluators` to the dataset"


def _validator(path: str, file: Settings) -> Validator | None:
    if (schema := file.get("input_schema")) is None:
        return None
    from jsonschema_rs import ValidationError, validator_for  # late: few prompts have a schema

    try:
        data = _resolved(json.loads(json.dumps(schema)), os.path.dirname(path), count())  # without positions
        return validator_for(data, offline=True)
    except (ValidationError, ValueError, OSError, FileError, RecursionError) as error:
        what = f"'input_schema' is not a valid JSON Schema: {str(error).splitlines()[0]}"
        raise _invalid(path, what) from None


def _resolved(schema: Any, folder: str, references: Iterator[int]) -> Any:
    """Replace each `$ref` to a JSON file by its content, or by the part that its pointer names."""
    if isinstance(schema, list):
        return [_resolved(item, folder, references) for item in schema]
    if not isinstance(schema, dict):
        return schema
    file, _, pointer = str(schema.get("$ref", "")).partition("#")
    if not file:
        return {key: _resolved(value, folder, references) for key, value in schema.items()}
    if next(references) >= _MOST_REFERENCES:
        raise ValueError(f"It has more than {_MOST_REFERENCES:,} references to files")
    finder = FileFinder(folder or ".", project_root(folder or "."))
    place = finder.find(finder.below(folder or ".", file)).path
    content = json.loads(Path(place).read_text(encoding="utf-8"))
    for step in filter(None, pointer.split("/")):
        key = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(content, dict) or key not in content:
            raise ValueError(f"{file} has no '{pointer}'")
        content = content[key]
    return _resolved(content, os.path.dirname(place), references)


def _checked(row: Row, validator: Validator | None) -> Row:
    """Return a row, or its problem if the input does not match the schema of the prompt."""
    if validator is None or not isinstance(row, dict) or not isinstance(row.get("input"), dict):
        return row
    if (problem := next(iter(validator.iter_errors(row["input"])), None)) is None:
        return row
    where = ".".join(map(str, ("input", *problem.instance_path)))
    return BadRow(f"Field '{where}' does not match 'input_schema' of the prompt: {problem.message}")
