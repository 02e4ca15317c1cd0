"""What changed between two runs: targets, prompts, datasets, scoring, versions and commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from agentv.comparison.changes.case_index import rendered_messages
from agentv.comparison.changes.measure import SharedCases, is_same_run
from agentv.comparison.changes.run_change import RunChange, ValueChange, changed_entries, changed_values
from agentv.comparison.scores import RunScores
from agentv.model.manifest import RunManifest, TargetEntry

Runs = tuple[RunScores, RunScores]

_OPTIONS = (
    "trials", "timeout_seconds", "max_retries", "stop_when", "until", "replay", "filters", "cases", "sample",
    "cases_budget", "limit", "shard",
)  # fmt: skip
"""Options that affect the answers or select cases. Targets and judges are compared by their settings."""


def run_differences(shared: SharedCases) -> Iterator[RunChange]:
    """Yield everything that is known to differ between two runs."""
    sides = shared.sides
    runs = sides[0].run, sides[1].run
    before, after = (run.manifest for run in runs)
    if before is not None and after is not None:
        yield from _target_changes(runs, before, after)
        yield from _option_changes(before, after)
    yield from _prompt_changes(runs, shared)
    only_in = sides[0].only_here(sides[1]), sides[1].only_here(sides[0])
    for field, cases in (("only in A", only_in[0]), ("only in B", only_in[1]), ("another input", shared.other_inputs)):
        for name, count in Counter(case.dataset for case in dict.fromkeys(cases)).items():
            yield RunChange(kind="dataset", name=name, field=field, cases=count)
    yield from shared.measure_changes
    if before is None or after is None or is_same_run(*runs):
        return
    for value in changed_values(before.versions, after.versions):
        yield RunChange(kind="version", name=value.field, before=value.before, after=value.after)
    if before.git_commit != after.git_commit:
        yield RunChange(kind="commit", before=before.git_commit, after=after.git_commit)


def _target_changes(runs: Runs, before: RunManifest, after: RunManifest) -> Iterator[RunChange]:
    """Yield how targets differ. Two runs of one target each compare these, whatever their names are."""
    first, second = _used(runs[0], before), _used(runs[1], after)
    if len(first) == len(second) == 1:
        (old,), (new,) = first.values(), second.values()
        if old.name != new.name:
            yield RunChange(kind="target", field="name", before=old.name, after=new.name)
        yield from _entry_changes(old, new)
        return
    for name in dict.fromkeys((*first, *second)):
        if name in first and name in second:
            yield from _entry_changes(first[name], second[name])
        else:
            old_name, new_name = (name if name in side else None for side in (first, second))
            yield RunChange(kind="target", name=name, before=old_name, after=new_name)


def _used(run: RunScores, manifest: RunManifest) -> dict[str, TargetEntry]:
    return {entry.name: entry for entry in manifest.targets if entry.name in run.targets}


def _entry_changes(before: TargetEntry, after: TargetEntry) -> Iterator[RunChange]:
    return (value.to_change("target", name=after.name) for value in changed_entries(before, after))


def _option_changes(before: RunManifest, after: RunManifest) -> Iterator[RunChange]:
    """Yield the options that differ. A rescored run has its own, which did not affect its answers."""
    if before.rescored_from is None and after.rescored_from is None:
        for value in changed_values(_options(before), _options(after)):
            yield RunChange(kind="option", name=value.field, before=value.before, after=value.after)


def _options(manifest: RunManifest) -> dict[str, Any]:
    """Return the options of a run that affect its answers, from the project's configuration and the command."""
    options = {**manifest.defaults, **manifest.options}
    options["timeout_seconds"] = options.get("timeout_s", options.get("timeout_seconds"))
    return {name: options[name] for name in _OPTIONS if options.get(name) is not None}


def _prompt_changes(runs: Runs, shared: SharedCases) -> Iterator[RunChange]:
    """Yield the prompts that differ, with the messages of one case as an example."""
    first, second = (run.prompts for run in runs)
    rows = shared.other_prompts
    if set(first) != set(second):
        names = (", ".join(prompt for prompt in side if prompt is not None) or None for side in (first, second))
        yield ValueChange("name", *names).to_change("prompt")
        rows = rows if shared.pairs_prompts else np.flatnonzero(shared.same_input).tolist()
    for row, *versions in shared.fields(rows[:1]) if rows else ():
        texts = [_messages(fields, prompt) for fields, prompt in zip(versions, shared.prompts_of(row), strict=True)]
        if None not in texts and texts[0] != texts[1]:
            total = int(shared.same_input.sum())
            value = ValueChange("messages", *texts)
            yield value.to_change("prompt", cases=len(rows), of=total, example=shared.name(row))


def _messages(fields: dict[str, Any] | None, prompt: str | None) -> str | None:
    """Return the messages of a case as text; if it has several prompts, as rendered by one or by all of them."""
    if fields is None:
        return None
    rendered = rendered_messages(fields, prompt)
    return "\n".join(f"{id}: {_text(messages)}" if id else _text(messages) for id, messages in rendered.items())


def _text(messages: list[dict[str, Any]]) -> str:
    return "\n".join(f"{message.get('role')}: {_content(message)}" for message in messages)


def _content(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(part.get("value", "")) if isinstance(part, dict) else str(part) for part in content)
    return str(content)
