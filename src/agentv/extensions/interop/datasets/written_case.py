"""Write cases to other tools' formats so that they can be read back unchanged.

Parts that a tool has no field for are written to the metadata of the case, under `agentv`, and read back from there. A
seal tells whether the rest of the case was edited since.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from agentv.datasets.foreign.case_parts import first_input, text_in
from agentv.datasets.foreign.foreign_format import Lose
from agentv.datasets.foreign.values import filled, first_of, object_at, text_of
from agentv.errors import UsageError
from agentv.model.case import EvalCase, SimulatedUser, case_to_data
from agentv.model.evaluator import DEFAULT_EVALUATOR, DEFAULT_TARGET, EvaluatorSpec
from agentv.model.message import Message
from agentv.model.values import digest, to_json
from agentv.support.lines import open_for_writing

_OWN = "agentv"
_SEAL = "seal"
_ITEM_TEXTS = ("expected_outcome", "outcome", "score_ranges")
_CARRIED = (
    *("id", "expected_outcome", "input", "expected_output", "context", "evaluators", "turns", "aggregation", "user"),
    *("conversation_id", "cluster", "description", "tags", "execution", "on_turn_failure", "window_size"),
)

_EDITED = "what agentv had added to a case: the case was edited since, so that it is read as the other tool does"


def is_text(messages: tuple[Message, ...], role: str) -> bool:
    """Whether messages are one text of a role."""
    return len(messages) == 1 and messages[0].role == role and _is_plain(messages[0])


def seal(record: dict[str, Any], key: str, case: EvalCase, fields: Collection[str]) -> dict[str, Any]:
    """Return a record with the metadata of its case under `key`, and the parts of the case that are not in `fields`.

    Fields have plain values: `input` one text, or several messages with `chat`, and `evaluators` the default judge.
    """
    data = case_to_data(case)
    parts = [name for name in _CARRIED if name not in fields or not _is_plain_part(name, case, "chat" in fields)]
    own = {name: data[name] for name in parts if name in data}
    for name in ("input", "expected_output"):
        messages = getattr(case, name)
        if name not in parts:
            continue
        if not messages:
            own[name] = None
        elif any(message.parts for message in messages):
            del own[name]  # its files are lost
        elif len(messages) == 1 and not isinstance(messages[0].content, str | dict | None):
            own[name] = messages[0].content  # numbers and lists are not the content of a written message
    if own.get("execution") == {"target": DEFAULT_TARGET}:
        del own["execution"]
    if "turns" in own:
        own |= {"user": own.get("user"), "turns": [_explicit(turn) for turn in own["turns"]]}
    if "evaluators" in own:
        specs = case.evaluators[1:] if case.rubrics else case.evaluators
        own["evaluators"] = [_explicit(spec.to_data()) for spec in specs]
        own |= {"rubrics": case.rubrics} if case.rubrics else {}
        if any(map(_has_own_protocol, own["evaluators"])):
            del own["evaluators"]
    record = filled(record)
    if own:
        own |= {"expected_outcome": case.expected_outcome, _SEAL: digest(record)}
    metadata = {**case.metadata, **({_OWN: own} if own else {})}
    return {**record, **({key: metadata} if metadata else {})}


def is_written(data: dict[str, Any], key: str) -> bool:
    """Whether `seal` added parts of a case to the metadata under `key`."""
    return bool(object_at(data.get(key), _OWN))


def restore(row: dict[str, Any], data: dict[str, Any], key: str, lose: Lose) -> dict[str, Any]:
    """Return the row with the parts that `seal` added to the metadata under `key`, unless the rest was edited."""
    own = object_at(data.get(key), _OWN)
    if not own.get(_SEAL):
        return row
    if own[_SEAL] != digest({name: value for name, value in data.items() if name != key}):
        lose(_EDITED)
        return {**row, "metadata": {name: value for name, value in row.get("metadata", {}).items() if name != _OWN}}
    metadata = {name: value for name, value in data[key].items() if name != _OWN}
    # A user is carried: without one, the tool's file of conversations has one that the case did not.
    replaced = ("user", *(("assertions", "rubrics") if "evaluators" in own else ()))
    others = {name: value for name, value in row.items() if name not in replaced}
    return {**others, "metadata": metadata, **{name: value for name, value in own.items() if name != _SEAL}}


def criteria_of(case: EvalCase) -> list[str]:
    """Return the texts of the rubric items of a case."""
    specs = [spec for spec in case.evaluators if spec.type == "rubric" and not spec.negate]
    lists = [spec.settings.get("rubrics", ()) for spec in specs]
    items = [item for items in lists for item in ([items] if isinstance(items, str) else items)]
    return [item if isinstance(item, str) else text_of(first_of(dict(item), *_ITEM_TEXTS)) for item in items]


def count_user_losses(user: SimulatedUser | None, lose: Lose, *names: str) -> None:
    """Report the settings of a simulated user among `names` that are set."""
    for name in names:
        if getattr(user, name, None) is not None:
            lose(f"`{name}` of the simulated user")


def is_call_list(spec: EvaluatorSpec) -> bool:
    """Whether an evaluator expects a list of tool calls that other tools can compare."""
    return spec.type == "tool_trajectory" and not spec.negate and bool(spec.settings.get("expected"))


def calls_of(specs: tuple[EvaluatorSpec, ...]) -> list[dict[str, Any]]:
    """Return the tool calls that evaluators expect, each with `name` and `args`; any arguments are empty ones."""
    calls = [call for spec in specs if is_call_list(spec) for call in spec.settings["expected"]]
    arguments = [call["args"] if isinstance(call.get("args"), dict) else {} for call in calls]
    return [{"name": call["tool"], "args": dict(args)} for call, args in zip(calls, arguments, strict=True)]


def _explicit(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an evaluator or a turn with the settings whose defaults are others in files that list `tests`."""
    defaults: dict[str, Any] = {"tool_trajectory": {"args_match": "superset"}, "composite": {"gate": True}}
    members = [_explicit(dict(member)) for member in entry.get("evaluators", ())]
    return {**defaults.get(entry.get("type", ""), {}), **entry, **({"evaluators": members} if members else {})}


def _has_own_protocol(entry: dict[str, Any]) -> bool:
    """Whether an entry is a code judge with our protocol, which files that list `tests` cannot have."""
    is_own = entry["type"] == "code_judge" and "grader_protocol" not in entry
    return is_own or any(map(_has_own_protocol, entry.get("evaluators", ())))


def _is_plain_part(name: str, case: EvalCase, is_chat: bool) -> bool:
    if name == "input":
        return is_text(case.input, "user") or (is_chat and bool(case.input) and all(map(_is_plain, case.input)))
    if name == "expected_output":
        return not case.expected_output or is_text(case.expected_output, "assistant")
    return name != "evaluators" or case.evaluators == (DEFAULT_EVALUATOR,)


def _is_plain(message: Message) -> bool:
    has_text = isinstance(message.content, str) and bool(message.content.strip())
    return has_text and not message.tool_calls and message.name is None


def question_in(case: EvalCase, lose: Lose) -> str:
    """Return the text of the input, which most tools require."""
    text = text_in(first_input(case), lose)
    if not text.strip():
        raise UsageError(f"The input of the case '{case.id}' is blank", "The other tool requires a text")
    return text


def write_records(records: Iterable[dict[str, Any]], path: str) -> None:
    """Write records as JSON Lines, or as one JSON array, according to the extension."""
    as_lines = path.endswith(".jsonl")
    with open_for_writing(path) as stream:
        stream.write(b"" if as_lines else b"[")
        for number, record in enumerate(records):
            between = b"" if not number else b"\n" if as_lines else b",\n"
            stream.write(between + to_json(record))
        stream.write(b"\n" if as_lines else b"]\n")
