"""Write cases as a promptfoo configuration: evaluators become assertions, and inputs become variables of a prompt."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agentv.datasets.foreign.case_parts import NO_CHECK, chat_messages, count_losses, first_input, text_in
from agentv.datasets.foreign.foreign_format import Lose
from agentv.datasets.foreign.values import filled, is_blank, text_of
from agentv.datasets.formats.dataset_format import Content
from agentv.extensions.promptfoo.evaluators.judge_entries import ABOVE_ZERO
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
_THEIRS = {
    "similarity": {"method": "embedding"},
    "rouge": {"variant": "rouge1", "words": "treebank"},
    "bleu": {"method": "words"},
}
"""The settings with which evaluators compare as promptfoo does."""

_PYTHON_ONLY = re.compile(r"\(\?(?:[aiLmsux#(-]|P)|\\[AZ]|[*+?}]\+")
_INLINE = re.compile(r"\(\?([ims]+)\)")
_FILE = re.compile(r"[^\n]*\.\w{1,5}")
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
        return [{"label": prompt["id"], "raw": _raw(prompt["prompt"])} for prompt in header["prompts"]]
    return [_raw(header["prompt"])] if header.get("prompt") else []


def _raw(prompt: Any) -> str:
    return prompt if isinstance(prompt, str) else to_json(prompt).decode()


def _providers(execution: Mapping[str, Any], lose: Lose) -> list[str]:
    """Return the targets whose names are providers of promptfoo; otherwise `echo`."""
    names = [text_of(name) for name in execution.get("targets") or [execution.get("target") or ""]]
    providers = [name for name in names if name == "echo" or ":" in name]
    if len(providers) < len(names):
        lose("the targets: replace `echo` with your providers")
    return providers or ["echo"]


def _test(case: EvalCase, has_prompts: bool, lose: Lose) -> dict[str, Any]:
    count_losses(case, lose, ("rubrics", "prompts", "variables", "verdicts"), case.evaluators.__contains__)
    if case.variables is not None and has_prompts:
        variables = {key: value for key, value in _plain(case.variables).items() if value != ""}
    else:
        messages = first_input(case)
        is_question = len(messages) == 1 and messages[0].role == "user"
        text = text_in(messages, lose) if is_question else to_json(chat_messages(messages, lose)).decode()
        variables = {"prompt": text}
    if case.context and "context" not in variables:
        variables["context"] = "\n\n".join(case.context)
    if any("{{" in text_of(value) for value in variables.values()):
        lose("double braces in a text: promptfoo renders them")
    test = {"description": case.id, "vars": variables, **_grading(case, lose)}
    if any(isinstance(value, list) for value in variables.values()):
        test["options"] = {"disableVarExpansion": True}
    reference = text_in(case.expected_output, lose) if case.expected_output else ""
    metadata = {**case.metadata, "tags": case.tags, "conversation_id": case.conversation_id, "cluster": case.cluster}
    metadata |= {"description": case.description, "expected_output": "" if _uses_reference(case) else reference}
    is_judged = any(spec.type == "llm_judge" for spec in case.evaluators)
    metadata["expected_outcome"] = "" if is_judged else case.expected_outcome
    return {**test, **filled({"metadata": filled(_plain(metadata))})}


def _plain(value: Any) -> Any:
    return json.loads(to_json(value))


def _uses_reference(case: EvalCase) -> bool:
    return any(spec.evaluator is not None and spec.evaluator.needs.reference for spec in case.evaluators)


def _grading(case: EvalCase, lose: Lose) -> dict[str, Any]:
    """Return the assertions, and the threshold unless all of them must pass."""
    passing = (case.execution.verdicts or Verdicts()).passing
    all_must_pass = passing == 0 and all(spec.is_gate for spec in case.evaluators if spec.weight)
    assertions = [assertion for spec in case.evaluators for assertion in _assertions(spec, case, lose)]
    if not all_must_pass and any(spec.is_gate for spec in case.evaluators):
        lose("`required` of an evaluator: the threshold of a test overrides its assertions")
    if not assertions and (case.evaluators or case.turns):  # promptfoo passes a test without assertions
        lose("every check of a case: its only assertion fails")
        reason = {"pass": False, "score": 0, "reason": NO_CHECK}
        return {"assert": [{"type": "javascript", "value": f"({json.dumps(reason)})"}]}
    return {**({} if all_must_pass or not assertions else {"threshold": passing}), "assert": assertions}


def _assertions(spec: EvaluatorSpec, case: EvalCase, lose: Lose) -> Iterator[dict[str, Any]]:
    for own in _own(spec, case, lose):
        assertion = {**own, "type": f"not-{own['type']}" if spec.negate else own["type"]}
        weight = spec.weight * assertion.pop("weight", 1)
        if weight != 1:
            assertion["weight"] = weight
        if spec.name.rpartition("-")[0] != spec.type and spec.name != spec.type:
            assertion["metric"] = spec.name
        if "{{" in to_json(assertion.get("value")).decode():
            lose("double braces in an assertion: promptfoo renders them")
        transform = _transform(spec.transform, lose)
        yield {**assertion, "transform": transform} if transform else assertion


def _own(spec: EvaluatorSpec, case: EvalCase, lose: Lose) -> Iterator[dict[str, Any]]:
    """Yield the assertions for an evaluator, without the keys that all of them have."""
    settings, type_ = _plain(spec.settings), spec.type
    least = {"threshold": spec.required} if _is_share(spec.required) else {}
    if type_ in _VALUED or type_ == "ends_with":
        yield from _compared(spec, settings, case, lose)
    elif type_ in _GRADED:
        if type_ == "refusal":
            lose("the judge of `refusal`: promptfoo looks for phrases")
        yield {"type": _GRADED[type_], **least}
    elif type_ in ("is_json", "json_schema"):
        kind = "contains-json" if settings.get("anywhere") else "is-json"
        yield {"type": kind, **({"value": settings["schema"]} if settings.get("schema") else {})}
    elif type_ in ("latency", "cost"):
        yield {"type": type_, "threshold": settings.get("threshold", settings.get("budget"))}
    elif type_ == "skill_trigger":
        yield {
            "type": "skill-used" if settings.get("should_trigger", True) else "not-skill-used",
            "value": settings["skill"],
        }
    elif type_ in ("javascript", "python"):
        yield _code(type_, settings)
    elif type_ in ("rubric", "llm_judge"):
        yield from _judged(spec, settings, case, lose)
    elif type_ == "composite":
        yield from _set(spec, settings, case, lose)
    else:
        lose(f"the evaluator `{type_}`")


def _compared(spec: EvaluatorSpec, settings: dict[str, Any], case: EvalCase, lose: Lose) -> Iterator[dict[str, Any]]:
    """Yield the assertion for an evaluator with a value or a reference, and report settings that it does not have."""
    type_ = spec.type
    value = settings.pop("value", text_in(case.expected_output, lose) if case.expected_output else "")
    if is_blank(value):  # which every answer contains
        lose(f"the evaluator `{type_}`: it has no text to compare with")
        return
    is_exact = settings.pop("exact", False)
    if spec.negate and not is_exact and type_ in ("equals", "starts_with", "ends_with"):
        lose(f"that `{type_}` ignores white space at the ends")
    if isinstance(value, str) and not is_exact and type_ in _SAME and type_ != "regex":
        value = value.strip()
    if type_ == "ends_with":
        answer = "output" if is_exact else "output.trim()"
        yield {"type": "javascript", "value": f"{answer}.endsWith({json.dumps(value)})"}
        return
    if type_ == "regex" and settings.get("syntax") != "javascript":
        inline = _INLINE.match(value)
        if inline is not None:
            value, settings["flags"] = value[inline.end() :], settings.get("flags", "") + inline[1]
        if _PYTHON_ONLY.search(value):
            lose("the evaluator `regex` with a pattern that only Python has")
            return
    flags = settings.get("flags", "")
    if flags and not set(flags) - set("imsgu"):
        yield {"type": "javascript", "value": f"new RegExp({json.dumps(value)}, {json.dumps(flags)}).test(output)"}
        return
    limit = settings.pop("max_distance", settings.pop("threshold", None))
    if limit is None and _is_share(spec.required) and type_ not in _SAME:
        limit = spec.required
    theirs = _THEIRS.get(type_, {})
    for key in sorted({**theirs, **settings}):
        if key not in ("target", "syntax") and settings.get(key) != theirs.get(key):
            lose(f"`{key}` of the evaluator `{type_}`: promptfoo compares in another way")
    yield {"type": _VALUED[type_], "value": value, **({} if limit is None else {"threshold": limit})}


def _is_share(value: Any) -> bool:
    return not isinstance(value, bool) and ABOVE_ZERO < value < 1


def _code(type_: str, settings: dict[str, Any]) -> dict[str, Any]:
    more = {key: settings[key] for key in ("threshold", "config") if settings.get(key) not in (None, {})}
    type_ = f"not-{type_}" if settings.get("inverse") else type_
    if "code" in settings:
        code = settings["code"].strip()
        # One line is an expression there, and more are the body of a function.
        value = settings["code"] if "\n" in code else code.removeprefix("return ").rstrip("; ")
        return {"type": type_, "value": value, **more}
    return {"type": type_, "value": f"file://{settings.get('file', settings.get('function'))}", **more}


def _judged(spec: EvaluatorSpec, settings: dict[str, Any], case: EvalCase, lose: Lose) -> Iterator[dict[str, Any]]:
    judge = {"provider": spec.target} if isinstance(spec.target, str) and ":" in spec.target else {}
    setting = settings.get("rubrics") or []
    rubrics: list[Any] = [setting] if isinstance(setting, str) else setting
    items: list[dict[str, Any]] = [item if isinstance(item, dict) else {"outcome": item} for item in rubrics]
    total = sum(item.get("weight", 1) for item in items)
    for item in items:
        if item.keys() & {"required", "required_min_score", "min_score", "score_ranges", "operator"}:
            lose("limits and score ranges of rubric items")
        share = {"weight": item.get("weight", 1) / total} if total and len(items) > 1 else {}
        text = item.get("expected_outcome", item.get("outcome", item.get("score_ranges")))
        yield {"type": "llm-rubric", "value": text_of(text), **judge, **share}
    if items:
        return
    prompt = settings.get("prompt")
    if prompt is not None and (not isinstance(prompt, str) or "{{" in prompt or _FILE.fullmatch(prompt)):
        lose("the prompt of a judge: promptfoo has its own")
        prompt = None
    text = text_of(prompt or settings.get("criteria") or case.expected_outcome)
    if spec == DEFAULT_EVALUATOR and case.expected_output:
        text = f"{text}\n\nReference answer: {text_in(case.expected_output, lambda _: None)}".strip()
    least = {"threshold": spec.required} if _is_share(spec.required) else {}
    if text:
        yield {"type": "llm-rubric", "value": text, **least, **judge}
    else:
        lose("a judge without criteria")


def _set(spec: EvaluatorSpec, settings: dict[str, Any], case: EvalCase, lose: Lose) -> Iterator[dict[str, Any]]:
    if settings.get("aggregator") != "weighted_average":
        lose("the aggregator of a composite: the members are averaged")
    members = spec.evaluator.members if spec.evaluator is not None else ()
    inner = [assertion for member in members for assertion in _assertions(member, case, lose)]
    if not inner:
        lose("a composite without members that can be written")
        return
    least = {"threshold": spec.required} if _is_share(spec.required) else {}
    yield {"type": "assert-set", "assert": inner, **least}


def _transform(transform: Any, lose: Lose) -> str:
    """Return the JavaScript for a transform with one step. In promptfoo, an empty text is always scored."""
    steps = _plain(transform) if transform else {}
    if isinstance(steps, dict):
        steps.pop("allow_empty", None)
    if not steps:
        return ""
    if list(steps) == ["javascript"]:
        return str(steps["javascript"])
    if list(steps) == ["json_path"] and steps["json_path"].replace("$", "") not in ("", "."):
        path = steps["json_path"].removeprefix("$").removeprefix(".")
        return f"JSON.parse(output){path if path.startswith('[') else f'.{path}'}"
    if list(steps) == ["regex"]:
        pattern = steps["regex"].replace("/", "\\/")
        return f"output.match(/{pattern}/)[{1 if '(' in pattern else 0}]"
    lose("the transform of an evaluator")
    return ""
