"""Settings of targets that work in the workspace of a job and may add files to it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from agentv.errors import UsageError
from agentv.model.workspace_settings import WorkspaceFile
from agentv.targets.target import Target


class WorkspaceTarget(Target, frozen=True, kw_only=True):
    """A target that works in a folder.

    `workspace_files` are added to the workspace of every job: paths in it, and the files or folders to copy there. With
    null, what the case has at that path is removed.
    """

    cwd: str | None = None
    workspace_files: dict[str, str | None] = {}

    def added_files(self, home: str) -> tuple[WorkspaceFile, ...]:
        """Return the files of `workspace_files`; sources are relative to the targets file."""
        return tuple(
            WorkspaceFile(path, source or "", "", "" if source is None else _located(source, home))
            for path, source in self.workspace_files.items()
        )

    def files_named(self, home: str, folders: Sequence[str]) -> Iterable[str]:  # noqa: ARG002
        """Return the sources of `workspace_files`."""
        return [_located(source, home) for source in self.workspace_files.values() if source is not None]

    @property
    def needs_workspace(self) -> bool:
        """Whether each job needs its own folder if the case has no workspace."""
        return bool(self.workspace_files)

    def complaints(self) -> list[str]:
        """Check that files are added inside the workspace, and that there is one."""
        found = [
            f"'workspace_files' has '{path}', which is not a path inside the workspace"
            for path in self.workspace_files
            if os.path.isabs(path) or os.path.normpath(path).split(os.sep)[0] in (os.pardir, os.curdir)
        ]
        if self.workspace_files and self.cwd is not None:
            found.append("'workspace_files' and 'cwd' cannot be combined: files are added to workspaces only")
        return found

    def check_files(self, home: str) -> None:
        """Raise UsageError if a source of `workspace_files` does not exist."""
        for path in WorkspaceTarget.files_named(self, home, ()):
            if not os.path.exists(path):
                hint = "Paths in `workspace_files` are relative to the targets file"
                raise UsageError(f"Target '{self.name}' cannot be called", f"There is no file {path}", hint)


def _located(path: str, home: str) -> str:
    return os.path.join(home, os.path.expanduser(path))
