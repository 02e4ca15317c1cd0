"""JSON: whether the answer is any, and whether it fits a schema."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from agentv.evaluators.base import Evaluator
from agentv.evaluators.json_schemas import compiled_schema, schema_errors, schema_in
from agentv.evaluators.scoring import file_finder, missed, passed
from agentv.model.judgement import Judgement
from agentv.model.score import EvaluatorFailure, Score

if TYPE_CHECKING:
    from jsonschema_rs import Validator


class _SchemaCheck(Evaluator, frozen=True, kw_only=True, dict=True):
    """A check that the answer is JSON and fits a schema, where one is given."""

    aliases: ClassVar[dict[str, str]] = {"value": "schema"}
    files: ClassVar[tuple[str, ...]] = ("schema",)

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
        schema = getattr(self, "schema", None)
        return compiled_schema(msgspec.json.encode(schema).decode()) if isinstance(schema, dict) else None

    def _from_file(self, judgement: Judgement) -> Validator | None:
        schema = getattr(self, "schema", None)
        if not isinstance(schema, str):
            return None
        try:
            path = file_finder(judgement)(schema)
            return schema_in(path)
        except EvaluatorFailure:
            raise
        except Exception as error:
            raise EvaluatorFailure(f"The schema '{schema}' cannot be read: {error}") from None


class IsJson(_SchemaCheck, frozen=True, kw_only=True, dict=True):
    """The answer is JSON, and fits `schema` where one is given."""

    schema: dict[str, Any] | str | None = None


class JsonSchema(_SchemaCheck, frozen=True, kw_only=True, dict=True):
    """The answer is JSON that fits `schema`, an object or a file's path."""

    schema: dict[str, Any] | str
