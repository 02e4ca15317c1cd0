"""Translate the assertions of AgentV (TypeScript) 5 to evaluators.

Most have a type of ours and are only renamed; those of promptfoo are translated like promptfoo's. Plain texts are the
criteria of one rubric. The score of a case is the weighted mean, so that an assertion gates it only if it is required.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from agentv.datasets.foreign.values import object_at, text_of
from agentv.extensions.promptfoo.agentv5.earlier_forms import listed
from agentv.extensions.promptfoo.agentv5.positions import placed_list, placed_row
from agentv.extensions.promptfoo.assertion_entries import REFUSED, entries_of
from agentv.extensions.promptfoo.config_templates import is_template, names_of, rendered_strictly
from agentv.extensions.promptfoo.evaluators.judge_entries import EMBEDDED, JUDGED, Grading
from agentv.extensions.promptfoo.transform_code import transforms_of
from agentv.settings.evaluator_reader import with_agentv_defaults

_RUBRIC = "llm-rubric"
_PROMPT = "rubric_prompt"
_AGENT = "agent-rubric"
_AGENT_LOSS = (
    "'agent-rubric': the judge sees the file changes, and reads no files itself unless its target is a coding agent"
)
_GATES = ("required", "min_score", "negate")
_OF_PROMPTFOO = frozenset(
    {
        *REFUSED,
        *EMBEDDED,
        *(JUDGED - {_RUBRIC, _AGENT}),
        *("javascript", "python", "contains-json", "levenshtein", "rouge-n", "word-count", "skill-used", "is-refusal"),
        *("gleu", "contains-html", "tool-call-f1", "select-best", "max-score"),
    }
)
_NOT_RENDERED = ("type", "metric", "name", "prompt", "command", "cwd", "config", "fields")
"""Keys whose braces are not variables of the test, such as `{{ output }}` in the prompt of a judge."""

_MOST_TEMPLATES = 3
_TRAJECTORY = "trajectory:"
_CODE = ("javascript", "python", "script")


def evaluators_of(assertions: Any, grading: Grading, transform: Any = None) -> list[Any]:
    """Return the evaluators for a list of assertions. `transform` is the test's own. Raises ValueError."""
    evaluators: list[Any] = []
    for assertion in _with_templates(assertions, grading, _MOST_TEMPLATES):
        if isinstance(assertion, str) and assertion.startswith("file://"):
            loaded = grading.read_file(assertion)
            evaluators += evaluators_of(loaded if isinstance(loaded, list) else [loaded], grading, transform)
        elif isinstance(assertion, str):
            evaluators.append(_inserted(assertion, grading))
        elif isinstance(assertion, dict):
            entries = _entries(dict(assertion), grading, transform)
            evaluators += [placed_row(entry, assertion, {"evaluators": "assert"}) for entry in entries]
        else:
            raise ValueError(f"An assertion must be an object or a text, got {text_of(assertion)[:80]}")
    return placed_list(_with_rubric(evaluators, grading, transform))


def _template(name: str, grading: Grading) -> Any:
    """Return a template of the project, or the file at a path. Raises ValueError."""
    if name.startswith(".") or set(name) & set("/\\"):
        return grading.read_file(name)
    try:
        return grading.read_file(f".agentv/templates/{name}.yaml")
    except ValueError:
        with suppress(ValueError):
            return grading.read_file(f".agentv/templates/{name}.yml")
        raise


def _with_templates(assertions: Any, grading: Grading, depth: int) -> list[Any]:
    """Return a list of assertions with those of the templates that it includes, which may include others."""
    expanded: list[Any] = []
    for assertion in listed(assertions):
        if not isinstance(assertion, dict) or assertion.keys() != {"include"}:
            expanded.append(assertion)
            continue
        name = text_of(assertion["include"])
        if not depth:
            raise ValueError(f"'{name}' is included by more than {_MOST_TEMPLATES} templates")
        template = _template(name, grading)
        if not isinstance(template, dict) or not isinstance(template.get("assert"), list):
            raise ValueError(f"The template '{name}' must have a list 'assert'")
        expanded += _with_templates(template["assert"], grading, depth - 1)
    return expanded


def _with_rubric(evaluators: list[Any], grading: Grading, transform: Any) -> list[Any]:
    """Return the list with its texts as one rubric if it needs a judge or a transform; otherwise as they are."""
    judge, steps, prompt = grading.judge(None), transforms_of(transform), grading.options.get(_PROMPT)
    texts = [entry for entry in evaluators if isinstance(entry, str)]
    if (judge is None and steps is None and prompt is None) or not texts:
        return evaluators
    first = next(index for index, entry in enumerate(evaluators) if isinstance(entry, str))
    rubric: dict[str, Any] = {"type": "rubric", "rubrics": texts, "weight": len(texts)}
    settings = (("target", judge), ("transform", steps), ("prompt", prompt))
    rubric |= {key: value for key, value in settings if value is not None}
    return [*evaluators[:first], rubric, *(entry for entry in evaluators[first:] if not isinstance(entry, str))]


def _entries(assertion: dict[str, Any], grading: Grading, transform: Any) -> list[dict[str, Any]]:
    full_type = text_of(assertion.get("type"))
    type_ = full_type.removeprefix("not-")
    if type_ == "assert-set":
        return [_set_entry(assertion, grading, transform)]
    if type_ in _OF_PROMPTFOO or type_.startswith(_TRAJECTORY):
        return _translated(assertion, type_, grading, transform)
    if type_ == "cost" and "threshold" in assertion:
        assertion["budget"] = assertion.pop("threshold")
    if type_ == _AGENT:
        grading.lose(_AGENT_LOSS)
        assertion = {key: value for key, value in assertion.items() if key != "max_steps"} | {"type": _RUBRIC}
        return _entries(assertion, grading, transform)
    entry = {key: value if key in _NOT_RENDERED else _inserted(value, grading) for key, value in assertion.items()}
    if type_ == _RUBRIC and isinstance(entry.get("value"), str) and entry["value"].startswith("file://"):
        entry["value"] = _inserted(grading.read_file(entry["value"]), grading)
    if type_ == _RUBRIC and grading.options.get(_PROMPT) is not None:
        entry.setdefault("prompt", grading.options[_PROMPT])
    judge = _judge(entry, type_, grading)  # which removes `provider`
    entries: list[dict[str, Any]] = [_common({**entry, **judge}, assertion, transform)]
    return list(with_agentv_defaults(entries, lists_tests="agentv-4"))


def _judge(entry: dict[str, Any], type_: str, grading: Grading) -> dict[str, Any]:
    """Return the target of a judge, and the settings of a program that may call a target."""
    provider = entry.pop("provider", None)
    if type_ == "script":
        return {} if provider is None else {"target": provider}
    name = grading.judge(provider) if provider is not None or type_ == _RUBRIC else None
    return {"target": name} if name and "target" not in entry else {}


def _common(entry: dict[str, Any], assertion: dict[str, Any], transform: Any) -> dict[str, Any]:
    """Return an entry with its name, and with the transforms of the test and its own."""
    entry = {key: value for key, value in entry.items() if key not in ("metric", "transform")}
    metric = assertion.get("metric")
    if isinstance(metric, str) and metric.strip():
        entry["name"] = metric.strip()
    steps = transforms_of(transform, assertion.get("transform"))
    return {**entry, "transform": steps} if steps else entry


def _set_entry(assertion: dict[str, Any], grading: Grading, transform: Any) -> dict[str, Any]:
    """Return a composite with the mean of its members. Its threshold matters only if the set is required."""
    config, assertions = object_at(assertion, "config"), assertion.get("assert")
    if config and isinstance(assertions, list):
        assertions = [_with_config(member, config) for member in assertions]
    members = evaluators_of(assertions, grading)
    if not members:
        raise ValueError("An assert-set has no assertions that can be kept")
    settings = {key: value for key, value in assertion.items() if key not in ("type", "assert", "threshold", "config")}
    entry = {**settings, "type": "composite", "evaluators": members, "aggregator": "weighted_average"}
    if assertion.get("threshold") is not None and assertion.get("required") is True:
        entry["required"] = assertion["threshold"]
    elif assertion.get("threshold") is not None:
        grading.lose("'threshold' of an assert-set that is not required: the threshold of the case decides")
    return _common(entry, assertion, transform)


def _with_config(member: Any, config: dict[str, Any]) -> Any:
    """Return a member of a set with the configuration of the set, if it is a program."""
    if not isinstance(member, dict) or text_of(member.get("type")).removeprefix("not-") not in _CODE:
        return member
    return placed_row({**member, "config": {**config, **object_at(member, "config")}}, member, {})


def _translated(assertion: dict[str, Any], type_: str, grading: Grading, transform: Any) -> list[dict[str, Any]]:
    """Return the evaluator of a type of promptfoo; none if it cannot be kept, which is a loss."""
    value = assertion.get("value")
    if type_.startswith(_TRAJECTORY) and isinstance(value, dict) and "tool" in value:
        assertion["value"] = {"name": value["tool"], **{key: item for key, item in value.items() if key != "tool"}}
    if type_ in EMBEDDED and isinstance(assertion.get("config"), dict) and "embedding_provider" in assertion["config"]:
        raise ValueError("'embedding_provider' of 'similar' is not supported. Name a target of the project: `provider`")
    if type_ not in _CODE:
        _inserted(value, grading)  # counts names that are not variables
    if type_.startswith(_TRAJECTORY) and assertion.pop("negate", False):
        is_negated = assertion["type"] == type_
        assertion["type"] = f"not-{type_}" if is_negated else type_
    plain = {key: item for key, item in assertion.items() if key not in _GATES}
    entries = entries_of([plain], grading, transform)
    gates: dict[str, Any] = {key: assertion[key] for key in ("required", "min_score") if key in assertion}
    is_twice = bool(assertion.get("negate"))
    return [{**_without_gate(entry), **gates, "negate": entry.get("negate", False) != is_twice} for entry in entries]


def _without_gate(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an evaluator without the minimum of promptfoo: here the threshold of the case decides."""
    return {key: value for key, value in entry.items() if key not in ("required", "gate")}


def _inserted(value: Any, grading: Grading) -> Any:
    """Return a value with the variables of the test inserted; other names become empty, which is a loss."""
    for text in texts_in(value):
        for name in sorted(names_of(text) - grading.variables.keys() - {"vars"}):
            grading.lose(f"'{{{{ {name} }}}}' in an assertion: the test has no such variable, so that it is empty")
        if is_template(text) and with_variables(text, grading.variables) == text:
            grading.lose(f"'{text[:80]}' in an assertion cannot be rendered, and is left as it is")
    return with_variables(value, grading.variables)


def with_variables(value: Any, variables: Mapping[str, Any]) -> Any:
    """Return a value with variables inserted, which may be called `name` or `vars.name`."""
    return rendered_strictly(value, {"vars": variables, **variables})


def texts_in(value: Any) -> list[str]:
    """Return all texts in a value."""
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in items for text in texts_in(item)]
