"""Checks that the answer is JSON, matches a JSON Schema, or equals other JSON."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property, lru_cache
from itertools import islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import yaml
from jsonschema_rs import validator_for

from agentv.errors import plural
from agentv.evaluators.base import (
    AgainstReference,
    Evaluator,
    Share,
    cut,
    find_path,
    missed,
    passed,
    quoted,
    reference_value,
    similarity_score,
)
from agentv.evaluators.judges.object_scan import objects_in
from agentv.model.diagnostics import field_name
from agentv.model.evaluator import EvaluatorFailure, FileReference, Score
from agentv.model.job import Judgement
from agentv.support.json_values import MISSING, Step, json_or, same, steps_of

if TYPE_CHECKING:
    from jsonschema_rs import Validator


_MOST_ERRORS = 5
_MOST_DIFFERENCES = 20


_NEWER_FORMATS = {
    "uuid": re.compile(r"(?:urn:uuid:)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII),
    "duration": re.compile(
        r"P(?:\d+W|(?=\d|T\d)(?:\d+Y)?(?:\d+M)?(?:\d+D)?(?:T(?=\d)(?:\d+H)?(?:\d+M)?(?:\d+S)?)?)", re.ASCII
    ),
}
"""Formats that a validator of an older draft does not have."""


def compiled_schema(schema: str, with_formats: bool = False) -> Validator:
    """Compile a schema given as JSON text. Raises EvaluatorFailure if it is not a valid schema."""
    formats = {name: _matcher(pattern) for name, pattern in _NEWER_FORMATS.items()} if with_formats else None
    try:
        # Offline: references in a schema must not open connections or files.
        return validator_for(schema, offline=True, validate_formats=with_formats, formats=formats)
    except ValueError as error:
        raise EvaluatorFailure(f"'schema' is not a valid JSON Schema: {cut(str(error).splitlines()[0])}") from None


def _matcher(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda text: pattern.fullmatch(text) is not None


def schema_errors(validator: Validator, value: Any) -> list[str]:
    """Return the first few violations, each with its location."""
    if validator.is_valid(value):
        return []
    errors = []
    try:
        for error in islice(validator.iter_errors(value), _MOST_ERRORS):
            place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path)
            errors.append(cut(f"{place.lstrip('.') or 'the answer'}: {error.message}"))
    except ValueError:
        # An error includes the invalid value, and this one is nested too deeply to be shown.
        errors.append("the answer does not match the schema")
    return errors


@lru_cache(maxsize=64)
def _read(path: str, _changed_ns: int, with_formats: bool) -> Validator:
    return compiled_schema(Path(path).read_text(encoding="utf-8-sig"), with_formats)


class _SchemaCheck(Evaluator, frozen=True, kw_only=True, dict=True):
    """A check that the answer is JSON and matches the schema, if there is one."""

    aliases: ClassVar[dict[str, str]] = {"value": "schema"}

    schema: dict[str, Any] | str | None = None
    anywhere: bool = False
    formats: bool = False
    loose: bool = False

    def score(self, judgement: Judgement) -> Score:
        """Score 1 if the answer is JSON that matches the schema, otherwise 0."""
        answer = judgement.candidate_answer
        if self.anywhere:
            return self._within(answer, judgement)
        try:
            value = msgspec.json.decode(answer)
        except (ValueError, RecursionError) as error:
            fence = (
                "; `transform: {strip: [fences]}` removes the code fence" if answer.lstrip().startswith("```") else ""
            )
            return missed(f"is not valid JSON: {error}{fence}")
        validator = self._validator or self._from_file(judgement)
        if validator is None:
            return passed("is JSON")
        errors = schema_errors(validator, value)
        return missed(*errors) if errors else passed("is JSON that matches the schema")

    def _within(self, answer: str, judgement: Judgement) -> Score:
        """Score 1 if the answer is or contains an object that matches the schema."""
        if self.loose:
            values = loose_objects_in(answer)
        else:
            values = [value for _, value in objects_in(answer) if not isinstance(value, Exception)]
            with suppress(ValueError, RecursionError):
                values.append(msgspec.json.decode(answer))
        if not values:
            return missed("contains no JSON object")
        validator = self._validator or self._from_file(judgement)
        if validator is None or any(validator.is_valid(value) for value in values):
            return passed("contains JSON" + ("" if validator is None else " that matches the schema"))
        return missed(*schema_errors(validator, values[0]))

    def references(self) -> Iterator[FileReference]:
        """The schema file."""
        if isinstance(self.schema, str):
            yield FileReference(("schema",), self.schema)

    def complaints(self) -> list[str]:
        """An invalid schema, or `loose` without `anywhere`."""
        if self.loose and not self.anywhere:
            return ["'loose' needs 'anywhere: true'"]
        try:
            _ = self._validator
        except EvaluatorFailure as failure:
            return [str(failure)]
        return []

    @cached_property
    def _validator(self) -> Validator | None:
        """The schema from the settings, compiled once; None if there is none or it is in a file."""
        is_inline = isinstance(self.schema, dict)
        return compiled_schema(msgspec.json.encode(self.schema).decode(), self.formats) if is_inline else None

    def _from_file(self, judgement: Judgement) -> Validator | None:
        schema = self.schema
        if not isinstance(schema, str):
            return None
        try:
            path = find_path(judgement, schema)
            return _read(path, os.stat(path).st_mtime_ns, self.formats)
        except EvaluatorFailure:
            raise
        except Exception as error:
            raise EvaluatorFailure(f"Cannot read schema '{schema}': {error}") from None


class JsonDiff(AgainstReference, frozen=True, kw_only=True, dict=True):
    """The fraction of values in a JSON answer that equal those of the reference; with `threshold`, 0 or 1.

    Every value that is not an object or a list counts once, wherever it is; so does one that only one side has. List
    items are compared by position. `ignore` lists paths that do not count, such as `meta.created` or `items[0].id`. An
    answer that is not JSON scores 0. `details.differences` lists the first differences.
    """

    value: dict[str, Any] | list[Any] | str | None = None
    ignore: list[str] = []
    threshold: Share | None = None

    def complaints(self) -> list[str]:
        """Invalid paths, or a text that is not JSON."""
        complaints = []
        if isinstance(self.value, str) and json_or(self.value, MISSING) is MISSING:
            complaints.append("'value' is not valid JSON")
        for index, path in enumerate(self.ignore):
            try:
                steps_of(path)
            except ValueError as error:
                complaints.append(f"'ignore[{index}]': {error}")
        return complaints

    def score(self, judgement: Judgement) -> Score:
        """Compare all values of the answer with those of the reference."""
        reference = reference_value(judgement) if self.value is None else self.value
        reference = json_or(reference, MISSING) if isinstance(reference, str) else reference
        if reference is MISSING:
            raise EvaluatorFailure("json_diff needs a reference that is JSON")
        if (answer := json_or(judgement.candidate_answer.strip(), MISSING)) is MISSING:
            return missed("is not valid JSON")
        ignored = {steps_of(path) for path in self.ignore}
        compared = [
            (place, difference)
            for place, difference in _compared(answer, reference, ())
            if not any(place[: len(prefix)] == prefix for prefix in ignored)
        ]
        differences = [difference for _, difference in compared if difference]
        equal = 1.0 if not compared else 1 - len(differences) / len(compared)
        sentence = f"{len(compared) - len(differences)} of {plural(len(compared), 'value')} equal"
        result = similarity_score(equal, self.threshold, sentence)
        examples = differences[:_MOST_DIFFERENCES]
        details = {"differences": examples, "count": len(differences)} if differences else None
        misses = (*result.misses, *examples) if differences else result.misses
        return msgspec.structs.replace(result, misses=misses, details=details)


def _compared(answer: Any, reference: Any, path: tuple[Step, ...]) -> Iterator[tuple[tuple[Step, ...], str]]:
    """Yield the path of each value, and how it differs; an empty text if it does not. Iterative, for deep values."""
    stack = [(answer, reference, path)]
    while stack:
        one, other, place = stack.pop()
        if isinstance(one, dict) and isinstance(other, dict) and (one or other):
            keys = dict.fromkeys((*other, *one))
            stack += [(one.get(key, MISSING), other.get(key, MISSING), (*place, key)) for key in reversed(list(keys))]
        elif isinstance(one, list) and isinstance(other, list) and (one or other):
            pairs = list(zip_longest(one, other, fillvalue=MISSING))
            stack += [(*pair, (*place, index)) for index, pair in reversed(list(enumerate(pairs)))]
        else:
            yield place, _difference(one, other, place)


def _difference(one: Any, other: Any, place: tuple[Step, ...]) -> str:
    where = field_name(place) or "the answer"
    if one is MISSING:
        return f"{where}: missing, expected {quoted(other)}"
    if other is MISSING:
        return f"{where}: {quoted(one)} is not expected"
    return "" if same(one, other) else f"{where}: {quoted(one)}, expected {quoted(other)}"


class IsJson(_SchemaCheck, frozen=True, kw_only=True, dict=True):
    """The answer is valid JSON and matches `schema`, if set. With `anywhere`, it only has to contain such an object.

    `formats` also checks `format` in the schema, such as `email` and `date`. With `loose`, the object may have unquoted
    keys, comments, single quotes, or no end.
    """


class JsonSchema(_SchemaCheck, frozen=True, kw_only=True, dict=True):
    """The answer is JSON that matches `schema`, an object or a file path.

    With `anywhere`, the answer only has to contain an object that matches. `formats` also checks `format` in the
    schema, such as `email` and `date`. With `loose`, the object may have unquoted keys, comments, single quotes, or no
    end.
    """

    schema: dict[str, Any] | str


_LONGEST = 100_000
_MOST_CHARACTERS = 2_000_000
"""Characters that are parsed in a few seconds, over all attempts in one answer."""

_BRACE = re.compile(r"[{}]")
_PART = re.compile(r"'[^'\n]*'|\"(?:[^\"\\\n]|\\.)*\"|\S*://\S*|(?P<comment>//)|.", re.DOTALL)


class _Loader(yaml.SafeLoader):
    """Reads the scalars of JSON, and everything else as text. Aliases are refused, since they could grow."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("an alias")
        return super().compose_node(parent, index)


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("int", r"^[-+]?(?:0|[1-9][0-9]*)$", list("-+0123456789")),
    ("float", r"^[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$", list("-+0123456789.")),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), _first)


def loose_objects_in(text: str) -> list[Any]:
    """Return the objects in a text. Raises EvaluatorFailure if it has too many braces to search."""
    objects: list[Any] = []
    position, budget = text.find("{"), _MOST_CHARACTERS
    while 0 <= position < len(text) - 1:
        source, end = _candidate(text, position)
        budget -= len(source)
        if budget < 0:
            raise EvaluatorFailure("Cannot search the answer for JSON: it has too many braces")
        value = _parsed(source)
        if isinstance(value, dict):
            objects.append(value)
        else:
            end = position + 1
        position = text.find("{", end)
    return objects


def _candidate(text: str, start: int) -> tuple[str, int]:
    """Return the text from a brace to its counterpart, or to the end with the missing braces, and its end."""
    depth, last = 0, min(len(text), start + _LONGEST)
    for brace in _BRACE.finditer(text, start, last):
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return text[start : brace.end()], brace.end()
    return text[start:last] + "}" * depth, last


def _parsed(source: str) -> Any:
    try:
        return json.loads(source, parse_constant=_refuse)
    except (ValueError, RecursionError):
        pass
    try:
        return _with_text_keys(yaml.load(_with_comments(source), _Loader))  # noqa: S506  # a safe loader
    except (yaml.YAMLError, ValueError, RecursionError, TypeError):
        return None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key if isinstance(key, str) else json.dumps(key): _with_text_keys(item) for key, item in value.items()}
    return [_with_text_keys(item) for item in value] if isinstance(value, list) else value


def _with_comments(source: str) -> str:
    """Return a text whose comments start as in YAML."""
    return _PART.sub(lambda part: "#" if part["comment"] else part[0], source) if "//" in source else source
