"""The project of a run: its root folder, the defaults from its configuration, and its targets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path

import msgspec

from agentv.datasets.dataset import open_document
from agentv.datasets.formats.dataset_format import Source
from agentv.engine.job.artifacts import ANSWERS, BATCHES, LOGS, PROMPTS, TRACES, WORKSPACES
from agentv.engine.job.spec import RunFiles
from agentv.engine.named_runs import run_path
from agentv.engine.run_defaults import default_target, load_defaults
from agentv.engine.run_options import EvalOptions
from agentv.errors import AgentvError, DatasetWarning, UsageError
from agentv.model.manifest import TargetEntry
from agentv.model.sandbox_settings import Engine, RunSandbox, settings_of
from agentv.model.values import digest
from agentv.registry import EXECUTORS
from agentv.sandbox.availability import sandbox_of
from agentv.settings.frozen_settings import frozen_settings, parse_settings_file
from agentv.settings.project import CONFIG_FILE, project_root
from agentv.settings.settings_reader import RunDefaults
from agentv.support.yaml.yaml_parser import locate
from agentv.targets.catalog import (
    Targets,
    find_targets_file,
    load_targets,
    named_targets_file,
    settings_folder,
    without_targets,
)
from agentv.targets.target import Target, file_hashes, fingerprint_of
from agentv.targets.target_uses import target_inventory
from agentv.targets.targets_file import FILE_NAMES, as_targets_file, named_entries
from agentv.targets.tools.tool import FunctionTool, McpServer, local_tools
from agentv.trust.consent import require_trust
from agentv.trust.env_file import load_environment
from agentv.trust.policy import load_policy
from agentv.trust.roots import in_project, is_trusted

RESULTS = os.path.join(".agentv", "results")
CACHE = os.path.join(".agentv", "cache")
SETTINGS_FILES = (*FILE_NAMES, CONFIG_FILE, ".env")
"""The files of a folder with settings for the datasets in it and below."""


def is_remote(executor: str | None) -> bool:
    """Whether the executor's workers run on other machines."""
    if executor is None or EXECUTORS.canonical(executor) is None:
        return False
    return getattr(EXECUTORS.find(executor), "is_remote", False)


def open_targets(
    folder: str, file: str | None = None, option: Engine | None = None, defaults: RunDefaults | None = None
) -> Targets:
    """Return the targets for the datasets in a folder, from the named targets file or the nearest one.

    `option` is the sandbox of the command, and `defaults` has that of the project. The user's policy may require one.
    Raises UntrustedError for a file outside the project that is not trusted.
    """
    defaults = defaults or RunDefaults()
    folder = settings_folder(folder)
    root = project_root(folder)
    path = named_targets_file(file) if file is not None else find_targets_file(folder, root)
    data = None if path is None else as_targets_file(parse_settings_file(path), path)
    if path is not None and not in_project(os.path.realpath(path)):
        entries = named_entries(data)
        require_trust(path, target_inventory(entries, entries, path))
    is_required = load_policy().sandbox == "required"
    sandbox = RunSandbox(
        option=option, default=settings_of(defaults.sandbox), is_required=is_required, root=os.path.abspath(root)
    )
    environment = msgspec.structs.replace(
        load_environment(folder, root), sandbox=sandbox, pass_env=defaults.pass_env or ()
    )
    if path is None:
        return without_targets(environment)
    return load_targets(data, path, environment, lambda key: mark.line if (mark := locate(data, key)) else None)


class Project:
    """The root, defaults and targets that the datasets of a run are evaluated with.

    Targets come from the targets file or from the program (`given`). With `options.replay` a file answers in their
    place, and variables in their settings may be unset. `folders` are the dataset folders, where commands run.
    """

    def __init__(
        self,
        options: EvalOptions,
        sources: tuple[Source, ...],
        warn: Callable[[DatasetWarning], None],
        targets: Iterable[Target] = (),
    ) -> None:
        folder = settings_folder(sources[0].folder if sources else ".")
        self.options = options
        self._sources = sources
        self.root = project_root(folder)
        self.defaults = load_defaults(folder, self.root, warn)
        folders = (os.path.abspath(dataset.folder) for dataset in sources if is_trusted(dataset.folder))
        self.folders = tuple(dict.fromkeys(folders)) or (os.getcwd(),)
        file = open_targets(folder, options.targets_file, options.sandbox, self.defaults)
        for dataset in sources:
            functions = dataset.format.programs(dataset) if file.environment.sandbox.of() is not None else ()
            for _, value in functions:
                what = f"{value} runs when its cases are read, which cannot be isolated"
                raise UsageError(f"Cannot run {dataset.path} in a sandbox", what, "Run it without a sandbox")
            own = dataset.format.targets(dataset)
            if (frozen := frozen_settings()) is not None:
                frozen.check_targets(dataset.path, own)
            file = file.with_entries(own, dataset.path)
        file = file.with_models(options.targets)
        own_names = file.names
        file = file.with_models((options.judge,) if options.judge else ())
        self._judge_only = frozenset(file.names) - frozenset(own_names)
        self.file = file.with_variants(options.variants)
        self.replay = None if options.replay is None else os.path.abspath(run_path(options.replay))
        self.is_remote = is_remote(options.executor)
        self._replaying: Callable[..., Target] = Target
        self._replays_all = False
        if self.replay is not None or options.transcript is not None:
            from agentv.targets.recordings.replay import Replay, is_recording  # late: few runs replay answers
        if self.replay is not None:
            self._replaying = partial(Replay, provider="replay", source=self.replay)
            self._replays_all = is_recording(self.replay)
        self._given = {target.name: target for target in targets}
        if options.transcript is not None:
            source = os.path.abspath(os.path.expanduser(options.transcript))
            self._given |= {name: Replay(name=name, provider="replay", source=source) for name in options.targets}
        self._warn = warn
        self.given = tuple(self._given)
        self.names = (*self.given, *(name for name in self.file.names if name not in self._given))
        self.home = self.file.home
        self.secrets = self.file.secrets

    @cached_property
    def default_target(self) -> str | None:
        """The target of cases that do not name one. Raises UsageError if the configured one does not exist."""
        return default_target(self._answering, self.defaults)

    @property
    def _answering(self) -> tuple[str, ...]:
        """The targets that may answer cases: not the model that only `--judge` names."""
        return tuple(name for name in self.names if name not in self._judge_only)

    def check_named(self, names: Iterable[str]) -> None:
        """Raise UsageError if one of the targets does not exist, or if there are no targets at all."""
        for name in names:
            if name not in self._given:
                self.file.pick([name])
        if not self._answering:
            self._check_datasets()
            self.file.pick()

    def _check_datasets(self) -> None:
        """Raise the error of a dataset that cannot be read, or UsageError for one whose own targets cannot be used."""
        for source in self._sources:
            mapped = open_document(source).mapped
            lost = [what for what in mapped.in_settings if "provider" in what] if mapped is not None else []
            if lost:
                hint = f"Write a target of that name in {FILE_NAMES[0]}, and pass --target NAME"
                raise UsageError(f"None of the targets in {source.path} can be used", "\n".join(lost), hint)

    @property
    def is_sandboxed(self) -> bool:
        """Whether all programs of the run are isolated."""
        return self.file.environment.sandbox.of() is not None

    def check_sandbox(self, names: Iterable[str]) -> None:
        """Raise UsageError if programs of the run or of these targets must be isolated, but cannot be."""
        if self.is_remote or self.replay is not None:
            return
        environment = self.file.environment
        sandbox_of("The programs of this run", None, environment)
        for name in names:
            target = self.target(name)
            own = getattr(target, "sandbox", None)
            if environment.sandbox.of(own) is None or name in self._given:
                continue
            if code := _code_of(target):
                detail = f"{code} runs in the process of agentv"
                raise UsageError(f"Target '{name}' cannot be isolated", detail, "Use a `cli` target, or no sandbox")
            sandbox_of(f"Target '{name}'", own, environment)

    def target(self, name: str) -> Target:
        """Return the settings of a target."""
        if self.replay is not None and name not in self._given:
            return self.file.unresolved(name)
        return self._called(name)

    def answering(self, name: str) -> Target:
        """Return the target itself, or the replay that answers in its place."""
        return self.target(name) if self.replay is None else self._replaying(name=name)

    def _check_executed_prompts(self, targets: Iterable[Target]) -> None:
        """Raise UsageError if a target lets a shell execute the prompts of a dataset that is not trusted."""
        outside = next((source.path for source in self._sources if not is_trusted(source.folder)), None)
        if outside is None or self.replay is not None:
            return
        for target in targets:
            if risk := target.shell_risk():
                headline = f"Prompts of {outside} could run commands: the file is outside your project"
                raise UsageError(headline, risk, "Change the command, or pass --trust PATH if you trust the dataset")

    def reachable(self, needed: Iterable[str], by_evaluators: Iterable[str]) -> tuple[Target, ...]:
        """Return the targets that jobs need, those that evaluators call, and all others whose settings can be read.

        Problems in the settings of the first two, and of their fallbacks, are errors.

        A recording answers for all of them, an earlier run only for those that jobs need.
        """
        targets = {name: self.target(name) for name in dict.fromkeys(needed)}
        read = self.target if self.replay is None or self._replays_all else self._called
        targets |= {name: read(name) for name in by_evaluators if name not in targets}
        targets |= {name: read(name) for name in self.with_fallbacks(targets) if name not in targets}
        self._check_executed_prompts(targets.values())
        advice = [target.advice(self.home) for target in targets.values()] if self.replay is None else []
        for warning in (*self.file.warnings, *filter(None, advice)):
            self._warn(DatasetWarning(warning))
        for name in self.names:
            if name not in targets:
                with suppress(AgentvError):  # invalid, or its variables are unset, but nothing needs it
                    targets[name] = read(name)
        return tuple(targets.values())

    def with_fallbacks(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return targets and those that answer in their place."""
        return tuple(dict.fromkeys(other for name in names for other in (name, *self.target(name).fallback_targets)))

    def entry(self, name: str) -> TargetEntry:
        """Return the manifest entry of a target."""
        if self.replay is not None:
            target: Target = self._replaying(name=name)
            settings = {"from": self.replay}
        else:
            target = self._called(name)
            settings = {} if name in self._given else self.file.public(name, target)
        files = file_hashes(target, self.home, self.folders)
        fingerprint = fingerprint_of(target, self.secrets, files)
        if fingerprint and target.fallback_targets:
            others = [self._called(item) for item in target.fallback_targets]
            prints = [fingerprint_of(item, self.secrets, file_hashes(item, self.home, self.folders)) for item in others]
            fingerprint = digest([fingerprint, *prints]) if all(prints) else ""
        return TargetEntry(name=name, provider=target.provider, fingerprint=fingerprint, settings=settings, files=files)

    def change(self, then: TargetEntry, noun: str = "target") -> str:
        """Describe how a target changed since its manifest entry was written; empty if it did not."""
        now = self.entry(then.name) if then.name in self.names else None
        if now is not None and now.fingerprint and now.fingerprint == then.fingerprint:
            return ""
        files = now is not None and sorted(
            name for name in {*then.files, *now.files} if then.files.get(name) != now.files.get(name)
        )
        return f"the {noun} {then.name} changed" + (f" ({', '.join(files)})" if files else "")

    def run_files(self, options: EvalOptions, folder: Path | None) -> RunFiles:
        """Return the paths a run writes to: prompts and traces in its own folder unless the options name another."""

        def place(option: str | None, name: str) -> str | None:
            path = option or (None if option is None or folder is None else str(folder / name))
            return None if path is None else os.path.abspath(path)  # user code may change the working directory

        return RunFiles(
            cache_folder=os.path.join(self.root, CACHE) if options.cache else None,
            record_file=None if options.record is None else os.path.abspath(options.record),
            prompts_folder=place(options.dump_prompts, PROMPTS),
            traces_folder=place(options.dump_traces, TRACES),
            logs_folder=None if folder is None else str(folder / LOGS),
            workspaces_folder=None if folder is None else str(folder / WORKSPACES),
            answers_folder=None if folder is None else os.path.abspath(folder / ANSWERS),
            batches_folder=None if folder is None else os.path.abspath(folder / BATCHES),
        )

    def refuse_to_overwrite(self, inputs: Iterable[str], *outputs: str | None) -> None:
        """Raise UsageError if a file the run would write is also one of its inputs."""
        read = {os.path.realpath(file) for file in inputs}
        if self.file.path is not None:
            read.add(os.path.realpath(self.file.path))
        for path in outputs:
            if path is not None and os.path.realpath(path) in read:
                raise UsageError(f"Cannot write {path}", "It is an input of the run", "Use a different path")

    def _called(self, name: str) -> Target:
        if name in self._given:
            return self._given[name]
        # Workers on other machines fill in variables themselves, so they may be unset here.
        return self.file.unresolved(name) if self.is_remote else self.file.get(name)


def _code_of(target: Target) -> str:
    """Return the user's code in a target that runs in this process; empty if there is none."""
    if isinstance(function := getattr(target, "function", None), str):
        return f"The function {function}"
    for tool in local_tools(getattr(target, "tools", None) or ()):
        if isinstance(tool, FunctionTool):
            return f"The tool {tool.function}"
        if isinstance(tool, McpServer) and not tool.is_remote:
            return "An MCP server"
    return ""
