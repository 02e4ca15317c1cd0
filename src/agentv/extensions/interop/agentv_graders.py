"""Code graders of AgentV (TypeScript) 4.x: their input, and the grade that they print."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from agentv.evaluators.base import LONGEST_REASON, cut, pass_if, quoted
from agentv.evaluators.code.judge_io import printed_object, score_in
from agentv.evaluators.code.payload import FIGURES, encoded, json_messages, payload
from agentv.evaluators.code.program import Program
from agentv.extensions.interop.grader_messages import PathOf, image_files, messages_with_parts
from agentv.model.evaluator import EvaluatorFailure, Score
from agentv.model.job import Judgement
from agentv.sandbox.subprocesses import ProcessOutput, ending_of, tail_of
from agentv.support.json_values import MISSING, json_or

_ANY_EXIT_CODE = frozenset(range(256))
_FROM_SHELL = 126
"""From this exit code on, a shell reports a program that it could not start, or that a signal ended."""

_VERDICTS = frozenset(("passed", "pass", "checks"))


async def grade(program: Program, judgement: Judgement, config: dict[str, Any]) -> Score:
    """Run a grader, and read its grade. Images are written to a folder that it can read."""
    with image_files(judgement) as (path_of, folders):
        stdin = encoded(grader_input(judgement, config, path_of))
        return read_grade(await replace(program, writable=folders).finish(stdin, _ANY_EXIT_CODE))


def grader_input(judgement: Judgement, config: dict[str, Any], path_of: PathOf = str) -> dict[str, Any]:
    """Return the input of a grader. Images stay addresses unless `path_of` writes them to files."""
    return _grader_payload(payload(judgement, config) | messages_with_parts(judgement, path_of))


def read_grade(ended: ProcessOutput) -> Score:
    """Read the output of a code grader of AgentV (TypeScript) 4.x: a score, or text that the exit code decides.

    Raises EvaluatorFailure for a grader that broke: AgentV tells it by its output on stderr, and scores it 0. Output
    that is meant to be JSON but cannot be read is an error too, where AgentV would let the exit code decide.
    Of an object, AgentV reads `score` and `assertions`; here `passed: false` counts as well.
    """
    text = ended.stdout.removeprefix("\ufeff").strip()
    if ended.code and (ended.stderr.strip() or text.startswith(("{", "[")) or ended.code >= _FROM_SHELL):
        raise EvaluatorFailure(f"The grader {ending_of(ended.code)}{tail_of((ended.stderr or text).encode())}")
    if json_or(text, MISSING) is not MISSING or any(line.lstrip().startswith("{") for line in text.splitlines()):
        data = printed_object(text)
        if data.get("score") is None and not data.get("assertions"):
            raise EvaluatorFailure(f"The grader printed no 'score' and no 'assertions': {quoted(data)}")
        if not all(isinstance(item, dict) and isinstance(item.get("passed"), bool) for item in _assertions_in(data)):
            raise EvaluatorFailure(
                "'assertions' of the grader must be a list of {text, passed}, with passed true or false"
            )
        return score_in({key: value for key, value in data.items() if key not in _VERDICTS or value is False})
    return pass_if(ended.code == 0, cut(text or ending_of(ended.code), LONGEST_REASON))


def _assertions_in(data: dict[str, Any]) -> list[Any]:
    assertions = data.get("assertions") or []
    return assertions if isinstance(assertions, list) else [None]


def _grader_payload(data: dict[str, Any]) -> dict[str, Any]:
    """Return the input of a code grader of AgentV (TypeScript) 4.x, and none of the names that it has deprecated.

    The trace has the messages of the user too, and exists without tool calls. Keys are in snake case, as they are
    there, including those of the user's data.
    """
    metrics = msgspec.to_builtins(data["execution_metrics"]) or {}
    figures = {name: metrics[name] for name in FIGURES if metrics.get(name) is not None}
    input_messages, output = json_messages(data["input_messages"]), json_messages(data["output_messages"])
    messages = _transcript(input_messages, output or [{"role": "assistant", "content": data["candidate_answer"]}])
    errors = 0 if data["trace_summary"] is None else msgspec.to_builtins(data["trace_summary"])["error_count"]
    summary = _call_summary(messages, errors)
    events = list(_grader_events(messages, data["candidate_answer"]))
    value: dict[str, Any] = _with_snake_case(
        {
            "criteria": data["expected_outcome"],
            "expected_output": list(_reference_messages(data["expected_messages"])),
            "output": data["candidate_answer"],
            "messages": messages,
            "input_files": data["input_files"],
            "input": input_messages,
            "metadata": data["metadata"] or None,
            "trace": {**summary, "messages": messages, "events": events, **figures},
            "trace_summary": summary,
            **dict.fromkeys((*FIGURES, "start_time", "end_time")),
            **figures,
            "file_changes": data["file_changes"],
            "workspace_path": data["workspace_path"],
            "config": data["config"] or None,
        }
    )
    return value


def _reference_messages(messages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the messages of the reference. Of a list, AgentV keeps texts and objects; other values it drops."""
    for message in messages:
        content = message.get("content", "")
        if isinstance(content, list):
            parts = [{"type": "text", "value": part} if isinstance(part, str) else part for part in content]
            yield {**message, "content": [part for part in parts if isinstance(part, dict) and part.get("value") != ""]}
        elif isinstance(content, str | dict):
            yield message


def _transcript(input_messages: list[dict[str, Any]], output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages of both sides. Output that has those of the user is already complete."""
    is_complete = any(message["role"] in ("user", "system") for message in output)
    return output if is_complete else [*input_messages, *output]


def _call_summary(messages: list[dict[str, Any]], errors: int) -> dict[str, Any]:
    calls = [call for message in messages for call in message.get("tool_calls", ())]
    durations: dict[str, list[float]] = {}
    for call in calls:
        if "duration_ms" in call:
            durations.setdefault(call["tool"], []).append(call["duration_ms"])
    return {
        "event_count": len(calls),
        "tool_calls": dict(Counter(call["tool"] for call in calls)),
        "error_count": errors,
        **({"tool_durations": durations} if durations else {}),
        "llm_call_count": sum(message["role"] == "assistant" for message in messages),
    }


def _grader_events(messages: list[dict[str, Any]], answer: str) -> Iterator[dict[str, Any]]:
    """Yield an event for each message, each tool call, its result, and the final response."""
    events = [event for index, message in enumerate(messages) for event in _events_of(index, message)]
    last = next((index for index in reversed(range(len(messages))) if messages[index]["role"] == "assistant"), None)
    if last is not None:
        names = {"event_id": "final-response", "parent_event_id": f"message-{last}", "type": "final_response"}
        message = {**_without_calls(messages[last]), "content": answer}
        events.append({**names, "message": message, "metadata": {"message_index": last}})
    yield from ({**event, "ordinal": ordinal} for ordinal, event in enumerate(events))


def _events_of(index: int, message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    name = f"message-{index}"
    place: dict[str, Any] = {"message_index": index}
    yield {"event_id": name, "type": "message", "message": _without_calls(message), "metadata": place}
    for number, call in enumerate(message.get("tool_calls", ())):
        call_name = f"{name}-tool-{number}"
        result = {"name": call["tool"], **({"call_id": call["id"]} if "id" in call else {}), "status": "ok"}
        result |= {"output": call["output"]} if "output" in call else {}
        tool = {**result, **({"input": call["input"]} if "input" in call else {})}
        place = {"message_index": index, "tool_index": number}
        took = {"duration_ms": call["duration_ms"]} if "duration_ms" in call else {}
        names = {"event_id": call_name, "parent_event_id": name, "type": "tool_call"}
        yield {**names, "tool": tool, **took, "metadata": place}
        if "output" in call:
            names = {"event_id": f"{call_name}-result", "parent_event_id": call_name, "type": "tool_result"}
            yield {**names, "tool": result, "metadata": place}


def _without_calls(message: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in message.items() if key != "tool_calls"}


def _with_snake_case(value: Any) -> Any:
    """Return data with keys such as `filePath` as `file_path`, at any depth. Keys in capitals stay as they are."""
    if isinstance(value, dict):
        return {_snake_case(key): _with_snake_case(item) for key, item in value.items()}
    return [_with_snake_case(item) for item in value] if isinstance(value, list | tuple) else value


def _snake_case(key: str) -> str:
    if key[:1].isascii() and key[:1].isupper():
        return key
    return "".join(f"_{letter.lower()}" if letter.isascii() and letter.isupper() else letter for letter in key)
