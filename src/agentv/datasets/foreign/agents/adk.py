"""Eval sets of Google ADK in three generations: eval cases, a list of sessions, and a list of turns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, all_have, document_of, objects
from agentv.datasets.foreign.records import Record, RecordFile, items_of
from agentv.datasets.foreign.values import call_of, expected_calls, filled, first_of, is_blank, text_of, with_outcome

_TURN = ("query", "expected_tool_use", "reference")


class _ADK(ForeignFormat):
    title = "an eval set of Google ADK"
    fields = "user_content → input and turns, final_response → expected_output, tool_uses → tool_trajectory"
    in_folders = True

    def fits(self, file: RecordFile) -> bool:
        if file.kind != "json":
            return False
        document, rows = document_of(file), objects(file)
        if isinstance(document.get("eval_cases"), list):
            return "eval_set_id" in document or all_have(document["eval_cases"], "eval_id")
        if all_have(rows, "data") and all(isinstance(row["data"], list) for row in rows):
            return True
        return all_have(rows, "query") and any(key in row for row in rows for key in _TURN[1:])

    def settings(self, file: RecordFile, lose: Lose) -> dict[str, Any]:  # noqa: ARG002
        document = document_of(file)
        return filled(
            {"dataset": first_of(document, "name", "eval_set_id"), "description": document.get("description")}
        )

    def items(self, file: RecordFile) -> Iterator[Record]:
        document, rows = document_of(file), objects(file)
        if document:
            yield from items_of(document["eval_cases"])
        elif all_have(rows, "data"):
            yield from file.records()
        else:  # the oldest generation: all turns of one session
            yield Record(1, {"data": [record.data for record in file.records()]})

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
        data = record.data
        if not is_blank(first_of(data, "session_input", "initial_session")):
            lose("the state of a session: it is in the metadata")
        turns = [_new_turn(turn) for turn in data.get("conversation") or ()]
        turns += [_old_turn(turn) for turn in data.get("data") or ()]
        scenario = data.get("conversation_scenario")
        row: dict[str, Any] = {
            "id": first_of(data, "eval_id", "name"),
            "metadata": filled({key: data.get(key) for key in ("session_input", "initial_session", "rubrics")}),
        }
        if turns:
            first, *later = turns
            row |= {key: first.get(key) for key in ("input", "expected_output")}
            row["assertions"] = first.get("assertions") if not later else []
            if later:
                last = later[-1]
                row |= {"turns": later, "expected_output": last.get("expected_output")}
                if first.get("assertions"):
                    lose("tool calls expected in the first of several turns")
        elif isinstance(scenario, dict):
            plan = text_of(scenario.get("conversation_plan"))
            row |= {"input": text_of(scenario.get("starting_prompt")) or plan, "user": {"goal": plan}}
        else:
            raise ValueError("The eval case has no conversation")
        return [with_outcome(row)]


ADK = _ADK()


def _text(content: Any) -> str:
    parts = content.get("parts") if isinstance(content, dict) else None
    if not isinstance(parts, list):
        return text_of(content.get("text") if isinstance(content, dict) else content)
    return "\n".join(text_of(part.get("text")) for part in parts if isinstance(part, dict) and part.get("text"))


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
        "assertions": [*checks, expected_calls(calls, "in_order")] if calls else [],
    }
    return filled(row)
