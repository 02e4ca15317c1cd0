"""Whether an agent loaded a skill. Each row: a tool call, and whether it loads the skill `csv`."""

import pytest

from agentv.model.message import Message, ToolCall

ROWS = [
    (ToolCall("Skill", {"skill": "csv"}), True),
    (ToolCall("skill", {"command": "tools:csv"}), True),
    (ToolCall("Skill", {"skill": "csv-analyzer"}), False),
    (ToolCall("Read", {"file_path": "/home/x/.claude/skills/csv/SKILL.md"}), True),
    (ToolCall("Read", {"file_path": "skills/csv-analyzer/SKILL.md"}), False),
    (ToolCall("Bash", {"command": "cat .agents/skills/csv/SKILL.md"}), True),
    (ToolCall("Glob", {"pattern": "*"}, output=["skills/csv/SKILL.md"]), True),
    (ToolCall("Read", {"file_path": "csv"}), False),
]


@pytest.mark.parametrize("should", [True, False])
@pytest.mark.parametrize(("call", "loads"), ROWS)
def test_a_skill_is_found_in_tool_calls(scoring, call, loads, should):
    messages = [Message("assistant", "", (ToolCall("Think", None), call)), Message("assistant", "done")]
    found = scoring.score("skill_trigger", {"skill": "csv", "should_trigger": should}, messages=messages)
    assert found.score == (loads is should)
    assert (found.hits or found.misses)[0].endswith("'csv'" if loads else "'csv' was not loaded")
