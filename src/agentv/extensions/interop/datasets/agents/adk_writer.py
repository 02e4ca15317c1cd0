"""Write cases as an eval set of Google ADK: conversations, expected tool calls, rubrics, and scenarios of users."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from agentv.datasets.foreign.case_parts import count_losses, text_in
from agentv.datasets.foreign.foreign_format import Lose
from agentv.datasets.foreign.values import filled, text_of
from agentv.datasets.formats.dataset_format import Content
from agentv.extensions.interop.datasets.written_case import calls_of, criteria_of, is_call_list, seal
from agentv.model.case import EvalCase, SimulatedUser, Turn
from agentv.model.evaluator import DEFAULT_EVALUATOR, EvaluatorSpec
from agentv.model.message import Message
from agentv.model.values import to_json


def write_eval_set(content: Content, path: str) -> None:
    """Write an eval set as JSON."""
    name = text_of(content.header.get("dataset"))
    document = {
        "eval_set_id": re.sub(r"\W+", "_", name),
        "name": name,
        **filled({"description": content.header.get("description")}),
        "eval_cases": [_case(row.case, content.lose) for row in content.rows],
    }
    Path(path).write_bytes(to_json(document) + b"\n")


def _case(case: EvalCase, lose: Lose) -> dict[str, Any]:
    turns = [*([Turn(case.input, (), ())] if case.input else []), *case.turns]
    last = turns[-1]
    in_case = case.evaluators if len(turns) == 1 else ()
    turns[-1] = Turn(last.input, last.expected_output or case.expected_output, (*last.evaluators, *in_case))
    in_turns = [spec for turn in turns for spec in turn.evaluators if is_call_list(spec) and case.user is None]

    def keeps(spec: EvaluatorSpec) -> bool:
        return spec in in_turns or (spec.type == "rubric" and not spec.negate)

    count_losses(case, lose, ("turns", "user"), keeps)
    for mode in {spec.settings.get("mode") for spec in in_turns} - {"in_order"}:
        lose(f"`mode: {mode}` of a tool trajectory: the criteria of ADK decide, and the default is an exact match")
    texts = criteria_of(case)
    if DEFAULT_EVALUATOR in case.evaluators and case.expected_outcome:
        texts = [case.expected_outcome, *texts]
    rubrics = [{"rubric_id": f"rubric-{n}", "rubric_content": {"text_property": t}} for n, t in enumerate(texts, 1)]
    record: dict[str, Any] = {
        "eval_id": case.id,
        "rubrics": rubrics,
        "session_input": case.metadata.get("session_input"),
    }
    if case.user is not None:
        record["conversation_scenario"] = _scenario(case.user, case, lose)
    else:
        record["conversation"] = [_invocation(turn, lose) for turn in turns]
    is_question = len(turns) == 1 and case.user is None
    fields = ("input", "expected_output", *(() if rubrics else ("evaluators",))) if is_question else ()
    return seal(record, "metadata", case, ("id", *fields))


def _scenario(user: SimulatedUser, case: EvalCase, lose: Lose) -> dict[str, str]:
    """Return the plan of a simulated user. Personas of ADK are named ones, so that the text is part of the plan."""
    plan = "\n\n".join(text for text in (user.goal, user.persona and f"You are: {user.persona}", user.stop) if text)
    start = _question(case.input, lose) if any(message.role == "user" for message in case.input) else plan
    return {"starting_prompt": start, "conversation_plan": plan or start}


def _invocation(turn: Turn, lose: Lose) -> dict[str, Any]:
    answer = text_in(turn.expected_output, lose) if turn.expected_output else ""
    return {
        "user_content": {"role": "user", "parts": [{"text": _question(turn.input, lose)}]},
        **({"final_response": {"role": "model", "parts": [{"text": answer}]}} if answer else {}),
        "intermediate_data": {"tool_uses": calls_of(turn.evaluators)},
    }


def _question(messages: tuple[Message, ...], lose: Lose) -> str:
    """Return the text of the user. The agent of ADK has its own instruction, and writes its own replies."""
    for message in messages:
        if message.role != "user":
            lose(f"messages of the role {message.role}")
    return "\n\n".join(text_in((message,), lose) for message in messages if message.role == "user")
