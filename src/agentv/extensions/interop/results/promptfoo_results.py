"""Read results of promptfoo: the JSON and JSON Lines files of `promptfoo eval --output`, and its older tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentv.extensions.interop.imports.foreign_files import decoded, problem, read_lines, read_parts
from agentv.extensions.interop.imports.foreign_values import (
    chat_messages,
    dict_of,
    error_info,
    grade_value,
    list_of,
    number_or_none,
    text_of,
    token_usage,
    unique_names,
)
from agentv.extensions.interop.imports.run import ForeignCase, ForeignGrade, ForeignJob, ForeignResults, ForeignRun
from agentv.model.message import Message
from agentv.model.result import ErrorInfo, TokenUsage
from agentv.model.values import digest
from agentv.support.json_stream import JsonProblem, decode_json, top_level

_ROWS = {("results",), ("results", "results")}
_TABLES = {("table", "body"), ("results", "table", "body")}
_OPENED = {(), ("table",), ("results", "table"), *_ROWS, *_TABLES}
_OUTCOMES = frozenset(("success", "score", "gradingResult", "response", "error"))
_LONGEST_LABEL = 60
_ERROR = 2
"""The `failureReason` of a row whose provider failed; 1 is a failed assertion."""


class PromptfooResults(ForeignResults):
    """Results of promptfoo. Providers are targets, assertions are evaluators, and repeated tests are trials."""

    title = "a results file of promptfoo"
    unit = "result"

    def sniff(self, head: bytes, path: Path) -> bool:  # noqa: ARG002
        keys = top_level(head)
        # lm-eval writes totals, and Inspect logs, with the same key.
        if keys.get("results", b"").startswith((b"{", b"[")) and keys.keys().isdisjoint(("n-shot", "eval")):
            return bool({"evalId", "stats", "config", "table"} & keys.keys()) or b'"prompts"' in keys["results"] + head
        return _is_row(keys)

    def open(self, path: Path) -> ForeignRun:
        with path.open("rb") as file:
            is_lines = _is_row(top_level(file.read(65536)))
        if is_lines:
            return self._run(_Rows(path), {}, (row for _, row in read_lines(path)))
        header: dict[str, Any] = {}
        for keys, data in read_parts(path, _OPENED):
            if keys not in _ROWS and keys not in _TABLES:
                header[".".join(keys).removeprefix("results.")] = decoded(path, data, ".".join(keys))
        rows = _Rows(path, header)
        return self._run(rows, header, rows.read())

    def _run(self, rows: _Rows, header: dict[str, Any], data: Iterator[Any]) -> ForeignRun:
        metadata = dict_of(header.get("metadata"))
        started = text_of(header.get("timestamp") or header.get("createdAt") or metadata.get("evaluationCreatedAt"))
        version = text_of(metadata.get("promptfooVersion"))
        run = ForeignRun(
            jobs=(),
            id=text_of(header.get("evalId")) or "promptfoo",
            started_at=started,
            versions={"promptfoo": version} if version else {},
        )
        run.jobs = rows.jobs(data, run)
        return run


def _is_row(keys: dict[str, bytes]) -> bool:
    return {"success", "score"} <= keys.keys() and bool({"promptIdx", "gradingResult", "testCase"} & keys.keys())


class _Rows:
    """Converts the rows of one file."""

    def __init__(self, path: Path, header: dict[str, Any] | None = None) -> None:
        header = header or {}
        self._path = path
        self._dataset = text_of(dict_of(header.get("config")).get("description")) or "promptfoo"
        head = dict_of(header.get("table.head") or header.get("head"))
        self._prompts = list_of(header.get("prompts")) or list_of(head.get("prompts"))
        self._vars = [text_of(name) for name in list_of(head.get("vars"))]
        self._raw = list(dict.fromkeys(text_of(dict_of(prompt).get("raw")) for prompt in self._prompts))

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of the results, or those of the table if there are no others."""
        count = 0
        for keys, data in read_parts(self._path, _OPENED):
            if keys in _ROWS and data != b"null":
                count += 1
                yield decoded(self._path, data, f"result {count}")
        for number, (keys, data) in enumerate(read_parts(self._path, _OPENED) if not count else (), 1):
            if keys in _TABLES:
                yield from self._outputs(decoded(self._path, data, f"row {number} of the table"))

    def _outputs(self, row: Any) -> Iterator[dict[str, Any]]:
        """Yield the outputs of one row of a table in the shape of results."""
        test = dict_of(dict_of(row).get("test"))
        values = dict(zip(self._vars, list_of(dict_of(row).get("vars")), strict=False))
        for number, output in enumerate(map(dict_of, list_of(dict_of(row).get("outputs")))):
            prompt = dict_of(self._prompts[number]) if number < len(self._prompts) else {}
            yield {
                **output,
                "success": output.get("pass"),
                "vars": test.get("vars") or values,
                "testCase": test,
                "prompt": {"raw": output.get("prompt") or prompt.get("raw"), "label": prompt.get("label")},
                "provider": output.get("provider") or prompt.get("provider"),
                "response": {"output": output.get("text"), "tokenUsage": output.get("tokenUsage")},
            }

    def jobs(self, rows: Iterator[Any], run: ForeignRun) -> Iterator[ForeignJob]:
        """Yield the jobs, and add their targets to the run."""
        for number, row in enumerate(rows, 1):
            if not isinstance(row, dict) or not _OUTCOMES & row.keys():
                raise problem(self._path, f"Result {number} is not a result of promptfoo")
            provider = row.get("provider")
            name = text_of(dict_of(provider).get("label") or dict_of(provider).get("id") or provider) or "default"
            name += self._copy(row.get("promptIdx"))
            run.targets.setdefault(name, {"provider": "promptfoo", "id": text_of(dict_of(provider).get("id") or name)})
            yield self._job(row, name)

    def _copy(self, column: Any) -> str:
        """Return a suffix for a provider that is there twice, such as with other settings, by the column of a row."""
        columns = [dict_of(prompt) for prompt in self._prompts[: column + 1]] if isinstance(column, int) else []
        names = [(text_of(own.get("provider")), text_of(own.get("label")), text_of(own.get("raw"))) for own in columns]
        return f"-{names.count(names[-1])}" if names and names.count(names[-1]) > 1 else ""

    def _job(self, row: dict[str, Any], target: str) -> ForeignJob:
        response, error = dict_of(row.get("response")), _error(row)
        grader = dict_of(dict_of(row.get("testCase")).get("options")).get("provider")
        grades = tuple(_grades(dict_of(row.get("gradingResult")), grader))
        cost = number_or_none(row.get("cost"))
        return ForeignJob(
            case=self._case(row),
            target=target,
            prompt=self._prompt_name(dict_of(row.get("prompt"))),
            answer=None if response.get("output") is None else text_of(response["output"]),
            grades=() if error else grades,
            evaluators=tuple(grade.spec for grade in grades) if grades else tuple(_planned(row)),
            score=number_or_none(row.get("score")) if grades else None,
            passed=row.get("success") if isinstance(row.get("success"), bool) else None,
            error=error,
            reasoning=text_of(dict_of(row.get("gradingResult")).get("reason")) or None,
            usage=_usage(response.get("tokenUsage") or row.get("tokenUsage")),
            cost_usd=cost if cost is not None else number_or_none(response.get("cost")),
            duration_ms=number_or_none(row.get("latencyMs")),
            stop_reason="length" if response.get("finishReason") == "length" else None,
            cached=response.get("cached") is True,
            place=f"result {text_of(row.get('id'))}",
        )

    def _case(self, row: dict[str, Any]) -> ForeignCase:
        test = dict_of(row.get("testCase"))
        values = dict_of(row.get("vars")) or dict_of(test.get("vars"))
        prompt = dict_of(row.get("prompt"))
        rendered = _messages(text_of(prompt.get("raw") or prompt.get("label")))
        metadata = {**dict_of(test.get("metadata"))}
        name = metadata.pop("id", None) or test.get("description") or row.get("description")
        checks = digest(list_of(test.get("assert")))
        return ForeignCase(
            id=text_of(name) or f"test-{digest([values or rendered_text(rendered), checks])[:10]}",
            dataset=self._dataset,
            input=rendered if len(self._raw) < 2 or not values else text_of(values),
            variables=values or None,
            metadata=metadata,
            identity=checks,
        )

    def _prompt_name(self, prompt: dict[str, Any]) -> str | None:
        """Return the name of a prompt if the file has several: its label, or its number if that is long."""
        label = text_of(prompt.get("label"))
        number = next((place for place, item in enumerate(self._prompts) if dict_of(item).get("label") == label), None)
        raw = text_of(dict_of(self._prompts[number]).get("raw")) if number is not None else label
        if len(self._raw) < 2:
            return None
        if len(label) <= _LONGEST_LABEL and "\n" not in label:
            return label
        return f"prompt-{self._raw.index(raw) + 1}" if raw in self._raw else f"prompt-{digest(label)[:6]}"


def _messages(raw: str) -> str | tuple[Message, ...]:
    """Return a rendered prompt; one in the JSON form of a chat as messages."""
    if raw.lstrip().startswith("["):
        try:
            return chat_messages(list_of(decode_json(raw.encode()))) or raw
        except JsonProblem:
            pass
    return raw


def rendered_text(rendered: str | tuple[Message, ...]) -> str:
    """Return a rendered prompt as text."""
    return rendered if isinstance(rendered, str) else "\n".join(str(message.content) for message in rendered)


def _error(row: dict[str, Any]) -> ErrorInfo | None:
    """Return the error of a row. A failed assertion also has an `error`, which is its reason."""
    message = row.get("error") or dict_of(row.get("response")).get("error")
    reason = row.get("failureReason")
    if reason == _ERROR or (message and not isinstance(reason, int) and not row.get("gradingResult")):
        return error_info(message)
    return None


def _grades(graded: dict[str, Any], grader: Any) -> Iterator[ForeignGrade]:
    """Yield the grades of the assertions. Those that used tokens called a model: their own, or the test's grader."""
    parts = [item for item in list_of(graded.get("componentResults")) if isinstance(item, dict)]
    checks = [dict_of(part.get("assertion")) for part in parts]
    for name, part, check in zip(unique_names(map(_check_name, checks)), parts, checks, strict=True):
        is_broken = dict_of(part.get("metadata")).get("graderError") is True
        score = grade_value(part.get("score"))
        yield ForeignGrade(
            name=name,
            type=f"promptfoo:{text_of(check.get('type')) or 'assertion'}",
            value=None if is_broken else part.get("pass") is True if score is None else score,
            passed=part.get("pass") if isinstance(part.get("pass"), bool) else None,
            weight=max(0.0, _weight(check)),
            reasoning=text_of(part.get("reason")) or None,
            error=text_of(part.get("reason")) or "The grader failed" if is_broken else None,
            settings=_settings(check),
            judge=_model(check.get("provider") or (grader if dict_of(part.get("tokensUsed")).get("total") else None)),
            usage=_usage(part.get("tokensUsed")),
        )


def _planned(row: dict[str, Any]) -> Iterator[Any]:
    """Yield the evaluators of a row that was not graded, from the assertions of its test."""
    checks = [item for item in list_of(dict_of(row.get("testCase")).get("assert")) if isinstance(item, dict)]
    for name, check in zip(unique_names(map(_check_name, checks)), checks, strict=True):
        kind = f"promptfoo:{text_of(check.get('type')) or 'assertion'}"
        yield ForeignGrade(name=name, type=kind, weight=max(0.0, _weight(check)), settings=_settings(check)).spec


def _check_name(check: dict[str, Any]) -> str:
    return text_of(check.get("metric") or check.get("type")) or "assertion"


def _weight(check: dict[str, Any]) -> float:
    weight = number_or_none(check.get("weight"))
    return 1.0 if weight is None else weight


def _settings(check: dict[str, Any]) -> dict[str, Any]:
    keys = ("value", "threshold", "rubricPrompt", "transform", "config")
    return {"tool": "promptfoo", **{key: check[key] for key in keys if check.get(key) is not None}}


def _model(provider: Any) -> str | None:
    return text_of(dict_of(provider).get("id") or provider) or None if provider else None


def _usage(usage: Any) -> TokenUsage | None:
    counts = dict_of(usage)
    if not counts.get("prompt") and not counts.get("completion"):
        return None  # promptfoo writes zeros if it does not know them
    details = dict_of(counts.get("completionDetails"))
    return token_usage(counts.get("prompt"), counts.get("completion"), cached=counts.get("cached") or None,
                       reasoning=details.get("reasoning") or None)  # fmt: skip
