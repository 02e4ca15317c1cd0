"""Build the prompt for a judge: a built-in or custom template, filled with the answer and its case.

In built-in prompts, every text is in a block with delimiters that contain a code. The code is derived from all the
texts and occurs in none of them, so no text can end its block. Custom prompts have delimiters of their own; where one
of them occurs in an inserted text, it is broken up.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from agentv.evaluators.base import Prompt, PromptProgram, is_template
from agentv.evaluators.code.payload import program_input
from agentv.model.diagnostics import KeyPath, Problems, did_you_mean
from agentv.model.evaluator import EvaluatorFailure, FileReference, FindFile
from agentv.model.job import Judgement
from agentv.model.message import Message
from agentv.model.values import digest
from agentv.support.templates import TemplateProblem, is_file_name, names_in, render

VARIABLES = (
    *("question", "candidate_answer", "reference_answer", "expected_outcome", "context"),
    *("input_messages", "expected_messages", "output_messages", "rubrics"),
)
"""The variables of built-in prompts."""

_OTHER_NAMES = {
    "criteria": "expected_outcome",
    "input": "question",
    "output": "candidate_answer",
    "answer": "candidate_answer",
    "expected_output": "reference_answer",
    "rubrics_json": "rubrics",
    "input_text": "question",
    "output_text": "candidate_answer",
    "expected_output_text": "reference_answer",
}
"""Names of the same variables in AgentV (TypeScript) 4.x."""

_MORE: dict[str, Callable[[Judgement], Any]] = {
    "tool_calls": lambda judgement: _calls_in(judgement.output_messages),
    "file_changes": lambda judgement: judgement.file_changes or "",
    "metadata": lambda judgement: judgement.case.metadata or "",
    "metadata_json": lambda judgement: judgement.case.metadata or "",
}
"""Variables of custom prompts only, also named as in 4.x."""

PROMPT_VARIABLES = (*VARIABLES, *_OTHER_NAMES, *_MORE)
"""The variables of custom prompts."""

_ANSWER_VARIABLES = frozenset({"candidate_answer", "output_messages", "output", "answer", "output_text"})

PROMPTS = Path(__file__).parent / "prompts"
_PLACEHOLDER = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_DELIMITER = re.compile(r"(?=.{3}).*[^\w\s].*[^\w\s]", re.DOTALL)
_BREAK = "\u200b"
"""A zero-width space: a delimiter that contains it looks the same but no longer delimits."""


class JudgePrompt(msgspec.Struct, frozen=True):
    """The messages for a judge, and the texts in them that others wrote."""

    messages: tuple[Message, ...]
    quoted: tuple[str, ...]


class Material(msgspec.Struct, frozen=True):
    """The values of the prompt variables, and optionally `trace`, the tool calls that led to the answer."""

    values: dict[str, Any]
    trace: str | None = None

    @property
    def code(self) -> str:
        """The code in the delimiters of blocks: a hash of the texts that occurs in none of them."""
        code = digest([self.values, self.trace])[:12]
        while any(code in text for text in self.texts(self.values)):
            code = digest(code)[:12]
        return code

    def texts(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return all texts in some of the variables, and in the trace."""
        return tuple(_texts_in([*(self.values.get(name) for name in names), self.trace]))


def material_of(
    judgement: Judgement, *, rubrics: Any = (), reference: str | None = None, include_trace: bool = False
) -> Material:
    """Return the material for a judge. `reference` replaces the reference answer; a trace has one call per line."""
    calls = map(msgspec.json.encode, _calls_in(judgement.output_messages)) if include_trace else ()
    trace = "\n".join(call.decode() for call in calls) or "No tool was called."
    return Material(
        {
            **{name: getattr(judgement, name) for name in VARIABLES if name != "rubrics"},
            "reference_answer": judgement.reference_answer if reference is None else reference,
            "context": list(judgement.context),
            "rubrics": msgspec.to_builtins(rubrics),
        },
        trace if include_trace else None,
    )


def built_in(name: str, form: str, material: Material, criteria: str = "", **more: Any) -> JudgePrompt:
    """Fill a built-in prompt. `form` names the file that describes the required response.

    `criteria` replace the expected outcome. Their author is trusted, as is that of `more`: they are not in a block.
    """
    code = material.code
    blocks = {key: _block(key, value, code) for key, value in material.values.items()}
    text = _builtin(name, {**blocks, "criteria": criteria, **more})
    if material.trace:
        text += "\n\n" + _trace_text(material.trace, code)
    return JudgePrompt((_system(form, code), Message("user", text)), material.texts(material.values))


async def judge_prompt(
    prompt: Prompt | None, name: str, form: str, material: Material, judgement: Judgement
) -> JudgePrompt:
    """Fill a custom prompt of any form, or the built-in prompt `name` if there is none.

    A text without variables is the criteria of the built-in prompt. Other custom prompts come after a built-in system
    message that describes the required response, and before the answer if they do not contain it.
    """
    if prompt is None:
        return built_in(name, form, material)
    values = material.values
    if not is_template(prompt):
        messages: tuple[Message, ...] = (Message("user", await _printed(prompt, judgement)),)
    else:
        templates = _templates(prompt, judgement.find_file)
        used = _variables_in(templates)
        if not used and isinstance(prompt, str):
            return built_in(name, form, material, _rendered(templates[0], {}).strip())
        values = _values_of(used, material, judgement)
        messages = tuple(Message(message.role, _rendered(message, values)) for message in templates)
        if not used & _ANSWER_VARIABLES and used.issubset(PROMPT_VARIABLES):
            values["candidate_answer"] = material.values["candidate_answer"]
            answer = _block("candidate_answer", values["candidate_answer"], material.code)
            messages = (*messages, Message("user", _builtin("answer", {"candidate_answer": answer})))
    if material.trace:
        messages = (*messages, Message("user", _trace_text(material.trace, material.code)))
    return JudgePrompt((_system(form, ""), *messages), Material(values, material.trace).texts(values))


def _variables_in(templates: Iterable[Message]) -> frozenset[str]:
    try:
        return frozenset(name for message in templates for name in names_in(str(message.content)))
    except TemplateProblem as error:
        raise EvaluatorFailure(f"The judge's prompt is not a valid template: {error}") from None


def _values_of(names: Iterable[str], material: Material, judgement: Judgement) -> dict[str, Any]:
    """Return the values of a custom prompt's variables, without unknown ones."""
    ours = {name: _OTHER_NAMES.get(name, name) for name in names}
    values = {name: material.values[our] for name, our in ours.items() if our in material.values}
    return values | {name: _MORE[name](judgement) for name in ours if name in _MORE}


def repair_message(reason: str) -> Message:
    """Return the message to a judge whose response cannot be used."""
    return Message("user", _builtin("repair", {"reason": reason}))


def builtin_prompts(name: str, form: str, *, include_trace: bool) -> tuple[str, ...]:
    """Return the built-in texts that a judge may receive. Scores depend on them, and they may change between versions.

    A custom prompt may be the criteria of the built-in one, or come before the answer.
    """
    parts = (name, "answer", "trace" if include_trace else None, "system", form, "repair")
    return tuple(prompt_text(part) for part in parts if part is not None)


def prompt_references(
    prompt: Prompt | None, path: KeyPath = ("prompt",), variables: tuple[str, ...] = PROMPT_VARIABLES
) -> Iterator[FileReference]:
    """Yield the reference to a custom prompt. Its check reports unknown variables."""
    if prompt is not None:
        runs: Literal["", "command"] = "" if is_template(prompt) else "command"
        yield FileReference(path, prompt, lambda find_file, _: _problems(prompt, find_file, variables), executes=runs)


def _problems(prompt: Prompt, find_file: FindFile, variables: tuple[str, ...]) -> Problems:
    problems = Problems()
    if not is_template(prompt):
        return problems
    used: set[str] = set()
    for message in _templates(prompt, find_file):
        try:
            used |= names_in(str(message.content))
        except TemplateProblem as error:
            problems.error((), f"The prompt is not a valid template: {error}")
            return problems
    for name in sorted(used - set(variables)):
        hint = did_you_mean(name, variables) or f"Known: {', '.join(variables)}"
        problems.error((), f"The prompt uses an unknown variable '{name}'", hint)
    return problems


def _templates(prompt: Any, find_file: FindFile) -> tuple[Message, ...]:
    if isinstance(prompt, str):
        if not is_file_name(prompt):
            return (Message("user", prompt),)
        path = find_file(prompt.strip().removeprefix("file://"))
        return (Message("user", _read_at(path, os.stat(path).st_mtime_ns)),)
    return tuple(Message(item["role"], item["content"]) for item in prompt)


@lru_cache(maxsize=64)
def _read_at(path: str, _changed_ns: int) -> str:
    return Path(path).read_text(encoding="utf-8-sig")


@lru_cache(maxsize=64)
def prompt_text(name: str) -> str:
    """Return the text of a built-in prompt or of a part of one."""
    return (PROMPTS / f"{name}.md").read_text(encoding="utf-8")


def _builtin(name: str, values: Mapping[str, Any]) -> str:
    return render(prompt_text(name), values).strip()


def _system(form: str, code: str) -> Message:
    return Message("system", _builtin("system", {"form": prompt_text(form).strip(), "code": code}))


def _trace_text(trace: str, code: str) -> str:
    return _builtin("trace", {"trace": _block("trace", trace, code)})


def _block(name: str, value: Any, code: str) -> Any:
    """Put delimiters around a text, or around each text of a list. An empty value stays empty."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return [_block(f"{name}_{number}", item, code) for number, item in enumerate(value, 1)]
    if not value:
        return ""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return f"<<<{name} {code}\n{text}\n{name} {code}>>>"


def _rendered(template: Message, values: Mapping[str, Any]) -> str:
    text = str(template.content)
    delimiters = _delimiters_in(text)
    try:
        return render(text, {name: _break_up(value, delimiters) for name, value in values.items()})
    except TemplateProblem as error:
        raise EvaluatorFailure(f"Cannot render the judge's prompt: {error}") from None


def _delimiters_in(template: str) -> tuple[str, ...]:
    """Return the delimiters around the placeholders of a template, longest first.

    These are the adjacent line and the adjacent word, unless they are ordinary words or labels.
    """
    literals = _PLACEHOLDER.split(template)
    before = [line for literal in literals[:-1] for line in literal.strip().splitlines()[-1:]]
    after = [line for literal in literals[1:] for line in literal.strip().splitlines()[:1]]
    candidates = {*before, *after, *(line.split()[-1] for line in before), *(line.split()[0] for line in after)}
    return tuple(delimiter for delimiter in sorted(candidates, key=len, reverse=True) if _DELIMITER.search(delimiter))


def _break_up(value: Any, delimiters: tuple[str, ...]) -> Any:
    if isinstance(value, str):
        for delimiter in delimiters:
            # Ignoring case: a model also accepts </ANSWER> as the end of <answer>.
            pattern = re.compile(re.escape(delimiter), re.IGNORECASE)
            value = pattern.sub(lambda match: match[0][0] + _BREAK + match[0][1:], value)
        return value
    if isinstance(value, dict):
        return {key: _break_up(item, delimiters) for key, item in value.items()}
    return [_break_up(item, delimiters) for item in value] if isinstance(value, list) else value


def _calls_in(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [call for message in messages for call in message.get("tool_calls", ())]


async def _printed(prompt: Any, judgement: Judgement) -> str:
    """Return the output of a custom program, which receives the same input as a code judge."""
    from agentv.evaluators.code.program import Program  # late: it needs asyncio, and settings are read without it

    settings = prompt if isinstance(prompt, PromptProgram) else PromptProgram(script=prompt)
    text = await Program.of(settings, judgement).run(program_input(judgement, settings.config))
    if not text.strip():
        raise EvaluatorFailure("The program for the judge's prompt printed nothing")
    return text


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(item)
