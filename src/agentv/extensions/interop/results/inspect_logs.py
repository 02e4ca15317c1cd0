"""Read logs of Inspect: `.eval` archives, one sample at a time, and the JSON form."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import dropwhile
from pathlib import Path
from typing import Any

import msgspec

from agentv.errors import AgentvError
from agentv.extensions.interop.imports.foreign_files import decoded, problem, read_parts
from agentv.extensions.interop.imports.foreign_values import (
    Fields,
    chat_messages,
    content_text_of,
    dict_of,
    error_info,
    grade_value,
    number_or_none,
    text_of,
)
from agentv.extensions.interop.imports.json_stream import MAX_VALUE_BYTES
from agentv.extensions.interop.imports.run import ForeignCase, ForeignGrade, ForeignJob, ForeignResults, ForeignRun
from agentv.model.message import Message
from agentv.model.result import TokenUsage, sum_usage
from agentv.support.json_keys import top_level

MAX_RATIO = 300
"""An archive that unpacks to more than this multiple of its size is refused above a few megabytes."""

MAX_MEMBERS = 1_000_000
_SMALL_BYTES = 16 * 1024 * 1024
_HEADERS = ("header.json", "_journal/start.json")
_MAGIC = b"PK\x03\x04"
_LETTERS = {"c": 1.0, "i": 0.0, "p": 0.5, "n": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
_ATTACHMENT = "attachment://"
_MORE_TOKENS = {
    "cached": "input_tokens_cache_read",
    "cache_write": "input_tokens_cache_write",
    "reasoning": "reasoning_tokens",
}


class _Sample(msgspec.Struct):
    """The fields of a sample that are read. Events, which are most of a log, are skipped without decoding them."""

    id: Any
    input: Any = ""
    epoch: int = 1
    target: Any = None
    choices: Any = None
    messages: list[Any] | None = None
    output: Any = None
    scores: dict[str, Any] | None = None
    score: Any = None
    metadata: dict[str, Any] | None = None
    error: Any = None
    invalidation: Any = None
    limit: Any = None
    model_usage: dict[str, Any] | None = None
    total_time: float | None = None
    started_at: str | None = None
    attachments: dict[str, Any] | None = None


class InspectLog(ForeignResults):
    """A log of Inspect. Epochs are trials, and scorers are evaluators."""

    title = "an Inspect log"
    empty_hint = (
        "If it was written with --header-only, import the whole log: inspect log dump LOG.eval > log.json. "
        "Otherwise the task stopped before its first sample"
    )
    extensions = (".eval",)
    unit = "sample"
    scores_by_first = True

    def sniff(self, head: bytes, path: Path) -> bool:
        if path.is_dir():
            return bool(_logs_in(path))
        if head.startswith(_MAGIC):
            return path.suffix.lower() == ".eval" or _is_log_archive(path)
        keys = top_level(head)
        return {"version", "status", "eval"} <= keys.keys() and keys["eval"].startswith(b"{")

    def files(self, path: Path) -> list[Path]:
        return [_one_log(path) if path.is_dir() else path]

    def open(self, path: Path) -> ForeignRun:
        path = self.files(path)[0]
        with path.open("rb") as file:
            start = file.read(4)
        if start != _MAGIC and start.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] != b"{":
            raise problem(path, "It is neither an archive nor a JSON document")
        return _open_archive(path) if start == _MAGIC else _open_document(path)


def _logs_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.eval"))


def _one_log(folder: Path) -> Path:
    logs = _logs_in(folder)
    if len(logs) > 1:
        raise problem(folder, f"The folder has {len(logs)} Inspect logs", f"Name one of them, such as {logs[-1]}")
    return logs[0]


def _is_log_archive(path: Path) -> bool:
    try:
        with _zipfile(path).ZipFile(path) as archive:
            return any(name in archive.NameToInfo for name in _HEADERS)
    except Exception:  # a damaged archive raises various types
        return False


def _zipfile(path: Path) -> Any:
    """Return a module like `zipfile` that reads Zstandard, which Python's own does since 3.14."""
    import sys  # late: with zipfile
    import zipfile

    if sys.version_info >= (3, 14):
        return zipfile
    try:
        from backports.zstd import zipfile as with_zstd  # an extra before Python 3.14
    except ImportError:
        with zipfile.ZipFile(path) as archive:
            if all(member.compress_type in (0, 8) for member in archive.infolist()):
                return zipfile
        message = "Logs of Inspect are compressed with Zstandard, which needs a package that is not installed"
        raise AgentvError(message, hint="pip install 'agentv[zstd]'") from None
    return with_zstd


def _open_archive(path: Path) -> ForeignRun:
    try:
        archive = _zipfile(path).ZipFile(path)
    except AgentvError:
        raise
    except Exception as error:
        raise problem(path, f"The archive is damaged or was cut off: {error}") from error
    _check_archive(path, archive)
    name = next((name for name in _HEADERS if name in archive.NameToInfo), None)
    if name is None:
        raise problem(path, f"The archive has neither {' nor '.join(_HEADERS)}: it is not an Inspect log")
    run = _run_of(decoded(path, _member(path, archive, archive.NameToInfo[name]), name))
    run.is_unfinished = run.is_unfinished or name != _HEADERS[0]
    run.jobs = _archive_jobs(path, archive, _Log(path, run))
    return run


def _check_archive(path: Path, archive: Any) -> None:
    """Refuse an archive that unpacks to far more than its size."""
    members = archive.infolist()
    total = sum(member.file_size for member in members)
    if len(members) > MAX_MEMBERS:
        raise problem(path, f"The archive has {len(members):,} members; at most {MAX_MEMBERS:,} are read")
    if total > _SMALL_BYTES and total > MAX_RATIO * path.stat().st_size:
        what = f"The archive unpacks to {total / 2**20:,.0f} MB, more than {MAX_RATIO} times its size"
        raise problem(path, what, "If this is intended, convert the log with: inspect log convert --to json")


def _member(path: Path, archive: Any, member: Any) -> bytes:
    """Return the content of a member, whose size may be larger than the archive claims."""
    try:
        with archive.open(member) as stream:
            data: bytes = stream.read(MAX_VALUE_BYTES + 1)
    except Exception as error:  # zlib, Zstandard and zipfile raise their own types
        raise problem(path, f"The member {member.filename} is damaged: {error}") from error
    if len(data) > MAX_VALUE_BYTES:
        raise problem(path, f"The member {member.filename} is larger than {MAX_VALUE_BYTES // 2**20} MB")
    return data


def _archive_jobs(path: Path, archive: Any, log: _Log) -> Iterator[ForeignJob]:
    with archive:
        # A sample that was written again replaces the earlier one, which is still in the archive.
        for name, member in archive.NameToInfo.items():
            if name.startswith("samples/") and name.endswith(".json"):
                yield log.job(decoded(path, _member(path, archive, member), name, _Sample), name)


def _open_document(path: Path) -> ForeignRun:
    """Open a log in the JSON form. The header is before the samples, unless another program wrote the file."""
    header: dict[str, Any] = {}
    for keys, data in read_parts(path, {(), ("samples",), ("reductions",)}):
        if keys == ("samples",) and "eval" in header:
            break
        if len(keys) == 1 and keys[0] not in ("samples", "reductions"):
            header[keys[0]] = decoded(path, data, keys[0])
    run = _run_of(header)
    run.jobs = _document_jobs(path, _Log(path, run))
    return run


def _document_jobs(path: Path, log: _Log) -> Iterator[ForeignJob]:
    number = 0
    for keys, data in read_parts(path, {(), ("samples",)}):
        if keys == ("samples",) and data != b"null":
            number += 1
            yield log.job(decoded(path, data, f"sample {number}", _Sample), f"sample {number}")


def _run_of(data: Any) -> ForeignRun:
    header = dict_of(data) if isinstance(data, dict) and isinstance(data.get("eval"), dict) else Fields()
    spec, stats = header.object("eval"), header.object("stats")
    model = spec.text("model") or "model"
    config, dataset = spec.object("config"), spec.object("dataset")
    status = header.get("status")
    steps = header.object("plan").objects("steps")
    settings = {
        "provider": "inspect",
        "model": model,
        "config": spec.object("model_generate_config"),
        "solver": [{"solver": step.get("solver"), "params": step.get("params")} for step in steps],
    }
    return ForeignRun(
        jobs=(),
        id=spec.text("run_id", "eval_id"),
        started_at=text_of(stats.get("started_at") or spec.get("created")),
        finished_at=stats.text("completed_at") or None,
        is_unfinished=status in ("started", "cancelled"),
        planned_jobs=int((dataset.number("samples") or 0) * (config.number("epochs") or 1)),
        targets={model: settings},
        options={
            "task": spec.get("task"),
            "dataset": text_of(dataset.get("name") or spec.get("task")) or "inspect",
            "scorers": spec.items_of("scorers"),
        },
        versions={text_of(name): text_of(version) for name, version in spec.object("packages").items()},
        git_commit=spec.object("revision").get("commit"),
        notes=list(_status_notes(status, header.get("error"))),
    )


def _status_notes(status: Any, error: Any) -> Iterator[str]:
    if status == "error":
        message = dict_of(error).text("message") or "no message"
        yield f"The task ended with an error, and later samples are missing: {message[:300]}"
    elif status in ("started", "cancelled"):
        yield "The task was cancelled or is still running"


class _Log:
    """Converts the samples of one log."""

    def __init__(self, path: Path, run: ForeignRun) -> None:
        self._path = path
        self._model = next(iter(run.targets))
        self._dataset = run.options["dataset"]
        self._scorers = {dict_of(scorer).text("name"): dict_of(scorer) for scorer in run.options["scorers"]}

    def job(self, sample: _Sample, place: str) -> ForeignJob:
        """Return the job of a sample."""
        messages = _resolved(sample.messages or [], sample.attachments or {})
        output = dict_of(sample.output)
        answers = tuple(dropwhile(lambda message: message.role != "assistant", chat_messages(messages)))
        failed = _error_of(sample)
        grades = tuple(self._grades(sample))
        return ForeignJob(
            case=self._case(sample),
            target=self._model,
            trial=sample.epoch,
            answer=None if failed is not None and not answers else _answer(output, answers),
            messages=answers,
            grades=grades,
            error=None if failed is None else error_info(failed),
            usage=_usage(dict_of(sample.model_usage), self._model),
            cost_usd=_cost(dict_of(sample.model_usage)),
            duration_ms=None if sample.total_time is None else sample.total_time * 1000,
            stop_reason=_stop_reason(sample.limit, output),
            timestamp=sample.started_at or "",
            place=place,
        )

    def _case(self, sample: _Sample) -> ForeignCase:
        prompt = _resolved(sample.input, sample.attachments or {})
        target = sample.target[0] if isinstance(sample.target, list) and len(sample.target) == 1 else sample.target
        choices = {"choices": sample.choices} if sample.choices else {}
        return ForeignCase(
            id=text_of(sample.id),
            dataset=self._dataset,
            input=chat_messages(prompt) if isinstance(prompt, list) else text_of(prompt),
            expected=target,
            metadata={**(sample.metadata or {}), **choices},
        )

    def _grades(self, sample: _Sample) -> Iterator[ForeignGrade]:
        scores = sample.scores
        if scores is None:  # logs of version 1
            scores = {} if sample.score is None else {next(iter(self._scorers), "") or "score": sample.score}
        for name, score in scores.items():
            yield from self._grade(name, dict_of(score))

    def _grade(self, name: str, score: Fields) -> Iterator[ForeignGrade]:
        value = score.get("value")
        scorer = self._scorers.get(name, Fields())
        options = scorer.object("options")
        judge = options.get("model")
        fields: dict[str, Any] = {
            "type": f"inspect:{name}",
            "scorer": name,
            "reasoning": score.get("explanation") if isinstance(score.get("explanation"), str) else None,
            "settings": {"tool": "inspect", "options": options},
            "judge": judge if isinstance(judge, str) else None,
        }
        details = {key: score[key] for key in ("answer", "metadata") if score.get(key) is not None}
        if not isinstance(value, dict):
            yield ForeignGrade(name=name, value=_number(value), details=_with_value(details, value), **fields)
            return
        for key, part in value.items():
            yield ForeignGrade(name=f"{name}.{key}", value=_number(part), details=_with_value(details, part), **fields)


def _with_value(details: dict[str, Any], value: Any) -> dict[str, Any] | None:
    """Return the details with a value that is not a number, such as a letter or a list."""
    all_details = details if grade_value(value) is not None or value is None else {**details, "value": value}
    return all_details or None


def _number(value: Any) -> float | bool | None:
    """Return the value of a score as a number, as Inspect does it; None for NaN, lists and other texts."""
    if not isinstance(value, str):
        return grade_value(value)
    if value.lower() in _LETTERS:
        return _LETTERS[value.lower()]
    try:
        return number_or_none(float(value))
    except ValueError:
        return None


def _error_of(sample: _Sample) -> str | None:
    """Return the error message of a sample; None if it has an answer that counts."""
    if sample.invalidation is not None:
        reason = dict_of(sample.invalidation).text("reason")
        return f"The sample was invalidated{f': {reason}' if reason else ''}"
    if sample.error is None:
        return None
    return text_of(dict_of(sample.error).get("message") or sample.error)


def _answer(output: Fields, answers: tuple[Message, ...]) -> str | None:
    completion = output.get("completion")
    if isinstance(completion, str) and completion:
        return completion
    choices = output.get("choices")
    if isinstance(choices, list) and choices:
        return content_text_of(dict_of(choices[0]).object("message").get("content"))
    return next((message.text for message in reversed(answers) if message.text), None)


def _stop_reason(limit: Any, output: Fields) -> str | None:
    if limit is not None:
        return {"token": "length", "message": "max_turns"}.get(kind := dict_of(limit).text("type"), kind)
    choices = output.get("choices")
    reason = dict_of(choices[0]).get("stop_reason") if isinstance(choices, list) and choices else None
    return "length" if reason == "max_tokens" else None


def _usage(usage: Fields, model: str) -> TokenUsage | None:
    """Return the tokens of the evaluated model, or of all models if it used none itself."""
    entries = [usage[model]] if model in usage else list(usage.values())
    usages = [dict_of(entry).usage("input_tokens", "output_tokens", **_MORE_TOKENS) for entry in entries]
    return sum_usage([entry for entry in usages if entry is not None])


def _cost(usage: Fields) -> float | None:
    costs = [dict_of(entry).number("total_cost") for entry in usage.values()]
    known_costs = [cost for cost in costs if cost is not None]
    return sum(known_costs) if known_costs else None


def _resolved(value: Any, attachments: dict[str, Any]) -> Any:
    """Replace references to attachments, which hold long texts and images, by their content."""
    if isinstance(value, str):
        if not value.startswith(_ATTACHMENT):
            return value
        content = attachments.get(value.removeprefix(_ATTACHMENT), value)
        return "[image]" if isinstance(content, str) and content.startswith("data:") else content
    if isinstance(value, list):
        return [_resolved(item, attachments) for item in value]
    if isinstance(value, dict):
        return {key: _resolved(item, attachments) for key, item in value.items()}
    return value
