"""A run of another tool, as its format reads it: a header, and one job at a time with its case, answer and grades."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from agentv.errors import AgentvError
from agentv.model.case import NO_DETAILS, CaseDetails, EvalCase
from agentv.model.evaluator import EvaluatorSpec
from agentv.model.message import ROLES, Message, ToolCall
from agentv.model.result import ErrorInfo, Stage, TokenUsage, Verdict
from agentv.model.values import freeze, to_json
from agentv.support.json_stream import JsonProblem, decode_json, json_parts

MAX_LINE_BYTES = 64 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"


class Grade(msgspec.Struct, frozen=True, kw_only=True):
    """What one scorer of the other tool found: a number, a truth value, or an error without one.

    A number outside 0 to 1 is a metric, not a score. `scorer` is the scorer of a grade that is one of several of it.
    `settings` identify the scorer: two runs whose scorers have other settings measured something else. `judge` is the
    model that it called.
    """

    name: str
    type: str = ""
    scorer: str = ""
    value: float | bool | None = None
    passed: bool | None = None
    weight: float = 1.0
    reasoning: str | None = None
    details: Any = None
    error: str | None = None
    settings: dict[str, Any] = {}
    judge: str | None = None
    usage: TokenUsage | None = None
    cost_usd: float | None = None

    @property
    def spec(self) -> EvaluatorSpec:
        """The scorer as an evaluator of a case."""
        kind = self.type or self.name
        return EvaluatorSpec(type=kind, name=self.name, weight=self.weight, settings=freeze(self.settings))


class ForeignCase(msgspec.Struct, frozen=True, kw_only=True):
    """A case of the other tool. `variables` are those of a prompt template, which then identify the question.

    `identity` distinguishes cases that are otherwise equal, such as two tests of the same question.
    """

    id: str
    dataset: str
    input: str | tuple[Message, ...] = ()
    expected: Any = None
    outcome: str = ""
    context: tuple[str, ...] = ()
    variables: dict[str, Any] | None = None
    metadata: dict[str, Any] = {}
    tags: tuple[str, ...] = ()
    conversation_id: str | None = None
    identity: str = ""

    def build(self, evaluators: tuple[EvaluatorSpec, ...]) -> EvalCase:
        """Return the case as one of ours."""
        has_details = self.context or self.variables is not None
        variables = None if self.variables is None else freeze(self.variables)
        return EvalCase(
            self.id,
            self.outcome,
            self.input,
            _expected(self.expected),
            self.conversation_id,
            freeze(self.metadata),
            self.tags,
            evaluators=evaluators,
            details=CaseDetails(context=self.context, variables=variables) if has_details else NO_DETAILS,
        )


def _expected(value: Any) -> str | tuple[Message, ...]:
    if value is None or isinstance(value, str):
        return value or ()
    is_messages = isinstance(value, tuple) and all(isinstance(item, Message) for item in value)
    return value if is_messages else (Message("assistant", freeze(value)),)


class ForeignJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job of the other tool: an answer to a case, with its grades.

    Without a `trial`, answers of the same target to the same case are numbered. `score` is the total that the tool
    computed; without one, it is the mean of the grades. `passed` is the tool's own verdict. `evaluators` are those that
    the tool applies to the case, if it stores them apart from the grades. `place` is the position in the file, for
    messages.
    """

    case: ForeignCase
    target: str
    prompt: str | None = None
    trial: int | None = None
    answer: str | None = None
    messages: tuple[Message, ...] = ()
    grades: tuple[Grade, ...] = ()
    evaluators: tuple[EvaluatorSpec, ...] | None = None
    score: float | None = None
    passed: bool | None = None
    error: ErrorInfo | None = None
    reasoning: str | None = None
    usage: TokenUsage | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None
    stop_reason: str | None = None
    cached: bool = False
    timestamp: str = ""
    metadata: dict[str, Any] = {}
    warnings: tuple[str, ...] = ()
    place: str = ""


class ForeignRun(msgspec.Struct, kw_only=True):
    """A run of another tool. `jobs` are read once; the header may be completed while they are read.

    `targets` and `judges` are settings by name, `versions` those of the tool, `notes` what the reader should know.
    """

    jobs: Iterable[ForeignJob]
    id: str = ""
    started_at: str = ""
    finished_at: str | None = None
    is_unfinished: bool = False
    planned_jobs: int | None = None
    targets: dict[str, dict[str, Any]] = {}
    judges: dict[str, dict[str, Any]] = {}
    options: dict[str, Any] = {}
    versions: dict[str, str] = {}
    git_commit: str | None = None
    notes: list[str] = []


class ForeignResults:
    """Base class of the formats of other tools' results. A file or a folder is one run."""

    title: ClassVar[str]
    """The name of the tool and of its file, for messages: `an Inspect log`."""

    extensions: tuple[str, ...] = ()
    unit = "result"
    is_imported = True
    scores_by_first = False
    """Whether the first scorer gives the score, as the tool's own totals do; otherwise the score is a mean."""

    def sniff(self, head: bytes, path: Path) -> bool:
        """Return whether a file that starts with `head` has this format. For a folder, `head` is empty."""
        raise NotImplementedError

    def files(self, path: Path) -> list[Path]:
        """Return the files that are read: the file itself, or those of a folder."""
        return [path]

    def open(self, path: Path) -> ForeignRun:
        """Open a run. Raises AgentvError, also while its jobs are read."""
        raise NotImplementedError


def problem(path: Path, what: str, hint: str = "") -> AgentvError:
    """Build the error for results that cannot be read."""
    return AgentvError(f"Cannot read {path}", what[:1].upper() + what[1:], hint)


def read_document(path: Path, most_bytes: int, kind: Any = Any) -> Any:
    """Return a JSON file as data. Raises AgentvError, also for a file that is too large."""
    size = path.stat().st_size
    if size > most_bytes:
        raise problem(path, f"The file has {size / 2**20:,.0f} MB; at most {most_bytes // 2**20} MB are read at once")
    try:
        return decode_json(path.read_bytes().removeprefix(_BOM), kind)
    except JsonProblem as error:
        raise problem(path, f"Invalid JSON: {error}") from error


def read_parts(path: Path, opened: set[tuple[str, ...]]) -> Iterator[tuple[tuple[str, ...], bytes]]:
    """Yield the parts of a JSON file of any size. Raises AgentvError."""
    try:
        with path.open("rb") as stream:
            yield from json_parts(stream, opened)
    except JsonProblem as error:
        raise problem(path, f"Invalid JSON: {error}") from error


def read_lines(path: Path, kind: Any = Any) -> Iterator[tuple[int, Any]]:
    """Yield the lines of a JSON Lines file with their numbers. Raises AgentvError."""
    for number, line in numbered_lines(path):
        if not line.isspace():
            yield number, decoded(path, line, f"line {number}", kind)


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file with their ends and numbers. Raises AgentvError for a line that is too long."""
    with path.open("rb", buffering=1 << 18) as stream:
        number = 0
        while line := stream.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise problem(path, f"Line {number} is longer than {MAX_LINE_BYTES // 2**20} MB")
            yield number, line


def decoded(path: Path, data: bytes, place: str, kind: Any = Any) -> Any:
    """Decode one part of a file. Raises AgentvError that names the place."""
    try:
        return decode_json(data.removeprefix(_BOM), kind)
    except JsonProblem as error:
        raise problem(path, f"Invalid JSON at {place}: {error}") from error


def grouped_lines(path: Path, key: Callable[[Any], Hashable | None]) -> Iterator[tuple[Hashable, list[Any]]]:
    """Yield the lines of a JSON Lines file by key, in the order of their first lines; a key of None is left out.

    Only the positions of the lines are held. Raises AgentvError.
    """
    places: dict[Hashable, list[int]] = {}
    start = 0
    for number, line in numbered_lines(path):
        found = key(decoded(path, line, f"line {number}")) if not line.isspace() else None
        if found is not None:
            places.setdefault(found, []).append(start)
        start += len(line)
    with path.open("rb") as stream:
        for name, offsets in places.items():
            rows = []
            for offset in offsets:
                stream.seek(offset)
                rows.append(decoded(path, stream.readline(), f"byte {offset:,}"))
            yield name, rows


def unique_names(names: Iterable[str]) -> Iterator[str]:
    """Yield names, with a number added to those that repeat an earlier one."""
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        yield name if seen[name] == 1 else f"{name}-{seen[name]}"


def dict_of(value: Any) -> dict[str, Any]:
    """Return an object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def list_of(value: Any) -> list[Any]:
    """Return a list; an empty one for anything else."""
    return value if isinstance(value, list) else []


def mean_score(grades: Iterable[Grade]) -> float | None:
    """Return the weighted mean of the grades that are scores; None if there is none."""
    total = weight = 0.0
    for grade in grades:
        if grade.value is not None and grade.weight > 0:
            total += float(grade.value) * grade.weight
            weight += grade.weight
    return min(1.0, max(0.0, total / weight)) if weight else None


def is_score(value: float | bool | None) -> bool:
    """Return whether a value is from 0 to 1."""
    return value is not None and 0 <= value <= 1


def number_or_none(value: Any) -> float | None:
    """Return a finite number; None for anything else, also for a truth value."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None


def grade_value(value: Any) -> float | bool | None:
    """Return a number or truth value; None for anything else."""
    return value if isinstance(value, bool) else number_or_none(value)


def verdict_of(score: float | None, passed: bool | None) -> Verdict | None:
    """Return the verdict: the tool's own, or that of the default limits."""
    if score is None:
        return None
    if passed is not None:
        return "pass" if passed else "fail"
    return "pass" if score >= 0.8 else "borderline" if score >= 0.6 else "fail"


def token_usage(input_tokens: Any, output_tokens: Any, **more: Any) -> TokenUsage | None:
    """Return token counts; None if neither is known."""
    counts = [number_or_none(value) for value in (input_tokens, output_tokens)]
    if counts == [None, None]:
        return None
    known = {name: int(found) for name, value in more.items() if (found := number_or_none(value)) is not None}
    return TokenUsage(int(counts[0] or 0), int(counts[1] or 0), **known)


def error_info(message: Any, stage: Stage = "target") -> ErrorInfo:
    """Return an error, with the class that its words suggest."""
    from agentv.runs.foreign.agentv_rows import error_class_of  # late: it imports the YAML parser

    text = text_of(message).strip() or "no message"
    return ErrorInfo("evaluator" if stage == "evaluator" else error_class_of(text), text, stage)


def text_of(value: Any) -> str:
    """Return a value as text: text as it is, null as nothing, everything else as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else to_json(value).decode()


def chat_messages(items: Any) -> tuple[Message, ...]:
    """Return chat messages of OpenAI's shape as messages, with their tool calls. Other items are left out."""
    return tuple(
        message for item in list_of(items) if isinstance(item, dict) and (message := chat_message(item)) is not None
    )


def chat_message(item: dict[str, Any]) -> Message | None:
    """Return one chat message; None if it has no known role."""
    role = {"developer": "system", "function": "tool", "model": "assistant", "ai": "assistant", "human": "user"}.get(
        str(item.get("role")), item.get("role")
    )
    if role not in ROLES:
        return None
    calls = tuple(call for each in list_of(item.get("tool_calls")) if (call := _tool_call(each)) is not None)
    content = content_text_of(item.get("content"))
    return Message(role, content if content or not calls else None, calls)  # type: ignore[arg-type]


def content_text_of(content: Any) -> str:
    """Return the content of a chat message as text: text parts on separate lines; other parts by their type."""
    if not isinstance(content, list):
        return text_of(content)
    return "\n".join(_part_text(part) for part in content)


def _part_text(part: Any) -> str:
    if not isinstance(part, dict):
        return text_of(part)
    text = next((part[key] for key in ("text", "reasoning", "value") if isinstance(part.get(key), str)), None)
    return text if text is not None else f"[{part.get('type', 'part')}]"


def _tool_call(call: Any) -> ToolCall | None:
    if not isinstance(call, dict):
        return None
    function = call.get("function")
    named = function if isinstance(function, dict) else call
    name = function if isinstance(function, str) else named.get("name") or named.get("tool")
    arguments = next((named[key] for key in ("arguments", "input", "args") if key in named), None)
    if isinstance(arguments, str) and arguments.lstrip().startswith("{"):
        with suppress(JsonProblem):
            arguments = decode_json(arguments.encode())
    id = call.get("id")
    return ToolCall(tool=str(name), input=arguments, id=None if id is None else str(id)) if name else None


_UNSAFE = re.compile(r"[^\w.-]+")


def safe_name(text: str) -> str:
    """Return a text as a part of a file name."""
    return _UNSAFE.sub("-", text).strip("-.")[:80]
