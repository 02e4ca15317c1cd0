"""Checks that the answer is JSON and matches a JSON Schema."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from jsonschema_rs import validator_for

from agentv.evaluators.base import Evaluator, cut, find_path, missed, passed
from agentv.model.evaluator import EvaluatorFailure, FileReference, Score
from agentv.model.job import Judgement

if TYPE_CHECKING:
    from jsonschema_rs import Validator


_MOST_ERRORS = 5


def compiled_schema(schema: str) -> Validator:
    """Compile a schema given as JSON text. Raises EvaluatorFailure if it is not a valid schema."""
    try:
        # Offline: references in a schema must not open connections or files.
        return validator_for(schema, offline=True)
    except ValueError as error:
        raise EvaluatorFailure(f"'schema' is not a valid JSON Schema: {cut(str(error).splitlines()[0])}") from None


def schema_errors(validator: Validator, value: Any) -> list[str]:
    """Return the first few violations, each with its location."""
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
        # An error includes the invalid value, and this one is nested too deeply to be shown.
        errors.append("the answer does not match the schema")
    return errors


@lru_cache(maxsize=64)
def _read(path: str, _changed_ns: int) -> Validator:
    return compiled_schema(Path(path).read_text(encoding="utf-8-sig"))


class _SchemaCheck(Evaluator, frozen=True, kw_only=True, dict=True):
    """A check that the answer is JSON and matches the schema, if there is one."""

    aliases: ClassVar[dict[str, str]] = {"value": "schema"}

    schema: dict[str, Any] | str | None = None

    def score(self, judgement: Judgement) -> Score:
        """Score 1 if the answer is JSON that matches the schema, otherwise 0."""
        answer = judgement.candidate_answer.strip()
        try:
            value = msgspec.json.decode(answer)
        except (ValueError, RecursionError) as error:
            fence = "; `transform: {strip: [fences]}` removes the code fence" if answer.startswith("```") else ""
            return missed(f"is not valid JSON: {error}{fence}")
        validator = self._validator or self._from_file(judgement)
        if validator is None:
            return passed("is JSON")
        errors = schema_errors(validator, value)
        return missed(*errors) if errors else passed("is JSON that matches the schema")

    def references(self) -> Iterator[FileReference]:
        """The schema file."""
        if isinstance(self.schema, str):
            yield FileReference(("schema",), self.schema)

    def complaints(self) -> list[str]:
        """An invalid schema."""
        try:
            _ = self._validator
        except EvaluatorFailure as failure:
            return [str(failure)]
        return []

    @cached_property
    def _validator(self) -> Validator | None:
        """The schema from the settings, compiled once; None if there is none or it is in a file."""
        is_inline = isinstance(self.schema, dict)
        return compiled_schema(msgspec.json.encode(self.schema).decode()) if is_inline else None

    def _from_file(self, judgement: Judgement) -> Validator | None:
        schema = self.schema
        if not isinstance(schema, str):
            return None
        try:
            path = find_path(judgement, schema)
            return _read(path, os.stat(path).st_mtime_ns)
        except EvaluatorFailure:
            raise
        except Exception as error:
            raise EvaluatorFailure(f"Cannot read schema '{schema}': {error}") from None


class IsJson(_SchemaCheck, frozen=True, kw_only=True, dict=True):
    """The answer is valid JSON and matches `schema`, if set."""


class JsonSchema(_SchemaCheck, frozen=True, kw_only=True, dict=True):
    """The answer is JSON that matches `schema`, an object or a file path."""

    schema: dict[str, Any] | str
