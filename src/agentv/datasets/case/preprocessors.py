"""The `preprocessors` of a dataset, which apply to all of its judges that read files of answers."""

from functools import lru_cache
from typing import Any

from agentv.model.diagnostics import Problems
from agentv.model.evaluator import DEFAULT_TYPE, EvaluatorSpec
from agentv.model.values import FrozenDict, freeze
from agentv.settings.evaluator_reader import find_kind, read_entry
from agentv.settings.settings_reader import field_of
from agentv.support.media_types import media_type_named

_KEY = "preprocessors"


def read_preprocessors(entries: list[Any], problems: Problems) -> tuple[FrozenDict, ...]:
    """Return the preprocessors of a dataset, checked as those of a judge are; none after an error."""
    spec = read_entry({"type": DEFAULT_TYPE, _KEY: entries}, (_KEY,), problems, {_KEY: (_KEY,)})
    return () if spec is None else tuple(map(freeze, entries))


def with_preprocessors(specs: tuple[EvaluatorSpec, ...], shared: tuple[FrozenDict, ...]) -> tuple[EvaluatorSpec, ...]:
    """Return the specs with the dataset's preprocessors added; one of an entry wins for the same type of file."""
    return tuple(_with_preprocessors(spec, shared) for spec in specs) if shared else specs


@lru_cache(maxsize=1024)
def _with_preprocessors(spec: EvaluatorSpec, shared: tuple[FrozenDict, ...]) -> EvaluatorSpec:
    original = spec.to_data()
    data = _merged(original, shared)
    return spec if data is original else read_entry(data, (), Problems()) or spec


def _merged(entry: dict[str, Any], shared: tuple[FrozenDict, ...]) -> dict[str, Any]:
    kind = find_kind(entry["type"], (), Problems())
    if kind is not None and kind.members_field in entry:
        members = [_merged(member, shared) for member in entry[kind.members_field]]
        return {**entry, kind.members_field: members}
    if kind is None or field_of(kind, _KEY) is None:
        return entry
    own = list(entry.get(_KEY, ()))
    types = {media_type_named(item["type"]) for item in own}
    return {**entry, _KEY: own + [item for item in shared if media_type_named(item["type"]) not in types]}
