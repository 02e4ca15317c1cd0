"""Goldens of DeepEval: single questions and conversations, in JSON, JSON Lines or CSV."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from agentv.datasets.foreign.case_parts import chat_messages, count_losses, first_input, text_in
from agentv.datasets.foreign.foreign_format import (
    ForeignFormat,
    Lose,
    Mapper,
    all_have,
    any_has,
    document_of,
    objects,
)
from agentv.datasets.foreign.records import Record, RecordFile, items_of
from agentv.datasets.foreign.values import (
    call_of,
    expected_calls,
    filled,
    first_of,
    is_blank,
    message_of,
    metadata_of,
    parsed,
    text_of,
    texts_of,
    with_outcome,
)
from agentv.datasets.formats.dataset_format import Content, Document
from agentv.extensions.interop.datasets.dataset_values import cell_list
from agentv.extensions.interop.datasets.written_case import (
    calls_of,
    count_user_losses,
    is_call_list,
    question_in,
    restore,
    seal,
    write_records,
)
from agentv.model.case import EvalCase

_MARKS = (
    *("retrieval_context", "retrievalContext", "expected_tools", "expectedTools", "tools_called", "toolsCalled"),
    *("actual_output", "actualOutput", "source_file", "sourceFile", "additional_metadata", "additionalMetadata"),
    *("custom_column_key_values", "scenario", "user_description", "userDescription"),
)
_QUESTIONS = ("question", "query", "prompt", "messages", "user_scenario")
"""Keys of other tools' records that may also have a `scenario`."""

_MAIN = frozenset(("input", "scenario"))
_LISTS = ("goldens", "conversationalGoldens", "conversational_goldens")
_USED = (
    *(
        "id",
        "case_id",
        "name",
        "input",
        "expected_output",
        "expectedOutput",
        "context",
        "retrieval_context",
        "retrievalContext",
    ),
    *("additional_metadata", "additionalMetadata", "expected_tools", "expectedTools", "scenario", "expected_outcome"),
    *("expectedOutcome", "expectations", "turns", "user_description", "userDescription", "persona"),
)
_OUTCOMES = (
    "expected_outcome",
    "expectedOutcome",
    "expectations",
    "user_description",
    "userDescription",
    "turns",
    "persona",
)
"""Keys that tell conversations of DeepEval from other records with a `scenario`."""

_TURN_PARTS = ("tools_called", "retrieval_context", "mcp_tools_called", "mcp_resources_called", "mcp_prompts_called")
"""What a turn has in addition to its text."""

_OWN = frozenset((*_USED, "comments", "custom_column_key_values"))
_MUSTS = (("must",), ("must_not", "mustNot"))
_ROLES = {"user", "assistant"}
_REACHED = "The outcome is reached: "
_CALLS = "the mode and the arguments of a tool trajectory: the settings of ToolCorrectnessMetric decide"
_DATA = "`equals` compares an expected output that is JSON as data, and ExactMatch of DeepEval as text"


class _DeepEvalGoldens(ForeignFormat):
    title = "goldens of DeepEval"
    strength = 0.76
    fields = "input → input, expected_output → expected_output, context → context, expected_tools → tool_trajectory"
    writes = (".json", ".jsonl")

    def fits(self, file: RecordFile) -> bool:
        lists = [value for key in _LISTS if isinstance(value := document_of(file).get(key), list)]
        if lists:
            return all(isinstance(item, dict) and _MAIN & item.keys() for items in lists for item in items)
        rows = objects(file)
        is_own = all(row.keys() <= _OWN for row in rows) or any_has(rows, *_OUTCOMES)
        is_conversation = all_have(rows, "scenario") and not any_has(rows, *_QUESTIONS) and is_own
        return any_has(rows, *_MARKS) and (all_have(rows, "input") or is_conversation)

    def items(self, file: RecordFile) -> Iterator[Record]:
        document = document_of(file)
        if not document:
            yield from file.placed()
        for key in _LISTS:
            yield from items_of(document[key]) if isinstance(document.get(key), list) else ()

    def mapper(self, document: Document) -> Mapper:
        mapped = document.mapped
        assert mapped is not None

        def rows(record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
            reference = first_of(record.data, "expected_output", "expectedOutput")
            if parsed(reference) is not reference:
                mapped.differ(_DATA)
            return self.rows(record, lose)

        return rows

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
        data = record.data
        extra = parsed(first_of(data, "additional_metadata", "additionalMetadata"))
        passages = cell_list(first_of(data, "context"))
        retrieved = cell_list(first_of(data, "retrieval_context", "retrievalContext"))
        row: dict[str, Any] = {
            "id": first_of(data, "id", "case_id", "name"),
            "context": passages or retrieved,
            "metadata": metadata_of(data, _USED, extra),
        }
        if passages and retrieved:
            row["metadata"]["retrieval_context"] = retrieved
        scenario = data.get("scenario")
        row |= _single(data, lose) if is_blank(scenario) else _conversation(data, lose)
        if rubrics := _expectations(parsed(data.get("expectations"))):
            others = row.get("assertions") or ([{"type": "llm_judge"}] if with_outcome(row) == filled(row) else [])
            row |= {"rubrics": rubrics, "assertions": others}
        return [restore(with_outcome(row), data, "additional_metadata", lose)]

    def write(self, content: Content, path: str) -> None:
        """Write goldens. A file of DeepEval has questions or conversations: the first case decides which."""
        first = next(content.rows)
        golden = _conversation_golden if first.case.is_conversation else _golden
        records = (golden(row.case, content.lose) for row in chain((first,), content.rows))
        write_records(records, path)


DEEPEVAL_GOLDENS = _DeepEvalGoldens()

_OPENING = {"role": "assistant", "content": "Hi! How can I help you today?"}
"""The first message of a conversation that the simulated user begins."""


def _single(data: dict[str, Any], lose: Lose) -> dict[str, Any]:
    if is_blank(data.get("input")):
        raise ValueError("The golden has no input")
    tools = parsed(first_of(data, "expected_tools", "expectedTools"))
    names = [part.strip() for part in tools.split(";")] if isinstance(tools, str) else tools
    calls = [call_of({"name": tool} if isinstance(tool, str) else tool) for tool in names or () if tool]
    question = text_of(data["input"])
    if "[DEEPEVAL:IMAGE:" in question:
        lose("an image that is stored in DeepEval")
    reference = first_of(data, "expected_output", "expectedOutput")
    judges = [] if reference is None else [{"type": "llm_judge"}]
    return {
        "input": question,
        "expected_output": reference,
        "assertions": [*judges, expected_calls(calls)] if calls else [],
    }


def _conversation(data: dict[str, Any], lose: Lose) -> dict[str, Any]:
    """Return a conversation: a simulated user follows the scenario, after the turns of the golden."""
    turns = parsed(data.get("turns"))
    turns = turns if isinstance(turns, list) else []
    messages = [message_of(turn, lose) for turn in turns]
    for key in _TURN_PARTS:
        if any(isinstance(turn, dict) and not is_blank(turn.get(key)) for turn in turns):
            lose(f"`{key}` of a turn")
    outcome = text_of(first_of(data, "expected_outcome", "expectedOutcome"))
    user = {
        "goal": text_of(data["scenario"]),
        "persona": text_of(_persona(first_of(data, "persona", "user_description", "userDescription"))),
        "stop": outcome and f"{_REACHED}{outcome}",
    }
    return {"expected_outcome": outcome, "input": messages or [_OPENING], "user": filled(user)}


def _expectations(value: Any) -> list[str]:
    """Return what an answer must do, and must not, as criteria."""
    musts, nots = (texts_of(first_of(value, *keys)) if isinstance(value, dict) else [] for keys in _MUSTS)
    return [*musts, *(f"The answer must not meet this: {text}" for text in nots)]


def _persona(value: Any) -> Any:
    """Return the text of a persona, which newer versions write as an object."""
    persona = parsed(value)
    return first_of(persona, "characteristics", "description", "name") if isinstance(persona, dict) else value


def _golden(case: EvalCase, lose: Lose) -> dict[str, Any]:
    count_losses(case, lose, keeps=is_call_list)
    if any(map(is_call_list, case.evaluators)):
        lose(_CALLS)
    reference = text_in(case.expected_output, lose) if case.expected_output else ""
    calls = [filled({"name": call["name"], "input_parameters": call["args"]}) for call in calls_of(case.evaluators)]
    golden = {"input": question_in(case, lose), "expected_output": reference, "expected_tools": calls}
    return _with_parts({**golden, "comments": case.expected_outcome}, case, "input", "expected_output")


def _conversation_golden(case: EvalCase, lose: Lose) -> dict[str, Any]:
    count_losses(case, lose, ("turns", "user"))
    if case.user is None and case.turns:
        lose("that turns have fixed texts: DeepEval simulates the user")
    count_user_losses(case.user, lose, "max_turns", "target", *(() if _is_outcome(case) else ("stop",)))
    later = [message for turn in case.turns for message in turn.input]
    scenario = (case.user and case.user.goal) or case.description or text_in(first_input(case), lose)
    outcome = case.expected_outcome or text_in(case.expected_output, lose)
    persona = case.user.persona if case.user else None
    golden = {"scenario": scenario, "expected_outcome": outcome, "user_description": persona}
    turns = chat_messages((*case.input, *later), lose) if later or case.user else []
    for role in {turn["role"] for turn in turns} - _ROLES:
        lose(f"messages of the role {role}")
    turns = [turn for turn in turns if turn["role"] in _ROLES]
    return _with_parts({**golden, "turns": [] if turns == [_OPENING] else turns}, case)


def _is_outcome(case: EvalCase) -> bool:
    """Whether the simulated user stops when the expected outcome is reached, as the simulator of DeepEval does."""
    return case.user is not None and case.user.stop == f"{_REACHED}{case.expected_outcome}"


def _with_parts(golden: dict[str, Any], case: EvalCase, *fields: str) -> dict[str, Any]:
    record = {**golden, "name": case.id, "context": list(case.context)}
    golden = seal(record, "additional_metadata", case, ("id", "context", "evaluators", *fields))
    return {**golden, "additional_metadata": golden.get("additional_metadata", {})}
