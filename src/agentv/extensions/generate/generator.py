"""Generate rubrics for cases without any, and cases from rows, with a model whose responses are validated."""

import asyncio
import os
import re
import time
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping
from itertools import chain, count
from pathlib import Path
from typing import Any, Generic, TypeVar

import minijinja
import msgspec

from agentv.datasets.foreign.field_map import FieldMap
from agentv.datasets.foreign.records import RecordFile
from agentv.datasets.formats.dataset_format import Source
from agentv.datasets.loader import case_source
from agentv.engine.calls.open_targets import OpenTargets
from agentv.engine.checks.preflight import FALLBACK_JUDGE
from agentv.engine.interrupts import interruptible
from agentv.engine.job.request import CaseRequest
from agentv.engine.job.spec import RunFiles, RunSpec
from agentv.engine.run_project import CACHE, open_targets
from agentv.engine.scoring.judge_calls import JudgeCalls, Judging
from agentv.errors import AgentvError, UsageError
from agentv.evaluators.judges.judge_responses import ResponseFormat, UnusableResponse, call_for_format, object_schema
from agentv.evaluators.judges.rubric import RubricItem, rubric_complaints
from agentv.executors.executor import LocalLimits
from agentv.model.case import EvalCase
from agentv.model.diagnostics import did_you_mean, type_word
from agentv.model.evaluator import RUBRIC_TYPE, EvaluatorFailure
from agentv.model.job import Judgement
from agentv.model.message import Message
from agentv.model.response import answer
from agentv.model.values import freeze, to_json
from agentv.runs.folder import write_whole
from agentv.settings.project import project_root
from agentv.support.templates import environment, first_line, missing_name, names_in
from agentv.trust.consent import check_policy

Value = TypeVar("Value")

TEXTS = Path(__file__).parent / "texts"


class ProjectModel:
    """A target of the project that generates text. The targets file is searched for from `folder`."""

    def __init__(
        self, folder: str, name: str | None, file: str | None, *, workers: int | None = None, cache: bool = False
    ) -> None:
        targets = open_targets(folder, file)
        # Only the judge is a default: a target must not write the rubrics it is scored by.
        if name is None and FALLBACK_JUDGE not in targets.names:
            target_list = f"Known targets: {', '.join(targets.names)}"
            detail = target_list if targets.names else "There is no targets file yet; `agentv init` writes one"
            raise UsageError("No model to generate with", detail, "Pass --target NAME or define a target named 'judge'")
        self.name = name or FALLBACK_JUDGE
        check_policy(targets.uses([self.name]))
        spec = RunSpec(
            run_id="generate",
            targets=(targets.get(self.name),),
            home=targets.home,
            folders=(os.path.abspath(folder),),
            secrets=targets.secrets,
            workers=workers,
            files=RunFiles(cache_folder=str(Path(project_root(folder)) / CACHE) if cache else None),
        )
        self._targets = OpenTargets(spec, LocalLimits())
        self._judging = Judging(self._targets, None, noun="model")
        self.concurrency = self._targets.get(self.name).most

    async def call(self, case: EvalCase, task: str, text: str, form: ResponseFormat[Value]) -> Value:
        """Return the response to a task about a case. Raises EvaluatorFailure if it is unusable twice."""
        calls = JudgeCalls(self._judging, case, task, (self.name,))
        messages = (Message("system", (TEXTS / f"{task}.md").read_text(encoding="utf-8")), Message("user", text))
        form = msgspec.structs.replace(form, quoted=(text,))
        return await call_for_format(calls.ask, self.name, messages, form)

    async def aclose(self) -> None:
        """Close the target's connections."""
        await self._targets.aclose()


MOST_ITEMS = 10
WRITE_INTERVAL_S = 5.0

Item = TypeVar("Item")
Rubric = list[dict[str, Any]]


_TEXT = {"type": "string"}
_ITEM = object_schema(
    {"id": _TEXT, "expected_outcome": _TEXT, "weight": {"type": "number"}, "required": {"type": "boolean"}}
)
_RUBRICS_SCHEMA = object_schema({"rubrics": {"type": "array", "items": _ITEM}}, title="rubrics")
_CASE_SCHEMA = object_schema(
    {"input": _TEXT, "expected_outcome": _TEXT, "expected_output": {"type": ["string", "null"]}}, title="case"
)


class GenerationResult(msgspec.Struct, frozen=True, kw_only=True):
    """The number of items that were made and that failed, and whether Ctrl-C ended the generation."""

    made: int
    failed: int
    interrupted: bool


class RubricFile:
    """A dataset file whose cases get rubrics. The rest of the file stays as it is at the time of writing."""

    def __init__(self, source: Source) -> None:
        if len(source.files) != 1 or source.files[0].lower().endswith((".gz", ".zst")):
            hint = "Convert it to one uncompressed file with agentv convert"
            raise UsageError(f"Cannot add rubrics to {source.path}", "It is compressed or has several files", hint)
        self.path = os.path.realpath(source.files[0])
        self._format = source.format

    def render(self, rubrics: Mapping[str, Rubric]) -> bytes:
        """Return the file's contents with rubrics inserted by case id. Cases that already have rubrics are skipped."""
        try:
            return self._format.insert(Path(self.path).read_bytes(), "rubrics", rubrics)
        except ValueError as error:
            raise AgentvError(f"Cannot add rubrics to {self.path}", str(error)) from None

    def write(self, rubrics: Mapping[str, Rubric]) -> None:
        """Replace the file atomically, keeping its permissions."""
        mode = os.stat(self.path).st_mode & 0o7777
        write_whole(Path(self.path), self.render(rubrics), is_private=False)
        os.chmod(self.path, mode)


def cases_without_rubrics(cases: Iterable[EvalCase]) -> Iterator[EvalCase]:
    """Yield the cases that have an expected outcome but no rubric of any kind."""
    for case in cases:
        has_items = any(spec.type == RUBRIC_TYPE and spec.settings.get("rubrics") for spec in case.evaluators)
        if case.expected_outcome.strip() and not case.rubrics and not has_items:
            yield case


async def generate_rubrics(
    model: ProjectModel,
    cases: list[EvalCase],
    keep: Callable[[Mapping[str, Rubric]], None],
    report: Callable[[str], None],
) -> GenerationResult:
    """Generate a rubric for each case. `keep` receives all rubrics so far every few seconds, and at the end."""
    rubrics: dict[str, Rubric] = {}
    written_at = time.monotonic()

    async def make(case: EvalCase) -> Rubric:
        return await model.call(case, "rubrics", _case_text(case), _RUBRIC_FORMAT)

    def add(case: EvalCase, rubric: Rubric) -> None:
        nonlocal written_at
        rubrics[case.id] = rubric
        if time.monotonic() - written_at > WRITE_INTERVAL_S:
            keep(rubrics)
            written_at = time.monotonic()

    result = await _Batch(make, add, report).run([(case.id, case) for case in cases], model.concurrency)
    if rubrics:
        keep(rubrics)
    return result


_TEMPLATES = ("id", "input", "expected_outcome", "expected_output")


class RowTemplates(msgspec.Struct, frozen=True, kw_only=True):
    """A field map and templates that fill fields of a case from a row; the model writes the other fields."""

    fields: FieldMap = FieldMap({})

    id: str | None = None
    input: str | None = None
    expected_outcome: str | None = None
    expected_output: str | None = None

    @property
    def are_complete(self) -> bool:
        """Whether no model is needed."""
        paths = self.fields.paths
        return all(getattr(self, name) is not None or name in paths for name in ("input", "expected_outcome"))

    def render(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of a case that are mapped or have templates. Raises ValueError if one does not fit."""
        values = self.fields.values(row)
        for name in _TEMPLATES:
            if (template := getattr(self, name)) is not None:
                try:
                    values[name] = environment().render_str(template, **row).strip()
                except minijinja.TemplateError as error:
                    raise ValueError(f"--{name.replace('_', '-')}: {_explained(error, template, row)}") from None
        return values


def _explained(error: minijinja.TemplateError, template: str, row: Mapping[str, Any]) -> str:
    """Describe a template error; for an unknown column, suggest the known ones."""
    missing = None if error.kind == "SyntaxError" else missing_name(error, names_in(template), row)
    if missing is None:
        return first_line(error)
    hint = did_you_mean(missing, row) or f"The row has: {', '.join(row)}"
    return f"there is no column '{missing}'. {hint}"


async def generate_cases(
    model: ProjectModel | None,
    rows: list[tuple[int, dict[str, Any]]],
    templates: RowTemplates,
    keep: Callable[[int, dict[str, Any]], None],
    report: Callable[[str], None],
) -> GenerationResult:
    """Generate a case from each row with templates, a model or both. `keep` receives each with its row number."""

    async def make(numbered: tuple[int, dict[str, Any]]) -> dict[str, Any]:
        number, row = numbered
        fields: dict[str, Any] = templates.render(row)
        if model is not None and not templates.are_complete:
            text = to_json(row).decode()
            case = EvalCase(f"row-{number}", input=text)
            fields = await model.call(case, "evals", text, _CASE_FORMAT) | fields
        return {key: value for key, value in fields.items() if value}

    batch = _Batch(make, lambda numbered, case: keep(numbered[0], case), report)
    items = [(f"Row {number}", (number, row)) for number, row in rows]
    return await batch.run(items, 1 if model is None else model.concurrency)


class _Batch(msgspec.Struct, Generic[Item, Value]):
    """Concurrent work on many items. A failure is reported and does not stop the others; Ctrl-C does."""

    make: Callable[[Item], Awaitable[Value]]
    keep: Callable[[Item, Value], None]
    report: Callable[[str], None]
    made: int = 0
    failed: int = 0

    async def run(self, items: list[tuple[str, Item]], concurrency: int) -> GenerationResult:
        queue, loop = iter(items), asyncio.get_running_loop()
        task = asyncio.gather(*(self._work(queue) for _ in range(min(concurrency, len(items)))))
        interrupted = False

        def stop() -> None:
            loop.call_soon_threadsafe(task.cancel)

        with interruptible(stop):
            try:
                await task
            except asyncio.CancelledError:
                interrupted = True
        return GenerationResult(made=self.made, failed=self.failed, interrupted=interrupted)

    async def _work(self, queue: Iterator[tuple[str, Item]]) -> None:
        for name, item in queue:
            try:
                value = await self.make(item)
            except (EvaluatorFailure, ValueError) as error:
                self.failed += 1
                self.report(f"{name}: {error}")
            else:
                self.made += 1
                self.keep(item, value)


def one_dataset(path: str, note: Callable[[str], None]) -> tuple[Source, list[EvalCase]]:
    """Open a file that must hold one dataset, and load all its cases."""
    cases = case_source(path, warn=lambda _: None, note=note)
    if len(cases.sources) != 1:
        raise UsageError(f"{path} has {len(cases.sources)} datasets", hint="Pass a single file")
    return cases.sources[0], cases.load()


def _case_text(case: EvalCase) -> str:
    question = CaseRequest(case, prompt_id=case.prompts[0].id if case.prompts else None)
    reference = Judgement(question, answer(""), candidate_answer="").reference_answer
    text = f"What was asked:\n{question.prompt}\n\nWhat a good answer does:\n{case.expected_outcome}"
    return f"{text}\n\nA reference answer:\n{reference}" if reference else text


def _read_rubric(data: dict[str, Any]) -> Rubric:
    """Return the items as written to a dataset: slug ids, one line each, no defaults. Raises UnusableResponse."""
    items = data.get("rubrics")
    if not isinstance(items, list) or not 1 <= len(items) <= MOST_ITEMS:
        raise UnusableResponse(f"it needs 'rubrics', a list of 1 to {MOST_ITEMS} items")
    rubric = [_read_item(item, number) for number, item in enumerate(items, 1)]
    ids: set[str] = set()
    for item in rubric:
        item["id"] = free_id(item["id"], ids)
        ids.add(item["id"])
    if complaints := rubric_complaints([msgspec.convert(item, RubricItem) for item in rubric]):
        raise UnusableResponse(complaints[0])
    return rubric


def _read_item(item: Any, number: int) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise UnusableResponse(f"item {number} of 'rubrics' is not an object")
    text = item.get("expected_outcome") or item.get("description")
    if not isinstance(text, str) or not text.strip():
        raise UnusableResponse(f"item {number} of 'rubrics' has no 'expected_outcome'")
    weight, required = item.get("weight", 1), item.get("required", False)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight <= 100:
        raise UnusableResponse(f"'weight' of item {number} is not a number above 0")
    if not isinstance(required, bool):
        raise UnusableResponse(f"'required' of item {number} must be true or false")
    name = re.sub(r"[^a-z0-9]+", "-", str(item.get("id") or "").lower()).strip("-") or f"item-{number}"
    entry: dict[str, Any] = {"id": name, "expected_outcome": " ".join(text.split())}
    if weight != 1:
        entry["weight"] = int(weight) if float(weight).is_integer() else weight
    entry["required"] = required  # always written, since the default depends on the kind of rubric
    return entry


def free_id(name: str, used_ids: Container[str]) -> str:
    """Return the name, with a number appended if it is taken."""
    names = chain((name,), (f"{name}-{number}" for number in count(2)))
    return next(candidate for candidate in names if candidate not in used_ids)


def _read_case(data: dict[str, Any]) -> dict[str, Any]:
    for name in ("input", "expected_outcome"):
        if not isinstance(data.get(name), str) or not data[name].strip():
            raise UnusableResponse(f"'{name}' must be a string")
    reference = data.get("expected_output")
    if reference is not None and not isinstance(reference, str):
        raise UnusableResponse("'expected_output' must be a string or null")
    return {"input": data["input"], "expected_outcome": data["expected_outcome"], "expected_output": reference}


_RUBRIC_FORMAT: ResponseFormat[Rubric] = ResponseFormat(freeze(_RUBRICS_SCHEMA), _read_rubric, "model", "rubric")
_CASE_FORMAT: ResponseFormat[dict[str, Any]] = ResponseFormat(freeze(_CASE_SCHEMA), _read_case, "model", "case")


def read_rows(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read the numbered records of a table, a JSON array or JSON Lines. Raises AgentvError with the place."""
    file = RecordFile(path)
    if not file.kind:
        hint = "Rows can be in .csv, .tsv, .jsonl, .json, .xlsx and .parquet files"
        raise UsageError(f"Unsupported file type: {path}", hint=hint)
    for number, record in enumerate(file.records(), 1):
        if not isinstance(record.data, dict):
            raise UsageError(f"{path}, line {record.line}: expected an object, got {type_word(record.data)}")
        yield number, record.data
