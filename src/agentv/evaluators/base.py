"""What every evaluator class shares: settings as fields, and what it needs of a case."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from agentv.model.evaluator import EvaluatorSpec, Score
from agentv.model.judgement import Judgement
from agentv.settings.diagnostics import Problems

RESERVED = ("type", "name", "metric", "weight", "required", "min_score", "negate", "transform", "target")
"""Keys of an entry that every type has; the rest are the type's own."""

OTHER_TOOLS = {
    "threshold": "Write the minimum into `required`: `required: 0.7`; `required: true` is the pass limit",
    "provider": "Name the judge in `target`; targets are declared in the targets file",
    "preprocessors": "Use `transform` of the evaluator or of the target",
    "postprocess": "Use `transform` of the evaluator or of the target",
    "context_transform": "Put the retrieved passages into `context` of the case",
    "max_steps": "A judge answers in one call; use a coding agent as the judge's `target`",
}
"""Keys of AgentV 4.x, 5.x and promptfoo that no type has unless it declares them itself."""

NO_REFERENCE_HINT = "Give the case an `expected_output`, or the evaluator a `value` where its type takes one"

NEEDS_CONTEXT = "judges against the case's 'context', and there is none"
NO_CONTEXT_HINT = "Give the case `context`: the passages that the answer could draw on"

Share = Annotated[float, Meta(ge=0, le=1)]
Limit = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(gt=0)]
Weight = Annotated[float, Meta(ge=0)]


class Evaluator(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one type. Subclasses declare the fields; nothing else knows them.

    `aliases` maps other spellings to fields; `unsupported` maps keys of other tools to the reason they are refused;
    `open_settings` lets further keys through as the user's own; `files` names the fields in which text may be a path.
    """

    aliases: ClassVar[dict[str, str]] = {}
    unsupported: ClassVar[dict[str, str]] = OTHER_TOOLS
    open_settings: ClassVar[bool] = False
    files: ClassVar[tuple[str, ...]] = ()

    def score(self, judgement: Judgement) -> Score:
        """Scores at once, for types that need not wait for anything; they are called without an event loop's detour."""
        raise NotImplementedError

    @property
    def is_plain(self) -> bool:
        """Whether `score` is the way to ask."""
        return type(self).evaluate is Evaluator.evaluate

    @property
    def can_run(self) -> bool:
        """Whether this type can score at all; one that cannot is refused before anything is called."""
        return type(self).score is not Evaluator.score or not self.is_plain

    @property
    def refusal(self) -> str:
        """Why this machine cannot run it as the settings require: a sentence, said before anything is called."""
        return ""

    @property
    def judge(self) -> str | None:
        """The judge that the settings themselves name; it goes before the `target` of the entry."""
        return None

    @property
    def judge_calls(self) -> int:
        """How often each of its judges is asked about an answer when all goes well; 0 for types that ask none."""
        return 0

    @property
    def members(self) -> tuple[EvaluatorSpec, ...]:
        """The entries inside this one."""
        return ()

    @property
    def own_words(self) -> tuple[str, ...]:
        """What judges are told in words of this program: its scores depend on them as on the settings."""
        return ()

    def preflight(self, find_file: Callable[[str], str], folder: str) -> Problems:  # noqa: ARG002
        """What is wrong with what the settings refer to, found before anything is called. Lets `find_file` raise.

        `folder` is where programs are started.
        """
        return Problems()

    async def evaluate(self, judgement: Judgement) -> Score:
        """Scores an answer, or raises EvaluatorFailure. Types that wait for something override this one."""
        return self.score(judgement)

    def complaints(self) -> list[str]:
        """What is wrong with settings that are each of the right type: one sentence each, none when all is well."""
        return []

    @property
    def embeds(self) -> bool:
        """Whether the entry's `target` is asked for embeddings."""
        return False

    @property
    def needs_trace(self) -> bool:
        """Whether an answer without its messages and tool calls cannot be scored with these settings."""
        return False

    @property
    def needs_reference(self) -> bool:
        """Whether a case without an expected output cannot be scored with these settings."""
        return False

    @property
    def needs_context(self) -> bool:
        """Whether a case without `context` cannot be scored with these settings."""
        return False


class PromptProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A program that prints the judge's prompt; it gets what a code judge gets, with `config`."""

    aliases: ClassVar[dict[str, str]] = {"command": "script"}

    script: str | list[str]
    cwd: str | None = None
    timeout_seconds: Seconds = 60.0
    config: dict[str, Any] = {}


Prompt = str | list[str | dict[str, Any]] | PromptProgram
"""Text or a file's path; messages, or the arguments of a program; a program with its settings."""


class Judge(Evaluator, frozen=True, kw_only=True):
    """Settings of every type that asks a judge model. `model` and `temperature` replace those of the judge's target.

    `votes` is how often each judge is asked. `combine` makes one score of several votes: `mean`, or `majority`, the one
    that most votes give; unset it is the mean of scores and the majority of a rubric's checks. `include_trace` shows
    the judge the tool calls too.
    """

    votes: Annotated[int, Meta(ge=1, le=100)] = 1
    combine: Literal["mean", "majority"] | None = None
    model: str | None = None
    temperature: Limit | None = None
    include_trace: bool = False

    @property
    def judge_calls(self) -> int:
        """A call for each vote."""
        return self.votes


def has_context(context: Iterable[str]) -> bool:
    """Whether there is a passage that says something."""
    return any(passage.strip() for passage in context)


def program_complaints(field: str, program: str | list[str]) -> list[str]:
    """What is wrong with a program given as a shell string or as a list of arguments."""
    if isinstance(program, str):
        return [] if program.strip() else [f"'{field}' is blank"]
    return [] if program and program[0].strip() else [f"'{field}' must name a program"]


def prompt_complaints(prompt: Prompt | None) -> list[str]:
    """What is wrong with a judge's prompt in any of its forms."""
    if isinstance(prompt, PromptProgram):
        return program_complaints("prompt.script", prompt.script)
    if isinstance(prompt, str):
        return [] if prompt.strip() else ["'prompt' is blank"]
    if prompt is None:
        return []
    if not prompt:
        return ["'prompt' is an empty list"]
    if all(isinstance(item, dict) for item in prompt):
        return _message_complaints([item for item in prompt if isinstance(item, dict)])
    if all(isinstance(item, str) for item in prompt):
        return []
    return ["'prompt' mixes messages with strings: give messages, or the arguments of a program"]


def _message_complaints(messages: list[dict[str, Any]]) -> list[str]:
    return [
        f"'prompt[{index}]' is no message: it needs a 'role' (system, user or assistant) and 'content', a text"
        for index, message in enumerate(messages)
        if message.get("role") not in ("system", "user", "assistant") or not isinstance(message.get("content"), str)
    ]
