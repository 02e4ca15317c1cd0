"""The pages of the evaluators, from their classes and examples."""

from __future__ import annotations

import inspect

from agentv.evaluators.base import OTHER_TOOLS, RESERVED, Evaluator
from agentv.registry import EVALUATORS
from writing.markup import (
    DOCS,
    NOT_YET,
    Lines,
    also_written,
    block,
    cell,
    meanings_in,
    reasons,
    refused_besides,
    setting_table,
    structs_in,
)


def index() -> Lines:
    """What all entries have, every type, and what is refused."""
    yield from ("# Evaluators", "")
    yield "Every type, each with a page of its own. How answers are scored is in [scoring.md](../how-to/scoring.md)."
    yield from ("", "An entry of `evaluators` is an object, or a string, which is an item of a rubric:", "")
    yield from ("```yaml", "evaluators:", "  - Greets the user", "  - type: contains", "    value: hello", "```", "")
    yield from ("## Every entry", "", "| key | meaning |", "|---|---|")
    yield from (f"| `{key}` | {meaning} |" for key, meaning in meanings_in("Entry", RESERVED).items())
    yield from ("", "A type may be written in snake_case or kebab-case, a setting in camelCase too. A type")
    yield "`file.py:Class` is your own, and so is one that an installed package announces under `agentv.evaluators`: a"
    yield "subclass of `agentv.evaluators.base.Evaluator`, whose fields are the settings."
    yield "promptfoo's `not-` before a type is `negate: true`."
    yield from ("", "## Types", "", "| type | also written | what it does |", "|---|---|---|")
    for name in EVALUATORS.names():
        kind = EVALUATORS.find(name)
        summary = inspect.cleandoc(str(kind.__doc__)).split("\n", 1)[0]
        others = also_written(EVALUATORS, name)
        yield f"| [{name}](evaluators/{name}.md) | {others} | {cell(summary)} |"
    yield from ("", "## Types of other tools", "")
    yield "Known from AgentV 4.x, 5.x and promptfoo, and refused with what to use instead:"
    yield from ("", *reasons(EVALUATORS.elsewhere, "type"))
    yield from ("", "## Refused keys", "", "Known from other tools, and refused unless a type lists the key:")
    yield from ("", *reasons(OTHER_TOOLS))


def page(name: str) -> Lines:
    """The page of one type."""
    kind = EVALUATORS.find(name)
    yield from (f"# {name}", "", inspect.cleandoc(str(kind.__doc__)))
    if others := also_written(EVALUATORS, name):
        yield from ("", f"Also written {others}.")
    yield from ("", "## Settings", "")
    yield "Beside the keys that [every entry](../evaluators.md#every-entry) has:"
    yield from ("", *setting_table(kind, ()))
    if kind.score is Evaluator.score and kind.evaluate is Evaluator.evaluate:
        yield from ("", NOT_YET)
    if kind.open_settings:
        yield from ("", "Takes any other key as your own.")
    yield from refused_besides(kind, OTHER_TOOLS)
    for inner in dict.fromkeys(structs_in(kind)):
        yield from block(inner)
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
    """The files of an evaluator's example by their names, and behind them `scores`; none where there is no example."""
    path = DOCS / "examples" / f"{name}.txt"
    if not path.is_file():
        return {}
    parts = path.read_text(encoding="utf-8").split("=== ")[1:]
    return {file: text for file, _, text in (part.partition("\n") for part in parts)}
