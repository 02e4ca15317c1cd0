"""The workspace of a job: copied from its template, set up, compared for changes, and removed."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress

from agentv.engine.job import file_changes
from agentv.engine.job.artifacts import stem_of
from agentv.engine.job.suite_workspace import (
    SuiteWorkspace,
    SuiteWorkspaces,
    copy_template,
    has_base,
    is_shared,
    place_files,
)
from agentv.model.job import Job
from agentv.model.response import TargetFailure
from agentv.model.result import Stage
from agentv.model.workspace_settings import Workspace
from agentv.sandbox.subprocesses import ProcessSpec
from agentv.support.private_files import is_folder, make_folder
from agentv.support.temporary_folders import new_folder, remove_folder


class JobWorkspace:
    """The folder of one job, from the start of its first call until its evaluators are done."""

    def __init__(self, job: Job, settings: Workspace, kept_folder: str | None, suites: SuiteWorkspaces) -> None:
        """`settings` are those of the case, with the files that the target adds."""
        self._job = job
        self._settings = settings
        self._kept_folder = kept_folder
        self._suites = suites
        self._runner = suites.runner(job)
        self._shared: SuiteWorkspace | None = None
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
        if self._made is None:
            return None
        return os.path.join(self._made, "workspace") if self._shared is None else self._shared.path

    async def reserve(self) -> None:
        """Wait until no other job works in a shared folder; before the call, which must not occupy an endpoint."""
        if is_shared(self._settings):
            with suppress(TargetFailure):  # raised again by the call, whose errors are recorded
                shared = await self._suites.get(self._job, self._settings)
                await shared.lock.acquire()
                self._shared = shared

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
        """Collect the target's changes, before evaluators change files. Raises TargetFailure."""
        if self.path is not None:
            if not is_folder(self.path):
                raise TargetFailure("process", "The workspace is no longer a folder, so it was not read")
            self.changes = (
                await asyncio.to_thread(file_changes.changes, self._before, self._original, self.path) or None
            )

    async def close(self, timeout_s: float) -> str | None:
        """Run `after_each` and `teardown`, then keep or remove the folder. Return the problem, if any."""
        try:
            return None if self.path is None else await self._finish(self.path, timeout_s)
        finally:
            if self._shared is not None:
                self._shared.lock.release()

    async def _finish(self, path: str, timeout_s: float) -> str | None:
        if not is_folder(path):  # commands could change files elsewhere through a link
            await self._remove()
            return None
        try:
            await self._run_hooks("after_each", path)
            await self._commands("teardown", self._settings.teardown, timeout_s)
        except TargetFailure as failure:
            return failure.message
        finally:
            problem = await self._keep_or_remove()
        return problem

    async def _make(self, timeout_s: float) -> None:
        try:
            self._made = new_folder("agentv-workspace-")
        except OSError as error:
            raise TargetFailure("process", f"Cannot create the workspace: {error.strerror}", stage="setup") from None
        source = await self._copy()
        path, files = self.path, self._settings.files
        assert path is not None
        if files:
            await asyncio.to_thread(place_files, files, path)
        await self._commands("setup", self._settings.setup, timeout_s)
        has_hooks = await self._run_hooks("before_each", path)
        self._original = source
        if self._shared is not None or files or self._settings.setup or has_hooks:
            self._original = os.path.join(self._made, "original")
            await asyncio.to_thread(_copy_texts, path, self._original)
        self._before = await asyncio.to_thread(file_changes.snapshot, path)

    async def _run_hooks(self, stage: str, path: str) -> bool:
        """Run the hooks around this job. Return whether there are any."""
        hooks = self._settings.hooks_at(stage, self._job.target)
        for hook in hooks:
            await self._runner.run(stage, hook, path, self._job, self._settings.folder)
        return bool(hooks)

    async def _copy(self) -> str | None:
        """Copy the template, or the workspace of the suite, into the folder of the job. Return what was copied."""
        settings = self._settings
        if self._shared is not None:
            return None
        if has_base(settings, self._job.target):
            base = await self._suites.get(self._job, settings)
            settings = Workspace(template=settings.template, path=base.path)
        assert self.path is not None
        await asyncio.to_thread(copy_template, settings, self.path)
        return settings.path or None

    async def _commands(self, stage: Stage, commands: str | tuple[str, ...] | None, timeout_s: float) -> None:
        for command in (commands,) if isinstance(commands, str) else commands or ():
            assert self.path is not None
            env = self._runner.variables(self._job.case.id)
            spec = ProcessSpec(command=command, cwd=self.path, env=env, timeout_s=timeout_s)
            await self._runner.command(
                self._runner.confined(spec, self.path, stage), f"`{stage}` of the workspace", stage
            )

    async def _keep_or_remove(self) -> str | None:
        try:
            if self._settings.keep and self._kept_folder is not None and self.path is not None:
                destination = os.path.join(self._kept_folder, stem_of(self._job))
                await _without_interruption(_move if self._shared is None else _copy_folder, self.path, destination)
        except (OSError, RecursionError) as error:
            return f"Cannot keep the workspace: {error}"
        finally:
            await self._remove()
        return None

    async def _remove(self) -> None:
        folder, self._made = self._made, None
        if folder is not None:
            await _without_interruption(remove_folder, folder)


async def _without_interruption(call: Callable[..., None], *arguments: str) -> None:
    """Run in a thread and wait for it even if cancelled, so that no partial folder remains."""
    work: Awaitable[None] = asyncio.ensure_future(asyncio.to_thread(call, *arguments))
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        await work
        raise


def _move(path: str, destination: str) -> None:
    _make_room(destination)
    shutil.move(path, destination)


def _copy_folder(path: str, destination: str) -> None:
    _make_room(destination)
    shutil.copytree(path, destination, symlinks=True)


def _make_room(destination: str) -> None:
    if os.path.lexists(destination):
        remove_folder(destination)  # from the same job, before the run was resumed
    make_folder(os.path.dirname(destination))


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
