"""Skill trigger: check whether an agent loaded a skill."""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from agentv.evaluators.base import CALLS_UNKNOWN, Evaluator, pass_if
from agentv.model.evaluator import EvaluatorFailure, Needs, Score
from agentv.model.job import Judgement
from agentv.model.message import tool_calls_in

_SKILL_TOOLS = frozenset(("skill", "activate_skill", "load_skill", "use_skill"))


class SkillTrigger(Evaluator, frozen=True, kw_only=True):
    """Whether the agent loaded a skill, or with `should_trigger: false` did not load it.

    A skill counts as loaded if a tool for skills (`Skill`, `activate_skill`) was called with its name, or if the
    arguments or the result of any tool call contain the path of its folder, `skills/NAME/`. If the target reports only
    text, its calls are unknown, which is an error.
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
        call = next((call for call in calls if loads_skill(call.tool, call.input, call.output, self.skill)), None)
        found = f"skill '{self.skill}' was not loaded" if call is None else f"{call.tool} loaded skill '{self.skill}'"
        score = pass_if((call is not None) is self.should_trigger, found)
        details = {"skill": self.skill, "loaded": call is not None, "should_trigger": self.should_trigger}
        return msgspec.structs.replace(score, details=details)


def loads_skill(tool: str, input: Any, output: Any, skill: str) -> bool:
    """Whether a tool call loaded a skill: with a tool for skills, or by a path in its folder."""
    name = re.escape(skill)
    if tool.lower() in _SKILL_TOOLS and _contains(input, rf"(?<![\w-]){name}(?![\w-])"):
        return True
    folder = rf"(?<![\w-])skills[/\\]{name}[/\\]"
    return _contains(input, folder) or _contains(output, folder)


def _contains(value: Any, pattern: str) -> bool:
    """Whether any text inside a value matches."""
    if isinstance(value, str):
        return re.search(pattern, value) is not None
    if isinstance(value, dict | list | tuple):
        return any(_contains(item, pattern) for item in (value.values() if isinstance(value, dict) else value))
    return False
