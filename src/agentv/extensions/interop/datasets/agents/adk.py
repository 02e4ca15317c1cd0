"""Eval sets of Google ADK in three generations: eval cases, a list of sessions, and a list of turns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from agentv.datasets.foreign.case_parts import count_losses, text_in
from agentv.datasets.foreign.foreign_format import (
    ForeignFormat,
    Lose,
    Mapper,
    all_have,
    document_of,
    objects,
)
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
)
from agentv.datasets.formats.dataset_format import Content, Document
from agentv.extensions.interop.datasets.agents.adk_criteria import (
    CONFIGS,
    MOST_INVOCATIONS,
    NO_CRITERION,
    PASS_LIMIT,
    QUALITY,
    RUBRIC_TYPES,
    AdkCriteria,
    read_criteria,
    rubrics_in,
)
from agentv.extensions.interop.datasets.dataset_values import with_turns
from agentv.extensions.interop.datasets.written_case import (
    calls_of,
    count_user_losses,
    criteria_of,
    is_call_list,
    is_written,
    restore,
    seal,
)
from agentv.model.case import EvalCase, SimulatedUser, Turn
from agentv.model.evaluator import DEFAULT_EVALUATOR, EvaluatorSpec
from agentv.model.message import Message
from agentv.model.values import to_json

_CASES = ("eval_cases", "evalCases")
_SETS = ("eval_set_id", "evalSetId")
_IDS = ("eval_id", "evalId", "eval_case_id", "evalCaseId")
_BEHAVIOR = ("behavior_instructions", "behaviorInstructions", "description")
_TURN_KEYS = (
    *("invocation_id", "user_content", "final_response", "intermediate_data", "creation_timestamp", "rubrics"),
    *("app_details", "duration", "model_duration", "tool_duration"),
)
_CASE_KEYS = (
    *("eval_id", "eval_case_id", "name", "conversation", "data", "conversation_scenario", "prompt", "reference"),
    *("session_input", "initial_session", "final_session_state", "rubrics", "rubric_groups", "metadata"),
    "creation_timestamp",
)
_TURN = ("query", "expected_tool_use", "reference")
_MEAN = "ADK compares the mean of the turns with a limit, and here each turn must reach it"
_NO_ANSWER = "A turn has no final response, so that ADK scores 0 by response_match_score: add it, or other criteria"
_LETTERS = "letters of answers that are not ASCII: ADK compares words with them, and ROUGE here leaves them out"
_EVERY_CRITERION = {"verdicts": {"pass": 0.0, "borderline": 0.0}}
_NO_CRITERIA = "the configuration has no criteria, without which ADK checks nothing: here a judge checks the answers"
_NO_RUBRICS = "rubrics that ADK ignores, because no criterion uses their `type`: here a judge checks them"


class _ADK(ForeignFormat):
    title = "an eval set of Google ADK"
    strength = 0.84
    fields = "user_content → input and turns, final_response → expected_output, tool_uses → tool_trajectory"
    in_folders = True
    names_unchecked = False  # all other fields are named
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
        read_criteria(file.path, lose)
        return filled({"dataset": first_of(document, "name", *_SETS), "description": document.get("description")})

    def items(self, file: RecordFile) -> Iterator[Record]:
        document, rows = document_of(file), objects(file)
        if scenarios := _scenarios(document):
            yield from (Record(line, {"conversation_scenario": item}) for line, item, _ in items_of(scenarios))
        elif document:
            yield from items_of(first_of(document, *_CASES))
        elif all_have(rows, "data"):
            yield from file.placed()
        else:  # the oldest generation: all turns of one session
            yield Record(1, {"data": [record.data for record in file.records()]})

    def mapper(self, document: Document) -> Mapper:
        criteria = read_criteria(document.source.files[0], lambda _: None)
        mapped = document.mapped
        assert mapped is not None

        def rows(record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
            for what in _differences(record.data, criteria):
                mapped.differ(what)
            return self._rows(record.data, criteria, lose)

        return rows

    def _rows(self, data: dict[str, Any], criteria: AdkCriteria, lose: Lose) -> Iterable[dict[str, Any]]:
        session = first_of(data, "session_input", "sessionInput", "initial_session")
        if isinstance(session, dict) and not is_blank(session.get("state")):
            lose("the state of a session: it is in the metadata")
        if not is_blank(first_of(data, "final_session_state", "finalSessionState")):
            lose("the state of a session at its end")
        turns = [_new_turn(turn, criteria, lose) for turn in data.get("conversation") or ()]
        turns += [_old_turn(turn, criteria, lose) for turn in data.get("data") or ()]
        scenario = first_of(data, "conversation_scenario", "conversationScenario")
        row: dict[str, Any] = {
            "id": first_of(data, *_IDS, "name"),
            "rubrics": rubrics_in(data),
            "case_error": None if is_written(data, "metadata") else _error(data, criteria),
            "metadata": {**_others(data), **object_at(data, "metadata"), **filled({"session_input": session})},
        }
        checks = [turn.get("assertions") for turn in turns] or [criteria.rubrics if isinstance(scenario, dict) else ()]
        if all(checks) and not row["rubrics"] and not is_written(data, "metadata"):
            row["execution"] = _EVERY_CRITERION
        if turns:
            return [restore(with_turns(row, turns), data, "metadata", lose)]
        if isinstance(scenario, dict):
            plan = text_of(scenario.get("conversation_plan"))
            user = {"goal": plan, "persona": _persona(first_of(scenario, "user_persona", "userPersona"), lose)}
            row |= {"input": text_of(scenario.get("starting_prompt")) or plan, "assertions": [*criteria.rubrics]}
            if criteria.most_turns:
                row["user"] = {**filled(user), "max_turns": criteria.most_turns}
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


def _snake(key: Any) -> str:
    return re.sub(r"(?=[A-Z])", "_", str(key)).lower()


def _others(data: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a case that no part of ours has."""
    return {key: value for key, value in data.items() if _snake(key) not in _CASE_KEYS and not is_blank(value)}


def _answers(data: dict[str, Any]) -> list[str]:
    """Return the final responses of the turns of a case; blank ones where there are none."""
    turns = [turn for turn in data.get("conversation") or data.get("data") or () if isinstance(turn, dict)]
    answers = (first_of(turn, "final_response", "finalResponse", "reference") for turn in turns)
    return ["" if answer is None else _text(answer) for answer in answers]


def _has_letters(text: str) -> bool:
    return any(letter.isalnum() and not letter.isascii() for letter in text)


def _error(data: dict[str, Any], criteria: AdkCriteria) -> str | None:
    """Return why a case cannot pass or run."""
    if criteria.is_unusable and "prompt" not in data:
        return NO_CRITERION
    return _NO_ANSWER if "response_match_score" in criteria.names and not all(_answers(data)) else None


def _differences(data: dict[str, Any], criteria: AdkCriteria) -> Iterator[str]:
    """Yield what ADK does in another way with a case."""
    turns = [turn for turn in data.get("conversation") or data.get("data") or () if isinstance(turn, dict)]
    yield from (f"'{key}' of a case, which has no counterpart: it is in the metadata" for key in _others(data))
    if not criteria.names and "prompt" not in data:
        yield _NO_CRITERIA
    if len(turns) > 1 and criteria.has_limits:
        yield _MEAN
    if "response_match_score" in criteria.names and any(_has_letters(answer) for answer in _answers(data)):
        yield _LETTERS
    types = {kind for name, kind in RUBRIC_TYPES.items() if name in criteria.names}
    items = [item for part in (data, *turns) for item in part.get("rubrics") or () if isinstance(item, dict)]
    if "prompt" not in data and not {text_of(item.get("type")) for item in items} <= types:
        yield _NO_RUBRICS


def _new_turn(turn: dict[str, Any], criteria: AdkCriteria, lose: Lose) -> dict[str, Any]:
    steps = first_of(turn, "intermediate_data", "intermediateData") or {}
    rubrics = rubrics_in(turn)
    for key in turn:
        if _snake(key) not in _TURN_KEYS:
            lose(f"'{key}' of a turn, which ADK refuses")
    row = _turn(
        first_of(turn, "user_content", "userContent"),
        first_of(turn, "final_response", "finalResponse"),
        [call_of(use) for use in _tool_uses(steps)],
        criteria,
        lose,
    )
    return (
        {
            **row,
            "assertions": [*row.get("assertions", ()), {"type": "rubric", "rubrics": rubrics, "required": PASS_LIMIT}],
        }
        if rubrics
        else row
    )


def _tool_uses(steps: dict[str, Any]) -> list[Any]:
    """Return the tool calls of an invocation: a list, or parts of its events."""
    events = first_of(steps, "invocation_events", "invocationEvents") or ()
    parts = [part for event in events for part in object_at(event, "content").get("parts") or ()]
    calls = [first_of(part, "function_call", "functionCall") for part in parts]
    return list(chain(first_of(steps, "tool_uses", "toolUses") or (), (call for call in calls if call is not None)))


def _old_turn(turn: dict[str, Any], criteria: AdkCriteria, lose: Lose) -> dict[str, Any]:
    calls = [call_of(use) for use in turn.get("expected_tool_use") or ()]
    return _turn(turn.get("query"), turn.get("reference"), calls, criteria, lose)


def _turn(question: Any, answer: Any, calls: list[dict[str, Any]], criteria: AdkCriteria, lose: Lose) -> dict[str, Any]:
    """Return a turn with its checks. As in ADK, a turn without expected calls means that no tool may be called."""
    parts = question.get("parts") if isinstance(question, dict) else None
    if any(isinstance(part, dict) and is_blank(part.get("text")) for part in parts or ()):
        lose("parts of a message that are not text")
    reference = _text(answer) if not is_blank(answer) else ""
    checks = [*(criteria.answers if reference else ()), *criteria.rubrics]
    if criteria.calls and (calls or criteria.calls["mode"] == "exact"):
        expected = [{"tool": call["tool"], "args": call["input"] or {}} for call in calls]
        checks.append({"type": "tool_trajectory", **criteria.calls, "expected": expected})
    return filled({"input": _text(question), "expected_output": reference, "assertions": checks})


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
    rubrics = [
        {"rubric_id": f"rubric-{n}", "type": RUBRIC_TYPES[QUALITY], "rubric_content": {"text_property": text}}
        for n, text in enumerate(texts, 1)
    ]
    if rubrics:
        lose(f"rubrics without a criterion: add `{QUALITY}` to the {CONFIGS[0]} of ADK")
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
    fields = ("input", "expected_output") if is_question else ()
    return seal(record, "metadata", case, ("id", *fields))


def _scenario(user: SimulatedUser, case: EvalCase, lose: Lose) -> dict[str, str]:
    """Return the plan of a simulated user. Personas of ADK are named ones, so that the text is part of the plan."""
    if user.max_turns != MOST_INVOCATIONS - 1:
        count_user_losses(user, lose, "max_turns")
    count_user_losses(user, lose, "target")
    plan = "\n\n".join(text for text in (user.goal, user.persona and f"You are: {user.persona}", user.stop) if text)
    start = _question(case.input, lose) or plan
    return {"starting_prompt": start, "conversation_plan": plan or start}


def _invocation(turn: Turn, lose: Lose) -> dict[str, Any]:
    answer = text_in(turn.expected_output, lose) if turn.expected_output else ""
    if not answer:
        lose("an expected output: `response_match_score`, a default criterion of ADK, is 0 without one")
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
