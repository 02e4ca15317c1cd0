"""A result as one line of JSON, and back. The one place that knows records of other versions and of AgentV."""

from __future__ import annotations

from typing import Any

import msgspec

from agentv.model.result import SCHEMA_VERSION, Result
from agentv.runs.agentv_rows import result_from_row
from agentv.support.json_values import mended_json

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Result).decode

_DEEPEST = 200
_LARGEST = 2**63


class RecordError(ValueError):
    """A line that is no result. The message says why, without its place, which the reader knows."""


def encode_record(result: Result) -> bytes:
    """One line, its newline included. Never fails: what JSON cannot hold is written as text that says what it was."""
    try:
        return _encode(result) + b"\n"
    except (TypeError, ValueError, OverflowError, RecursionError):
        # Answers and details come from users' code: a lone surrogate or a set must not cost a paid answer.
        return _encode(_plain(result)) + b"\n"


def decode_record(line: bytes, run_id: str = "") -> Result:
    """A record of ours, or a row of AgentV's. `run_id` is for rows that name none. Raises RecordError."""
    try:
        result = _decode(line)
    except msgspec.ValidationError as error:
        return record_from_data(_object_in(line), run_id, str(error))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        mended = mended_json(line)  # JavaScript writes half a surrogate pair where it cut a text
        if mended != line:
            return decode_record(mended, run_id)
        raise RecordError(f"Invalid JSON - {error}") from error
    if result.schema_version != SCHEMA_VERSION:
        raise _unknown_version(result.schema_version)
    return result


def record_from_data(data: dict[str, Any], run_id: str = "", problem: str = "") -> Result:
    """The same, for a record that was read from another format. `problem` is what is wrong with it as one of ours."""
    if "schema_version" not in data:
        try:
            return result_from_row(data, run_id)
        except ValueError as error:
            raise RecordError(str(error)) from error
    if data["schema_version"] != SCHEMA_VERSION:
        raise _unknown_version(data["schema_version"])
    if problem:
        raise RecordError(problem)
    try:
        return msgspec.convert(data, Result)
    except msgspec.ValidationError as error:
        raise RecordError(str(error)) from error


def _object_in(line: bytes) -> dict[str, Any]:
    try:
        data = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RecordError(f"Invalid JSON - {error}") from error
    if not isinstance(data, dict):
        raise RecordError("Expected a JSON object")
    return data


def _unknown_version(version: object) -> RecordError:
    return RecordError(
        f"schema_version is {version!r}, and this agentv reads {SCHEMA_VERSION}; it may be too old for this run"
    )


def _plain(value: Any, depth: int = 0) -> Any:
    """The same value in what JSON has."""
    if depth > _DEEPEST:
        return "…"
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if -_LARGEST <= value < _LARGEST else str(value)
    if isinstance(value, dict):
        return {_plain(str(key)): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, msgspec.Struct):
        return {name: _plain(item, depth + 1) for name, item in _written(value)}
    return _plain(repr(value))


def _written(struct: msgspec.Struct) -> list[tuple[str, Any]]:
    """The fields of a struct that a record holds: those that differ from their default."""
    pairs = []
    for field in msgspec.structs.fields(struct):
        value = getattr(struct, field.name)
        default = {} if field.default_factory is dict else field.default
        if value is not default and value != default:
            pairs.append((field.encode_name, value))
    return pairs
