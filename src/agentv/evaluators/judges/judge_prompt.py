"""What a judge is sent: a prompt of ours or the user's, with the answer and all around it put in as material.

In our own prompts every text stands in a block whose marks carry a code that is made from all the texts and occurs in
none of them, so that nothing inside can end its block. In a user's prompt the marks are the user's: where a text that
is put in has one of them, it is broken up.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from agentv.evaluators.base import Prompt, PromptProgram, is_template
from agentv.evaluators.code.judge_io import program_input
from agentv.model.evaluator import EvaluatorFailure, FileReference, FindFile
from agentv.model.job import Judgement
from agentv.model.message import Message
from agentv.model.values import digest
from agentv.settings.diagnostics import KeyPath, Problems, did_you_mean
from agentv.support.templates import TemplateProblem, is_file_name, names_in, render

VARIABLES = (
    *("question", "candidate_answer", "reference_answer", "expected_outcome", "context"),
    *("input_messages", "expected_messages", "output_messages", "rubrics"),
)
"""What a prompt can use."""

OF_THE_ANSWER = frozenset({"candidate_answer", "output_messages"})

_OTHER_NAMES = {
    "criteria": "expected_outcome",
    "input": "question",
    "output": "candidate_answer",
    "output_text": "candidate_answer",
    "answer": "candidate_answer",
    "expected_output": "reference_answer",
}
"""What AgentV 4.x calls the same in a judge's prompt."""

PROMPTS = Path(__file__).parent / "prompts"
_PLACE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_MARK = re.compile(r"(?=.{3}).*[^\w\s].*[^\w\s]", re.DOTALL)
_BREAK = "\u200b"
"""A space without width: what it stands in reads the same and is no mark any more."""


class JudgePrompt(msgspec.Struct, frozen=True):
    """The messages for a judge, and the texts in them that others wrote."""

    messages: tuple[Message, ...]
    quoted: tuple[str, ...]


class Material(msgspec.Struct, frozen=True):
    """What there is to judge, by the names that prompts use; `trace` is what led to the answer, when it is wanted."""

    values: dict[str, Any]
    trace: str | None = None

    @property
    def code(self) -> str:
        """What marks the blocks. Nobody can write a text that holds a hash of itself; to be sure, it is looked for."""
        code = digest([self.values, self.trace])[:12]
        while any(code in text for text in self.texts):
            code = digest(code)[:12]
        return code

    @property
    def texts(self) -> tuple[str, ...]:
        """Every text in it."""
        return tuple(_texts_in([self.values, self.trace]))

    def quoted(self, names: Iterable[str]) -> tuple[str, ...]:
        """The texts behind some of the names."""
        return tuple(_texts_in([*(self.values.get(name) for name in names), self.trace]))


def material_of(
    judgement: Judgement, *, rubrics: Any = (), reference: str | None = None, include_trace: bool = False
) -> Material:
    """What there is to judge. `reference` stands in the place of the reference answer; a trace has a call a line."""
    calls = [call for message in judgement.output_messages for call in message.get("tool_calls", ())]
    trace = "\n".join(msgspec.json.encode(call).decode() for call in calls) or "No tool was called."
    return Material(
        {
            **{name: getattr(judgement, name) for name in VARIABLES if name != "rubrics"},
            "reference_answer": judgement.reference_answer if reference is None else reference,
            "context": list(judgement.context),
            "rubrics": msgspec.to_builtins(rubrics),
        },
        trace if include_trace else None,
    )


def built_in(name: str, form: str, material: Material) -> JudgePrompt:
    """One of our own prompts. `form` is the file that says what the reply must look like."""
    code = material.code
    blocks = {key: _block(key, value, code) for key, value in material.values.items()}
    text = _own(name, blocks)
    if material.trace:
        text += "\n\n" + _own("trace", {"trace": _block("trace", material.trace, code)})
    return JudgePrompt((_system(form, code), Message("user", text)), material.texts)


async def judge_prompt(
    prompt: Prompt | None, name: str, form: str, material: Material, judgement: Judgement
) -> JudgePrompt:
    """A prompt of the user's, whatever form it has, else ours of that name.

    What must be replied is told before a user's prompt, in a message of ours.
    """
    if prompt is None:
        return built_in(name, form, material)
    names: frozenset[str] = frozenset(material.values)
    if not is_template(prompt):
        messages: tuple[Message, ...] = (Message("user", await _printed(prompt, judgement)),)
    else:
        templates = _templates(prompt, judgement.find_file)
        messages = tuple(_rendered(message, material.values) for message in templates)
        names = frozenset(name for message in templates for name in names_in(str(message.content)))
    if material.trace:
        block = _block("trace", material.trace, material.code)
        messages = (*messages, Message("user", _own("trace", {"trace": block})))
    return JudgePrompt((_system(form, ""), *messages), material.quoted(names))


def repair_message(reason: str) -> Message:
    """What a judge is told whose reply cannot be used."""
    return Message("user", _own("repair", {"reason": reason}))


def builtin_prompts(name: str | None, form: str, *, include_trace: bool) -> tuple[str, ...]:
    """Our part of what a judge may be sent: scores depend on it, and another version may say it otherwise.

    `name` is the prompt, None where it is the user's.
    """
    parts = (name, "trace" if include_trace else None, "system", form, "repair")
    return tuple(own_text(f"{part}.md") for part in parts if part is not None)


def prompt_references(
    prompt: Prompt | None, path: KeyPath = ("prompt",), known: tuple[str, ...] = VARIABLES
) -> Iterator[FileReference]:
    """A user's prompt. `known` are the variables it can use; it should use the answer, or one that is not built in."""
    if prompt is not None:
        yield FileReference(path, prompt, lambda find_file, _: _problems(prompt, find_file, known))


def _problems(prompt: Prompt, find_file: FindFile, known: tuple[str, ...]) -> Problems:
    problems = Problems()
    if not is_template(prompt):
        return problems
    used: set[str] = set()
    for message in _templates(prompt, find_file):
        try:
            used |= names_in(str(message.content))
        except TemplateProblem as error:
            problems.error((), f"The prompt is no valid template: {error}")
            return problems
    for name in sorted(used - set(known)):
        meant = f"Here it is '{_OTHER_NAMES[name]}'" if name in _OTHER_NAMES else did_you_mean(name, known)
        hint = meant or f"Known: {', '.join(known)}"
        problems.error((), f"The prompt uses an unknown variable '{name}'", hint)
    if not used & (OF_THE_ANSWER | set(known) - set(VARIABLES)):
        hint = "Put {{ candidate_answer }} where the judge is to read it"
        problems.warning((), "The prompt does not use the answer, so the judge will not see it", hint)
    return problems


def _templates(prompt: Any, find_file: FindFile) -> tuple[Message, ...]:
    if isinstance(prompt, str):
        name = prompt.strip().removeprefix("file://")
        if not is_file_name(prompt):
            return (Message("user", prompt),)
        path = find_file(name)
        return (Message("user", _read_at(path, os.stat(path).st_mtime_ns)),)
    return tuple(Message(item["role"], item["content"]) for item in prompt)


@lru_cache(maxsize=64)
def _read_at(path: str, _changed_ns: int) -> str:
    return Path(path).read_text(encoding="utf-8-sig")


@lru_cache(maxsize=64)
def own_text(name: str) -> str:
    """One of our own prompts, or a part of one, as its file has it."""
    return (PROMPTS / name).read_text(encoding="utf-8")


def _own(name: str, values: Mapping[str, Any]) -> str:
    return render(own_text(f"{name}.md"), values).strip()


def _system(form: str, code: str) -> Message:
    return Message("system", _own("system", {"form": own_text(f"{form}.md").strip(), "code": code}))


def _block(name: str, value: Any, code: str) -> Any:
    """A text between marks; a list of texts as a list of such blocks; nothing for nothing."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return [_block(f"{name}_{number}", item, code) for number, item in enumerate(value, 1)]
    if not value:
        return ""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return f"<<<{name} {code}\n{text}\n{name} {code}>>>"


def _rendered(template: Message, values: Mapping[str, Any]) -> Message:
    text = str(template.content)
    marks = _marks_in(text)
    try:
        rendered = render(text, {name: _without_marks(value, marks) for name, value in values.items()})
    except TemplateProblem as error:
        raise EvaluatorFailure(f"The judge's prompt cannot be rendered: {error}") from None
    return Message(template.role, rendered)


def _marks_in(template: str) -> tuple[str, ...]:
    """What stands right before and after the places of a template, and is no word or label: its marks.

    That is the line beside a place, and the end of it that touches the place.
    """
    literals = _PLACE.split(template)
    before = [line for literal in literals[:-1] for line in literal.strip().splitlines()[-1:]]
    after = [line for literal in literals[1:] for line in literal.strip().splitlines()[:1]]
    marks = {*before, *after, *(line.split()[-1] for line in before), *(line.split()[0] for line in after)}
    return tuple(mark for mark in sorted(marks, key=len, reverse=True) if _MARK.search(mark))


def _without_marks(value: Any, marks: tuple[str, ...]) -> Any:
    if isinstance(value, str):
        for mark in marks:
            # In whichever case: a model takes </ANSWER> for the end of <answer> all the same.
            pattern = re.compile(re.escape(mark), re.IGNORECASE)
            value = pattern.sub(lambda found: found[0][0] + _BREAK + found[0][1:], value)
        return value
    if isinstance(value, dict):
        return {key: _without_marks(item, marks) for key, item in value.items()}
    return [_without_marks(item, marks) for item in value] if isinstance(value, list) else value


async def _printed(prompt: Any, judgement: Judgement) -> str:
    """What the user's program prints; it is told what a code judge is told."""
    from agentv.evaluators.code.program import Program  # late: it needs asyncio, and settings are read without it

    given = prompt if isinstance(prompt, PromptProgram) else PromptProgram(script=prompt)
    program = Program(
        script=given.script,
        cwd=os.path.join(judgement.workdir, given.cwd or ""),
        timeout_s=given.timeout_seconds,
        environment=judgement.environment,
    )
    text = await program.run(program_input(judgement, given.config))
    if not text.strip():
        raise EvaluatorFailure("The program that makes the judge's prompt printed nothing")
    return text


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(item)
