"""Read the `workspace` of a suite or a case, inline or from a file of its own."""

import os
from collections.abc import Iterator
from typing import Any

import msgspec

from agentv.datasets.case.keys import ExecutionKeys, HookKeys, HooksKeys, RepositoryKeys, TargetKeys, WorkspaceKeys
from agentv.datasets.files import FileError, FileFinder, Found
from agentv.errors import DatasetError
from agentv.model.diagnostics import KeyPath, Problems, field_name
from agentv.model.workspace_settings import Hook, Hooks, Repository, Workspace, WorkspaceFile
from agentv.settings.settings_reader import read_settings
from agentv.support.hashes import leaves_folder
from agentv.support.yaml.yaml_file import parse_yaml_file

_PATH: KeyPath = ("workspace",)


def read_workspace(value: Any, finder: FileFinder, problems: Problems) -> Workspace | None:
    """Return a workspace; None after an error. Paths in a file of its own are relative to that file."""
    folder = ""
    if isinstance(value, str):
        try:
            path = finder.find_settings(value).path
            folder, value = os.path.dirname(path), parse_yaml_file(path)
        except (FileError, DatasetError) as error:
            message = error.message if isinstance(error, FileError) else f"{error.headline}: {error.detail}"
            problems.error(_PATH, message, error.hint)
            return None
    if not isinstance(value, dict):
        problems.wrong_type(_PATH, "an object or the name of a file", value)
        return None
    keys = read_settings(WorkspaceKeys, value, _PATH, problems)
    return None if keys is None else _workspace(keys, folder, finder, problems)


def merged(suite: Workspace | None, case: Workspace | None) -> Workspace | None:
    """Return a case's workspace with missing keys taken from the suite's; hooks are merged one by one."""
    if suite is None or case is None:
        return case or suite
    changes = {
        name: getattr(case, name) for name in case.__struct_fields__ if getattr(case, name) not in (None, (), "")
    }
    if case.template is not None:
        changes |= {"path": case.path, "digest": case.digest}
    if case.hooks is not None and suite.hooks is not None:
        hooks = {name: getattr(case.hooks, name) for name in case.hooks.__struct_fields__}
        own_hooks = {name: hook for name, hook in hooks.items() if hook is not None}
        changes["hooks"] = msgspec.structs.replace(suite.hooks, **own_hooks)
    return msgspec.structs.replace(suite, **changes)


def _workspace(keys: WorkspaceKeys, folder: str, finder: FileFinder, problems: Problems) -> Workspace:
    digest = path = ""
    if keys.template is not None:
        try:
            name = finder.below(folder, keys.template) if folder else keys.template
            if name.endswith(".code-workspace"):  # of VS Code, which AgentV (TypeScript) accepts for its folder
                finder.find(name)
                name = os.path.dirname(name) or "."
            template = finder.find(name, is_folder=True)
            path, digest = template.path, template.digest
        except FileError as error:
            problems.error((*_PATH, "template"), error.message, error.hint)
    repos = [_repository(repo, (*_PATH, "repos", index), problems) for index, repo in enumerate(keys.repos)]
    return Workspace(
        template=keys.template,
        files=tuple(_files(keys, folder, finder, problems)),
        setup=keys.setup,
        teardown=keys.teardown,
        keep=keys.keep,
        isolation=keys.isolation,
        repos=tuple(repos),
        hooks=None if keys.hooks is None else _hooks(keys.hooks),
        target_hooks=tuple((name, _hooks(own)) for name, own in keys.target_hooks.items()),
        digest=digest,
        path=path,
        folder=folder,
    )


def _files(keys: WorkspaceKeys, folder: str, finder: FileFinder, problems: Problems) -> Iterator[WorkspaceFile]:
    """Yield the files of a workspace; those of a list keep their path as written."""
    sources = keys.files if isinstance(keys.files, dict) else {name: name for name in keys.files}
    for destination, source in sources.items():
        place: KeyPath = (*_PATH, "files", destination)
        path = os.path.normpath(destination)
        if not destination.strip() or leaves_folder(path) or path == os.curdir:
            hint = "Write `files` as an object: the path in the workspace, and the file to copy there"
            problems.error(place, f"'{destination}' is not a path inside the workspace", hint)
            continue
        try:
            name = finder.below(folder, source) if folder else source
            file = _find(name, finder)
        except FileError as error:
            problems.error(place, error.message, error.hint)
            continue
        yield WorkspaceFile(path, source, file.digest, file.path)


def _find(name: str, finder: FileFinder) -> Found:
    """Return a file, or a folder."""
    try:
        return finder.find(name)
    except FileError as error:
        try:
            return finder.find(name, is_folder=True)
        except FileError:
            raise error from None


def with_target_hooks(workspace: Workspace | None, execution: ExecutionKeys, problems: Problems) -> Workspace | None:
    """Return a workspace with the hooks of single targets, which need one."""
    own = tuple(
        (target.name, _hooks(target.hooks))
        for target in execution.targets
        if isinstance(target, TargetKeys) and target.hooks is not None
    )
    if own and workspace is None:
        message = "Hooks of a target have no effect without a 'workspace'"
        problems.warning(("execution", "targets"), message)
    if not own or workspace is None:
        return workspace
    return msgspec.structs.replace(workspace, target_hooks=(*workspace.target_hooks, *own))


def _hooks(keys: HooksKeys) -> Hooks:
    return Hooks(*(_hook(getattr(keys, name), keys.enabled) for name in Hooks.__struct_fields__))


def _hook(keys: HookKeys | None, enabled: bool) -> Hook | None:
    if keys is None:
        return None
    timeout_s = None if keys.timeout_ms is None else keys.timeout_ms / 1000
    return Hook(keys.command if enabled else None, keys.cwd, timeout_s, keys.reset)


def _repository(keys: RepositoryKeys, path: KeyPath, problems: Problems) -> Repository:
    name = keys.repo.rstrip("/").rsplit("/", 1)[-1].removesuffix(".git")
    folder = os.path.normpath(keys.path if keys.path is not None else name)
    if leaves_folder(folder):
        message = f"Field '{field_name((*path, 'path'))}' must be a folder inside the workspace"
        problems.error((*path, "path"), message)
    commit = keys.commit if keys.commit is not None else keys.base_commit
    for key, text in (("repo", keys.repo), ("commit", commit or "")):
        if text.startswith("-"):  # git would read it as an option
            problems.error((*path, key), f"Field '{field_name((*path, key))}' must not begin with '-'")
    return Repository(keys.repo, folder, commit, keys.ancestor, keys.sparse)
