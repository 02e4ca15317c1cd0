"""`agentv convert`: write a dataset next to its destination in another format, read it back, and then move it there."""

import os
import shutil
from array import array
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, Self

import click
import msgspec

from agentv.cli import output
from agentv.cli.evaluation_options import FileOptions
from agentv.cli.options import argument, declare, flag, option, with_help
from agentv.datasets.case.keys import CASE_LIST_KEYS, LIST_KEYS, OUTCOME_KEYS
from agentv.datasets.case.shorthand import AGENTMARK
from agentv.datasets.dataset import Dataset, Options
from agentv.datasets.discovery import GivenFormat, find_datasets
from agentv.datasets.formats import dataset_format as formats
from agentv.datasets.formats.dataset_format import Content, DatasetFormat, PlainRow, ReadOptions, WrittenRow
from agentv.datasets.loader import StrictSink, ignore
from agentv.engine.run_options import EvalOptions
from agentv.errors import AgentvError, DatasetError, DatasetWarning, LossWarning, MappedNote, UsageError, plural
from agentv.model.case import EvalCase, case_to_data
from agentv.model.diagnostics import did_you_mean
from agentv.model.values import to_json
from agentv.registry import FOREIGN_FORMATS
from agentv.settings.evaluator_reader import ListsTests, with_agentv_defaults
from agentv.support.hash_table import PackedIds
from agentv.support.yaml.yaml_writer import WrittenInt


class ConvertArguments(FileOptions):
    """SOURCE is a dataset in any format that agentv reads, including those of other tools. TARGET is a .yaml, .yml,
    .jsonl, .ndjson, .jsonl.gz or .jsonl.zst file. Settings of a JSONL dataset are written to its sidecar. The result is
    read back and checked to have the same cases. YAML to YAML keeps comments.
    """

    only_checks = True
    action = "agentv.extensions.convert.conversion:convert"
    examples = (
        "agentv convert evals/dataset.jsonl evals/readable.yaml",
        "agentv convert evals/dataset.yaml data/dataset.jsonl.gz",
        "agentv convert questions.csv evals/questions.yaml --map 'input=question,expected_output=answer'",
        "agentv convert evals/dataset.yaml samples.jsonl --to inspect",
    )

    source: str = argument()
    target: str = argument(type=click.Path(dir_okay=False))
    source_format: str | None = option("--from FORMAT", "Format of SOURCE, if it is not recognized.")
    target_format: str | None = option(
        "--to FORMAT", "Write for another tool: promptfoo, inspect, deepeval, agent-skills, openai-evals or adk."
    )
    strict = with_help(EvalOptions.strict, "Fail if something cannot be kept, or is not read exactly.")
    force: bool = flag("--force", "Replace existing files.")


def convert(args: ConvertArguments) -> None:
    """Write the dataset in another format."""
    file_format = GivenFormat(args.source_format or "", args.fields or "")
    warn = output.discard if args.quiet else output.warn
    sources = find_datasets(args.source, warn, output.discard, given_format=file_format)
    if len(sources) != 1:
        names = ", ".join(source.path for source in sources[:5])
        raise UsageError(
            f"{args.source} has {plural(len(sources), 'dataset')}: {names}", hint="Convert them one by one"
        )
    reading = Options(args.allow_outside_files, args.max_line_bytes, fields=args.fields or "", strict=args.strict)
    with Conversion(
        sources[0], args.target, reading, overwrite=args.force, kind=args.target_format or ""
    ) as conversion:
        for warning in conversion.write():
            warn(warning)
            if args.strict and isinstance(warning, LossWarning):
                raise UsageError("Part of the dataset would be lost, and --strict is set", str(warning))
        result = conversion.keep()
    if not args.quiet:
        same = f", identical to {sources[0].path}" if result.is_same else ""
        output.message(f"Wrote {' and '.join(result.files)}: {plural(result.cases, 'case')}{same}")


convert_command = declare("convert", ConvertArguments)


def content_hash(case: EvalCase) -> int:
    """Return a hash of everything in a case that equality compares. A case's own hash covers its id only."""
    return hash(to_json(case_to_data(case)))


class ConvertedDataset(msgspec.Struct, frozen=True):
    """The files that were written, and the number of cases in them. `is_same`: all cases equal those of the source."""

    files: tuple[str, ...]
    cases: int
    is_same: bool = True


class Conversion:
    """A conversion of one dataset. Creating it checks the settings of the dataset and the output paths.

    `write` writes temporary files next to the destination and verifies them; `keep` moves them there. At the end of a
    `with` statement, files that were not kept are removed.
    """

    def __init__(
        self, source: formats.Source, target: str, options: Options, *, overwrite: bool, kind: str = ""
    ) -> None:
        self._options = options
        self._found: list[DatasetWarning] = []
        self._source = source
        self._dataset = Dataset(source, options, StrictSink(self._found.append))
        self._target = target
        kind = _foreign_kind(kind, target) if kind else _writable_kind(target)
        self._format = formats.load_format(kind)
        folder, name = os.path.split(target)
        self._partial = formats.source_of(os.path.join(folder, f".partial-{os.getpid()}-{name}"), kind)
        sidecar = (formats.SIDECAR_SUFFIXES[0],) if self._format.has_sidecar else ()
        self._outputs = (target, *(formats.base_of(target) + suffix for suffix in sidecar))
        self._partials = (self._partial.path, *(self._partial.base + suffix for suffix in sidecar))
        self._hashes = array("q")
        self._losses: Counter[str] = Counter()
        self._check_outputs(overwrite)
        if functions := [value for _, value in source.format.programs(source)]:
            what = f"Functions return its prompts, tests or variables: {', '.join(functions)}"
            raise UsageError(f"Cannot convert {source.path}", what, "Evaluate it as it is, or write what they return")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for path in self._partials:
            with suppress(OSError):
                Path(path).unlink(missing_ok=True)

    def write(self) -> list[DatasetWarning]:
        """Write the dataset, and read it back. Return what is not kept, and notes. Raises DatasetError."""
        if built := [prompt.id for prompt in self._dataset.header.prompts if not getattr(prompt, "has_text", True)]:
            what = f"Prompts are chats with statements, or use filters of your own: {', '.join(built)}"
            raise UsageError(f"Cannot convert {self._source.path}", what, "Evaluate it as it is, or write messages")
        rows = self._rows() if self._format.is_lossless else self._some_rows()
        document = self._dataset.document if self._source.kind == self._partial.kind else None
        try:
            self._format.write(Content(self._header(), rows, document, self._lose), self._partial.path)
        except OSError as error:
            reason = error.strerror or ""
            raise UsageError(f"Cannot write {self._outputs[0]}", reason) from error
        for _ in rows:
            pass  # a format that keeps the text of the source leaves the rows unread
        self._compare()
        lost = (
            LossWarning(f"{self._target}: not written: {what} ({plural(count, 'time')})", path=self._target)
            for what, count in self._losses.most_common()
        )
        return [*(warning for warning in self._found if isinstance(warning, MappedNote | LossWarning)), *lost]

    def keep(self) -> ConvertedDataset:
        """Move the files to their destination, the sidecar first."""
        for partial, path in reversed(list(zip(self._partials, self._outputs, strict=True))):
            try:
                if os.path.exists(path):
                    shutil.copymode(path, partial)
                os.replace(partial, os.path.realpath(path))
            except OSError as error:
                raise UsageError(f"Cannot write {path}", error.strerror or "") from error
        return ConvertedDataset(self._outputs, len(self._hashes), self._format.is_lossless)

    def _check_outputs(self, overwrite: bool) -> None:
        inputs = {os.path.realpath(path) for path in self._source.files}
        sidecar = self._dataset.document.header_path
        for path in self._outputs:
            real = os.path.realpath(path)
            if real in inputs and (path == self._outputs[0] or not overwrite):
                hint = "Choose another name or folder"
                if path != self._outputs[0]:
                    hint += f", or --force to turn {path} into the sidecar of {self._outputs[0]}"
                raise UsageError(f"Writing {self._outputs[0]} would overwrite its source {path}", hint=hint)
            if os.path.isdir(path):
                raise UsageError(f"{path} is a folder", hint="Choose another name")
            if not overwrite and os.path.exists(path):
                what = f"{path} is the sidecar of {self._source.path}" if path == sidecar else f"{path} already exists"
                raise UsageError(what, hint="Choose another name, or --force to replace it")
        folder = os.path.dirname(self._outputs[0]) or "."
        if not os.path.isdir(folder):
            raise UsageError(f"No such folder: {folder}", hint=f"mkdir -p {folder}")

    def _header(self) -> dict[str, Any]:
        """Return the settings to write, including those implied by the file name or the rows."""
        left_out = (*CASE_LIST_KEYS, "dataset", "name")
        settings = _plain(self._dataset.document.header)
        header: dict[str, Any] = {"dataset": self._dataset.header.dataset}
        header |= {key: value for key, value in self._with_defaults(settings).items() if key not in left_out}
        if self._dataset.is_agentmark:
            header["format"] = AGENTMARK
        if self._dataset.header.inherit_evaluators:  # only the default under `tests`
            header["execution"] = {**header.get("execution", {}), "inherit_evaluators": True}
        return header

    def _rows(self) -> Iterator[WrittenRow]:
        """Yield the rows, and remember a hash of each case.

        An outcome that is optional under `tests` is written out, because other formats require it.
        """
        plain = self._dataset.read_options.plain and self._format.writes_plain_rows
        options = ReadOptions(plain, self._options.max_line_bytes)
        needs_outcome = self._dataset.document.lists_tests and not self._dataset.is_agentmark
        for batch, cases in self._dataset.rows_and_cases(PackedIds(), options):
            rows = ((offset, row) for offset, row in enumerate(batch.rows) if row is not None)
            for (offset, row), case in zip(rows, cases, strict=True):
                if case.case_error is not None and not self._format.is_lossless:
                    self._lose("a refused case: the other tool would run it, without its evaluators")
                    continue
                self._hashes.append(content_hash(case))
                if isinstance(row, PlainRow):
                    data: Any = row
                else:
                    data = self._with_defaults(_plain(row))
                    if needs_outcome and all(data.get(key) is None for key in OUTCOME_KEYS):
                        data["expected_outcome"] = ""
                yield WrittenRow(data, batch.lines[offset] if batch.lines else None, case)

    def _some_rows(self) -> Iterator[WrittenRow]:
        """Return the rows for another tool. Raises UsageError if there are none."""
        rows = self._rows()
        if (first := next(rows, None)) is None:
            raise UsageError("No case is left to write", "The dataset has no cases, or all of them are refused")
        return chain((first,), rows)

    def _with_defaults(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return a header, a case or a turn with the defaults of evaluators that only files with `tests` have."""
        if not self._dataset.document.lists_tests:
            return data
        lists_tests: ListsTests = "agentv-4" if self._dataset.document.mapped is None else True
        changed = {key: with_agentv_defaults(data[key], lists_tests=lists_tests) for key in LIST_KEYS if key in data}
        if isinstance(data.get("execution"), dict):
            changed["execution"] = self._with_defaults(data["execution"])
        if isinstance(data.get("turns"), list):
            changed["turns"] = [self._with_defaults(turn) for turn in data["turns"]]
        return {**data, **changed}

    def _lose(self, what: str) -> None:
        self._losses[what] += 1

    def _compare(self) -> None:
        """Check that each case equals its source; of a format of another tool, that it has as many cases."""
        count = 0
        try:
            copy = Dataset(self._partial, self._options, StrictSink(ignore))
            for cases in copy.batches(PackedIds()):
                if self._format.is_lossless:
                    self._check_same(cases, count)
                count += len(cases)
        except DatasetError as error:
            message = f"Cannot read {self._target} back; it was removed"
            hint = "Files in cases are looked up next to the dataset: write the output to the same folder"
            raise AgentvError(message, error.detail or error.headline, hint) from None
        same_name = copy.header.dataset == self._dataset.header.dataset or not self._format.is_lossless
        if count != len(self._hashes) or not same_name:
            raise RuntimeError(f"{self._target} has {count} cases, and {self._source.path} {len(self._hashes)}")

    def _check_same(self, cases: list[EvalCase], start: int) -> None:
        if array("q", map(content_hash, cases)) != self._hashes[start : start + len(cases)]:
            raise RuntimeError(f"a case after number {start} of {self._source.path} changed in {self._target}")


def _writable_kind(target: str) -> str:
    """Return the format for the extension of a file to write. Raises UsageError."""
    if (name := _writer(target)) is not None:
        return name
    suffixes = ", ".join(suffix for suffix in formats.known_suffixes() if _writer(f"x{suffix}") is not None)
    raise UsageError(f"Cannot write {target}: its extension is not one of {suffixes}", hint="Rename it, or pass --to")


def _writer(target: str) -> str | None:
    names = formats.suggested(target)
    return next((name for name in names if type(formats.load_format(name)).write is not DatasetFormat.write), None)


def _foreign_kind(kind: str, target: str) -> str:
    """Return the name of another tool's format that can be written to a file of this name. Raises UsageError."""
    writable = {name: fmt.writes for name in FOREIGN_FORMATS.names() if (fmt := formats.load_format(name)).writes}
    if kind not in writable:
        hint = did_you_mean(kind, writable) or f"Formats: {', '.join(writable)}; leave out --to for our own"
        raise UsageError(f"--to: cannot write '{kind}'", hint=hint)
    if not target.endswith(writable[kind]):
        raise UsageError(f"--to {kind}: {target} must end with {' or '.join(writable[kind])}")
    return kind


def _plain(value: Any, key: str = "") -> Any:
    """Return data without line numbers. An id keeps the digits it was written with."""
    if isinstance(value, dict):
        return {name: _plain(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, WrittenInt):
        return value.written if key == "id" else int(value)
    return value
