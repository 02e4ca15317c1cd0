"""Workspaces prepared once for many jobs: repositories are cloned, and `before_all` and `after_all` run once.

Each job gets a copy, or with `isolation: shared` the folder itself, one job at a time. Each worker process prepares its
own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping

import msgspec

from agentv.model.environment import Environment
from agentv.model.job import Job
from agentv.model.response import TargetFailure, content_text
from agentv.model.result import Stage
from agentv.model.values import digest, to_json
from agentv.model.workspace_settings import Hook, Hooks, Repository, Workspace, WorkspaceFile
from agentv.sandbox.methods import CannotConfine
from agentv.sandbox.sandbox import open_sandbox
from agentv.sandbox.subprocesses import ProcessSpec
from agentv.settings.child_environment import child_environment
from agentv.settings.project import is_inside
from agentv.support.temporary_folders import new_folder, remove_folder
from agentv.targets.command_call import run_command

BEFORE_TIMEOUT_S, AFTER_TIMEOUT_S, GIT_TIMEOUT_S = 60.0, 30.0, 300.0
_log = logging.getLogger(__name__)
_PLACEHOLDER = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_SHORT_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_GIT = ("git", "-c", "core.hooksPath=/dev/null", "-c", "advice.detachedHead=false")
_TARGET = "target"
"""The name of the target in a workspace that is prepared for one."""

_GIT_VARIABLES = {"GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh"}
"""Git never asks for a password, and never uses a transport that runs a command."""


def has_base(settings: Workspace, target: str) -> bool:
    """Whether a workspace is prepared once for many jobs of a target."""
    has_hooks = settings.hooks_at("before_all", target) or settings.hooks_at("after_all", target)
    return bool(settings.repos) or is_shared(settings) or bool(has_hooks)


def is_shared(settings: Workspace) -> bool:
    """Whether jobs work in the same folder. A reset before or after each job is the same as a copy for each."""
    hooks = settings.hooks or Hooks()
    resets = any(hook and hook.reset not in (None, "none") for hook in (hooks.before_each, hooks.after_each))
    return settings.isolation == "shared" and not resets


class HookRunner(msgspec.Struct, frozen=True):
    """Runs commands of a workspace: `folder` is that of the dataset, `run_id` and `environment` those of the run."""

    folder: str
    run_id: str
    environment: Environment

    async def run(self, name: str, hook: Hook, path: str, job: Job | None, folder: str = "") -> None:
        """Run a hook that has a command. Raises TargetFailure. `folder` replaces the folder of the dataset."""
        assert hook.command is not None
        case = None if job is None else job.case
        id = f"__{name}__" if case is None else case.id
        payload = {
            "workspace_path": path,
            "test_id": id,
            "eval_case_id": id,
            "eval_run_id": self.run_id,
            "case_input": None if case is None else "\n".join(content_text(m.content or "") for m in case.input),
            "case_metadata": None if case is None else case.metadata,
        }
        is_before = name.startswith("before")
        spec = ProcessSpec(
            command=_filled(hook.command, {key: _text(value) for key, value in payload.items()}),
            cwd=os.path.join(folder or self.folder, hook.cwd or ""),
            env={**self.variables(id), "AGENTV_WORKSPACE_PATH": path},
            timeout_s=hook.timeout_s or (BEFORE_TIMEOUT_S if is_before else AFTER_TIMEOUT_S),
            stdin=to_json(payload),
        )
        stage: Stage = "setup" if is_before else "teardown"
        await self.command(self.confined(spec, path, stage), f"`{name}` of the workspace", stage)

    def variables(self, id: str) -> dict[str, str]:
        """Return the variables of a command."""
        extra = {"AGENTV_EVAL_ID": id, "AGENTV_DATASET_FOLDER": self.folder}
        return child_environment((), extra, self.environment)

    def confined(self, spec: ProcessSpec, path: str, stage: Stage) -> ProcessSpec:
        """Isolate a command that works in a workspace, if the run has a sandbox. Raises TargetFailure if it cannot."""
        if self.environment.sandbox.of() is None:
            return spec
        try:
            sandbox = open_sandbox(self.environment)
        except CannotConfine as error:
            raise TargetFailure("process", f"Cannot isolate the command: {error}", stage=stage) from None
        assert sandbox is not None
        return sandbox.confine(spec, (path,), (self.folder, spec.cwd))

    async def command(self, spec: ProcessSpec, what: str, stage: Stage) -> None:
        """Run a command; the message of its failure begins with `what`."""
        try:
            await run_command(spec)
        except TargetFailure as failure:
            raise TargetFailure(failure.error_class, f"{what}: {failure.message}", stage=stage) from None


class SuiteWorkspace:
    """A prepared folder. Jobs that work in it hold `lock`."""

    def __init__(self, settings: Workspace, runner: HookRunner) -> None:
        self.lock = asyncio.Lock()
        self.made = new_folder("agentv-suite-")
        self.path = os.path.join(self.made, "workspace")
        self._settings = settings
        self._runner = runner
        self._is_ready = False

    async def prepare(self) -> None:
        """Copy the template, clone the repositories, and run `before_all`. Raises TargetFailure."""
        settings = self._settings
        await asyncio.to_thread(copy_template, settings, self.path)
        for repository in settings.repos:
            await self._clone(repository)
        for hook in settings.hooks_at("before_all", _TARGET):
            await self._runner.run("before_all", hook, self.path, None, settings.folder)
        self._is_ready = True

    async def close(self) -> None:
        """Run `after_all` and remove the folder. A failure is logged: every job has already been recorded."""
        try:
            for hook in self._settings.hooks_at("after_all", _TARGET) if self._is_ready else ():
                await self._runner.run("after_all", hook, self.path, None, self._settings.folder)
        except TargetFailure as failure:
            _log.warning("%s", failure.message)
        finally:
            await asyncio.to_thread(remove_folder, self.made)

    async def _clone(self, repository: Repository) -> None:
        where = os.path.join(self.path, repository.path)
        address = clone_address(repository.repo, self._settings.folder or self._runner.folder)
        clone = [*_GIT, "clone", "--quiet", "--no-checkout", "--", address, where]
        await self._git(clone, f"Cannot clone {repository.repo}")
        if repository.sparse:
            sparse = [*_GIT, "-C", where, "sparse-checkout", "set", *repository.sparse]
            await self._git(sparse, f"Cannot select folders of {repository.repo}")
        commit = repository.commit or "HEAD"
        revision = f"{commit}~{repository.ancestor}" if repository.ancestor else commit
        checkout = [*_GIT, "-C", where, "checkout", "--quiet", "--detach", revision]
        await self._git(checkout, f"Cannot check out {commit} of {repository.repo}")

    async def _git(self, command: list[str], what: str) -> None:
        env = {**self._runner.variables("__repos__"), **_GIT_VARIABLES}
        # Variables such as GIT_DIR of a hook that started agentv would redirect the commands.
        safe_env = {name: value for name, value in env.items() if not name.startswith("GIT_") or name in _GIT_VARIABLES}
        spec = ProcessSpec(command=command, cwd=self.made, env=safe_env, timeout_s=GIT_TIMEOUT_S)
        await self._runner.command(spec, what, "setup")


class SuiteWorkspaces:
    """The prepared workspaces of a run in one process, by their settings."""

    def __init__(self, run_id: str, environment: Environment) -> None:
        self._run_id = run_id
        self._environment = environment
        self._known: dict[tuple[str, str], tuple[SuiteWorkspace, asyncio.Task[None]]] = {}

    def runner(self, job: Job) -> HookRunner:
        """Return the runner of hooks for the dataset of a job."""
        folder = os.path.abspath(job.case.place.origin.base_dir or ".")
        return HookRunner(folder, self._run_id, self._environment)

    async def get(self, job: Job, settings: Workspace) -> SuiteWorkspace:
        """Return the prepared workspace of a job; the first job prepares it. Raises TargetFailure."""
        runner, own = self.runner(job), dict(settings.target_hooks).get(job.target)
        once = () if own is None else ((_TARGET, _once(own)),)
        hooks = _once(settings.hooks or Hooks())
        base = Workspace(
            path=settings.path, folder=settings.folder, repos=settings.repos, hooks=hooks, target_hooks=once
        )
        key = runner.folder, digest(msgspec.to_builtins(base))
        if key not in self._known:
            workspace = SuiteWorkspace(base, runner)
            self._known[key] = workspace, asyncio.create_task(workspace.prepare())
        workspace, prepared = self._known[key]
        await asyncio.shield(prepared)
        return workspace

    async def aclose(self) -> None:
        """Run `after_all` of every workspace, and remove the folders."""
        workspaces, self._known = self._known, {}
        for workspace, prepared in workspaces.values():
            await asyncio.gather(prepared, return_exceptions=True)
            await workspace.close()


def _once(hooks: Hooks) -> Hooks:
    return Hooks(before_all=hooks.before_all, after_all=hooks.after_all)


def copy_template(settings: Workspace, path: str) -> None:
    """Create a folder with the contents of a template. Raises TargetFailure."""
    try:
        if settings.path:
            # Copy links as links: their targets may be large, or outside the template.
            shutil.copytree(settings.path, path, symlinks=True)
        else:
            os.mkdir(path)
    except (OSError, RecursionError) as error:  # copytree raises a subclass of OSError
        why = getattr(error, "strerror", None) or str(error)
        message = f"Cannot create the workspace{f' from {settings.template}' if settings.template else ''}: {why}"
        raise TargetFailure("process", message, stage="setup") from None


def place_files(files: Iterable[WorkspaceFile], path: str) -> None:
    """Copy files into a workspace, or remove what is at their place. Raises TargetFailure."""
    for entry in files:
        place = os.path.join(path, entry.path)
        try:
            if not is_inside(os.path.realpath(os.path.dirname(place)), os.path.realpath(path)):
                raise OSError("a link leads out of the workspace")
            if not entry.file or not os.path.isdir(entry.file):
                _remove(place)
            if entry.file:
                _copy(entry.file, place)
        except OSError as error:
            message = f"Cannot add {entry.source or entry.path} to the workspace: {error.strerror or error}"
            raise TargetFailure("process", message, stage="setup") from None


def _remove(place: str) -> None:
    if os.path.isdir(place) and not os.path.islink(place):
        shutil.rmtree(place)
    elif os.path.lexists(place):
        os.unlink(place)


def _copy(file: str, place: str) -> None:
    os.makedirs(os.path.dirname(place), exist_ok=True)
    if os.path.isdir(file):
        shutil.copytree(file, place, symlinks=True, dirs_exist_ok=True)
    else:
        shutil.copy(file, place)


def clone_address(repo: str, folder: str) -> str:
    """Return what `git clone` is given: a URL as it is, a path from the folder, or GitHub's `owner/name`."""
    if "://" in repo or "::" in repo or re.match(r"[\w.-]+@[\w.-]+:", repo):
        return repo
    path = os.path.join(folder, os.path.expanduser(repo))
    if os.path.exists(path) or not _SHORT_NAME.fullmatch(repo) or repo.startswith("."):
        return path
    return f"https://github.com/{repo}.git"


def _filled(command: str | tuple[str, ...], values: Mapping[str, str]) -> str | tuple[str, ...]:
    """Insert placeholders such as `{{workspace_path}}`, quoted for the shell if the command is text."""

    def insert(text: str, quote: bool) -> str:
        def value_of(match: re.Match[str]) -> str:
            value = values.get(match[1])
            return match[0] if value is None else shlex.quote(value) if quote else value

        return _PLACEHOLDER.sub(value_of, text)

    return insert(command, True) if isinstance(command, str) else tuple(insert(part, False) for part in command)


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else to_json(value).decode()
