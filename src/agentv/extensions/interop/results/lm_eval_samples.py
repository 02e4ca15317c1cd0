"""Read samples of lm-evaluation-harness: `samples_TASK_TIME.jsonl`, with one row per document and filter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from agentv.errors import AgentvError
from agentv.extensions.interop.imports.foreign_files import grouped_lines, problem, read_document
from agentv.extensions.interop.imports.foreign_values import (
    Fields,
    chat_messages,
    dict_of,
    list_of,
    number_or_none,
    text_of,
)
from agentv.extensions.interop.imports.json_stream import JsonProblem, decode_json
from agentv.extensions.interop.imports.run import ForeignCase, ForeignGrade, ForeignJob, ForeignResults, ForeignRun
from agentv.support.json_keys import top_level

_MAX_RESULTS_BYTES = 64 * 1024 * 1024
_NAME = re.compile(r"samples_(?P<task>.+)_(?P<time>\d{4}-\d\d-\d\dT[\d.:-]+)\.jsonl")
_NOT_METRICS = frozenset((
    "doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics", "doc_hash", "prompt_hash",
    "target_hash",
))  # fmt: skip
_TOTALS = "It has totals only. Run lm-eval with --log_samples, and name the samples_*.jsonl file"


class LmEvalSamples(ForeignResults):
    """Samples of lm-evaluation-harness. A metric of each filter is an evaluator."""

    title = "samples of lm-evaluation-harness"
    unit = "sample"
    scores_by_first = True

    def sniff(self, head: bytes, path: Path) -> bool:
        if path.is_dir():
            return bool(_samples_in(path))
        keys = top_level(head)
        is_totals = {"results", "configs", "n-shot"} <= keys.keys()
        return is_totals or ({"doc_id", "doc", "target"} <= keys.keys() and "filtered_resps" in keys)

    def files(self, path: Path) -> list[Path]:
        return _samples_in(path) if path.is_dir() else [path]

    def open(self, path: Path) -> ForeignRun:
        files = self.files(path)
        times = sorted({match["time"] for file in files if (match := _NAME.fullmatch(file.name))})
        if len(times) > 1:
            hint = f"Name one file, such as {files[-1]}"
            raise problem(path, f"The folder has samples of {len(times)} runs: {', '.join(times)}", hint)
        if path.suffix == ".json":
            raise problem(path, _TOTALS)
        totals = _totals(files[0])
        config = totals.object("config")
        model = text_of(totals.get("model_name") or config.get("model_args")) or _model_of(files[0])
        run = ForeignRun(
            jobs=(),
            id=f"lm-eval-{times[0]}" if times else "lm-eval",
            started_at=_time(times[0]) if times else "",
            targets={model: {"provider": "lm-eval", "model": model, **_settings(config)}},
            versions={"lm-eval": text_of(totals["lm_eval_version"])} if totals.get("lm_eval_version") else {},
        )
        run.jobs = (job for file in files for job in _Task(file, totals, run).jobs(model))
        return run


def _samples_in(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("samples_*.jsonl") if _NAME.fullmatch(file.name))


def _totals(samples: Path) -> Fields:
    """Return the totals that were written together with the samples; empty if they are missing."""
    match = _NAME.fullmatch(samples.name)
    path = samples.with_name(f"results_{match['time']}.json") if match else samples
    if path != samples and path.is_file():
        with suppress(AgentvError):
            return dict_of(read_document(path, _MAX_RESULTS_BYTES))
    return Fields()


def _model_of(samples: Path) -> str:
    """Return the model from the folder, which lm-eval names after it."""
    return samples.resolve().parent.name.replace("__", "/") or "model"


def _settings(config: Fields) -> dict[str, Any]:
    keys = ("model_args", "gen_kwargs", "model_revision", "model_dtype")
    return {key: config[key] for key in keys if config.get(key) is not None}


def _time(text: str) -> str:
    day, _, clock = text.partition("T")
    hour, minute, second = [*clock.replace(":", "-").split("-"), "0", "0"][:3]
    return f"{day}T{hour}:{minute}:{second}"


class _Task:
    """The samples of one task."""

    def __init__(self, path: Path, totals: Fields, run: ForeignRun) -> None:
        match = _NAME.fullmatch(path.name)
        self._path = path
        self._name = match["task"] if match else path.stem.removeprefix("samples_")
        self._run = run
        self._config = totals.object("configs").object(self._name)
        directions = totals.object("higher_is_better").object(self._name)
        self._lower_is_better = {name for name, is_higher in directions.items() if is_higher is False}

    def jobs(self, model: str) -> Iterator[ForeignJob]:
        """Yield one job per document, with the metrics of all its filters."""
        for key, lines in grouped_lines(self._path, self._key):
            rows = list(map(Fields, lines))
            grades = tuple(grade for row in rows for grade in self._grades(row, len(rows) > 1))
            yield ForeignJob(
                case=self._case(rows[0]),
                target=model,
                answer=_answer(rows[0]),
                grades=grades,
                metadata={"filters": [row.text("filter") for row in rows]} if len(rows) > 1 else {},
                place=f"document {key}",
            )

    def _key(self, row: Any) -> Any:
        if not isinstance(row, dict) or "doc_id" not in row:
            raise problem(self._path, "A line has no 'doc_id'")
        return text_of(row["doc_id"])

    def _case(self, row: Fields) -> ForeignCase:
        prompt = next((call[0] for call in _calls(row) if call), row.get("doc"))
        return ForeignCase(
            id=text_of(row["doc_id"]),
            dataset=self._name,
            input=_messages(prompt),
            expected=row.optional_text("target"),
            metadata={"doc": row["doc"]} if isinstance(row.get("doc"), dict) else {},
        )

    def _grades(self, row: Fields, has_filters: bool) -> Iterator[ForeignGrade]:
        names = row.get("metrics")
        if not isinstance(names, list):  # older versions do not name them
            names = [name for name in row if name not in _NOT_METRICS]
        for name in map(text_of, names):
            value = row.grade(name)
            filtered = f"{name} ({row.text('filter')})" if has_filters else name
            is_lower = name.split(",")[0] in self._lower_is_better
            if is_lower:
                self._run.notes.append(f"'{filtered}' is better if it is lower: kept as a metric, not as a score")
            yield ForeignGrade(
                name=filtered,
                type=f"lm-eval:{name}",
                value=None if is_lower else value,
                details={"value": row.get(name)} if is_lower or value is None else None,
                settings={"tool": "lm-eval", "filter": row.get("filter"), "version": self._version},
            )

    @property
    def _version(self) -> Any:
        return self._config.object("metadata").get("version")


def _calls(row: Fields) -> list[list[Any]]:
    """Return the arguments of each call to the model: pairs of lists, or numbered keys."""
    arguments = row.get("arguments")
    if isinstance(arguments, dict):
        return [list(dict_of(call).values()) for call in arguments.values()]
    return [call if isinstance(call, list) else [call] for call in list_of(arguments)]


def _messages(prompt: Any) -> Any:
    """Return a prompt; one with a chat template as messages."""
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str):
        prompt = prompt[0]
    if isinstance(prompt, str) and prompt.startswith('[{"role"'):
        try:
            return chat_messages(list_of(decode_json(prompt.encode()))) or prompt
        except JsonProblem:
            return prompt
    return text_of(prompt)


def _answer(row: Fields) -> str | None:
    """Return the answer: a text, or the choice with the highest likelihood."""
    responses = row.items_of("filtered_resps") or row.items_of("resps")
    if not responses:
        return None
    likelihoods = [_likelihood(response) for response in responses]
    if all(likelihood is not None for likelihood in likelihoods):
        best = max(range(len(likelihoods)), key=lambda place: likelihoods[place] or 0.0)
        calls = _calls(row)
        return text_of(calls[best][1]).strip() if best < len(calls) and len(calls[best]) > 1 else None
    first = responses[0]
    while isinstance(first, list) and first:
        first = first[0]
    return text_of(first)


def _likelihood(response: Any) -> float | None:
    """Return the likelihood of a choice, which is stored with whether it is the most likely text."""
    pair = response[0] if isinstance(response, list) and len(response) == 1 else response
    if not isinstance(pair, list) or len(pair) != 2:
        return None
    try:
        return number_or_none(float(pair[0]))
    except (TypeError, ValueError):
        return None
