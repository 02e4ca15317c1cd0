"""Read results of letta-evals: a folder of the current version, a file in it, or a file of earlier versions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from agentv.extensions.interop.imports.foreign_files import read_document, read_rows, row_keys
from agentv.extensions.interop.imports.foreign_values import (
    Fields,
    dict_of,
    error_info,
    text_of,
    token_usage,
)
from agentv.extensions.interop.imports.run import ForeignCase, ForeignGrade, ForeignJob, ForeignResults, ForeignRun

_TOKENS = ("prompt_tokens", "completion_tokens")
_MOST_BYTES = 512 * 1024 * 1024
_SUITE = "suite.json"
_RUN = re.compile(r"run_(\d+)")


class _Suite(NamedTuple):
    """What the rows of a file share: the suite, its graders, and its samples by id."""

    name: str = "letta"
    graders: Fields = Fields()
    samples: dict[str, Fields] = {}
    model: str = ""


class LettaResults(ForeignResults):
    """Results of a suite. The score is the reward, or in earlier versions the grade that the gate is about."""

    title = "results of letta-evals"
    unit = "result"
    strength = 0.6  # the first version has keys of promptfoo

    def sniff(self, head: bytes, path: Path) -> bool:
        if path.is_dir():
            return (path / _SUITE).is_file() and bool(_files_in(path))
        keys, outer = row_keys(head), row_keys(head, "results")
        has_result = "result" in keys and b'"submission"' in head
        is_line = "type" in keys and (has_result or {"suite", "config"} <= keys.keys())
        is_document = {"suite", "config", "results"} <= keys.keys() and {"sample", "grade"} <= outer.keys()
        return is_line or is_document or {"sample_id", "grades", "timing"} <= keys.keys()

    def files(self, path: Path) -> list[Path]:
        return [path / _SUITE, *_files_in(path)] if path.is_dir() else [path]

    def jobs(self, path: Path, run: ForeignRun) -> Iterator[ForeignJob]:
        for file in _files_in(path) if path.is_dir() else [path]:
            suite = _suite_near(file)._replace(model=_model_of(file))
            if not suite.samples and "sample_id" in row_keys(_head(file)):
                run.notes.append(f"No {_SUITE} with the samples is near {file.name}: the cases have no input")
            for number, row in read_rows(file, "results"):
                if row.get("type") == "header":
                    suite = _suite(row)
                    continue
                result = _result(row, suite, file)
                target = run.target(result.text("model_name") or "agent", "letta")
                yield _job(result, suite, target, f"line {number} of {file.name}")


def _head(file: Path) -> bytes:
    with file.open("rb") as stream:
        return stream.read(65536)


def _files_in(folder: Path) -> list[Path]:
    """Return the files of the models: `MODEL.jsonl`, or `MODEL/run_N.jsonl` if a suite ran several times."""
    return sorted(folder.glob("*.jsonl")) or sorted(folder.glob("*/run_*.jsonl"))


def _suite_near(file: Path) -> _Suite:
    """Return the suite of a file: from the file itself, next to it, or in the folder above."""
    if {"suite", "results"} <= row_keys(_head(file)).keys():
        return _suite(dict_of(read_document(file, _MOST_BYTES)))
    places = (folder / _SUITE for folder in (file.parent, file.parent.parent))
    place = next((place for place in places if place.is_file()), None)
    return _Suite() if place is None else _suite(dict_of(read_document(place, _MOST_BYTES)))


def _model_of(file: Path) -> str:
    """Return the model of a file: of the first sample that did not fail before it was called, or else its name."""
    handles = (row.text("model_handle") for _, row in read_rows(file, "results"))
    return next(filter(None, handles), file.parent.name if _RUN.fullmatch(file.stem) else file.stem)


def _suite(data: Fields) -> _Suite:
    config = data.object("config")
    graders = config.object("graders") or Fields(score=config.get("grader"))
    samples = {sample.text("id"): sample for sample in data.objects("samples")}
    return _Suite(data.text("suite") or "letta", graders, samples)


def _result(row: Fields, suite: _Suite, file: Path) -> Fields:
    """Return a row in the shape of earlier versions, which repeated the sample and the model in each row."""
    if "sample_id" not in row:
        return row.object("result") or row
    id, answers = text_of(row["sample_id"]), row.object("submissions")
    trial = _RUN.fullmatch(file.stem)
    return Fields(
        sample={**suite.samples.get(id, {}), "id": id},
        submission=next(iter(answers.values()), None),
        metadata={"submissions": answers} if len(set(map(text_of, answers.values()))) > 1 else {},
        grade={**row.object("reward"), "metadata": {"error": row.object("error").get("message")}},
        grades=row.get("grades"),
        model_name=suite.model,
        agent_usage=[row["usage"]] if row.get("usage") else row.get("agent_usage"),
        seconds=row.object("timing").get("total"),
        trial=int(trial[1]) if trial else None,
    )


def _job(result: Fields, suite: _Suite, target: str, place: str) -> ForeignJob:
    sample, total = result.object("sample"), result.object("grade")
    questions = [text_of(item) for item in sample.items_of("input") or [sample.get("input")]]
    usages = result.objects("agent_usage")
    tokens = [sum(item.number(key) or 0 for item in usages) for key in _TOKENS] if usages else [None, None]
    error = total.object("metadata").get("error")
    question, expected = "\n\n".join(questions), sample.get("ground_truth")
    return ForeignJob(
        case=ForeignCase(id=sample.text("id") or place, dataset=suite.name, input=question, expected=expected),
        target=target,
        trial=result.get("trial"),
        answer=result.text("submission") or None,
        grades=() if error else tuple(_grades(result.object("grades") or {"score": total}, suite.graders)),
        score=None if error else total.number("score"),
        error=error_info(error) if error else None,
        usage=token_usage(*tokens),
        cost_usd=usages[0].number("cost") if len(usages) == 1 else None,
        duration_ms=result.milliseconds("seconds"),
        metadata=result.object("metadata"),
        place=place,
    )


def _grades(grades: dict[str, Any], graders: Fields) -> Iterator[ForeignGrade]:
    for name, grade in ((name, dict_of(grade)) for name, grade in grades.items()):
        settings = graders.object(name)
        model = settings.get("model") if settings.get("kind") == "rubric" else None
        yield ForeignGrade(
            name=name,
            type=f"letta:{settings.text('kind') or 'grader'}",
            value=grade.number("score"),
            reasoning=grade.text("rationale") or None,
            settings={"tool": "letta-evals", **{key: settings.get(key) for key in ("function", "prompt")}},
            judge=text_of(model) or None,
        )
