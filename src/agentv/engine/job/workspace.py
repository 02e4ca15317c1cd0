"""The workspace of a job: copied from its template, set up, compared for changes, and removed."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress

from agentv.engine.job import file_changes
from agentv.engine.job.artifacts import stem_of
from agentv.model.case import Workspace
from agentv.model.job import Job
from agentv.model.response import TargetFailure
from agentv.model.result import Stage
from agentv.settings.environment import Environment, child_environment
from agentv.support.subprocesses import ProcessSpec, new_folder, remove_folder
from agentv.targets.command_call import run_command


class JobWorkspace:
    """The folder of one job, from the start of its first call until its evaluators are done."""

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
        """The target's changes as a unified diff; None if there are none."""

    @property
    def path(self) -> str | None:
        """The path of the folder; None until it exists."""
        return None if self._made is None else os.path.join(self._made, "workspace")

    async def ready(self, attempt: int, timeout_s: float) -> None:
        """Create the folder, and recreate it for a retry, so that no attempt sees the changes of a failed one.

        In a conversation only the first call creates it. Raises TargetFailure with the stage `setup`.
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
        """Collect the target's changes, before evaluators change files."""
        if self.path is not None:
            self.changes = (
                await asyncio.to_thread(file_changes.changes, self._before, self._original, self.path) or None
            )

    async def close(self, timeout_s: float) -> str | None:
        """Run the `teardown` commands, then keep or remove the folder. Return the problem, if any."""
        if self.path is None:
            return None
        try:
            await self._commands("teardown", self._settings.teardown, timeout_s)
        except TargetFailure as failure:
            return failure.message
        finally:
            problem = await self._keep_or_remove()
        return problem

    async def _make(self, timeout_s: float) -> None:
        template = self._settings.path
        try:
            self._made = new_folder("agentv-workspace-")
            path = os.path.join(self._made, "workspace")
            if template:
                # Copy links as links: their targets may be large, or outside the template.
                await asyncio.to_thread(shutil.copytree, template, path, symlinks=True)
            else:
                os.mkdir(path)
        except (OSError, RecursionError) as error:  # copytree raises a subclass of OSError
            why = getattr(error, "strerror", None) or str(error)
            message = f"Cannot create the workspace{f' from {self._settings.template}' if template else ''}: {why}"
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

    async def _keep_or_remove(self) -> str | None:
        try:
            if self._settings.keep and self._kept_folder is not None and self.path is not None:
                kept = os.path.join(self._kept_folder, stem_of(self._job))
                await _without_interruption(_move, self.path, kept)
        except (OSError, RecursionError) as error:
            return f"Cannot keep the workspace: {error}"
        finally:
            await self._remove()
        return None

    async def _remove(self) -> None:
        made, self._made = self._made, None
        if made is not None:
            await _without_interruption(remove_folder, made)


async def _without_interruption(call: Callable[..., None], *arguments: str) -> None:
    """Run in a thread and wait for it even if cancelled, so that no partial folder remains."""
    work: Awaitable[None] = asyncio.ensure_future(asyncio.to_thread(call, *arguments))
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        await work
        raise


def _move(path: str, kept: str) -> None:
    if os.path.lexists(kept):
        remove_folder(kept)  # from the same job, before the run was resumed
    os.makedirs(os.path.dirname(kept), exist_ok=True)
    shutil.move(path, kept)


def _copy_texts(path: str, copy: str) -> None:
    """Copy the files whose contents a diff can show: no folders of tools, large files or sockets."""

    def ignored(folder: str, names: list[str]) -> list[str]:
        tools = file_changes.IGNORED_FOLDERS
        return [name for name in names if name in tools or not _is_copied(os.path.join(folder, name))]

    with suppress(OSError, RecursionError):  # a file that is not copied is listed without its contents
        shutil.copytree(path, copy, symlinks=True, ignore=ignored)


def _is_copied(path: str) -> bool:
    if os.path.islink(path) or os.path.isdir(path):
        return True
    return os.path.isfile(path) and os.path.getsize(path) <= file_changes.MAX_FILE_BYTES
