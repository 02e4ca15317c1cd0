"""The judge of promptfoo's model-graded assertions: a prompt in its templates, and a reply that is read as there."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Mapping
from typing import Any, Literal

from agentv.evaluators.base import LONGEST_REASON, Judge, cut
from agentv.evaluators.judges.llm_judge import combined
from agentv.extensions.promptfoo.evaluators.judge_entries import PromptForm
from agentv.extensions.promptfoo.functions.prompt_lines import messages_of_lines
from agentv.extensions.promptfoo.nunjucks.json_values import script_value
from agentv.extensions.promptfoo.nunjucks.prompt import rendered_rubric
from agentv.extensions.promptfoo.prompt_sources import chat_of
from agentv.model.evaluator import EvaluatorFailure, Score
from agentv.model.job import CallOverrides, Judgement
from agentv.model.message import Message
from agentv.support.javascript.values import stringify, to_number
from agentv.support.templates import TemplateProblem
from agentv.support.yaml.yaml_parser import YamlError, parse_yaml

_NAMES = {"json": ("rubric", "output"), "factuality": ("ideal", "completion"), "closed-qa": ("criteria", "completion")}
"""What a template calls the value and the answer."""

_CATEGORIES = {"A": 1.0, "B": 1.0, "C": 1.0, "D": 0.0, "E": 1.0}
_TRUE = re.compile(r"true|yes|pass|y", re.IGNORECASE)
_LETTER = re.compile(r"\s*\(?([a-eA-E])\)")
_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*"|https?://)|//')
_LONGEST_JSON = 100_000
_ROUNDING_ERROR = 1e-9

OutOfRange = Literal["limit", "error"]


class ModelGraded(Judge, frozen=True, kw_only=True):
    """A judge with a `rubricPrompt` of promptfoo: a template with the variables of the case, its answer and a `value`.

    The reply is read as in promptfoo: `json` has `pass`, `score` and `reason`, of which one is enough. `factuality` has
    a category from A to E with a score in `scores`; it names the answer `completion`, and the value `ideal`.
    `closed-qa` ends with Y. With `threshold`, the score must reach it. `inverse` expects a failure. A score below 0 or
    above 1 is limited, or an error. A prompt that is the JSON of messages is sent as a chat, or with the `form` `text`,
    as it is; with `lines`, lines such as `user: Hi` begin messages of any other text.
    """

    prompt: str
    value: Any = ""
    reads: Literal["json", "factuality", "closed-qa"] = "json"
    threshold: float | None = None
    scores: dict[str, float] = {}
    inverse: bool = False
    form: PromptForm = "chat"
    out_of_range: OutOfRange = "limit"

    def complaints(self) -> list[str]:
        """A blank prompt."""
        return [] if self.prompt.strip() else ["'prompt' is blank"]

    async def evaluate(self, judgement: Judgement) -> Score:
        """Call the judges, and combine their verdicts. Raises EvaluatorFailure for a reply without a verdict."""
        if judgement.ask is None or not judgement.judges:
            raise EvaluatorFailure("No judge is configured: pass --judge NAME, or set `target` or `judge_target`")
        messages = self._messages(judgement)
        calls = [
            (judge, CallOverrides(model=self.model, temperature=self.temperature, sample=sample))
            for sample in range(1, self.votes + 1)
            for judge in judgement.judges
        ]
        replies = await asyncio.gather(*(judgement.ask(judge, messages, overrides) for judge, overrides in calls))
        votes = [(judge, self._score(reply.text)) for (judge, _), reply in zip(calls, replies, strict=True)]
        return combined(votes, self.combine or "mean")

    def _messages(self, judgement: Judgement) -> tuple[Message, ...]:
        value, answer = _NAMES[self.reads]
        own = {value: self.value, answer: _parsed(judgement.candidate_answer)}
        question = {} if self.reads == "json" else {"input": judgement.question}
        try:
            text = rendered_rubric(self.prompt, {**(judgement.case.variables or {}), **question, **own})
            has_messages = self.form == "chat" or (self.form == "lines" and text.lstrip().startswith("["))
            chat = chat_of(text) if has_messages else ()
            chat = chat or (messages_of_lines(text) if self.form == "lines" else ())
        except (TemplateProblem, ValueError) as problem:
            raise EvaluatorFailure(f"Cannot render the judge's prompt: {problem}") from None
        if not all(isinstance(message["content"], str) for message in chat):
            raise EvaluatorFailure("The judge's prompt has a message whose content is not text")
        return tuple(Message(item["role"], item["content"]) for item in chat) or (Message("user", text),)

    def _score(self, reply: str) -> Score:
        """Return the score in a reply. Raises EvaluatorFailure if there is none."""
        if not reply:
            raise EvaluatorFailure("The judge gave no reply")
        read = {"json": self._graded, "factuality": self._categorized, "closed-qa": _answered}
        is_pass, score, reason = read[self.reads](reply)
        if self.inverse:
            is_pass, score = not is_pass, 1 - score
        return own_score(is_pass, score, reason, self.out_of_range)

    def _graded(self, reply: str) -> tuple[bool, float, str]:
        data = _first_object(reply)
        if not isinstance(data, Mapping):
            raise EvaluatorFailure(f"The judge gave no JSON: {cut(reply)}")
        verdict = data.get("pass")
        is_pass = verdict if isinstance(verdict, bool) else verdict is None or bool(_TRUE.fullmatch(_text(verdict)))
        score = to_number(data["score"]) if "score" in data else math.nan
        score = score if math.isfinite(score) else float(is_pass)
        if self.threshold is not None:
            is_pass = is_pass and score >= self.threshold
        return is_pass, score, _text(data.get("reason") or "")

    def _categorized(self, reply: str) -> tuple[bool, float, str]:
        data = _first_object(reply)
        category = data.get("category") if isinstance(data, Mapping) else None
        if isinstance(category, str) and category:
            category = category.strip().upper()
        else:
            match = _LETTER.search(reply)
            category = match[1].upper() if match else ""
        if category not in _CATEGORIES:
            raise EvaluatorFailure(f"The judge gave no category from A to E: {cut(reply)}")
        score = self.scores.get(category, _CATEGORIES[category])
        return score > 0, score, reply


def own_score(is_pass: bool, score: float, reason: str, out_of_range: OutOfRange = "limit") -> Score:
    """Return a score with a verdict of its own. A number below 0 or above 1 is limited, and kept in the details.

    Raises EvaluatorFailure for such a number if it is an error.
    """
    limited = min(1.0, max(0.0, float(score)))
    if out_of_range == "error" and abs(score - limited) > _ROUNDING_ERROR:
        raise EvaluatorFailure(f"The score is {score:g}, and a mean needs one from 0 to 1")
    reasoning = cut(reason, LONGEST_REASON) or None
    details = None if limited == score else {"returned": score}
    return Score(limited, reasoning=reasoning, details=details, verdict="pass" if is_pass else "fail")


def _answered(reply: str) -> tuple[bool, float, str]:
    is_pass = reply.rstrip().endswith("Y")
    return is_pass, float(is_pass), reply


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(stringify(value))


def _parsed(text: str) -> Any:
    """Return the data of an answer that is JSON, otherwise its text."""
    try:
        return script_value(text)
    except (ValueError, RecursionError):
        return text


def _first_object(text: str) -> Any:
    """Return the first object in a text, which may be written as YAML, and be cut off; None if there is none."""
    start = text.find("{")
    while start != -1:
        depth, end = 0, start
        for end in range(start, min(start + _LONGEST_JSON, len(text))):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            if not depth:
                break
        source = _COMMENT.sub(lambda match: match[1] or "#", text[start : end + 1]) + "}" * depth
        try:
            return parse_yaml(source.encode("utf-8", "replace"))
        except (YamlError, RecursionError):
            start = text.find("{", start + 1)
    return None
