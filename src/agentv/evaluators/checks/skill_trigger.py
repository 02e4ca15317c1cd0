"""Skill trigger: check whether an agent loaded a skill."""

from __future__ import annotations

import re
from typing import Annotated, Any

from msgspec import Meta

from agentv.evaluators.base import CALLS_UNKNOWN, Evaluator, pass_if
from agentv.model.evaluator import EvaluatorFailure, Needs, Score
from agentv.model.job import Judgement
from agentv.model.message import ToolCall, tool_calls_in


class SkillTrigger(Evaluator, frozen=True, kw_only=True):
    """Whether the agent loaded a skill, or with `should_trigger: false` did not load it.

    A skill counts as loaded if a tool named `Skill` was called with its name, or if the arguments or the result of any
    tool call contain the path of its folder, `skills/NAME/`. If the target reports only text, its calls are unknown,
    which is an error.
    """

    skill: Annotated[str, Meta(min_length=1)]
    should_trigger: bool = True

    @property
    def needs(self) -> Needs:
        """The messages and tool calls of the answer."""
        return Needs(trace=True)

    def score(self, judgement: Judgement) -> Score:
        """Search the tool calls of the answer for the skill."""
        calls = tool_calls_in(judgement.response.messages)
        if not calls and judgement.response.calls_unknown:
            raise EvaluatorFailure(CALLS_UNKNOWN)
        call = next((call for call in calls if self._loads(call)), None)
        found = f"skill '{self.skill}' was not loaded" if call is None else f"{call.tool} loaded skill '{self.skill}'"
        return pass_if((call is not None) is self.should_trigger, found)

    def _loads(self, call: ToolCall) -> bool:
        name = re.escape(self.skill)
        if call.tool.lower() == "skill" and _contains(call.input, rf"(?<![\w-]){name}(?![\w-])"):
            return True
        folder = rf"(?<![\w-])skills[/\\]{name}[/\\]"
        return _contains(call.input, folder) or _contains(call.output, folder)


def _contains(value: Any, pattern: str) -> bool:
    """Whether any text inside a value matches."""
    if isinstance(value, str):
        return re.search(pattern, value) is not None
    if isinstance(value, dict | list | tuple):
        return any(_contains(item, pattern) for item in (value.values() if isinstance(value, dict) else value))
    return False
