"""The measure of a bisection: datasets, evaluators and judges of the working tree, the same at every commit."""

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from agentv.datasets.case.header import config_file
from agentv.datasets.files import is_guideline
from agentv.datasets.formats.dataset_format import SIDECAR_SUFFIXES
from agentv.datasets.stamps import files_of
from agentv.engine.run_plan import RunPlan, evaluators_of
from agentv.engine.scoring.fingerprints import EvaluatorFiles
from agentv.errors import UsageError
from agentv.model.case import EvalCase
from agentv.model.message import FilePart, ImagePart
from agentv.model.values import digest, to_json
from agentv.settings.git_repository import GitRepository
from agentv.support.hashes import contents
from agentv.support.yaml.yaml_file import parse_yaml_file


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """What is copied into each worktree. Paths are relative to the root of the repository.

    `files` are files and folders to copy. `absent` are files that must not exist: sidecars that the working tree does
    not have. `judges` are entries of the targets file, by name, that replace those of the commit.
    """

    files: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    judges: dict[str, dict[str, Any]] = {}
    targets_file: str | None = None
    fingerprint: str = ""

    def apply(self, repository: GitRepository, worktree: Path) -> None:
        """Copy the measure into a worktree."""
        for name in self.files:
            _copy(Path(repository.root, name), worktree / name)
        for name in self.absent:
            (worktree / name).unlink(missing_ok=True)
        if self.judges and self.targets_file is not None:
            _replace_judges(worktree / self.targets_file, self.judges)


def measure_of(
    plan: RunPlan, repository: GitRepository, *, kept: Iterable[str] = (), own_dataset: bool = False
) -> Measure:
    """Return the measure of a run that was prepared in the working tree.

    `kept` are further paths to take from the working tree. With `own_dataset`, each commit keeps its own datasets,
    evaluators and judges; files that Git does not track are copied all the same.
    """
    root, targets_path = repository.root, plan.project.file.path
    targets_file = _below(repository, [targets_path] if targets_path else [])
    config = config_file(plan.project.folders[0], plan.project.root)
    untracked = [name for name in (targets_path, config) if name and not repository.is_tracked(os.path.abspath(name))]
    files_to_copy = [*untracked, *kept] if own_dataset else [*untracked, *kept, *_files(plan)]
    files = _below(repository, files_to_copy)
    judges = {} if own_dataset else {name: plan.project.file.raw(name) for name in _judge_names(plan)}
    return Measure(
        files=files,
        absent=() if own_dataset else _below(repository, _missing_sidecars(plan)),
        judges=judges,
        targets_file=targets_file[0] if targets_file else None,
        fingerprint=digest([contents((os.path.join(root, name) for name in files), root), judges]),
    )


def _files(plan: RunPlan) -> Iterator[str]:
    """Yield the files of datasets, judges, cases and evaluators. Prompts and guidelines belong to the commit."""
    for source in plan.cases.sources:
        yield from files_of(source)
    project = plan.project
    for name in _judge_names(plan):
        yield from filter(os.path.exists, project.target(name).files_named(project.home, project.folders))
    finder = EvaluatorFiles()
    last: object = None
    for case in plan.cases.stream_again():
        yield from _files_of_case(case)
        if (specs := evaluators_of(case, plan.evaluators)) is not last:
            yield from finder.paths(case, specs)
        last = specs


def _files_of_case(case: EvalCase) -> Iterator[str]:
    if not case.names_files:
        return
    if case.workspace is not None:
        yield from filter(None, (case.workspace.path, *(file.file for file in case.workspace.files)))
    origin = case.place.origin
    turns = [message for turn in case.turns for message in (*turn.input, *turn.expected_output)]
    for message in (*case.input, *case.expected_output, *turns):
        for part in message.parts:
            path = part.path if isinstance(part, FilePart | ImagePart) else ""
            if path and not is_guideline(path, origin.root, origin.guideline_patterns):
                yield path


def _missing_sidecars(plan: RunPlan) -> Iterator[str]:
    for source in plan.cases.sources:
        if source.format.has_sidecar:
            known_paths = {*source.files, source.sidecar}
            yield from (path for suffix in SIDECAR_SUFFIXES if (path := source.base + suffix) not in known_paths)


def _judge_names(plan: RunPlan) -> list[str]:
    """Return the targets that score answers or play users, unless they are evaluated themselves."""
    checked = plan.checked
    names = dict.fromkeys((*checked.judges, *checked.embedders, *checked.users))
    return [name for name in names if name not in checked.jobs]


def _below(repository: GitRepository, paths: Iterable[str]) -> tuple[str, ...]:
    """Return the paths below the root, in order; those outside are the same at every commit."""
    return tuple(dict.fromkeys(path for path in map(repository.below, paths) if path is not None))


def _copy(source: Path, copy: Path) -> None:
    if copy.is_dir() and not copy.is_symlink():
        shutil.rmtree(copy)
    else:
        copy.unlink(missing_ok=True)
    copy.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, copy, symlinks=True)
    else:
        shutil.copy2(source, copy)


def _replace_judges(file: Path, judges: dict[str, dict[str, Any]]) -> None:
    """Replace entries of a targets file, or add them. JSON is valid YAML."""
    data = parse_yaml_file(str(file)) if file.is_file() else None
    if not isinstance(data, dict) or not isinstance(data.get("targets"), list):
        raise UsageError(f"No targets in {file.name}")
    entries = [entry for entry in data["targets"] if not (isinstance(entry, dict) and entry.get("name") in judges)]
    file.write_bytes(to_json({**data, "targets": [*entries, *judges.values()]}))
