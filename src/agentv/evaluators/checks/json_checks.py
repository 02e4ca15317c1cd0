"""JSON: whether the answer is any, and whether it fits a schema."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from jsonschema_rs import validator_for

from agentv.evaluators.base import Evaluator, cut, file_finder, missed, passed
from agentv.model.evaluator import EvaluatorFailure, FileReference, Score
from agentv.model.job import Judgement

if TYPE_CHECKING:
    from jsonschema_rs import Validator


_MOST_ERRORS = 5


def compiled_schema(schema: str) -> Validator:
    """A schema given as JSON text, ready to validate. Raises EvaluatorFailure for one that is none."""
    try:
        # Offline: a schema is data, and data opens no connections and no files.
        return validator_for(schema, offline=True)
    except ValueError as error:
        raise EvaluatorFailure(f"'schema' is no JSON Schema: {cut(str(error).splitlines()[0])}") from None


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
    return compiled_schema(Path(path).read_text(encoding="utf-8-sig"))


class _SchemaCheck(Evaluator, frozen=True, kw_only=True, dict=True):
    """A check that the answer is JSON and fits a schema, where one is given."""

    aliases: ClassVar[dict[str, str]] = {"value": "schema"}

    schema: dict[str, Any] | str | None = None

    def score(self, judgement: Judgement) -> Score:
        """1 when the answer is JSON that fits, else 0."""
        answer = judgement.candidate_answer.strip()
        try:
            value = msgspec.json.decode(answer)
        except (ValueError, RecursionError) as error:
            fence = "; `transform: {strip: [fences]}` takes the code fence off" if answer.startswith("```") else ""
            return missed(f"is no JSON: {error}{fence}")
        validator = self._validator or self._from_file(judgement)
        if validator is None:
            return passed("is JSON")
        errors = schema_errors(validator, value)
        return missed(*errors) if errors else passed("is JSON that fits the schema")

    def references(self) -> Iterator[FileReference]:
        """The file of the schema."""
        if isinstance(self.schema, str):
            yield FileReference(("schema",), self.schema)

    def complaints(self) -> list[str]:
        """A schema that is none."""
        try:
            _ = self._validator
        except EvaluatorFailure as failure:
            return [str(failure)]
        return []

    @cached_property
    def _validator(self) -> Validator | None:
        """The schema of the settings, made ready once; None when there is none or it lies in a file."""
        is_inline = isinstance(self.schema, dict)
        return compiled_schema(msgspec.json.encode(self.schema).decode()) if is_inline else None

    def _from_file(self, judgement: Judgement) -> Validator | None:
        schema = self.schema
        if not isinstance(schema, str):
            return None
        try:
            path = file_finder(judgement)(schema)
            return _read(path, os.stat(path).st_mtime_ns)
        except EvaluatorFailure:
            raise
        except Exception as error:
            raise EvaluatorFailure(f"The schema '{schema}' cannot be read: {error}") from None


class IsJson(_SchemaCheck, frozen=True, kw_only=True, dict=True):
    """The answer is JSON, and fits `schema` where one is given."""


class JsonSchema(_SchemaCheck, frozen=True, kw_only=True, dict=True):
    """The answer is JSON that fits `schema`, an object or a file's path."""

    schema: dict[str, Any] | str
