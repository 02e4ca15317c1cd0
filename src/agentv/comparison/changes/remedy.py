"""The commands that make runs comparable after the measure changed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from itertools import chain, count
from pathlib import Path

import msgspec

from agentv.comparison.changes.measure import has_same_answers, is_same_run
from agentv.comparison.changes.run_change import RunChange
from agentv.comparison.scores import RunScores
from agentv.model.manifest import RunManifest
from agentv.support.hashes import short
from agentv.support.patterns import has_magic


def rescore_commands(runs: Sequence[RunScores], changes: Sequence[Sequence[RunChange]]) -> tuple[str, ...]:
    """Return the commands that score the older runs like the newest one and compare them again; none if unknown.

    `changes[i]` are the differences in scoring between the first run and run i + 1.
    """
    manifests = [run.manifest for run in runs if run.manifest is not None]
    if len(manifests) < len(runs) or not any(changes):
        return ()
    newest = max(range(len(runs)), key=lambda number: manifests[number].started_at)
    model, measures = runs[newest], [(), *map(tuple, changes)]
    if not _is_repeatable(manifests[newest], [change for group in changes for change in group]):
        return ()
    commands: dict[str, None] = {}
    names: dict[str, None] = {}
    for run, measure in zip(runs, measures, strict=True):
        if run is not model and has_same_answers(run, model):
            return ()  # only the measure differs
        for path in [store.path for store in run.pooled]:
            out = str(path)
            if run is not model and (measure != measures[newest] or is_same_run(run, model)):
                out = _free_folder(path)
                commands[f"agentv rescore {_quoted(path)}{_options(run, model, changes)} --out {_quoted(out)}"] = None
            name = shlex.quote(_shown(out) if run.picked is None else f"{_shown(out)}:{run.picked}")
            names[f"--baseline {name}" if len(run.pooled) > 1 else name] = None
    return (*commands, f"agentv compare {' '.join(names)}")


def _is_repeatable(manifest: RunManifest, changes: Sequence[RunChange]) -> bool:
    """Return whether a command can score answers like a run: from its datasets, or with its evaluators or judge."""
    if manifest.imported_from is not None:
        return False
    if manifest.datasets:
        return all(os.path.exists(entry.path) or has_magic(entry.path) for entry in manifest.datasets)
    return bool(manifest.options.get("evaluators")) or all(change.field == "judge" for change in changes)


def _options(run: RunScores, model: RunScores, changes: Sequence[Sequence[RunChange]]) -> str:
    """Return the options that score a run like another one."""
    before, after = run.manifest, model.manifest
    assert before is not None and after is not None
    words = []
    if {entry.path for entry in before.datasets} != {entry.path for entry in after.datasets}:
        words += [entry.path for entry in after.datasets]
    for entry in after.options.get("evaluators") or ():
        words += ["--evaluator", msgspec.json.encode(entry).decode()]
    words += _judge(after, model) if any(change.field == "judge" for group in changes for change in group) else []
    if not after.datasets:
        words.append("--stored-cases")
    return "".join(f" {shlex.quote(word)}" for word in words)


def _judge(manifest: RunManifest, run: RunScores) -> list[str]:
    """Return the option that names the judge of a run; if it has several, run every evaluator as configured."""
    judges = (
        {manifest.options["judge"]}
        if manifest.options.get("judge")
        else {target for used in run.judge_sets for _, target, _ in used}
    )
    return ["--judge", *judges] if len(judges) == 1 else ["--all"]


def _free_folder(path: Path | str) -> str:
    """Return a path next to a run that does not exist yet."""
    names = (f"{path}-rescored{suffix}" for suffix in chain([""], (f"-{number}" for number in count(2))))
    return next(name for name in names if not os.path.exists(name))


def _quoted(path: Path | str) -> str:
    return shlex.quote(_shown(path))


def _shown(path: Path | str) -> str:
    """Return a path relative to the working directory; absolute if it is outside."""
    return short(str(path))
