"""JSON Schemas made ready once, and what of a value does not fit them."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from agentv.evaluators.scoring import cut
from agentv.model.score import EvaluatorFailure

if TYPE_CHECKING:
    from jsonschema_rs import Validator

_MOST_ERRORS = 5


def compiled_schema(schema: str) -> Validator:
    """A schema given as JSON text, ready to validate. Raises EvaluatorFailure for one that is none."""
    from jsonschema_rs import validator_for  # late: few datasets need it, and it takes 30 ms

    try:
        # Offline: a schema is data, and data opens no connections and no files.
        return validator_for(schema, offline=True)
    except ValueError as error:
        raise EvaluatorFailure(f"'schema' is no JSON Schema: {cut(str(error).splitlines()[0])}") from None


def schema_in(path: str) -> Validator:
    """The schema in a file, read again when the file has changed."""
    return _read(path, os.stat(path).st_mtime_ns)


def schema_errors(validator: Validator, value: Any) -> list[str]:
    """What does not fit, each with its place; the first few."""
    if validator.is_valid(value):
        return []
    errors = []
    try:
        for error in validator.iter_errors(value):
            place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path)
            errors.append(cut(f"{place.lstrip('.') or 'the answer'}: {error.message}"))
            if len(errors) == _MOST_ERRORS:
                break
    except ValueError:
        # An error shows the value that it is about, and this one is nested too deep to be shown.
        errors.append("the answer does not fit the schema")
    return errors


@lru_cache(maxsize=64)
def _read(path: str, _changed_ns: int) -> Validator:
    with open(path, encoding="utf-8-sig") as file:
        return compiled_schema(file.read())
