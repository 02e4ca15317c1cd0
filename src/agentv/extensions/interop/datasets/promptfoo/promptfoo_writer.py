"""Write cases as a promptfoo configuration: evaluators become assertions, and inputs become variables of a prompt."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agentv.datasets.foreign.foreign_format import Lose
from agentv.datasets.foreign.values import filled, text_of
from agentv.datasets.formats.dataset_format import Content
from agentv.extensions.interop.datasets.promptfoo.assertion_entries import ABOVE_ZERO
from agentv.extensions.interop.datasets.written_case import chat_messages, count_losses, extra_data, text_in
from agentv.model.case import EvalCase
from agentv.model.evaluator import DEFAULT_EVALUATOR, EvaluatorSpec, Verdicts
from agentv.model.values import to_json
from agentv.support.yaml.yaml_writer import write_yaml

_SAME = ("equals", "contains", "icontains", "starts_with", "regex", "contains_any", "contains_all", "icontains_any")
_VALUED = {name: name.replace("_", "-") for name in (*_SAME, "icontains_all", "factuality", "levenshtein", "bleu")}
_VALUED |= {"similarity": "similar", "rouge": "rouge-n", "context_recall": "context-recall", "json_diff": "equals"}
_GRADED = {
    "faithfulness": "context-faithfulness",
    "answer_relevance": "answer-relevance",
    "context_relevance": "context-relevance",
    "refusal": "is-refusal",
}
_KEPT = (
    *(*_VALUED, *_GRADED, "llm_judge", "rubric", "is_json", "json_schema", "javascript", "python", "latency", "cost"),
    *("composite", "ends_with", "skill_trigger", "rubrics", "prompts"),
)
_PROMPT = "{{prompt}}"


def write_config(content: Content, path: str) -> None:
    """Write a configuration: YAML, or JSON if the name of the file ends with it."""
    header, lose = content.header, content.lose
    prompts = _prompts(header)
    execution = header.get("execution") or {}
    options = {"repeat": execution.get("trials"), "maxConcurrency": execution.get("workers")}
    config: dict[str, Any] = {
        "description": header.get("description") or header.get("dataset"),
        "prompts": prompts or [_PROMPT],
        "providers": _providers(execution, lose),
        "evaluateOptions": options,
    }
    config = filled({key: _without_blanks(value) for key, value in config.items()})
    tests = (_test(row.case, bool(prompts), lose) for row in content.rows)
    with Path(path).open("wb") as stream:
        if path.endswith(".json"):
            stream.write(json.dumps({**config, "tests": list(tests)}, indent=2, ensure_ascii=False).encode())
        else:
            write_yaml({**config, "tests": tests}, stream)


def _without_blanks(value: Any) -> Any:
    return filled(value) if isinstance(value, dict) else value


def _prompts(header: Mapping[str, Any]) -> list[Any]:
    """Return the prompts of a dataset with templates; none if its inputs are texts."""
    if header.get("prompts"):
        return [{"label": each["id"], "raw": _raw(each["prompt"])} for each in header["prompts"]]
    return [_raw(header["prompt"])] if header.get("prompt") else []


def _raw(prompt: Any) -> str:
    return prompt if isinstance(prompt, str) else to_json(prompt).decode()


def _providers(execution: Mapping[str, Any], lose: Lose) -> list[str]:
    """Return the targets whose names are providers of promptfoo; otherwise `echo`."""
    names = [text_of(name) for name in execution.get("targets") or [execution.get("target") or ""]]
    known = [name for name in names if name == "echo" or ":" in name]
    if len(known) < len(names):
        lose("the targets: replace `echo` with your providers")
    return known or ["echo"]


def _test(case: EvalCase, has_prompts: bool, lose: Lose) -> dict[str, Any]:
    count_losses(case, lose, _KEPT)
    if case.variables is not None and has_prompts:
        variables = {key: value for key, value in _plain(case.variables).items() if value != ""}
    elif len(case.input) == 1 and case.input[0].role == "user":
        variables = {"prompt": text_in(case.input, lose)}
    else:
        variables = {"prompt": to_json(chat_messages(case.input, lose)).decode()}
    if case.context and "context" not in variables:
        variables["context"] = "\n\n".join(case.context)
    if any("{{" in text_of(value) for value in variables.values()):
        lose("double braces in a text: promptfoo renders them")
    test = {"description": case.id, "vars": variables, **_grading(case, lose)}
    if any(isinstance(value, list) for value in variables.values()):
        test["options"] = {"disableVarExpansion": True}
    reference = text_in(case.expected_output, lose) if case.expected_output else ""
    metadata = {**extra_data(case), "expected_output": reference if not _uses_reference(case) else ""}
    return {**test, **filled({"metadata": filled(_plain(metadata))})}


def _plain(value: Any) -> Any:
    return json.loads(to_json(value))


def _uses_reference(case: EvalCase) -> bool:
    return any(spec.evaluator is not None and spec.evaluator.needs.reference for spec in case.evaluators)


def _grading(case: EvalCase, lose: Lose) -> dict[str, Any]:
    """Return the assertions, and the threshold unless all of them must pass."""
    passing = (case.execution.verdicts or Verdicts()).passing
    all_must_pass = passing == 0 and all(spec.is_gate for spec in case.evaluators if spec.weight)
    found = [each for spec in case.evaluators for each in _assertions(spec, case, lose)]
    if not all_must_pass and any(spec.is_gate for spec in case.evaluators):
        lose("`required` of an evaluator: the threshold of a test overrides its assertions")
    return {**({} if all_must_pass or not found else {"threshold": passing}), "assert": found}


def _assertions(spec: EvaluatorSpec, case: EvalCase, lose: Lose) -> Iterator[dict[str, Any]]:
    for own in _own(spec, case, lose):
        assertion = {**own, "type": f"not-{own['type']}" if spec.negate else own["type"]}
        if spec.weight != 1:
            assertion["weight"] = spec.weight
        if spec.name.rpartition("-")[0] != spec.type and spec.name != spec.type:
            assertion["metric"] = spec.name
        transform = _transform(spec.transform, lose)
        yield {**assertion, "transform": transform} if transform else assertion


def _own(spec: EvaluatorSpec, case: EvalCase, lose: Lose) -> Iterator[dict[str, Any]]:
    """Yield the assertions for an evaluator, without the keys that all of them have."""
    settings, type_ = _plain(spec.settings), spec.type
    least = {"threshold": spec.required} if _is_share(spec.required) else {}
    if type_ in _VALUED:
        value = settings.get("value", text_in(case.expected_output, lose) if case.expected_output else "")
        limit = {"threshold": settings["max_distance"]} if "max_distance" in settings else {}
        limit |= {"threshold": settings["threshold"]} if "threshold" in settings else {}
        yield {"type": _VALUED[type_], "value": value, **(limit or (least if type_ not in _SAME else {}))}
    elif type_ in _GRADED:
        yield {"type": _GRADED[type_], **least}
    elif type_ in ("is_json", "json_schema"):
        kind = "contains-json" if settings.get("anywhere") else "is-json"
        yield {"type": kind, **({"value": settings["schema"]} if settings.get("schema") else {})}
    elif type_ in ("latency", "cost"):
        yield {"type": type_, "threshold": settings.get("threshold", settings.get("budget"))}
    elif type_ == "ends_with":
        yield {"type": "javascript", "value": f"output.trim().endsWith({json.dumps(settings.get('value', ''))})"}
    elif type_ == "skill_trigger":
        yield {"type": "skill-used", "value": settings["skill"]}
    elif type_ in ("javascript", "python"):
        yield _code(type_, settings)
    elif type_ in ("rubric", "llm_judge"):
        yield from _judged(spec, settings, case, least)
    elif type_ == "composite":
        yield from _set(spec, settings, case, lose)


def _is_share(value: Any) -> bool:
    return not isinstance(value, bool) and ABOVE_ZERO < value < 1


def _code(type_: str, settings: dict[str, Any]) -> dict[str, Any]:
    more = {key: settings[key] for key in ("threshold", "config") if settings.get(key) not in (None, {})}
    if "code" in settings:
        return {"type": type_, "value": settings["code"], **more}
    return {"type": type_, "value": f"file://{settings.get('file', settings.get('function'))}", **more}


def _judged(
    spec: EvaluatorSpec, settings: dict[str, Any], case: EvalCase, least: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    judge = {"provider": spec.target} if isinstance(spec.target, str) and ":" in spec.target else {}
    items = settings.get("rubrics") or ()
    for item in items:
        text = item if isinstance(item, str) else item.get("expected_outcome", item.get("outcome", ""))
        yield {"type": "llm-rubric", "value": text_of(text), **judge}
    if items:
        return
    text = settings.get("prompt") or case.expected_outcome
    if spec == DEFAULT_EVALUATOR and case.expected_output:
        text = f"{text}\n\nReference answer: {text_in(case.expected_output, lambda _: None)}".strip()
    yield {"type": "llm-rubric", "value": text_of(text), **least, **judge}


def _set(spec: EvaluatorSpec, settings: dict[str, Any], case: EvalCase, lose: Lose) -> Iterator[dict[str, Any]]:
    if settings.get("aggregator") != "weighted_average":
        lose("the aggregator of a composite: the members are averaged")
    members = spec.evaluator.members if spec.evaluator is not None else ()
    inner = [each for member in members for each in _assertions(member, case, lose)]
    least = {"threshold": spec.required} if _is_share(spec.required) else {}
    yield {"type": "assert-set", "assert": inner, **least}


def _transform(transform: Any, lose: Lose) -> str:
    """Return the JavaScript for a transform with one step. In promptfoo, an empty text is always scored."""
    steps = _plain(transform) if transform else {}
    if isinstance(steps, dict):
        steps.pop("allow_empty", None)
    if not steps:
        return ""
    if list(steps) == ["json_path"] and steps["json_path"].replace("$", "") not in ("", "."):
        path = steps["json_path"].removeprefix("$").removeprefix(".")
        return f"JSON.parse(output){path if path.startswith('[') else f'.{path}'}"
    if list(steps) == ["regex"]:
        pattern = steps["regex"].replace("/", "\\/")
        return f"output.match(/{pattern}/)[{1 if '(' in pattern else 0}]"
    lose("the transform of an evaluator")
    return ""
