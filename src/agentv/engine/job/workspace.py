"""The folder a job works in: copied fresh from its template, set up, looked at for what changed, and removed again."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
from collections.abc import Awaitable, Callable
from contextlib import suppress

from agentv.engine.job import file_changes
from agentv.engine.job.artifacts import stem_of
from agentv.model.case import Workspace
from agentv.model.job import Job
from agentv.model.response import TargetFailure
from agentv.model.result import ErrorInfo, Stage
from agentv.settings.environment import Environment, child_environment
from agentv.support.subprocesses import ProcessSpec, new_folder, remove_folder
from agentv.targets.command_call import run_command


class JobWorkspace:
    """One folder, from when its job gets its place at the endpoint to when its evaluators are done with it."""

    def __init__(self, job: Job, settings: Workspace, kept_folder: str | None, environment: Environment) -> None:
        self._job = job
        self._settings = settings
        self._kept_folder = kept_folder
        self._environment = environment
        self._made: str | None = None
        self._before: file_changes.Snapshot = {}
        self._original: str | None = None
        self._attempt = 0
        self._has_answered = False
        self.changes: str | None = None
        """What the target changed, as a unified diff; None when it changed nothing or was not called."""

    @property
    def path(self) -> str | None:
        """Where it is; None as long as it is not there."""
        return None if self._made is None else os.path.join(self._made, "workspace")

    async def ready(self, attempt: int, timeout_s: float) -> None:
        """Makes the folder, and makes it anew for another attempt: what a failed one did must not help the next.

        In a conversation only the first call makes it. Raises TargetFailure, of the stage `setup`.
        """
        if self._made is None:
            await self._make(timeout_s)
        elif attempt > self._attempt and not self._has_answered:
            await self._remove()
            await self._make(timeout_s)
        else:
            self._has_answered = True
        self._attempt = attempt

    async def look(self) -> None:
        """Finds out what the target changed, before evaluators change more."""
        if self.path is not None:
            self.changes = (
                await asyncio.to_thread(file_changes.changes, self._before, self._original, self.path) or None
            )

    async def close(self, timeout_s: float) -> ErrorInfo | None:
        """Runs the commands of `teardown` and lets go of the folder. What went wrong with it, when something did."""
        if self.path is None:
            return None
        try:
            await self._commands("teardown", self._settings.teardown, timeout_s)
        except TargetFailure as failure:
            return ErrorInfo(failure.error_class, failure.message, "teardown")
        finally:
            kept = await self._let_go()
        return kept

    async def _make(self, timeout_s: float) -> None:
        template = self._settings.path
        try:
            self._made = new_folder("agentv-workspace-")
            path = os.path.join(self._made, "workspace")
            if template:
                # Links as they are: what they lead to may be large, and outside.
                await asyncio.to_thread(shutil.copytree, template, path, symlinks=True)
            else:
                os.mkdir(path)
        except (OSError, RecursionError) as error:  # what copytree raises for many files is an OSError, too
            why = getattr(error, "strerror", None) or str(error)
            message = f"The workspace cannot be made{f' from {self._settings.template}' if template else ''}: {why}"
            raise TargetFailure("process", message, stage="setup") from None
        await self._commands("setup", self._settings.setup, timeout_s)
        self._original = template or None
        if self._settings.setup:
            self._original = os.path.join(self._made, "original")
            await asyncio.to_thread(_copy_texts, path, self._original)
        self._before = await asyncio.to_thread(file_changes.snapshot, path)

    async def _commands(self, stage: Stage, commands: str | tuple[str, ...] | None, timeout_s: float) -> None:
        for command in (commands,) if isinstance(commands, str) else commands or ():
            env = child_environment((), {}, self._environment)
            env["AGENTV_EVAL_ID"] = self._job.case.id
            env["AGENTV_DATASET_FOLDER"] = os.path.abspath(self._job.case.place.origin.base_dir or ".")
            assert self.path is not None
            try:
                await run_command(ProcessSpec(command=command, cwd=self.path, env=env, timeout_s=timeout_s))
            except TargetFailure as failure:
                message = f"`{stage}` of the workspace: {failure.message}"
                raise TargetFailure(failure.error_class, message, stage=stage) from None

    async def _let_go(self) -> ErrorInfo | None:
        try:
            if self._settings.keep and self._kept_folder is not None and self.path is not None:
                kept = os.path.join(self._kept_folder, stem_of(self._job))
                await _without_interruption(_moved, self.path, kept)
        except (OSError, RecursionError) as error:
            return ErrorInfo("process", f"The workspace could not be kept: {error}", "teardown")
        finally:
            await self._remove()
        return None

    async def _remove(self) -> None:
        made, self._made = self._made, None
        if made is not None:
            await _without_interruption(remove_folder, made)


async def _without_interruption(call: Callable[..., None], *arguments: str) -> None:
    """Runs in a thread and waits for it, cancelled or not: half of a folder would be left behind."""
    work: Awaitable[None] = asyncio.ensure_future(asyncio.to_thread(call, *arguments))
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        await work
        raise


def _moved(path: str, kept: str) -> None:
    if os.path.lexists(kept):
        remove_folder(kept)  # of the same job, before the run was resumed
    os.makedirs(os.path.dirname(kept), exist_ok=True)
    shutil.move(path, kept)


def _copy_texts(path: str, copy: str) -> None:
    """A copy of what a diff can show later: no tools' folders, no large files, no sockets. What cannot be copied is
    not; a diff of it names it only."""

    def passed_over(folder: str, names: list[str]) -> list[str]:
        return [
            name for name in names if name in file_changes.PASSED_OVER or not _is_copied(os.path.join(folder, name))
        ]

    with suppress(OSError, RecursionError):
        shutil.copytree(path, copy, symlinks=True, ignore=passed_over)


def _is_copied(path: str) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    if stat.S_ISREG(status.st_mode):
        return status.st_size <= file_changes.MAX_FILE_BYTES
    return stat.S_ISDIR(status.st_mode) or stat.S_ISLNK(status.st_mode)
