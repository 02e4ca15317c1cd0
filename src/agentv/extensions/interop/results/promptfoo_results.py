"""Read results of promptfoo: the JSON and JSON Lines files of `promptfoo eval --output`, and its older tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentv.extensions.interop.imports.foreign_files import problem, read_header, read_items, read_lines
from agentv.extensions.interop.imports.foreign_values import (
    Fields,
    chat_messages,
    dict_of,
    error_info,
    list_of,
    text_of,
    token_usage,
    unique_names,
)
from agentv.extensions.interop.imports.json_stream import JsonProblem, decode_json
from agentv.extensions.interop.imports.run import ForeignCase, ForeignGrade, ForeignJob, ForeignResults, ForeignRun
from agentv.model.message import Message
from agentv.model.result import ErrorInfo, TokenUsage
from agentv.model.values import digest
from agentv.support.json_keys import top_level

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
            return self.run_of(path, Fields(), (row for _, row in read_lines(path)))
        return self.run_of(path, read_header(path, _OPENED, _ROWS | _TABLES))

    def run_of(self, path: Path, header: Fields, data: Iterator[Any] | None = None) -> ForeignRun:
        """Return the run of a file, with the rows that were read from it, or those in its JSON."""
        rows = _Rows(path, header)
        metadata = header.object("metadata")
        started = text_of(header.get("timestamp") or header.get("createdAt") or metadata.get("evaluationCreatedAt"))
        version = metadata.text("promptfooVersion")
        run = ForeignRun(
            jobs=(),
            id=header.text("evalId") or "promptfoo",
            started_at=started,
            versions={"promptfoo": version} if version else {},
        )
        run.jobs = rows.jobs(rows.read() if data is None else data, run)
        return run


def _is_row(keys: dict[str, bytes]) -> bool:
    return {"success", "score"} <= keys.keys() and bool({"promptIdx", "gradingResult", "testCase"} & keys.keys())


class _Rows:
    """Converts the rows of one file."""

    def __init__(self, path: Path, header: Fields) -> None:
        self._path = path
        self._dataset = header.object("config").text("description") or "promptfoo"
        head = header.object("head")
        self._prompts = header.objects("prompts") or head.objects("prompts")
        self._vars = head.texts("vars")
        self._raw = list(dict.fromkeys(prompt.text("raw") for prompt in self._prompts))

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of the results, or those of the table if there are no others."""
        has_rows = False
        for _, row in read_items(self._path, _OPENED, _ROWS, "Result"):
            has_rows = True
            yield row
        for _, row in () if has_rows else read_items(self._path, _OPENED, _TABLES, "Row"):
            yield from self._outputs(row)

    def _outputs(self, row: Fields) -> Iterator[dict[str, Any]]:
        """Yield the outputs of one row of a table in the shape of results."""
        test, values = row.object("test"), dict(zip(self._vars, row.items_of("vars"), strict=False))
        for number, output in enumerate(row.objects("outputs")):
            prompt = self._prompts[number] if number < len(self._prompts) else {}
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
            provider = dict_of(row.get("provider"))
            name = text_of(provider.get("label") or provider.get("id") or row.get("provider")) or "default"
            name += self._copy(row.get("promptIdx"))
            run.targets.setdefault(name, {"provider": "promptfoo", "id": text_of(provider.get("id") or name)})
            yield self._job(Fields(row), name)

    def _copy(self, column: Any) -> str:
        """Return a suffix for a provider that is there twice, such as with other settings, by the column of a row."""
        columns = self._prompts[: column + 1] if isinstance(column, int) else []
        names = [(own.text("provider"), own.text("label"), own.text("raw")) for own in columns]
        return f"-{names.count(names[-1])}" if names and names.count(names[-1]) > 1 else ""

    def _job(self, row: Fields, target: str) -> ForeignJob:
        response, error = row.object("response"), _error(row)
        grader = row.object("testCase").object("options").get("provider")
        grades = tuple(_grades(row.object("gradingResult"), grader))
        cost = row.number("cost")
        return ForeignJob(
            case=self._case(row),
            target=target,
            prompt=self._prompt_name(row.object("prompt")),
            answer=response.optional_text("output"),
            grades=() if error else grades,
            evaluators=tuple(grade.spec for grade in grades) if grades else tuple(_planned(row)),
            score=row.number("score") if grades else None,
            passed=row.truth("success"),
            error=error,
            reasoning=row.object("gradingResult").text("reason") or None,
            usage=_usage(response.get("tokenUsage") or row.get("tokenUsage")),
            cost_usd=cost if cost is not None else response.number("cost"),
            duration_ms=row.number("latencyMs"),
            stop_reason="length" if response.get("finishReason") == "length" else None,
            cached=response.get("cached") is True,
            place=f"result {row.text('id')}",
        )

    def _case(self, row: Fields) -> ForeignCase:
        test = row.object("testCase")
        values = row.object("vars") or test.object("vars")
        prompt = row.object("prompt")
        rendered = _messages(prompt.text("raw", "label"))
        metadata = test.object("metadata")
        name = metadata.pop("id", None) or test.get("description") or row.get("description")
        checks = digest(test.items_of("assert"))
        return ForeignCase(
            id=text_of(name) or f"test-{digest([values or rendered_text(rendered), checks])[:10]}",
            dataset=self._dataset,
            input=rendered if len(self._raw) < 2 or not values else text_of(values),
            variables=values or None,
            metadata=metadata,
            identity=checks,
        )

    def _prompt_name(self, prompt: Fields) -> str | None:
        """Return the name of a prompt if the file has several: its label, or its number if that is long."""
        label = prompt.text("label")
        raw = next((item.text("raw") for item in self._prompts if item.get("label") == label), label)
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


def _error(row: Fields) -> ErrorInfo | None:
    """Return the error of a row. A failed assertion also has an `error`, which is its reason."""
    message = row.get("error") or row.object("response").get("error")
    reason = row.get("failureReason")
    if reason == _ERROR or (message and not isinstance(reason, int) and not row.get("gradingResult")):
        return error_info(message)
    return None


def _grades(graded: Fields, grader: Any) -> Iterator[ForeignGrade]:
    """Yield the grades of the assertions. Those that used tokens called a model: their own, or the test's grader."""
    parts = [Fields(item) for item in graded.items_of("componentResults") if isinstance(item, dict)]
    checks = [part.object("assertion") for part in parts]
    for name, part, check in zip(unique_names(map(_check_name, checks)), parts, checks, strict=True):
        is_broken = part.object("metadata").get("graderError") is True
        score = part.grade("score")
        yield ForeignGrade(
            name=name,
            type=f"promptfoo:{check.text('type') or 'assertion'}",
            value=None if is_broken else part.get("pass") is True if score is None else score,
            passed=part.truth("pass"),
            weight=max(0.0, _weight(check)),
            reasoning=part.text("reason") or None,
            error=part.text("reason") or "The grader failed" if is_broken else None,
            settings=_settings(check),
            judge=_model(check.get("provider") or (grader if part.object("tokensUsed").get("total") else None)),
            usage=_usage(part.get("tokensUsed")),
        )


def _planned(row: Fields) -> Iterator[Any]:
    """Yield the evaluators of a row that was not graded, from the assertions of its test."""
    checks = [Fields(item) for item in row.object("testCase").items_of("assert") if isinstance(item, dict)]
    for name, check in zip(unique_names(map(_check_name, checks)), checks, strict=True):
        kind = f"promptfoo:{check.text('type') or 'assertion'}"
        yield ForeignGrade(name=name, type=kind, weight=max(0.0, _weight(check)), settings=_settings(check)).spec


def _check_name(check: Fields) -> str:
    return check.text("metric", "type") or "assertion"


def _weight(check: Fields) -> float:
    weight = check.number("weight")
    return 1.0 if weight is None else weight


def _settings(check: Fields) -> dict[str, Any]:
    keys = ("value", "threshold", "rubricPrompt", "transform", "config")
    return {"tool": "promptfoo", **{key: check[key] for key in keys if check.get(key) is not None}}


def _model(provider: Any) -> str | None:
    return text_of(dict_of(provider).get("id") or provider) or None if provider else None


def _usage(usage: Any) -> TokenUsage | None:
    counts = dict_of(usage)
    if not counts.get("prompt") and not counts.get("completion"):
        return None  # promptfoo writes zeros if it does not know them
    details = counts.object("completionDetails")
    return token_usage(counts.get("prompt"), counts.get("completion"), cached=counts.get("cached") or None,
                       reasoning=details.get("reasoning") or None)  # fmt: skip
