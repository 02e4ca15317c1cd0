"""The answers and cases of an earlier run. Records are read from disk when needed, not kept in memory."""

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import lru_cache
from typing import Any, BinaryIO

import msgspec

from agentv.datasets.case.builder import CaseBuilder
from agentv.datasets.case.header import DEFAULT_CHOICE, EvaluatorChoice, Header
from agentv.datasets.case.shorthand import MessageReader
from agentv.datasets.files import FileFinder
from agentv.datasets.formats.dataset_format import Source
from agentv.datasets.loader import CaseSource, StrictSink
from agentv.datasets.selection import Selection
from agentv.engine.named_runs import existing_run
from agentv.engine.run_options import RescoreOptions
from agentv.errors import AgentvError, DatasetWarning, InvalidCaseError, UsageError
from agentv.model.case import EvalCase, PromptInput
from agentv.model.diagnostics import Problems
from agentv.model.job import Job
from agentv.model.manifest import RunManifest
from agentv.model.message import Message
from agentv.model.origin import Origin, Place
from agentv.model.response import Response, TargetFailure, answer
from agentv.model.result import JobKey, Result
from agentv.registry import TARGETS
from agentv.runs.job_index import AnswerIndex
from agentv.runs.store import CHECK_HINT, RunStore, StoredCase, read_case
from agentv.settings.project import project_root
from agentv.support.hash_table import OffsetTable
from agentv.support.hashes import relative_path
from agentv.support.patterns import has_magic
from agentv.targets.answers import messages_of_record
from agentv.trust.roots import is_trusted

_CASES_REMEMBERED = 256


class StoredAnswer(msgspec.Struct, frozen=True):
    """A record of an earlier run. `ours`: agentv wrote it, and only omits messages without tool calls.

    `calls_unknown`: its target reports only text.
    """

    record: Result
    ours: bool
    calls_unknown: bool = False

    @property
    def is_scorable(self) -> bool:
        """Whether there is an answer: the target did not fail."""
        record, error = self.record, self.record.error
        texts = (record.candidate_answer, record.raw_answer)
        has_text = any(text is not None for text in texts) or bool(record.output_messages)
        return has_text and (error is None or error.stage == "evaluator")

    @property
    def has_trace(self) -> bool:
        """Whether all messages and tool calls of the answer are known."""
        if self.record.output_messages:
            return True
        trace = self.record.trace_summary
        return self.ours if trace is None else trace.event_count == 0

    @property
    def response(self) -> Response:
        """Return the target's answer. Raises TargetFailure if its messages cannot be read."""
        record = self.record
        metrics = record.execution_metrics
        has_spans = metrics is not None and metrics.trace_id is not None
        text = record.raw_answer if record.raw_answer is not None else record.candidate_answer
        response = answer(text or "", calls_unknown=self.calls_unknown and not has_spans)
        if record.output_messages:
            response = Response(messages=_messages(record))
        if metrics is None:
            return response
        return msgspec.structs.replace(
            response,
            usage=metrics.token_usage,
            cost_usd=metrics.cost_usd,
            duration_ms=metrics.duration_ms,
            provider_data=metrics.provider_data,
        )


class StoredCaseIndex:
    """Where each case of a run is in its `cases.jsonl`, from which it is read when needed.

    Cases are added in the order of the file. If one was added twice, the last counts.
    """

    def __init__(self, store: RunStore) -> None:
        self._path = store.folder.cases_path
        self._lines: BinaryIO | None = None
        self._offsets = OffsetTable()
        self._end = 0

    def add(self, case: StoredCase) -> None:
        """Add the next case of the file."""
        self._offsets.add(hash((case.dataset_path, case.id)), self._end)
        self._end += len(case.data)

    def find(self, dataset_path: str, id: str) -> StoredCase | None:
        """Return a case that was added, without its `data`."""
        for offset in self._offsets.latest_first(hash((dataset_path, id))):
            if self._lines is None:
                self._lines = self._path.open("rb")
            case = read_case(self._lines, offset)
            if (case.dataset_path, case.id) == (dataset_path, id):
                return msgspec.structs.replace(case, data=b"")
        return None

    def close(self) -> None:
        """Close the file. A later `find` opens it again."""
        if self._lines is not None:
            self._lines.close()
        self._lines = None


class StoredAnswers:
    """The records of a run by case. If a job has several records, the last one counts."""

    def __init__(self, run: str) -> None:
        self.path = existing_run(run)
        self.store = RunStore.open(self.path)
        self.records = AnswerIndex(self.store)
        if not self.records:
            raise UsageError(f"The run has no results: {run}")
        self.manifest, self.run_id, self.digest = self.store.manifest, self.store.run_id, self.store.digest()
        self._text_targets = _text_targets(self.manifest)
        self._cases = StoredCaseIndex(self.store)
        for case in self.store.cases() if self.manifest is not None else ():
            self._cases.add(case)
        self._find_case = lru_cache(_CASES_REMEMBERED)(self._cases.find)

    def jobs_of(self, case: EvalCase) -> list[JobKey]:
        """Return the jobs of a case that have a record."""
        return [key for key, _ in self.records.places(case.dataset, case.id, case.path)]

    def before(self, result: Result) -> Result:
        """Return the record from which a rescored record was made."""
        record = self.records.find(result.dataset, result.key)
        assert record is not None
        return record

    def of(self, job: Job) -> StoredAnswer:
        """Return the answer of a job from `jobs_of`."""
        record = self.records.find(job.case.dataset, job.key)
        assert record is not None
        return StoredAnswer(record, self.store.is_ours, record.target in self._text_targets)

    def stored_case(self, case: EvalCase) -> StoredCase | None:
        """Return a case as stored in the run folder; None for a bare results file."""
        key = next(iter(self.jobs_of(case)), None)
        return None if key is None else self._find_case(key.dataset_path, case.id)

    def close(self) -> None:
        """Close the run's files."""
        self._cases.close()
        self.store.close()


def _text_targets(manifest: RunManifest | None) -> frozenset[str]:
    """Return the targets of a run that do not always report their tool calls."""
    entries = () if manifest is None else manifest.targets
    kinds = {entry.name: TARGETS.canonical(entry.provider) for entry in entries if ".py:" not in entry.provider}
    reporting = {name for name, kind in kinds.items() if kind is not None and TARGETS.find(kind).reports_calls}
    return frozenset(entry.name for entry in entries) - reporting


def _messages(record: Result) -> tuple[Message, ...]:
    try:
        return messages_of_record(record)
    except TargetFailure as failure:
        raise TargetFailure("invalid_response", f"Cannot read the stored answer: {failure}") from None


_GUIDELINES = "[[ ## Guidelines ## ]]"


class StoredCases:
    """The cases stored in a run folder; can be read any number of times."""

    sources: tuple[Source, ...] = ()

    def __init__(self, store: RunStore, selection: Selection = Selection()) -> None:
        self._store = store
        self._selection = selection
        self._builders: dict[tuple[str, str], tuple[CaseBuilder, Origin]] = {}
        self._is_imported = store.manifest is not None and store.manifest.imported_from is not None
        self.sink = StrictSink(lambda _: None)

    def stream(self) -> Iterator[EvalCase]:
        """Yield the selected cases."""
        return self._selection.apply(self._all(), self._all)

    stream_again = stream

    def _all(self) -> Iterator[EvalCase]:
        with closing(StoredCaseIndex(self._store)) as index:
            for number, stored_case in enumerate(self._store.cases(), 1):
                if index.find(stored_case.dataset_path, stored_case.id) is None:
                    yield self._checked(stored_case, number)
                index.add(stored_case)

    def _checked(self, stored_case: StoredCase, number: int) -> EvalCase:
        try:
            return self._case(stored_case, number)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            headline = f"Invalid stored case at line {number} in {self._store.folder.cases_path}"
            raise AgentvError(headline, f"{type(error).__name__}: {error}", CHECK_HINT) from error

    def _case(self, stored_case: StoredCase, line: int) -> EvalCase:
        data, row = stored_case.fields, stored_case.row
        if self._is_imported:
            row["evaluators"] = []  # the scorers of another tool cannot run here
        builder, origin = self._builder(data.get("dataset", ""), data.get("dataset_path", ""))
        prompts = [(prompt["id"], _inlined(prompt["input"])) for prompt in data.get("prompts", ())]
        for key, value in (("input", prompts[0][1] if prompts else data.get("input")), *_expected(data)):
            row[key] = _inlined(value)
        if "turns" in row:
            row["turns"] = [{**turn, "input": _inlined(turn["input"])} for turn in row["turns"]]
        case = self._built(builder, row, Place(origin, line))
        if not prompts:
            return case
        rendered = tuple(PromptInput(id, self._messages(builder, row, value)) for id, value in prompts)
        return msgspec.structs.replace(case, details=msgspec.structs.replace(case.details, prompts=rendered))

    def _messages(self, builder: CaseBuilder, row: dict[str, Any], value: list[Any]) -> tuple[Message, ...]:
        return self._built(builder, {**row, "input": value}, Place(Origin(), 0)).input

    def _built(self, builder: CaseBuilder, row: dict[str, Any], place: Place) -> EvalCase:
        problems = Problems()
        case = builder.build(row, place, 0, problems)
        for problem in problems.errors:
            headline = f"Invalid stored case at line {place.line} in {self._store.folder.cases_path}"
            raise InvalidCaseError(headline, problem.message, problem.hint, line=place.line, field=problem.field)
        assert case is not None
        return case

    def _builder(self, dataset: str, path: str) -> tuple[CaseBuilder, Origin]:
        """Return the builder and origin of a dataset's cases; evaluator files are looked up next to the dataset."""
        if (entry := self._builders.get((dataset, path))) is None:
            folder = os.path.dirname(path) or "."
            folder = folder if os.path.isdir(folder) and is_trusted(folder) else "."
            root = project_root(folder)
            # Cases of another tool may lack an outcome and references; the command names the evaluators.
            evaluators = EvaluatorChoice(()) if self._is_imported else DEFAULT_CHOICE
            header = Header(dataset=dataset, evaluators=evaluators)
            builder = CaseBuilder(header, MessageReader(FileFinder(folder, root)), outcome_optional=True)
            entry = self._builders[dataset, path] = (builder, Origin(path, dataset, folder, root))
        return entry


def _expected(data: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the expected output in dataset form: structured data is unwrapped from its message."""
    if not (expected := data.get("expected_output")):
        return []
    content = expected[0].get("content") if len(expected) == 1 else None
    is_data = isinstance(content, list) and not all(isinstance(part, dict) and "type" in part for part in content)
    return [("expected_output", content if is_data else expected)]


def _inlined(messages: Any) -> Any:
    """Replace files by their stored contents, guidelines first, as in the prompt sent to the target."""
    if not isinstance(messages, list) or not all(isinstance(item, dict) and "role" in item for item in messages):
        return messages
    guidelines: list[str] = []
    inlined = [_message(message, guidelines) for message in messages]
    if not guidelines:
        return inlined
    return [{"role": "system", "content": "\n\n".join((_GUIDELINES, *guidelines))}, *inlined]


def _message(message: dict[str, Any], guidelines: list[str]) -> dict[str, Any]:
    content = message.get("content")
    if not isinstance(content, list):
        return message
    parts = []
    for part in content:
        block = _part(part)
        if isinstance(part, dict) and part.get("guideline"):
            guidelines.append(block["value"])
        else:
            parts.append(block)
    return {**message, "content": parts}


def _part(part: Any) -> Any:
    if isinstance(part, dict) and "text" in part:
        return {"type": "text", "value": f'<file path="{part["value"]}">\n{part["text"].strip()}\n</file>'}
    if isinstance(part, dict) and "data" in part:
        return {"type": "image", "value": part["data"]}
    return part


def cases_to_rescore(
    options: RescoreOptions, answers: StoredAnswers, warn: Callable[[DatasetWarning], None], note: Callable[[str], None]
) -> CaseSource | StoredCases:
    """Return the cases at the named paths, else of the run's datasets, else those stored in the run folder."""
    paths = options.paths or (() if options.stored_cases else _existing_datasets(answers))
    if paths:
        return msgspec.structs.replace(options, paths=paths).open_cases(warn, note)
    run = relative_path(options.run)
    again = f"agentv rescore {shlex.quote(options.run if run.startswith('..') else run)} PATHS…"
    answers.store.check_cases(f"Name the datasets of the run: {again}")
    imported = answers.manifest.imported_from if answers.manifest is not None else None
    if imported is not None and not options.evaluators:
        hint = f"Score the answers with evaluators of agentv: {again.removesuffix(' PATHS…')} --evaluator TYPE"
        raise UsageError(f"The scorers of {imported.format} cannot run here", hint=hint)
    if not options.stored_cases and imported is None:
        missing = "Some datasets of the run no longer exist; using the cases stored in its folder"
        note(f"{missing}. Gates in the datasets are not checked")
    return StoredCases(answers.store, options.selection)


def _existing_datasets(answers: StoredAnswers) -> tuple[str, ...]:
    """Return the datasets of the run, if all of them still exist; without files added to a folder since then."""
    manifest = answers.manifest
    if manifest is None or not manifest.paths:
        return ()
    paths = tuple(entry.path for entry in manifest.datasets)
    return paths if all(os.path.exists(path) or has_magic(path) for path in paths) else ()
