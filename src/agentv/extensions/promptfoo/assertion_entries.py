"""Translate the assertions of a promptfoo test to evaluators.

A test without a threshold passes if all its assertions do, whatever their scores: each gets `required`, its own
minimum. With a threshold only the weighted mean decides.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import msgspec

from agentv.datasets.foreign.values import text_of
from agentv.extensions.promptfoo.call_assertions import CALL_TYPES, call_entry
from agentv.extensions.promptfoo.config_templates import check_templates, rendered
from agentv.extensions.promptfoo.evaluators.judge_entries import (
    ABOVE_ZERO,
    EMBEDDED,
    JUDGED,
    JUDGED_TYPES,
    NEVER_NEGATED,
    Grading,
    judged_entry,
    minimum_of,
)
from agentv.extensions.promptfoo.functions.calls import FUNCTION_FILE
from agentv.extensions.promptfoo.providers.provider_entries import NoCounterpart
from agentv.extensions.promptfoo.text_assertions import OVERLAP, TEXT_TYPES, is_number, script_entry, text_entry
from agentv.extensions.promptfoo.transform_code import transforms_of
from agentv.model.diagnostics import did_you_mean
from agentv.model.values import to_json

_OTHERS = ("javascript", "python", "latency", "cost", "skill-used", "assert-set", "guardrails", "finish-reason")
KNOWN_TYPES = (*TEXT_TYPES, *JUDGED_TYPES, *EMBEDDED, *CALL_TYPES, *_OTHERS)
_REPORTS = ("mock", "python", "javascript", "cli", "promptfoo_http", "openai")
"""Providers whose answers have the guardrails that promptfoo reads: a filter of OpenAI's is an error here."""

_FUNCTIONS = ("python", "javascript")
"""Providers whose answers have all fields that promptfoo reads."""
_REFUSED = {
    "webhook": "agentv does not send answers to a web address",
    "moderation": "it calls the moderation API of OpenAI; `moderation` here is a judge",
    "perplexity perplexity-score": "it needs the log probabilities of the answer",
    "classifier": "it calls a classifier of Hugging Face",
    "pi": "it calls a service of another company",
    "is-sql contains-sql": "call node-sql-parser in a `javascript` assertion with a file, or use `python`",
    "contains-xml is-html": "there is no such check; use `is-xml`, `contains-html` or `python`",
    "meteor": "it needs WordNet; use `gleu`, `bleu`, `rouge-n` or `similar`",
    "human": "label the answers with `agentv view --label`",
    "ruby": "Ruby is not supported",
    "trace-error-spans trace-span-count trace-span-duration": "spans are not recorded; use `execution_metrics`",
    "search-rubric": "use `rubric`, with an agent as its target",
    "conversation-relevance": "use `llm_judge`",
}
REFUSED = {name: why for names, why in _REFUSED.items() for name in names.split()}
COMPARED = {
    "select-best": "`agentv select`, which chooses the best of several targets or prompts",
    "max-score": "`agentv select`, or `agentv compare` for the scores of two runs",
}
"""Types that compare the answers of all targets and prompts after they were scored. A job is scored alone."""

_SCORED_BY_CODE = ("javascript", "python", "tool-call-f1")
"""Types that keep their score under `not-`."""

_INVERTED = ("model_graded", "embedding_similarity", "tool_steps")
"""Evaluators that decide what `not-` means."""

_UNLIMITED = ("javascript", "model_graded", "embedding_similarity")
"""Evaluators whose score may be below 0 or above 1 in promptfoo."""

_CODE_FILE = re.compile(r"file://(?P<file>.+?\.(?P<kind>py|[cm]?[jt]s))(?::(?P<name>\w+))?$")


_ACCESS = r"(?:['\"](?:, *\{\})?[\])])?(?:\??\.(?!get\()|\[['\"]|\.get\(['\"])"
_UNSEEN = re.compile(
    rf"(?:\bcontext|\bproviderResponse){_ACCESS}"
    r"(metadata|guardrails|logProbs|trace|raw|cached|isRefusal|finishReason)\b"
)
_UNSEEN_OF_TEST = re.compile(rf"\bcontext{_ACCESS}(?:provider\b|test{_ACCESS}(?!metadata\b)(\w+))")
_RESPONSE_OUTPUT = re.compile(rf"\bproviderResponse{_ACCESS}output\b")
"""Figures of an answer, and parts of a test, that code in promptfoo can read, and code here cannot."""


def entries_of(assertions: Any, grading: Grading, transform: Any = None) -> list[dict[str, Any]]:
    """Return the evaluators for a list of assertions. `transform` is the test's own. Raises ValueError."""
    entries = []
    for item in assertions if isinstance(assertions, list) else ():
        assertion = _resolved(item, grading)
        entry = _set_entry(assertion, grading) if assertion.get("type") == "assert-set" else _entry(assertion, grading)
        if entry is not None:
            own = None if assertion.get("type") == "assert-set" else assertion.get("transform")
            for code in (transform, own, assertion.get("value") if _is_code(assertion) else None):
                _note_unseen(code, grading, has_transform=code is not transform and bool(transform))
            steps = transforms_of(transform, own, entry.get("transform"))
            name = "answer" if entry["type"] == "context_graded" else "transform"
            entries.append({**entry, name: steps} if steps else entry)
    return entries


def combined_entry(assertions: Any, function: Any, grading: Grading, transform: Any = None) -> dict[str, Any] | None:
    """Return the evaluator for assertions whose scores a function combines; None without any. Raises ValueError."""
    if not isinstance(function, str) or not function.startswith("file://") or not FUNCTION_FILE.match(function):
        name = text_of(function)[:80]
        raise ValueError(f"'assertScoringFunction' must name a file of JavaScript or Python, got {name}")
    if "tokensUsed" in _source_of(function, grading):
        grading.lose("'tokensUsed', which the scoring function reads: the tokens of graders are not passed to it")
    members, described = [], []
    for item in assertions if isinstance(assertions, list) else ():
        is_set = _resolved(item, grading).get("type") == "assert-set"  # the function gets other scores as they are
        entries = entries_of([item], msgspec.structs.replace(grading, is_counted=is_set), transform)
        members += entries
        described += [_described(item, entry, grading) for entry in entries]
    if not members:
        return None
    entry = {"type": "scoring_function", "function": function.removeprefix("file://"), "required": 0.0}
    return {**entry, "assertions": described, "evaluators": members}


def _described(item: Any, entry: dict[str, Any], grading: Grading) -> dict[str, Any]:
    """Return an assertion as a scoring function sees it. Raises ValueError if a set has fewer members than there."""
    assertion = _resolved(item, grading)
    metric = _metric(assertion, grading)
    assertion |= {"metric": metric} if metric else {}
    if assertion.get("type") == "assert-set":
        members = entry["evaluators"]
        if len(members) != len(assertion["assert"]):
            raise ValueError("'assertScoringFunction' needs all assertions of a set, and one of them is not kept")
        pairs = zip(assertion["assert"], members, strict=True)
        assertion["assert"] = [_described(inner, member, grading) for inner, member in pairs]
    return assertion


def _is_code(assertion: dict[str, Any]) -> bool:
    return str(assertion.get("type")).removeprefix("not-") in ("javascript", "python")


def _note_unseen(code: Any, grading: Grading, *, has_transform: bool) -> None:
    """Report what code reads of an answer that is not available here."""
    text = _source_of(code, grading)
    has_fields = all(entry["provider"] in _FUNCTIONS for entry in grading.targets)
    for name in sorted(set(_UNSEEN.findall(text)) & {"trace"} if has_fields else set(_UNSEEN.findall(text))):
        grading.lose(f"'{name}' of an answer, which code reads: its output, cost, tokens and latency are available")
    if has_transform and _RESPONSE_OUTPUT.search(text):
        grading.lose("'output' of a response, which code reads: here it is the answer before the transform of the test")
    keys = set(_UNSEEN_OF_TEST.findall(text))
    if not any(mark in to_json(grading.source_variables).decode() for mark in ("{{", "{%", "file://")):
        keys.discard("vars")
    for key in sorted(keys):
        name = f"test.{key}" if key else "provider"
        grading.lose(
            f"'context.{name}', which code reads: only `metadata` of the test, and `context.vars`, are the same"
        )


def _source_of(code: Any, grading: Grading) -> str:
    """Return code, or the content of the file that it names."""
    text = code if isinstance(code, str) else ""
    if file := _CODE_FILE.match(text):
        with suppress(ValueError):
            return text_of(grading.read_file(file["file"]))
    return text


def _resolved(assertion: Any, grading: Grading) -> dict[str, Any]:
    """Return an assertion with the template that it names."""
    if isinstance(assertion, str) and assertion.startswith("file://"):
        assertion = grading.read_file(assertion)
    if not isinstance(assertion, dict):
        raise ValueError(f"An assertion must be an object, got {text_of(assertion)[:80]}")
    reference = assertion.get("$ref")
    if isinstance(reference, str):
        name = reference.removeprefix("#/assertionTemplates/")
        if not isinstance(grading.templates.get(name), dict):
            raise ValueError(f"'$ref: {reference}' names no assertion template")
        assertion = {**grading.templates[name], **{key: value for key, value in assertion.items() if key != "$ref"}}
    for key in ("threshold", "weight"):
        if not (assertion.get(key) is None or is_number(assertion[key])):
            what = text_of(assertion.get("type"))
            raise ValueError(f"'{key}' of '{what}' must be a number, got {text_of(assertion[key])[:80]}")
    return dict(assertion)


def _set_entry(assertion: dict[str, Any], grading: Grading) -> dict[str, Any] | None:
    """Return a composite: all members must pass, or with a threshold their weighted mean must reach it."""
    threshold: Any = assertion.get("threshold")
    if assertion.get("weight") == 0 and not grading.has_threshold:
        raise ValueError("An assert-set of weight 0 can fail its test without counting in the score. Give it a weight")
    is_counted = grading.is_counted or is_number(threshold)
    inner = msgspec.structs.replace(grading, has_threshold=is_number(threshold), is_counted=is_counted)
    members = entries_of(assertion.get("assert"), inner)
    if not members:
        grading.lose("an assert-set without assertions that can be kept")
        return None
    entry = {"type": "composite", "evaluators": members, "aggregator": "weighted_average"}
    return {**entry, **_common(assertion, grading, "composite", threshold if is_number(threshold) else 0.0)}


def _entry(assertion: dict[str, Any], grading: Grading) -> dict[str, Any]:
    full_type = assertion.get("type")
    if not isinstance(full_type, str):
        raise ValueError("An assertion has no 'type'")
    negated = full_type.startswith("not-")
    type_ = full_type.removeprefix("not-")
    if type_ in REFUSED or type_.startswith("promptfoo:"):
        raise NoCounterpart(f"The assertion '{full_type}': {REFUSED.get(type_, 'it belongs to red-team tests')}")
    if full_type in COMPARED:
        what = "compares the answers of all providers and prompts, and here each answer is scored alone"
        raise NoCounterpart(f"The assertion '{full_type}' {what}. Remove it, and use {COMPARED[full_type]}")
    if negated and type_ in (*NEVER_NEGATED, *CALL_TYPES):
        grading.lose(f"the 'not-' of '{full_type}': promptfoo ignores it, and so does agentv")
        negated = False
    value = _value(assertion.get("value"), type_, grading)
    own, least = _translated(type_, value, assertion, grading)
    if own is None:
        if not type_.startswith("trajectory:"):
            hint = did_you_mean(type_, KNOWN_TYPES)
            raise ValueError(f"An assertion has the unknown type '{full_type}'" + (f". {hint}" if hint else ""))
        raise NoCounterpart(f"The assertion '{full_type}' has settings without a counterpart here")
    if negated and own["type"] in _INVERTED:
        own = {**own, "inverse": True}
    elif negated and type_ == "is-refusal":
        own["config"] = {"isInverse": True}
    elif negated and type_ in _SCORED_BY_CODE:
        # Code that throws fails, negated or not, so that it is an error here.
        throws = {"on_throw": "error"} if "on_throw" in own else {}
        limit = {} if type_ in ("javascript", "python") else {"threshold": least}
        own, least = {**own, **limit, **throws, "inverse": True}, 0.0
    elif negated:
        own, least = {**own, "negate": True}, _negated_minimum(full_type, least)
    return {**own, **_common(assertion, grading, own["type"], least)}


def _negated_minimum(full_type: str, least: float) -> float:
    """Return the minimum of one minus the score: above the limit fails, so the score must stay below it."""
    if least == 0.0:
        raise ValueError(f"'{full_type}' with a threshold of 0 fails every answer")
    return min(1.0, 1 - least + ABOVE_ZERO)


def _common(assertion: dict[str, Any], grading: Grading, type_: str, least: float) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    metric = _metric(assertion, grading)
    if isinstance(metric, str) and metric.strip():
        settings["name"] = metric.strip()
    weight = assertion.get("weight")
    if is_number(weight):
        settings["weight"] = weight
    # An assertion of weight 0 always passes. With a threshold, the mean decides.
    settings["required"] = 0.0 if weight == 0 else least
    if grading.is_counted and weight != 0 and type_ in _UNLIMITED:
        settings["out_of_range"] = "error"
    if grading.has_threshold or weight == 0:
        settings["gate"] = False
    return settings


def _metric(assertion: dict[str, Any], grading: Grading) -> Any:
    """Return the metric of an assertion; a template that cannot be rendered stays as it is, as in promptfoo."""
    with suppress(ValueError):
        return rendered(assertion.get("metric"), grading.variables)
    return assertion["metric"]


def _value(value: Any, type_: str, grading: Grading) -> Any:
    if isinstance(value, str) and value.startswith("package:"):
        raise NoCounterpart(f"The value of '{type_}' is a function of the package {value}, which is not called")
    if _is_file(value):
        if type_ in ("javascript", "python"):
            return value
        if _CODE_FILE.match(value):
            raise NoCounterpart(f"The value of '{type_}' is the function {value}, which is not called")
        return grading.read_file(value)
    if isinstance(value, list):
        value = [grading.read_file(item) if _is_file(item) else item for item in value]
    check_templates(value)
    return value if isinstance(value, dict) else rendered(value, grading.variables)


def _is_file(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("file://")


def _translated(
    type_: str, value: Any, assertion: dict[str, Any], grading: Grading
) -> tuple[dict[str, Any] | None, float]:
    """Return the evaluator, and the minimum score of a pass."""
    threshold: Any = assertion.get("threshold")
    if type_ in TEXT_TYPES:
        default = OVERLAP.get(type_)
        least = minimum_of(threshold, default) if default else 1.0
        own = {"threshold": least} if type_ == "tool-call-f1" else {}  # without it, 0 never passes
        # A blank answer passes `is-refusal` with a score of 0.
        return {**text_entry(type_, value, threshold), **own}, 0.0 if type_ == "is-refusal" else least
    if type_ in ("javascript", "python"):
        is_free = type_ == "javascript" and (not isinstance(threshold, int | float) or threshold > 0)
        return _code_check(type_, value, assertion), ABOVE_ZERO if is_free else minimum_of(threshold, None)
    if type_ in JUDGED:
        return judged_entry(type_, value, assertion, grading)
    if type_ in EMBEDDED:
        texts = [text_of(item) for item in (value if isinstance(value, list) else [value])]
        if not any(texts):
            raise ValueError(f"The assertion '{type_}' has no value")
        target = grading.embedder(assertion.get("provider"))
        measure = type_.partition(":")[2] or "cosine"
        if measure == "cosine" and not (
            isinstance(value, list) or (is_number(threshold) and threshold <= 0) or grading.is_counted
        ):
            entry = {"type": "similarity", "method": "embedding", "value": texts[0], "target": target}
            return entry, minimum_of(threshold, 0.75)
        own = {"threshold": threshold} if is_number(threshold) else {}
        return {"type": "embedding_similarity", "measure": measure, "value": texts, "target": target, **own}, 0.0
    if type_ in CALL_TYPES:
        return call_entry(type_, grading.targets), 1.0
    if type_ in ("guardrails", "finish-reason"):
        return _reported(type_, value, grading), 1.0
    if type_.startswith("trajectory:"):
        return _trajectory(type_, value, grading), 1.0
    return _measured(type_, value, threshold), 1.0


def _reported(type_: str, value: Any, grading: Grading) -> dict[str, Any]:
    """Return the check of what a provider reports next to its answer. Raises ValueError if it does not here."""
    kinds = {str(entry["provider"]) for entry in grading.targets}
    if type_ == "finish-reason":
        return script_entry("finish_reason", value=text_of(value), isModel=not kinds <= {*_REPORTS[:-1]})
    if others := sorted(kinds - {*_REPORTS}):
        raise NoCounterpart(f"'guardrails' needs what the provider reports of them, which '{others[0]}' does not here")
    return script_entry("guardrails")


def _code_check(type_: str, value: Any, assertion: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"The assertion '{type_}' has no code")
    config = assertion.get("config")
    settings: dict[str, Any] = {"syntax": "promptfoo"}
    if isinstance(config, dict) and config:
        settings["config"] = config
    if is_number(assertion.get("threshold")):
        settings["threshold"] = assertion["threshold"]
    file = _CODE_FILE.match(value.strip())
    if type_ == "javascript":
        settings["on_throw"] = "fail"
        if file is None:
            return {"type": "javascript", "code": value.rstrip(), **settings}
        name = f":{file['name']}" if file["name"] else ""
        return {"type": "javascript", "file": file["file"] + name, **settings}
    if file is None:
        return {"type": "python", "code": value.rstrip(), **settings}
    return {"type": "python", "function": f"{file['file']}:{file['name'] or 'get_assert'}", **settings}


def _measured(type_: str, value: Any, threshold: Any) -> dict[str, Any] | None:
    limit = threshold if is_number(threshold) else None
    if type_ in ("latency", "cost"):
        if limit is None:
            raise ValueError(f"The assertion '{type_}' has no threshold")
        return {"type": "latency", "threshold": limit} if type_ == "latency" else {"type": "cost", "budget": limit}
    if type_ == "skill-used":
        matcher = value[0] if isinstance(value, list) and len(value) == 1 else value
        matcher = {"name": matcher} if isinstance(matcher, str) else matcher
        if not isinstance(matcher, dict) or matcher.keys() != {"name"}:
            raise NoCounterpart("'skill-used' is supported for one skill, without `pattern`, `min` and `max`")
        return {"type": "skill_trigger", "skill": text_of(matcher["name"]).strip()}
    return None


def _trajectory(type_: str, value: Any, grading: Grading) -> dict[str, Any] | None:
    """Return the evaluator for an assertion; None if it counts steps that are not recorded, such as messages."""
    kinds = value.get("type", "") if isinstance(value, dict) else "tool"
    known = ("tool", "command") if grading.has_commands else ("tool",)
    check = type_.removeprefix("trajectory:")
    has_kinds = all(kind in known for kind in (kinds if isinstance(kinds, list) else [kinds]))
    if check == "step-count" and not has_kinds:
        return None
    commands = {"commands": True} if grading.has_commands else {}
    return {"type": "tool_steps", "check": check, "value": value, **commands}
