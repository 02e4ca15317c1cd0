"""Read run folders of HELM: `per_instance_stats.json` with the scores, and `scenario_state.json` with the answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from agentv.extensions.interop.imports.foreign_files import decoded, problem, read_document, read_items, read_parts
from agentv.extensions.interop.imports.foreign_values import (
    Fields,
    chat_messages,
    dict_of,
    error_info,
    number_or_none,
    text_of,
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
_STATES = ("request_states",)
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
        spec = dict_of(read_document(files[_SPEC], _MAX_SPEC_BYTES)) if _SPEC in files else Fields()
        adapter = spec.object("adapter_spec")
        model = adapter.text("model_deployment", "model") or "model"
        name = spec.text("name")
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
            yield self._job(key, stats, Fields())

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

    def _states(self, path: Path) -> Iterator[tuple[_Key, Fields]]:
        for _, state in read_items(path, {(), _STATES}, {_STATES}, "Request"):
            if state.get("request_mode") != "calibration":
                instance = state.object("instance")
                perturbation = _perturbation(instance.get("perturbation"))
                trial = int(state.number("train_trial_index") or 0)
                yield (instance.text("id"), perturbation, trial), state

    def _job(self, key: _Key, stats: dict[str, float], state: Fields) -> ForeignJob:
        id, perturbation, trial = key
        result = state.object("result")
        has_failed = result.get("success") is False
        figures = Fields({name: value for name, value in stats.items() if _FIGURES.fullmatch(name)})
        return ForeignJob(
            case=self._case(f"{id}:{perturbation}" if perturbation else id, state),
            target=self._model,
            trial=trial + 1,
            answer=_answer(state, result),
            grades=() if has_failed else tuple(_grades(stats)),
            error=error_info(result.get("error")) if has_failed else None,
            usage=figures.usage("num_prompt_tokens", "num_output_tokens"),
            duration_ms=result.milliseconds("request_time"),
            cached=result.get("cached") is True,
            metadata={"figures": figures} if figures else {},
            place=f"instance {id}",
        )

    def _case(self, id: str, state: Fields) -> ForeignCase:
        instance = state.object("instance")
        references = instance.objects("references")
        correct = [entry.object("output").text("text") for entry in references if "correct" in entry.items_of("tags")]
        split = instance.get("split")
        request = state.object("request") if state.get("reference_index") is None else Fields()
        prompt = chat_messages(request.get("messages")) or request.text("prompt")
        return ForeignCase(
            id=id,
            dataset=self._dataset,
            input=prompt or instance.object("input").text("text"),
            expected=correct[0] if len(correct) == 1 else correct or None,
            metadata={"split": split} if split else {},
        )


def _grades(stats: dict[str, float]) -> Iterator[ForeignGrade]:
    for name, value in stats.items():
        if not _FIGURES.fullmatch(name):
            yield ForeignGrade(name=name, type=f"helm:{name}", value=number_or_none(value), settings={"tool": "helm"})


def _perturbation(value: Any) -> str:
    return dict_of(value).text("name") if value else ""


def _answer(state: Fields, result: Fields) -> str | None:
    """Return the text of the first completion; for a letter of a multiple choice question, also the choice."""
    if state.get("reference_index") is not None:  # the text of a choice, whose likelihood was the highest
        reference = state.object("instance").objects("references")[int(state["reference_index"])]
        return reference.object("output").text("text")
    completions = result.objects("completions")
    if not completions:
        return None
    text = completions[0].text("text")
    mapped = state.object("output_mapping").get(text.strip())
    return text if mapped is None else f"{text.strip()}: {text_of(mapped)}"
