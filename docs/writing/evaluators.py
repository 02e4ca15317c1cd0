"""The reference pages of the evaluators, generated from their classes and examples."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

from agentv.evaluators.base import OTHER_TOOLS, RESERVED, Evaluator
from agentv.registry import EVALUATORS
from writing.markup import (
    DOCS,
    NOT_YET,
    Lines,
    also_written,
    block,
    cell,
    reasons,
    refused_besides,
    setting_table,
    structs_in,
)

_ENTRY_KEYS = {
    "type": "one of the types below; the prefix `not-` inverts the score",
    "name": "name in results (default: the type)",
    "metric": "same as `name`",
    "id": "same as `name`, in files of AgentV (TypeScript)",
    "weight": "weight in the score of the case: a number ≥ 0 (default: 1)",
    "required": "`true`: the case only passes if this evaluator passes; a number from 0 to 1: its minimum score",
    "gate": "`false`: the verdict, with the minimum in `required`, is recorded and does not fail the case",
    "min_score": "name of the number in `required` in AgentV (TypeScript) 4.x; can be combined with `required: true`",
    "negate": "`true` inverts the score",
    "transform": "object with cleaning steps for the answer before this evaluator scores it",
    "target": "judge target; a list is a jury",
}
"""The keys of every entry of `evaluators`."""


def index() -> Lines:
    """Yield the index: the keys of all entries, every type, and unsupported types and keys."""
    yield from ("# Evaluators", "")
    yield from ("An entry of `evaluators` is an object, or a string, which is a rubric criterion:", "")
    yield from ("```yaml", "evaluators:", "  - Greets the user", "  - type: contains", "    value: hello", "```", "")
    yield "Each type has its own page. See [Score answers](../how-to/scoring.md)."
    yield from ("", "## Every entry", "", "| key | meaning |", "|---|---|")
    yield from (f"| `{key}` | {meaning} |" for key, meaning in _entry_keys())
    yield from (
        "",
        "Types can be written in snake_case or kebab-case, settings also in camelCase. To use your own type, write",
    )
    yield "`file.py:Class` or install a package with an entry point in `agentv.evaluators`. It must be a"
    yield "subclass of `agentv.evaluators.base.Evaluator`; its fields are the settings."
    yield "promptfoo's prefix `not-` means `negate: true`."
    yield from ("", "## Types", "", "| type | aliases | description |", "|---|---|---|")
    for name in EVALUATORS.names():
        kind = EVALUATORS.find(name)
        summary = inspect.cleandoc(str(kind.__doc__)).split("\n", 1)[0]
        others = also_written(EVALUATORS, name)
        yield f"| [{name}](evaluators/{name}.md) | {others} | {cell(summary)} |"
    yield from ("", "## Types of other tools", "")
    yield "These types of AgentV (TypeScript) and promptfoo are rejected with a hint:"
    yield from ("", *reasons(EVALUATORS.elsewhere, "type"))
    yield from ("", "## Refused keys", "", "These keys of other tools are rejected, unless a type lists the key:")
    yield from ("", *reasons(OTHER_TOOLS))


def page(name: str) -> Lines:
    """Yield the page of one type."""
    kind = EVALUATORS.find(name)
    yield from (f"# {name}", "", inspect.cleandoc(str(kind.__doc__)))
    if others := also_written(EVALUATORS, name):
        yield from ("", f"Aliases: {others}.")
    yield from _example(name)
    yield from ("", "## Settings", "")
    yield "In addition to the keys of [every entry](../evaluators.md#every-entry):"
    yield from ("", *setting_table(kind, ()))
    if kind.score is Evaluator.score and kind.evaluate is Evaluator.evaluate:
        yield from ("", NOT_YET)
    if kind.open_settings:
        yield from ("", "Accepts any other key and passes it on.")
    yield from refused_besides(kind, OTHER_TOOLS)
    for inner in dict.fromkeys(structs_in(kind)):
        yield from block(inner)


def _example(name: str) -> Lines:
    files = example(name)
    scores = files.pop("scores", "")
    if files:
        yield from ("", "## Example")
    for file, text in files.items():
        language = {"py": "python", "sh": "sh"}.get(file.rpartition(".")[2], "yaml")
        yield from ("", f"`{file}`:", "", f"```{language}", text.rstrip(), "```")
    if scores:
        yield from ("", f"`agentv eval evals/{name}.yaml` gives these scores:", "", "| case | score |", "|---|---|")
        for line in scores.splitlines():
            case, _, score = line.partition(": ")
            yield f"| `{case}` | {float(score):.3g} |"


def example(name: str) -> dict[str, str]:
    """Return the files of an evaluator's example by name, and `scores`; empty if there is no example."""
    path = DOCS / "examples" / f"{name}.txt"
    if not path.is_file():
        return {}
    parts = path.read_text(encoding="utf-8").split("=== ")[1:]
    return {file: text for file, _, text in (part.partition("\n") for part in parts)}


def _entry_keys() -> Iterable[tuple[str, str]]:
    """Return the keys of every entry with their meanings. Raise ValueError if the code has others."""
    if set(_ENTRY_KEYS) != set(RESERVED):
        raise ValueError(f"_ENTRY_KEYS has {sorted(_ENTRY_KEYS)}, the code {sorted(RESERVED)}")
    return _ENTRY_KEYS.items()
