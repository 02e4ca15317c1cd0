"""Read run folders of HELM: `per_instance_stats.json` with the scores, and `scenario_state.json` with the answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from agentv.extensions.interop.imports.foreign_files import decoded, problem, read_document, read_parts
from agentv.extensions.interop.imports.foreign_values import (
    chat_messages,
    dict_of,
    error_info,
    list_of,
    number_or_none,
    text_of,
    token_usage,
)
from agentv.extensions.interop.imports.run import ForeignCase, ForeignGrade, ForeignJob, ForeignResults, ForeignRun

_SCORES, _ANSWERS, _SPEC = "per_instance_stats.json", "scenario_state.json", "run_spec.json"
_OTHERS = {
    _ANSWERS: b'"request_states"',
    _SPEC: b'"scenario_spec"',
    "stats.json": b'"sum_squared"',
    "display_predictions.json": b'"predicted_text"',
}
"""Other files of a run folder, and what each has: those with the scores are next to them."""
_MAX_SPEC_BYTES = 64 * 1024 * 1024
_Key = tuple[str, str, int]
# Figures that HELM stores with the scores of an instance, some of them between 0 and 1.
_FIGURES = re.compile(
    r"num_.*|finish_reason_.*|inference_.*|training_.*|batch_size|prompt_truncated|max_prob|predicted_index"
    r"|logprob.*|perplexity|bits_per_byte|.*_runtime|.*_cost"
)


class _Name(msgspec.Struct):
    name: str


class _Stat(msgspec.Struct):
    name: _Name
    count: float = 0
    mean: float | None = None
    sum: float | None = None


class _InstanceStats(msgspec.Struct):
    instance_id: Any
    stats: list[_Stat] = []
    train_trial_index: int = 0
    perturbation: dict[str, Any] | None = None


class HelmRun(ForeignResults):
    """A run folder of HELM. Training trials are trials; a perturbed instance is a case of its own."""

    title = "a run of HELM"
    unit = "instance"
    scores_by_first = True

    def sniff(self, head: bytes, path: Path) -> bool:
        if path.is_dir():
            return (path / _SCORES).is_file()
        is_scores = head.lstrip()[:1] == b"[" and b'"instance_id"' in head[:4096] and b'"stats"' in head
        return is_scores or (path.name in _OTHERS and (b'"adapter_spec"' in head or _OTHERS[path.name] in head))

    def files(self, path: Path) -> list[Path]:
        scores = path / _SCORES if path.is_dir() else path
        if scores.name in _OTHERS:
            scores = scores.with_name(_SCORES)
        if not scores.is_file():
            hint = "Name the run folder of HELM"
            raise problem(path, f"The scores are missing: there is no {_SCORES} next to it", hint)
        others = [scores.with_name(_ANSWERS), scores.with_name(_SPEC)] if scores.name == _SCORES else []
        return [scores, *(file for file in others if file.is_file())]

    def open(self, path: Path) -> ForeignRun:
        scores, *others = self.files(path)
        files = {file.name: file for file in others}
        spec = dict_of(read_document(files[_SPEC], _MAX_SPEC_BYTES)) if _SPEC in files else {}
        adapter = dict_of(spec.get("adapter_spec"))
        model = text_of(adapter.get("model_deployment") or adapter.get("model")) or "model"
        name = text_of(spec.get("name"))
        run = ForeignRun(
            jobs=(),
            id=name or "helm",
            targets={model: {"provider": "helm", **{key: adapter[key] for key in _SETTINGS if key in adapter}}},
        )
        if _ANSWERS not in files:
            run.notes.append(f"There is no {_ANSWERS}: questions and answers are unknown")
        # The name of a run ends with the model and the settings of the adapter.
        dataset = re.split(r"[:,](?:model|method)=", name)[0] or "helm"
        run.jobs = _Instances(scores, model, dataset).jobs(files.get(_ANSWERS))
        return run


_SETTINGS = ("model", "model_deployment", "method", "instructions", "temperature", "max_tokens", "max_train_instances")


class _Instances:
    """The scores of all instances, and their answers."""

    def __init__(self, scores: Path, model: str, dataset: str) -> None:
        self._path = scores
        self._model = model
        self._dataset = dataset
        self._stats: dict[_Key, dict[str, float]] = {}

    def jobs(self, answers: Path | None) -> Iterator[ForeignJob]:
        """Yield the instances in the order of their answers, then those that have only scores."""
        self._read_scores()
        for key, state in self._states(answers) if answers is not None else ():
            stats = self._stats.get(key)
            # Where each choice is a request of its own, the answer is the one that was predicted.
            if stats is not None and state.get("reference_index") in (None, stats.get("predicted_index", 0)):
                del self._stats[key]
                yield self._job(key, stats, state)
        for key, stats in self._stats.items():
            yield self._job(key, stats, {})

    def _read_scores(self) -> None:
        for number, (keys, data) in enumerate(read_parts(self._path, {()}), 1):
            if keys:
                raise problem(self._path, "It is not a list of instances")
            instance: _InstanceStats = decoded(self._path, data, f"instance {number}", _InstanceStats)
            values = {stat.name.name: stat.mean if stat.mean is not None else stat.sum for stat in instance.stats}
            key = text_of(instance.instance_id), _perturbation(instance.perturbation), instance.train_trial_index
            # Stats of one instance may come in several entries.
            scores = {name: value for name, value in values.items() if value is not None}
            self._stats.setdefault(key, {}).update(scores)

    def _states(self, path: Path) -> Iterator[tuple[_Key, dict[str, Any]]]:
        number = 0
        for keys, data in read_parts(path, {(), ("request_states",)}):
            if keys == ("request_states",):
                number += 1
                state = dict_of(decoded(path, data, f"request {number}"))
                if state.get("request_mode") != "calibration":
                    instance = dict_of(state.get("instance"))
                    perturbation = _perturbation(instance.get("perturbation"))
                    trial = int(number_or_none(state.get("train_trial_index")) or 0)
                    yield (text_of(instance.get("id")), perturbation, trial), state

    def _job(self, key: _Key, stats: dict[str, float], state: dict[str, Any]) -> ForeignJob:
        id, perturbation, trial = key
        result = dict_of(state.get("result"))
        seconds = number_or_none(result.get("request_time"))
        has_failed = result.get("success") is False
        figures = {name: value for name, value in stats.items() if _FIGURES.fullmatch(name)}
        return ForeignJob(
            case=self._case(f"{id}:{perturbation}" if perturbation else id, state),
            target=self._model,
            trial=trial + 1,
            answer=_answer(state, result),
            grades=() if has_failed else tuple(_grades(stats)),
            error=error_info(result.get("error")) if has_failed else None,
            usage=token_usage(figures.get("num_prompt_tokens"), figures.get("num_output_tokens")),
            duration_ms=None if seconds is None else seconds * 1000,
            cached=result.get("cached") is True,
            metadata={"figures": figures} if figures else {},
            place=f"instance {id}",
        )

    def _case(self, id: str, state: dict[str, Any]) -> ForeignCase:
        instance = dict_of(state.get("instance"))
        references = [dict_of(entry) for entry in list_of(instance.get("references"))]
        correct = [text_of(dict_of(entry.get("output")).get("text")) for entry in references if _is_correct(entry)]
        split = instance.get("split")
        request = dict_of(state.get("request")) if state.get("reference_index") is None else {}
        prompt = chat_messages(request.get("messages")) or text_of(request.get("prompt"))
        return ForeignCase(
            id=id,
            dataset=self._dataset,
            input=prompt or text_of(dict_of(instance.get("input")).get("text")),
            expected=correct[0] if len(correct) == 1 else correct or None,
            metadata={"split": split} if split else {},
        )


def _grades(stats: dict[str, float]) -> Iterator[ForeignGrade]:
    for name, value in stats.items():
        if not _FIGURES.fullmatch(name):
            yield ForeignGrade(name=name, type=f"helm:{name}", value=number_or_none(value), settings={"tool": "helm"})


def _perturbation(value: Any) -> str:
    return text_of(dict_of(value).get("name")) if value else ""


def _is_correct(reference: dict[str, Any]) -> bool:
    return "correct" in list_of(reference.get("tags"))


def _answer(state: dict[str, Any], result: dict[str, Any]) -> str | None:
    """Return the text of the first completion; for a letter of a multiple choice question, also the choice."""
    if state.get("reference_index") is not None:  # the text of a choice, whose likelihood was the highest
        reference = list_of(dict_of(state.get("instance")).get("references"))[int(state["reference_index"])]
        return text_of(dict_of(dict_of(reference).get("output")).get("text"))
    completions = list_of(result.get("completions"))
    if not completions:
        return None
    text = text_of(dict_of(completions[0]).get("text"))
    mapped = dict_of(state.get("output_mapping")).get(text.strip())
    return text if mapped is None else f"{text.strip()}: {text_of(mapped)}"
