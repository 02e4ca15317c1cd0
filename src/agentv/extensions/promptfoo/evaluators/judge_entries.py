"""What the assertions of one promptfoo test are translated with, and those that a model grades."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from agentv.datasets.foreign.foreign_format import Lose
from agentv.datasets.foreign.values import is_blank, object_at, text_of
from agentv.extensions.promptfoo.text_assertions import is_number
from agentv.extensions.promptfoo.transform_code import transforms_of

PromptForm = Literal["chat", "lines", "text"]
"""What a target receives of a text: it, the messages that it is the JSON of, or those that begin at its lines too."""

ABOVE_ZERO = 1e-9
"""The minimum of a number that passes if it is above 0."""

_GRADED = {
    "answer-relevance": "answer_relevance",
    "context-faithfulness": "faithfulness",
    "context-relevance": "context_relevance",
    "context-recall": "context_recall",
}
_READS = {
    **dict.fromkeys(("llm-rubric", "agent-rubric"), "json"),
    "model-graded-closedqa": "closed-qa",
    **dict.fromkeys(("factuality", "model-graded-factuality"), "factuality"),
}
"""How the reply to a `rubricPrompt` is read."""

_REPLIES = {
    "json": ("Output: {{ output }}\n\nRubric: {{ rubric }}", "JSON: {reason: text, pass: boolean, score: 0.0 to 1.0}"),
    "factuality": (
        "Question: {{ input }}\n\nExpert answer: {{ ideal }}\n\nSubmitted answer: {{ completion }}",
        "JSON with a `reason` and a `category`: A if the facts of the submitted answer are a subset of those of the"
        " expert, B if they are a superset, C if they are the same, D if they disagree, and E if they differ otherwise",
    ),
    "closed-qa": (
        "Question: {{ input }}\n\nAnswer: {{ completion }}\n\nCriterion: {{ criteria }}",
        "your reasons, and Y in the last line if the answer meets the criterion, or else N",
    ),
}
"""What a program that grades is asked if there is no `rubricPrompt`: the message, and the form of its reply."""

NEVER_NEGATED = {*_GRADED, *_READS} - {"llm-rubric", "agent-rubric"}
"""Types whose `not-` promptfoo ignores."""

_CATEGORIES = {"subset": "A", "superset": "B", "agree": "C", "disagree": "D", "differButFactual": "E"}
JUDGED_TYPES = {*_READS, "g-eval", *_GRADED}
JUDGED = frozenset({*JUDGED_TYPES, "trajectory:goal-success"})
"""Types that call a model."""

EMBEDDED = ("similar", "similar:cosine", "similar:dot", "similar:euclidean")
"""Types that compare embeddings."""


class Grading(msgspec.Struct, frozen=True):
    """What the assertions of one test are translated with.

    `judge` and `embedder` return the name of the target for a grader, given as a provider of promptfoo or None.
    `read_file` returns the content of a file that an assertion names. With `has_commands`, calls of a shell are
    commands, not tools. `options` are those of the test. `read_prompt` returns the text of a judge's prompt, and
    `form_of` what a target receives of it. `targets` are the entries of those that are evaluated, and
    `source_variables` are the variables before their templates and files are read. With `is_counted`, a mean decides,
    which in promptfoo has numbers below 0 or above 1 as they are.
    """

    variables: Mapping[str, Any]
    has_threshold: bool
    judge: Callable[[Any], str | None]
    embedder: Callable[[Any], str | None]
    read_file: Callable[[str], Any]
    lose: Lose
    templates: Mapping[str, Any] = {}
    has_commands: bool = False
    options: Mapping[str, Any] = {}
    read_prompt: Callable[[Any], str] = str
    form_of: Callable[[str | None], PromptForm] = lambda _: "chat"
    targets: Sequence[Mapping[str, Any]] = ()
    source_variables: Mapping[str, Any] = {}
    is_counted: bool = False


def minimum_of(threshold: Any, default: float | None) -> float:
    """Return the minimum score of a pass: the threshold of an assertion, or the default. Raises ValueError."""
    if is_number(threshold):
        if threshold > 1:
            raise ValueError(f"The threshold of an assertion is {threshold}, and no score is above 1")
        return max(0.0, float(threshold))
    return ABOVE_ZERO if default is None else default


def judged_entry(type_: str, value: Any, assertion: dict[str, Any], grading: Grading) -> tuple[dict[str, Any], float]:
    """Return the judge for an assertion, and the minimum score of a pass. Raises ValueError."""
    threshold = assertion.get("threshold")
    target = grading.judge(assertion.get("provider"))
    judge: dict[str, Any] = {"target": target} if target else {}
    prompt = assertion.get("rubricPrompt") or grading.options.get("rubricPrompt")
    if type_ == "agent-rubric":
        grading.lose("'agent-rubric': the judge reads files only if its target is a coding agent")
    has_own = bool(prompt) or type_ not in _READS or type_ == "agent-rubric" or is_blank(value)
    if not has_own and grading.form_of(target) == "text":
        message, form = _REPLIES[_READS[type_]]
        system = {"role": "system", "content": f"Judge the text of the user. Reply with {form}."}
        prompt = [system, {"role": "user", "content": message}]
    if prompt and type_ in _READS:
        judge |= {} if (form := grading.form_of(target)) == "chat" else {"form": form}
        judge |= _reading(type_, value, assertion, grading)
        return {"type": "model_graded", "prompt": grading.read_prompt(prompt), **judge}, 0.0
    if prompt and (type_ != "g-eval" or isinstance(prompt, dict)):
        grading.lose(f"'rubricPrompt' of '{type_}': the judge has a prompt of its own")
    if type_ in _GRADED:
        judge |= {"value": text_of(value)} if type_ == "context-recall" and not is_blank(value) else {}
        passages = transforms_of(assertion.get("contextTransform")) if type_ != "answer-relevance" else None
        own = {"type": "context_graded", "grades": _GRADED[type_], "passages": passages}
        return {**(own if passages else {"type": _GRADED[type_]}), **judge}, minimum_of(threshold, 0.0)
    if is_blank(value):
        raise ValueError(f"The assertion '{type_}' has no value")
    if "factuality" in type_:
        if grading.options.get("factuality"):
            grading.lose("'factuality' in the options of a test, which are scores of its categories")
        return {"type": "factuality", "value": text_of(value), **judge}, 1.0
    criteria = [text_of(item) for item in value] if isinstance(value, list) else [text_of(value)]
    if type_ in ("g-eval", "trajectory:goal-success") or is_number(threshold):
        entry: dict[str, Any] = {"type": "llm_judge", "prompt": "\n".join(criteria), **judge}
        if type_ == "trajectory:goal-success":
            entry["include_trace"] = True
        return entry, minimum_of(threshold, 0.7)
    return {"type": "rubric", "rubrics": criteria, **judge}, 1.0


def _reading(type_: str, value: Any, assertion: dict[str, Any], grading: Grading) -> dict[str, Any]:
    """Return the value for a prompt of the user, and how the reply to it is read."""
    if _READS[type_] == "json":
        limit = {"threshold": assertion["threshold"]} if is_number(assertion.get("threshold")) else {}
        return {"value": value or "", **limit}
    scores = object_at(grading.options, "factuality") if _READS[type_] == "factuality" else {}
    own = {_CATEGORIES[key]: score for key, score in scores.items() if key in _CATEGORIES}
    return {"value": text_of(value), "reads": _READS[type_], **({"scores": own} if own else {})}
