"""The targets that answer in a run: those of the targets file, those that a program gives, or a recording for all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress

from agentv.datasets.files import project_root
from agentv.datasets.formats.yaml_dataset import parse_yaml_file
from agentv.datasets.formats.yaml_parser import locate
from agentv.engine.named_runs import run_path
from agentv.errors import AgentvError
from agentv.model.manifest import TargetEntry
from agentv.settings.environment import load_environment
from agentv.targets.catalog import Targets, find_targets_file, load_targets, named_targets_file, without_targets
from agentv.targets.fingerprint import files_of, fingerprint_of
from agentv.targets.replay.recording import is_recording
from agentv.targets.replay.replay import Replay
from agentv.targets.target import Target


class RunTargets:
    """Settings by name. With `replay` a file answers in their place, and variables of the targets may be unset.

    `folders` are those of the datasets, where commands are run.
    """

    def __init__(
        self,
        file: Targets,
        given: Mapping[str, Target],
        replay: str | None = None,
        folders: tuple[str, ...] = (),
    ) -> None:
        self._file = file
        self._given = given
        self._folders = folders
        self._replay = None if replay is None else os.path.abspath(run_path(replay))
        self.names = (*given, *(name for name in file.names if name not in given))

    def get(self, name: str) -> Target:
        """The settings of a target."""
        if self._replay is not None and name not in self._given:
            return self._file.unfilled(name)
        return self._called(name)

    @property
    def replay(self) -> str | None:
        """The file or the run that answers in the place of targets."""
        return self._replay

    def reachable(self, needed: Iterable[str], asked: Iterable[str] = ()) -> tuple[Target, ...]:
        """The targets that jobs need, those that evaluators ask, and all others that can be read: one may ask these.

        A recording answers for all of them, an earlier run only for those that jobs need.
        """
        needed = tuple(dict.fromkeys(needed))
        found = {name: self.get(name) for name in needed}
        read = self.get if self._replay is None or is_recording(self._replay) else self._called
        found |= {name: read(name) for name in asked if name not in found}
        for name in self.names:
            if name not in found:
                with suppress(AgentvError):  # its variables are unset, and nobody has asked for it
                    found[name] = read(name)
        return tuple(found.values())

    def _called(self, name: str) -> Target:
        return self._given.get(name) or self._file.get(name)

    def entry(self, name: str) -> TargetEntry:
        """What a manifest says of a target."""
        if self._replay is not None:
            target: Target = Replay(name=name, provider="replay", source=self._replay)
            shown = {"from": self._replay}
        else:
            target = self._called(name)
            shown = {} if name in self._given else self._file.public(name)
        files = files_of(target, self._file.home, self._folders)
        return TargetEntry(
            name=name,
            provider=target.provider,
            fingerprint=fingerprint_of(target, self._file.secrets, files),
            settings=shown,
            files=files,
        )

    def change(self, then: TargetEntry, noun: str = "target") -> str:
        """What changed about a target since a manifest said this of it, in words; empty when it is the same."""
        now = self.entry(then.name) if then.name in self.names else None
        if now is not None and now.fingerprint and now.fingerprint == then.fingerprint:
            return ""
        files = now is not None and sorted(
            name for name in {*then.files, *now.files} if then.files.get(name) != now.files.get(name)
        )
        return f"the {noun} {then.name} changed" + (f" ({', '.join(files)})" if files else "")


def open_targets(folder: str, file: str | None = None) -> Targets:
    """The targets that a folder's datasets are run against, from the file that is named or the nearest one."""
    root = project_root(folder)
    environment = load_environment(folder, root)
    path = named_targets_file(file) if file is not None else find_targets_file(folder, root)
    if path is None:
        return without_targets(environment)
    data = parse_yaml_file(path)
    return load_targets(data, path, environment, lambda key: mark.line if (mark := locate(data, key)) else None)
