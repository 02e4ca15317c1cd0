"""The registry of OpenAI Evals: which eval has some samples, how its class compares answers, and its examples."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from glob import escape, glob
from typing import Any, NamedTuple

from agentv.datasets.foreign.foreign_format import document_of, record_file
from agentv.datasets.foreign.values import object_at, text_of
from agentv.errors import InvalidDatasetError
from agentv.extensions.interop.datasets.dataset_values import any_of
from agentv.settings.project import is_inside, project_root

NO_CLASS = "an answer must equal the ideal one: in OpenAI Evals, its class decides, such as Match or Includes"
_MARK = b"samples_jsonl"
_SETTINGS = ("ignore_case", "num_few_shot", "few_shot_jsonl")
"""Settings that decide what is asked and how answers are compared."""


class RegisteredEval(NamedTuple):
    """An eval: the name of its class, and the arguments."""

    kind: str
    settings: dict[str, Any]

    def checks(self, answers: list[str]) -> list[dict[str, Any]] | None:
        """Return the evaluators that compare as the class does; None if there are none that do."""
        if self.kind == "Match" and len(answers) == 1 and answers[0].strip():
            return [{"type": "starts_with", "value": answers[0], "exact": True}]
        if self.kind == "Match":
            return [{"type": "regex", "value": rf"\A(?:{'|'.join(map(re.escape, answers))})"}]
        if self.kind == "Includes":
            letter = "i" if self.settings.get("ignore_case") is True else ""
            return [{"type": f"{letter}contains_any", "value": answers, "exact": True}]
        if self.kind == "FuzzyMatch":
            return [{"type": "fuzzy_match", "value": answers}]
        if self.kind == "JsonMatch" and len(answers) == 1:
            return [{"type": "equals", "value": answers[0]}]
        return [{"type": "llm_judge"}] if self.is_graded else None

    @property
    def is_graded(self) -> bool:
        """Whether a model grades the answers."""
        return "modelgraded" in text_of(self.settings.get("class"))


def eval_of(samples: str, registered: str = "") -> RegisteredEval | None:
    """Return the eval of a file with samples; None if there is none, or evals that compare in different ways.

    `registered` is the file of the registry that names them; without it, all files are searched.
    """
    folder, _, name = os.path.abspath(samples).replace(os.sep, "/").rpartition("/data/")
    paths = [registered] if registered else sorted(glob(os.path.join(escape(folder), "evals", "*.yaml"))) * bool(folder)
    entries = [entry for path in paths for entry in _evals(path, name.encode())]
    evals = [entry for entry in entries if entry.settings["samples_jsonl"] == name]
    ways = {(entry.kind, *(str(entry.settings.get(key)) for key in _SETTINGS)) for entry in evals}
    return evals[0] if len(ways) == 1 else None


def exact_check(answers: list[str]) -> list[dict[str, Any]]:
    """Return the evaluator for an answer that equals an ideal one."""
    return [any_of(answers)] if answers else []


def examples_of(entry: RegisteredEval | None, samples: str) -> list[dict[str, Any]]:
    """Return the messages of the few-shot examples of an eval, which come before the last message of each sample."""
    count, name = (entry.settings.get(key) for key in ("num_few_shot", "few_shot_jsonl")) if entry else (0, "")
    if not isinstance(count, int) or count <= 0:
        return []
    path = os.path.join(os.path.abspath(samples).replace(os.sep, "/").rpartition("/data/")[0], "data", text_of(name))
    if not os.path.isfile(path) or not is_inside(os.path.realpath(path), project_root(os.path.dirname(samples))):
        what = f"The eval has {count} few-shot examples in '{text_of(name)}', which is missing or outside the project"
        raise InvalidDatasetError(
            f"Cannot read {samples}", what, "Put the file into the registry", path=samples, line=1
        )
    rows = [record.data for _, record in zip(range(count), record_file(path).records(), strict=False)]
    return [message for row in rows if isinstance(row, dict) for message in row.get("sample", ())]


def samples_in(path: str) -> list[str]:
    """Return the files with samples that a file of the registry names, relative to this file."""
    names = dict.fromkeys(text_of(entry.settings["samples_jsonl"]) for entry in _evals(path, _MARK))
    return [os.path.normpath(os.path.join(os.path.dirname(path), "..", "data", name)) for name in names]


def custom_classes(path: str) -> list[str]:
    """Return the classes of the evals in a file of the registry that name no samples."""
    file = record_file(path)
    entries = document_of(file).values() if b"class:" in file.head and not samples_in(path) else ()
    return [
        text_of(entry["class"]) for entry in entries if object_at(entry, "args") and ":" in text_of(entry.get("class"))
    ]


def _evals(path: str, mark: bytes) -> Iterator[RegisteredEval]:
    """Yield the evals of a registry file that has some bytes."""
    file = record_file(path)
    for entry in document_of(file).values() if mark in file.head else ():
        settings = object_at(entry, "args")
        kind = text_of(entry.get("class")) if settings.get("samples_jsonl") else ""
        if kind.startswith("evals."):
            yield RegisteredEval(kind.rpartition(":")[2], {**settings, "class": kind})
