"""The workspace of a case: a template, repositories, and the commands that run around its jobs."""

from __future__ import annotations

from typing import Any

import msgspec

from agentv.model.values import ComparedByContent


class Hook(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A command to run before or after jobs: a list of arguments, or text for the shell. `cwd` is relative."""

    command: str | tuple[str, ...] | None = None
    cwd: str | None = None
    timeout_s: float | None = None
    reset: str | None = None


class Hooks(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The hooks of a workspace: around all jobs, and around each."""

    before_all: Hook | None = None
    before_each: Hook | None = None
    after_each: Hook | None = None
    after_all: Hook | None = None


class Repository(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A Git repository, by path or URL, that is checked out in a folder of the workspace."""

    repo: str
    path: str
    commit: str | None = None
    ancestor: int | None = None
    sparse: tuple[str, ...] = ()


class WorkspaceFile(ComparedByContent, frozen=True, gc=False, omit_defaults=True):
    """A file or folder to copy to `path` in the workspace. Without `file`, its real path, what is there is removed.

    `source` is the path as written, `digest` a hash of the contents. Equality ignores the real path.
    """

    path: str
    source: str = ""
    digest: str = ""
    file: str = ""

    @property
    def _content(self) -> tuple[object, ...]:
        return self.path, self.digest


class Workspace(ComparedByContent, frozen=True, gc=False, omit_defaults=True):
    """A folder that is copied for each job, with commands to run before and after it. `files` are added to the copy.

    `target_hooks` are those of single targets, by name. Equality includes `digest`, the hash of the template, and
    ignores two paths: `path` of the template, and `folder`, which other paths are relative to if it is not that of the
    dataset.
    """

    template: str | None = None
    files: tuple[WorkspaceFile, ...] = ()
    setup: str | tuple[str, ...] | None = None
    teardown: str | tuple[str, ...] | None = None
    keep: bool | None = None
    isolation: str | None = None
    repos: tuple[Repository, ...] = ()
    hooks: Hooks | None = None
    target_hooks: tuple[tuple[str, Hooks], ...] = ()
    digest: str = ""
    path: str = ""
    folder: str = ""

    @property
    def _content(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__struct_fields__ if name not in ("path", "folder"))

    def hooks_at(self, stage: str, target: str) -> list[Hook]:
        """Return the hooks to run at a stage for a target: its own are the innermost."""
        own = dict(self.target_hooks).get(target)
        hooks_of_stage = [getattr(hooks, stage) for hooks in (self.hooks, own) if hooks is not None]
        commands = [hook for hook in hooks_of_stage if hook is not None and hook.command is not None]
        return commands[::-1] if stage.startswith("after") else commands

    @property
    def before_answer(self) -> Workspace:
        """The part that affects an answer: without what happens afterwards, and without paths of this machine."""
        hooks = self.hooks and _before(self.hooks)
        own = tuple((name, _before(each)) for name, each in self.target_hooks)
        files = tuple(msgspec.structs.replace(file, source="", file="") for file in self.files)
        without = msgspec.structs.replace(self, files=files, teardown=None, keep=None, path="", folder="")
        return msgspec.structs.replace(without, hooks=hooks, target_hooks=own)

    def to_data(self) -> dict[str, Any]:
        """Return the workspace as written in a dataset: hooks have their timeout in milliseconds."""
        data: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(self, digest="", path="", folder=""))
        if self.files:
            data["files"] = {file.path: file.source for file in self.files}
        if self.target_hooks:
            data["target_hooks"] = dict(data["target_hooks"])
        for hooks in (data.get("hooks", {}), *data.get("target_hooks", {}).values()):
            for hook in hooks.values():
                if "timeout_s" in hook:
                    hook["timeout_ms"] = round(hook.pop("timeout_s") * 1000)
        return data


def _before(hooks: Hooks) -> Hooks:
    return msgspec.structs.replace(hooks, after_each=None, after_all=None)
