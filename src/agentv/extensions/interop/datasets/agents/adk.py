"""Eval sets of Google ADK in three generations: eval cases, a list of sessions, and a list of turns."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from agentv.datasets.foreign.case_parts import count_losses, text_in
from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, all_have, document_of, objects
from agentv.datasets.foreign.records import Record, RecordFile, items_of
from agentv.datasets.foreign.values import (
    call_of,
    filled,
    first_of,
    is_blank,
    object_at,
    text_of,
    texts_of,
    with_outcome,
    with_turns,
)
from agentv.datasets.formats.dataset_format import Content
from agentv.extensions.interop.datasets.written_case import calls_of, criteria_of, is_call_list, restore, seal
from agentv.model.case import EvalCase, SimulatedUser, Turn
from agentv.model.evaluator import DEFAULT_EVALUATOR, EvaluatorSpec
from agentv.model.message import Message
from agentv.model.values import to_json

_CASES = ("eval_cases", "evalCases")
_SETS = ("eval_set_id", "evalSetId")
_IDS = ("eval_id", "evalId", "eval_case_id", "evalCaseId")
_BEHAVIOR = ("behavior_instructions", "behaviorInstructions", "description")
_CONFIG = "test_config.json"
_MOST_INVOCATIONS = 20
"""The default limit of ADK for messages of a simulated user."""

_TURN = ("query", "expected_tool_use", "reference")


class _ADK(ForeignFormat):
    title = "an eval set of Google ADK"
    strength = 0.84
    fields = "user_content → input and turns, final_response → expected_output, tool_uses → tool_trajectory"
    in_folders = True
    writes = (".json",)

    def fits(self, file: RecordFile) -> bool:
        if file.kind != "json":
            return False
        document, rows = document_of(file), objects(file)
        if _scenarios(document):
            return True
        if isinstance(cases := first_of(document, *_CASES), list):
            return any(key in document for key in _SETS) or all(
                isinstance(case, dict) and any(key in case for key in _IDS) for case in cases
            )
        if all_have(rows, "data") and all(isinstance(row["data"], list) for row in rows):
            return True
        return all_have(rows, "query") and any(key in row for row in rows for key in _TURN[1:])

    def settings(self, file: RecordFile, lose: Lose) -> dict[str, Any]:
        document = document_of(file)
        if os.path.isfile(os.path.join(os.path.dirname(file.path), _CONFIG)):
            lose(f"the criteria in {_CONFIG}: tool calls must be the same, and a judge compares the answers")
        return filled({"dataset": first_of(document, "name", *_SETS), "description": document.get("description")})

    def items(self, file: RecordFile) -> Iterator[Record]:
        document, rows = document_of(file), objects(file)
        if scenarios := _scenarios(document):
            yield from (Record(line, {"conversation_scenario": item}) for line, item in items_of(scenarios))
        elif document:
            yield from items_of(first_of(document, *_CASES))
        elif all_have(rows, "data"):
            yield from file.records()
        else:  # the oldest generation: all turns of one session
            yield Record(1, {"data": [record.data for record in file.records()]})

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
        data = record.data
        session = first_of(data, "session_input", "sessionInput", "initial_session")
        if isinstance(session, dict) and not is_blank(session.get("state")):
            lose("the state of a session: it is in the metadata")
        turns = [_new_turn(turn) for turn in data.get("conversation") or ()]
        turns += [_old_turn(turn) for turn in data.get("data") or ()]
        scenario = first_of(data, "conversation_scenario", "conversationScenario")
        row: dict[str, Any] = {
            "id": first_of(data, *_IDS, "name"),
            "rubrics": _rubrics(data),
            "metadata": {**object_at(data, "metadata"), **filled({"session_input": session})},
        }
        if turns:
            return [restore(with_turns(row, turns), data, "metadata", lose)]
        if isinstance(scenario, dict):
            plan = text_of(scenario.get("conversation_plan"))
            user = {"goal": plan, "persona": _persona(first_of(scenario, "user_persona", "userPersona"), lose)}
            row |= {"input": text_of(scenario.get("starting_prompt")) or plan}
            row["user"] = {**filled(user), "max_turns": _MOST_INVOCATIONS}
        elif not is_blank(data.get("prompt")):
            row |= {"input": _text(data["prompt"]), "expected_output": _reference(data.get("reference"))}
        else:
            raise ValueError("The eval case has no conversation, scenario or prompt")
        return [restore(with_outcome(row), data, "metadata", lose)]

    def write(self, content: Content, path: str) -> None:
        name = text_of(content.header.get("dataset"))
        document = {
            "eval_set_id": re.sub(r"\W+", "_", name),
            "name": name,
            **filled({"description": content.header.get("description")}),
            "eval_cases": [_case(row.case, content.lose) for row in content.rows],
        }
        Path(path).write_bytes(to_json(document) + b"\n")


ADK = _ADK()


def _scenarios(document: dict[str, Any]) -> list[Any]:
    """Return the scenarios of a file for `adk eval_set add_eval_case`; empty if it is another file."""
    items = document.get("scenarios")
    is_list = isinstance(items, list) and all(isinstance(item, dict) and "conversation_plan" in item for item in items)
    return items if is_list and isinstance(items, list) else []


def _persona(value: Any, lose: Lose) -> str:
    """Return a persona as text: its description, and what it does. Personas of ADK itself are named only."""
    if not isinstance(value, dict):
        if not is_blank(value):
            lose(f"the persona {value} of ADK: only its name is known")
        return text_of(value)
    behaviors = [item for item in value.get("behaviors") or () if isinstance(item, dict)]
    rules = [line for item in behaviors for line in texts_of(first_of(item, *_BEHAVIOR))]
    return "\n".join([text_of(value.get("description")) or text_of(value.get("id")), *(f"- {line}" for line in rules)])


def _text(content: Any) -> str:
    parts = content.get("parts") if isinstance(content, dict) else None
    if not isinstance(parts, list):
        return text_of(content.get("text") if isinstance(content, dict) else content)
    return "\n".join(text_of(part.get("text")) for part in parts if isinstance(part, dict) and part.get("text"))


def _reference(reference: Any) -> str:
    """Return the text of a reference answer: content, or an object with the content under `response`."""
    inner = reference.get("response", reference) if isinstance(reference, dict) else reference
    return _text(inner) if inner is not None else ""


def _rubrics(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rubrics of a case: a list, or groups of them."""
    groups = first_of(data, "rubric_groups", "rubricGroups") or {}
    lists = [data.get("rubrics"), *(group.get("rubrics") for group in groups.values() if isinstance(group, dict))]
    rubrics: dict[str, dict[str, Any]] = {}
    for item in (item for items in lists if isinstance(items, list) for item in items if isinstance(item, dict)):
        content = first_of(item, "rubric_content", "rubricContent", "content") or {}
        text = first_of(content, "text_property", "textProperty") or object_at(content, "property").get("description")
        if not is_blank(text):
            name = text_of(first_of(item, "rubric_id", "rubricId")) or f"rubric-{len(rubrics) + 1}"
            rubrics.setdefault(name, {"id": name, "expected_outcome": text_of(text)})
    return list(rubrics.values())


def _new_turn(turn: dict[str, Any]) -> dict[str, Any]:
    steps = first_of(turn, "intermediate_data", "intermediateData") or {}
    uses = first_of(steps, "tool_uses", "toolUses") or []
    calls = [call_of(use) for use in uses]
    return _turn(
        first_of(turn, "user_content", "userContent"), first_of(turn, "final_response", "finalResponse"), calls
    )


def _old_turn(turn: dict[str, Any]) -> dict[str, Any]:
    calls = [call_of(use) for use in turn.get("expected_tool_use") or ()]
    return _turn(turn.get("query"), turn.get("reference"), calls)


def _turn(question: Any, answer: Any, calls: list[dict[str, Any]]) -> dict[str, Any]:
    checks = [{"type": "llm_judge"}] if not is_blank(answer) else []
    row = {
        "input": _text(question),
        "expected_output": _text(answer),
        "assertions": [*checks, _same_calls(calls)] if calls else [],
    }
    return filled(row)


def _same_calls(calls: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the check of a trajectory as ADK does it by default: the same calls in the same order, and no others."""
    expected = [{"tool": call["tool"], "args": call["input"] or {}} for call in calls]
    return {"type": "tool_trajectory", "mode": "exact", "args_match": "exact", "expected": expected}


def _case(case: EvalCase, lose: Lose) -> dict[str, Any]:
    turns = [*([Turn(case.input, (), ())] if case.input else []), *case.turns]
    last = turns[-1]
    in_case = case.evaluators if len(turns) == 1 else ()
    turns[-1] = Turn(last.input, last.expected_output or case.expected_output, (*last.evaluators, *in_case))
    in_turns = [spec for turn in turns for spec in turn.evaluators if is_call_list(spec) and case.user is None]

    def keeps(spec: EvaluatorSpec) -> bool:
        return spec in in_turns or (spec.type == "rubric" and not spec.negate)

    count_losses(case, lose, ("turns", "user"), keeps)
    for mode in {spec.settings.get("mode") for spec in in_turns} - {"exact"}:
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
