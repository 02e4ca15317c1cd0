"""Shared parts of evaluator types: settings and their checks, the reference answer, and scores with sentences."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from agentv.errors import start_of
from agentv.model.diagnostics import Problems
from agentv.model.evaluator import COMMON_KEYS as RESERVED
from agentv.model.evaluator import OTHER_TOOLS, Evaluator, EvaluatorFailure, Needs, Score
from agentv.model.job import Judgement

__all__ = ["OTHER_TOOLS", "RESERVED", "Evaluator"]

CALLS_UNKNOWN = "The calls of the target are unknown: it did not report 'output_messages'"
NEEDS_CONTEXT = "needs the case's 'context', which is empty"

_SCRIPT_SUFFIXES = (".py", ".js", ".ts", ".mjs", ".cjs", ".sh", ".rb")

Share = Annotated[float, Meta(ge=0, le=1)]
Limit = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(gt=0)]
Weight = Annotated[float, Meta(ge=0)]


class PromptProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A program that prints the judge's prompt. It receives the same input as a code judge, including `config`."""

    aliases: ClassVar[dict[str, str]] = {"command": "script"}

    script: str | list[str]
    cwd: str | None = None
    timeout_seconds: Seconds = 60.0
    config: dict[str, Any] = {}


Prompt = str | list[str | dict[str, Any]] | PromptProgram
"""Text, a file path, a list of messages, the arguments of a program, or a program with settings."""


class Judge(Evaluator, frozen=True, kw_only=True):
    """Settings of every type that calls a judge. `model` and `temperature` override those of the judge's target.

    `votes` is the number of calls to each judge. `combine` merges several votes into one score: `mean`, or `majority`
    for the most frequent one. The default is the mean for scores and the majority for a rubric's checks.
    `include_trace` adds the tool calls to the prompt.
    """

    votes: Annotated[int, Meta(ge=1, le=100)] = 1
    combine: Literal["mean", "majority"] | None = None
    model: str | None = None
    temperature: Limit | None = None
    include_trace: bool = False

    @property
    def needs(self) -> Needs:
        """One judge call per vote."""
        return Needs(judge_calls=self.votes)

    @property
    def runs_code(self) -> bool:
        """Whether a program writes the prompt or converts files of the answer."""
        return bool(getattr(self, "preprocessors", ())) or not is_template(getattr(self, "prompt", None))


def is_template(prompt: Prompt | None) -> bool:
    """Return whether a prompt is text or messages, as opposed to a program that prints one."""
    if isinstance(prompt, PromptProgram):
        return False
    return isinstance(prompt, str | None) or all(isinstance(item, dict) for item in prompt)


def has_context(context: Iterable[str]) -> bool:
    """Return whether any passage is not blank."""
    return any(passage.strip() for passage in context)


def program_complaints(field: str, program: str | list[str]) -> list[str]:
    """Return the problems of a program given as a shell string or a list of arguments."""
    if isinstance(program, str):
        return [] if program.strip() else [f"'{field}' is blank"]
    return [] if program and program[0].strip() else [f"'{field}' must name a program"]


def script_problems(script: str | list[str], folder: str) -> Problems:
    """Warn about each word of a command that looks like a script but does not exist."""
    problems = Problems()
    folder = os.path.normpath(folder)
    for index, word in enumerate(script.split() if isinstance(script, str) else script):
        if word.endswith(_SCRIPT_SUFFIXES) and not os.path.exists(os.path.join(folder, word)):
            place = () if isinstance(script, str) else (index,)
            problems.warning(place, f"The script '{word}' was not found in {folder}")
    return problems


def prompt_complaints(prompt: Prompt | None) -> list[str]:
    """Return the problems of a judge's prompt in any of its forms."""
    if isinstance(prompt, PromptProgram):
        return program_complaints("prompt.script", prompt.script)
    if isinstance(prompt, str):
        return [] if prompt.strip() else ["'prompt' is blank"]
    if prompt is None:
        return []
    if not prompt:
        return ["'prompt' is an empty list"]
    messages = [item for item in prompt if isinstance(item, dict)]
    if messages and len(messages) < len(prompt):
        return ["'prompt' mixes messages with strings; use only messages, or only the arguments of a program"]
    return [
        f"'prompt[{index}]' is not a message: it needs 'role' (system, user or assistant) and 'content' (a string)"
        for index, message in enumerate(messages)
        if message.get("role") not in ("system", "user", "assistant") or not isinstance(message.get("content"), str)
    ]


Scalar = str | int | float | bool
"""A value that is compared as text; YAML reads `value: 42` as a number."""

Scalars = Annotated[list[Scalar], Meta(min_length=1)]

BLANK = "is blank, so every answer would pass"


class AgainstReference(Evaluator, frozen=True, kw_only=True, dict=True):
    """A check that uses the reference answer when `value` is not set. Subclasses define the type of `value`."""

    @property
    def needs(self) -> Needs:
        """The expected output, unless `value` is set."""
        return Needs(reference=getattr(self, "value", None) is None)

    def texts(self, judgement: Judgement) -> list[str]:
        """Return the texts to compare with: those of `value`, or of the reference answer."""
        return self._value_texts or _texts_of(reference_value(judgement))

    @cached_property
    def _value_texts(self) -> list[str]:
        value, exact = getattr(self, "value", None), getattr(self, "exact", False)
        return [] if value is None else _texts_of(value, exact)


def _texts_of(value: Any, exact: bool = False) -> list[str]:
    return [written(item, exact) for item in (value if isinstance(value, list) else [value])]


def written(value: Any, exact: bool) -> str:
    """Return the text a value is compared as: strings are trimmed unless exact, booleans and data become JSON."""
    if isinstance(value, str):
        return value if exact else value.strip()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return msgspec.json.encode(value).decode()
    return str(value)


def reference_text(judgement: Judgement) -> str:
    """Return the trimmed reference answer. Raises EvaluatorFailure if the case has none."""
    if not judgement.has_reference:
        raise EvaluatorFailure("The check needs a 'value' or an expected_output")
    return judgement.reference_answer.strip()


def reference_value(judgement: Judgement) -> Any:
    """Return the reference answer: data unchanged, anything else as text."""
    text = reference_text(judgement)
    content = judgement.case.expected_output[-1].content
    return text if content is None or isinstance(content, str | tuple) else content


LONGEST_SENTENCE = 200
LONGEST_REASON = 2000
MOST_SENTENCES = 50
_LAST_BITS = 1e-9
"""Tolerance for rounding errors: a mean or a sum may miss 1 or a limit by the last bits."""


def quoted(value: Any) -> str:
    """Format a value for a sentence: on one line, in quotes, shortened if long."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return f"'{cut(' '.join(text[: 4 * LONGEST_SENTENCE].split()))}'"


def cut(text: str, longest: int = LONGEST_SENTENCE) -> str:
    """Shorten a text to at most `longest` characters, with an ellipsis."""
    return start_of(text, longest)


def bounded(sentences: tuple[str, ...]) -> tuple[str, ...]:
    """Limit the number and length of a model's sentences, so that records stay small."""
    return tuple(cut(sentence, LONGEST_REASON) for sentence in sentences[:MOST_SENTENCES])


def passed(*sentences: str) -> Score:
    """Score 1, with sentences about what was found."""
    return Score(1.0, hits=sentences)


def missed(*sentences: str) -> Score:
    """Score 0, with sentences about what was missing."""
    return Score(0.0, misses=sentences)


def pass_if(holds: bool, sentence: str) -> Score:
    """Score 1 or 0, with the same sentence for both."""
    return passed(sentence) if holds else missed(sentence)


def check_sizes(one: int, other: int, most: float, unit: str = "characters") -> None:
    """Refuse to compare texts whose comparison, which takes time for each pair of units, would block the run."""
    if one * other > most:
        sizes = f"{one:,} {unit} with {other:,}"
        raise EvaluatorFailure(f"Cannot compare {sizes}: it would take too long. Shorten the answer with 'transform'")


def similarity_score(similarity: float, threshold: float | None, sentence: str) -> Score:
    """Score a similarity: the value itself, or 0 or 1 if there is a threshold."""
    if threshold is None:
        return Score(similarity, reasoning=sentence)
    return pass_if(round(similarity, 12) >= threshold, f"{sentence}; required: at least {threshold:.3g}")


def within(value: float, limit: float) -> bool:
    """Return whether a value is at most a limit, allowing for rounding errors."""
    return value <= limit or math.isclose(value, limit, rel_tol=_LAST_BITS, abs_tol=0.0)


def checked_score(value: Any, source: str) -> float:
    """Return a score from `source` if it is a number from 0 to 1. Raises EvaluatorFailure otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        try:
            text = msgspec.json.encode(value).decode()
        except (TypeError, ValueError):
            text = repr(value)
        raise EvaluatorFailure(f"{source} gave a score that is not a number: {cut(text)}")
    if not -_LAST_BITS <= value <= 1 + _LAST_BITS:
        raise EvaluatorFailure(f"{source} gave {value} as its score; a score is a number from 0 to 1")
    return min(1.0, max(0.0, float(value)))


def checked_assertions(value: Any, of: str) -> tuple[list[str], list[str], float | None]:
    """Read the assertions of 4.x: those that passed, those that failed, and the fraction that passed."""
    if value is None or value == []:
        return [], [], None
    items: list[Any] = value if isinstance(value, list) else [value]
    if not all(isinstance(item, dict) and ("passed" in item or "pass" in item) for item in items):
        raise EvaluatorFailure(f"'assertions' of {of} must be a list of {{text, passed}}")
    texts: dict[bool, list[str]] = {True: [], False: []}
    for item in items:
        text, evidence = str(item.get("text", "")), item.get("evidence") or item.get("reason")
        is_passed = str(item.get("passed", item.get("pass"))).lower() == "true"  # judges also write "True"
        texts[is_passed].append(f"{text} ({evidence})" if evidence else text)
    return texts[True], texts[False], len(texts[True]) / len(items)


def checked_sentences(value: Any, source: str) -> tuple[str, ...]:
    """Return the hits or misses from `source`: a list of strings, one string, or null for none."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list | tuple):
        raise EvaluatorFailure(f"{source} must be a list of strings, got {type(value).__name__}")
    return tuple(item if isinstance(item, str) else msgspec.json.encode(item).decode() for item in value)


def find_path(judgement: Judgement, file: str) -> str:
    """Find a file named in an evaluator's settings. Relative results count from the dataset's folder."""
    return os.path.join(judgement.workdir, judgement.find_file(file))


def stamp_of(path: str) -> tuple[int, int]:
    """Return the modification time and size of a file, which identify its version. Raises OSError."""
    status = os.stat(path)
    return status.st_mtime_ns, status.st_size
