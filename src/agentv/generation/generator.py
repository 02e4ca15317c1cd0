"""Rubrics for cases that have none, and cases out of rows: a model writes, and what it wrote is checked first."""

from __future__ import annotations

import asyncio
import csv
import io
import os
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import minijinja
import msgspec

from agentv.datasets.files import project_root
from agentv.datasets.formats.dataset_format import TABLES, Source
from agentv.datasets.loader import case_source
from agentv.engine.calls.open_targets import OpenTargets
from agentv.engine.interrupts import interruptible
from agentv.engine.job.request import Question
from agentv.engine.job.spec import RunFiles, RunSpec
from agentv.engine.preflight import FALLBACK_JUDGE
from agentv.engine.run_project import CACHE, open_targets
from agentv.engine.scoring.judge_calls import JudgeCalls, Judging
from agentv.errors import AgentvError, UsageError
from agentv.evaluators.judges.replies import Form, Unfit, ask_for
from agentv.evaluators.judges.rubric import RubricItem, rubric_complaints
from agentv.executors.executor import LocalLimits
from agentv.model.case import EvalCase
from agentv.model.evaluator import RUBRIC_TYPE, EvaluatorFailure
from agentv.model.job import Judgement
from agentv.model.message import Message
from agentv.model.response import answer
from agentv.model.values import freeze, to_json
from agentv.runs.folder import write_whole
from agentv.settings.diagnostics import did_you_mean
from agentv.support.templates import environment, first_line, missing_name, names_in

Value = TypeVar("Value")

TEXTS = Path(__file__).parent / "texts"


class Model:
    """One target that is asked for things. `folder` is where the targets file is looked for."""

    def __init__(
        self, folder: str, name: str | None, file: str | None, *, workers: int | None = None, cache: bool = False
    ) -> None:
        targets = open_targets(folder, file)
        # A target that is judged does not write its own rubric, so only the judge is a default.
        if name is None and FALLBACK_JUDGE not in targets.names:
            known = f"Known targets: {', '.join(targets.names)}"
            listed = known if targets.names else "There is no targets file yet; `agentv init` writes one"
            message = "Nobody to ask: no --target, and no target is called 'judge'"
            raise UsageError(message, listed, "Name one with --target")
        self.name = name or FALLBACK_JUDGE
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
        self._judging = Judging(self._targets, None, asked="model")
        self.most_at_once = self._targets.get(self.name).most

    async def ask(self, case: EvalCase, task: str, text: str, form: Form[Value], quoted: Iterable[str] = ()) -> Value:
        """What it answers to a task about a case. Raises EvaluatorFailure when it gives nothing of the form, twice."""
        calls = JudgeCalls(self._judging, case, task, (self.name,))
        messages = (Message("system", (TEXTS / f"{task}.md").read_text(encoding="utf-8")), Message("user", text))
        form = msgspec.structs.replace(form, quoted=tuple(quoted))
        return await ask_for(calls.ask, self.name, messages, form)

    async def aclose(self) -> None:
        """Close its connections."""
        await self._targets.aclose()


MOST_ITEMS = 10
WRITTEN_EVERY_S = 5.0

Item = TypeVar("Item")
Rubric = list[dict[str, Any]]


def _object(properties: dict[str, Any], **further: Any) -> dict[str, Any]:
    """The JSON Schema of an object with exactly these properties."""
    return {
        **further,
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_TEXT = {"type": "string"}
_ITEM = _object({"id": _TEXT, "expected_outcome": _TEXT, "weight": {"type": "number"}, "required": {"type": "boolean"}})
_RUBRICS_SCHEMA = _object({"rubrics": {"type": "array", "items": _ITEM}}, title="rubrics")
_CASE_SCHEMA = _object(
    {"input": _TEXT, "expected_outcome": _TEXT, "expected_output": {"type": ["string", "null"]}}, title="case"
)


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a request to generate something. `failed` are names with the reason of each."""

    made: int
    there_already: int
    failed: tuple[tuple[str, str], ...] = ()
    interrupted: bool = False


class RubricFile:
    """One dataset file whose cases get rubrics. What is written is what the file holds then, and the new lines."""

    def __init__(self, source: Source) -> None:
        if len(source.files) != 1 or source.files[0].lower().endswith((".gz", ".zst")):
            hint = "Write them into one plain file: agentv convert"
            raise UsageError(f"Rubrics cannot be put into {source.path}", "It is compressed, or several files", hint)
        self.path = os.path.realpath(source.files[0])
        self._format = source.format

    def write(self, rubrics: Mapping[str, Rubric]) -> bytes:
        """The file with these rubrics in it, by the ids of cases; cases that have some by now are left alone."""
        try:
            return self._format.insert(Path(self.path).read_bytes(), "rubrics", rubrics)
        except ValueError as error:
            raise AgentvError(f"Rubrics cannot be put into {self.path}", str(error)) from None

    def replace(self, rubrics: Mapping[str, Rubric]) -> None:
        """Writes the file, whole or not at all, with the rights that it has."""
        mode = os.stat(self.path).st_mode & 0o7777
        write_whole(Path(self.path), self.write(rubrics))
        os.chmod(self.path, mode)


def cases_without_rubrics(cases: Iterable[EvalCase]) -> Iterator[EvalCase]:
    """Cases that say what a good answer does and have no rubric of any kind."""
    for case in cases:
        has_items = any(spec.type == RUBRIC_TYPE and spec.settings.get("rubrics") for spec in case.evaluators)
        if case.expected_outcome.strip() and not case.rubrics and not has_items:
            yield case


async def generate_rubrics(
    model: Model, cases: list[EvalCase], keep: Callable[[Mapping[str, Rubric]], None], said: Callable[[str], None]
) -> Done:
    """Asks for a rubric for each case; `keep` is given those that are new every few seconds, and at the end."""
    made: dict[str, Rubric] = {}
    failed: list[tuple[str, str]] = []
    written = [time.monotonic()]

    async def work(case: EvalCase) -> tuple[EvalCase, Rubric | str]:
        question = Question(case, prompt_id=case.prompts[0].id if case.prompts else None)
        text = _case_text(case, question)
        try:
            return case, await model.ask(case, "rubrics", text, _RUBRIC_FORM, quoted=(text,))
        except EvaluatorFailure as failure:
            return case, str(failure)

    def emit(found: tuple[EvalCase, Rubric | str]) -> None:
        case, rubric = found
        if isinstance(rubric, str):
            failed.append((case.id, rubric))
            said(f"{case.id}: {rubric}")
            return
        made[case.id] = rubric
        if time.monotonic() - written[0] > WRITTEN_EVERY_S:
            keep(made)
            written[0] = time.monotonic()

    interrupted = await _all(cases, work, emit, model.most_at_once)
    if made:
        keep(made)
    return Done(made=len(made), there_already=0, failed=tuple(failed), interrupted=interrupted)


class RowTemplates(msgspec.Struct, frozen=True, kw_only=True):
    """What of a case is made from a row by templates; the model makes the rest."""

    id: str | None = None
    input: str | None = None
    expected_outcome: str | None = None
    expected_output: str | None = None

    @property
    def are_enough(self) -> bool:
        """Whether no model is needed."""
        return self.input is not None and self.expected_outcome is not None

    def rendered(self, row: Mapping[str, Any]) -> dict[str, str]:
        """The fields of a case that there are templates for. Raises ValueError for a template that does not fit."""
        found = {}
        for name in self.__struct_fields__:
            template = getattr(self, name)
            if template is not None:
                try:
                    found[name] = environment().render_str(template, **row).strip()
                except minijinja.TemplateError as error:
                    raise ValueError(f"--{name.replace('_', '-')}: {_explained(error, template, row)}") from None
        return found


def _explained(error: minijinja.TemplateError, template: str, row: Mapping[str, Any]) -> str:
    """What is wrong with a template of a row; for a column that is not there, which ones are."""
    missing = None if error.kind == "SyntaxError" else missing_name(error, names_in(template), row)
    if missing is None:
        return first_line(error)
    hint = did_you_mean(missing, row) or f"The row has: {', '.join(row)}"
    return f"there is no column '{missing}'. {hint}"


async def generate_cases(
    model: Model | None,
    rows: list[tuple[int, dict[str, Any]]],
    templates: RowTemplates,
    keep: Callable[[int, dict[str, Any]], None],
    said: Callable[[str], None],
) -> Done:
    """Makes a case of each row, by templates, by a model, or by both; `keep` is given each with its row's number."""
    failed: list[tuple[str, str]] = []
    made = [0]

    async def work(numbered: tuple[int, dict[str, Any]]) -> tuple[int, dict[str, Any] | str]:
        number, row = numbered
        try:
            fields: dict[str, Any] = templates.rendered(row)
            if model is not None and not templates.are_enough:
                text = to_json(row).decode()
                asked = EvalCase(f"row-{number}", input=text)
                written: dict[str, Any] = await model.ask(asked, "evals", text, _CASE_FORM, quoted=(text,))
                fields = written | fields
            return number, {key: value for key, value in fields.items() if value}
        except (EvaluatorFailure, ValueError) as failure:
            return number, str(failure)

    def emit(found: tuple[int, dict[str, Any] | str]) -> None:
        number, case = found
        if isinstance(case, str):
            failed.append((f"row {number}", case))
            said(f"Row {number}: {case}")
        else:
            made[0] += 1
            keep(number, case)

    interrupted = await _all(rows, work, emit, 1 if model is None else model.most_at_once)
    return Done(made=made[0], there_already=0, failed=tuple(failed), interrupted=interrupted)


async def _all(
    items: list[Item], work: Callable[[Item], Awaitable[Any]], emit: Callable[[Any], None], at_once: int
) -> bool:
    """Works through all; whether Ctrl-C ended it early. What was done is handed on in both cases."""
    left, loop = iter(items), asyncio.get_running_loop()

    async def pull() -> None:
        for item in left:
            emit(await work(item))

    task = asyncio.gather(*(pull() for _ in range(min(at_once, len(items)))))

    def stop() -> None:
        loop.call_soon_threadsafe(task.cancel)

    with interruptible(stop):
        try:
            await task
        except asyncio.CancelledError:
            return True
    return False


def one_dataset(path: str, note: Callable[[str], None]) -> tuple[Source, list[EvalCase]]:
    """The dataset of a file and all its cases, checked."""
    found = case_source(path, warn=lambda _: None, note=note)
    if len(found.sources) != 1:
        raise UsageError(f"{path} holds {len(found.sources)} datasets", hint="Name one file")
    return found.sources[0], found.load()


def _case_text(case: EvalCase, question: Question) -> str:
    reference = Judgement(question, answer(""), candidate_answer="").reference_answer
    text = f"What was asked:\n{question.prompt}\n\nWhat a good answer does:\n{case.expected_outcome}"
    return f"{text}\n\nA reference answer:\n{reference}" if reference else text


def _read_rubric(data: dict[str, Any]) -> Rubric:
    """The items as a dataset writes them: ids as words, one line each, defaults left out. Raises Unfit."""
    items = data.get("rubrics")
    if not isinstance(items, list) or not 1 <= len(items) <= MOST_ITEMS:
        raise Unfit(f"it needs 'rubrics', a list of 1 to {MOST_ITEMS} items")
    written = [_read_item(item, number) for number, item in enumerate(items, 1)]
    _tell_apart(written)
    complaints = rubric_complaints([msgspec.convert(item, RubricItem) for item in written])
    if complaints:
        raise Unfit(complaints[0])
    return written


def _read_item(item: Any, number: int) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise Unfit(f"item {number} of 'rubrics' is no object")
    text = item.get("expected_outcome") or item.get("description")
    if not isinstance(text, str) or not text.strip():
        raise Unfit(f"item {number} of 'rubrics' has no 'expected_outcome'")
    weight, required = item.get("weight", 1), item.get("required", False)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight <= 100:
        raise Unfit(f"'weight' of item {number} is no number above 0")
    if not isinstance(required, bool):
        raise Unfit(f"'required' of item {number} is neither true nor false")
    name = re.sub(r"[^a-z0-9]+", "-", str(item.get("id") or "").lower()).strip("-") or f"item-{number}"
    found: dict[str, Any] = {"id": name, "expected_outcome": " ".join(text.split())}
    if weight != 1:
        found["weight"] = int(weight) if float(weight).is_integer() else weight
    # Said in either case: in a checklist an item is required unless it says that it is not.
    found["required"] = required
    return found


def _tell_apart(items: Rubric) -> None:
    seen: set[str] = set()
    for item in items:
        name, number = item["id"], 2
        while item["id"] in seen:
            item["id"], number = f"{name}-{number}", number + 1
        seen.add(item["id"])


def _read_case(data: dict[str, Any]) -> dict[str, Any]:
    for name in ("input", "expected_outcome"):
        if not isinstance(data.get(name), str) or not data[name].strip():
            raise Unfit(f"'{name}' must be a text")
    reference = data.get("expected_output")
    if reference is not None and not isinstance(reference, str):
        raise Unfit("'expected_output' must be a text or null")
    return {"input": data["input"], "expected_outcome": data["expected_outcome"], "expected_output": reference}


_RUBRIC_FORM: Form[Rubric] = Form(freeze(_RUBRICS_SCHEMA), _read_rubric, "model", "rubric")
_CASE_FORM: Form[dict[str, Any]] = Form(freeze(_CASE_SCHEMA), _read_case, "model", "case")


def read_rows(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a file, by its extension. Raises UsageError with the place of what is wrong."""
    suffix = os.path.splitext(path)[1].lower()
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"Cannot read {path}", f"The byte at {error.start} is no UTF-8", "Save it as UTF-8") from None
    if suffix in TABLES:
        return _from_table(text, TABLES[suffix], path)
    if suffix in (".jsonl", ".ndjson"):
        return _from_lines(text, path)
    raise UsageError(f"Unsupported file of rows: {path}", hint="Rows are read from .csv, .tsv and .jsonl files")


def _from_table(text: str, delimiter: str, path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        head = [name.strip() for name in next(reader, [])]
        if not head or len(set(head)) < len(head) or not all(head):
            raise UsageError(f"The first line of {path} must name the columns, each once")
        number = 0
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            number += 1
            if len(cells) != len(head):
                raise UsageError(f"{path}, line {reader.line_num}: {len(cells)} cells, and {len(head)} columns")
            yield number, dict(zip(head, cells, strict=True))
    except csv.Error as error:
        raise UsageError(f"{path}, line {reader.line_num}: {error}") from None


def _from_lines(text: str, path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    number = 0
    for line_number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise UsageError(f"{path}, line {line_number}: {error}") from None
        if not isinstance(row, dict):
            raise UsageError(f"{path}, line {line_number}: expected a JSON object")
        number += 1
        yield number, row
