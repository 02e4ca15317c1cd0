"""Sets a run up and sees it through: finds datasets and targets, checks, opens the folder, runs, sums up."""

from __future__ import annotations

import asyncio
import os
import platform
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import msgspec

from agentv import __version__
from agentv.datasets.files import project_root
from agentv.datasets.yaml_document import parse_yaml_file
from agentv.datasets.yaml_nodes import locate
from agentv.engine.carry import Earlier, Keep
from agentv.engine.gates import Verdict, judge
from agentv.engine.job import RunSpec
from agentv.engine.options import EvalOptions, options_from_data
from agentv.engine.plan import Cases, Checked, Plan, check
from agentv.engine.run import Observer, Running, milliseconds_since
from agentv.engine.work import now
from agentv.environment import load_environment
from agentv.errors import UsageError
from agentv.model.evaluator import EvaluatorSpec
from agentv.model.run import Counts, RunManifest, RunSummary, TargetEntry
from agentv.results.folder import RunFolder, last_unfinished, new_run_id
from agentv.results.redact import Redactor
from agentv.results.summary import TargetDetails
from agentv.targets.base import Target
from agentv.targets.loading import Targets, find_targets_file, load_targets, named_targets_file, without_targets

RESULTS = os.path.join(".agentv", "results")

Watch = Callable[[Running], AbstractContextManager[None]]
"""Goes along with a run: shows its progress, or nothing."""


def unwatched(running: Running) -> AbstractContextManager[None]:  # noqa: ARG001
    """Nobody looks."""
    return nullcontext()


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A run that ended, whichever way."""

    folder: Path
    summary: RunSummary
    details: dict[str, TargetDetails]
    verdict: Verdict
    duration_ms: float
    skipped_cases: int = 0


class Session:
    """One run that is about to be: everything found and nothing called yet."""

    def __init__(
        self,
        options: EvalOptions,
        cases: Cases,
        *,
        given: tuple[Target, ...] = (),
        evaluators: tuple[EvaluatorSpec, ...] | None = None,
    ) -> None:
        self.options = options
        self.cases = cases
        folder = cases.sources[0].folder if cases.sources else "."
        self.root = project_root(folder)
        self._given = {target.name: target for target in given}
        self._file = open_targets(folder, options.targets_file)
        self._evaluators = evaluators
        self.plan = self._plan()

    @property
    def secrets(self) -> frozenset[str]:
        """What must not be written anywhere."""
        return self._file.secrets

    def check(self) -> Checked:
        """Reads everything once; raises for whatever would go wrong later."""
        return check(self.plan)

    def target(self, name: str) -> Target:
        """The settings of a target."""
        return self._given.get(name) or self._file.get(name)

    def execute(
        self,
        checked: Checked,
        out: str | None,
        resume: bool,
        observer: Observer,
        watch: Watch,
        carry: tuple[str, Keep] | None = None,
    ) -> Outcome:
        """Runs the plan into its folder and sums up. `watch` goes along while it runs; `carry` takes records over."""
        redactor = Redactor(self.secrets)
        run_id = new_run_id()
        folder, earlier = self._open_folder(out, resume, run_id, redactor)
        lock = folder.lock()
        try:
            manifest = earlier or self._manifest(checked, run_id)
            if earlier is not None:
                self._check_same_options(earlier)
                self._check_unchanged(earlier, checked)
            folder.write_manifest(manifest)
            earlier_run = None if carry is None else Earlier(*carry, self._fingerprint)
            return self._run(folder, manifest, checked, observer, watch, earlier_run)
        finally:
            lock.close()

    def _run(
        self,
        folder: RunFolder,
        manifest: RunManifest,
        checked: Checked,
        observer: Observer,
        watch: Watch,
        earlier: Earlier | None,
    ) -> Outcome:
        started = time.perf_counter()
        spec = RunSpec(
            run_id=manifest.run_id,
            targets=tuple(self.target(name) for name in checked.jobs),
            home=self._file.home,
            judge=self.options.judge,
            evaluators=self._evaluators,
            workers=self.options.workers,
            timeout_s=self.options.timeout_s,
            max_retries=self.options.max_retries,
        )
        running = Running(folder, self.plan, spec, checked, self.options, observer, earlier)
        try:
            with watch(running):
                in_a_loop(running.run)
        finally:
            running.close()
            if earlier is not None:
                earlier.close()
        summary = running.summary.build(checked.jobs)
        verdict = judge(summary, self.options.gates, running.stopped, checked.thresholds)
        folder.write_summary(summary)
        ended = now() if running.stopped is None else None
        folder.write_manifest(
            msgspec.structs.replace(
                manifest, finished_at=ended, exit_code=verdict.exit_code, counts=_counts(summary, checked)
            )
        )
        return Outcome(
            folder=folder.path,
            summary=summary,
            details=running.summary.details(),
            verdict=verdict,
            duration_ms=milliseconds_since(started),
            skipped_cases=self.cases.sink.skipped,
        )

    def _plan(self) -> Plan:
        known = (*self._given, *(name for name in self._file.names if name not in self._given))
        targets = self.options.targets or tuple(self._given)
        for name in targets:
            if name not in self._given:
                self._file.pick([name])
        default = "default" if "default" in known else known[0] if len(known) == 1 else None
        if not known:
            self._file.pick()
        return Plan(
            cases=self.cases,
            known=known,
            targets=targets,
            default=default,
            trials=self.options.trials,
            evaluators=self._evaluators,
        )

    def _open_folder(
        self, out: str | None, resume: bool, run_id: str, redactor: Redactor
    ) -> tuple[RunFolder, RunManifest | None]:
        path = Path(out) if out is not None else None
        if resume and path is None:
            found = last_unfinished(self.root)
            if found is None:
                raise UsageError("There is no unfinished run to go on with", hint="Start one without --resume")
            path = found.path
        if resume and path is not None and (path / "run.json").is_file():
            folder = RunFolder.open(path, redactor.redact_line)
            return folder, folder.read_manifest()
        if path is None:
            path = Path(self.root) / RESULTS / run_id
        return RunFolder.create(path, redactor.redact_line), None

    def _manifest(self, checked: Checked, run_id: str) -> RunManifest:
        return RunManifest(
            run_id=run_id,
            started_at=now(),
            paths=self.options.paths,
            options=msgspec.to_builtins(self.options),
            versions={"agentv": __version__, "python": platform.python_version()},
            datasets=checked.datasets,
            targets=tuple(self._target_entry(name) for name in checked.jobs),
            fingerprints=checked.evaluators,
            seed=self.options.seed,
            git_commit=_git_commit(self.root),
            counts=Counts(cases=checked.cases, jobs=checked.total),
        )

    def _target_entry(self, name: str) -> TargetEntry:
        if name in self._given:
            return TargetEntry(name=name, provider=self._given[name].provider, fingerprint="")
        settings = self._file.get(name)
        return TargetEntry(
            name=name,
            provider=settings.provider,
            fingerprint=self._file.fingerprint(name),
            settings=self._file.public(name),
        )

    def _fingerprint(self, name: str) -> str:
        return self._file.fingerprint(name) if name in self._file.names else ""

    def _check_same_options(self, earlier: RunManifest) -> None:
        different = options_from_data(earlier.options).differences(self.options)
        if different:
            names = ", ".join(different)
            hint = "Leave paths and options out to go on with those of the run, or start a new run"
            raise UsageError(f"The run in progress was started with other values of: {names}", hint=hint)

    def _check_unchanged(self, earlier: RunManifest, checked: Checked) -> None:
        """A run goes on with what it began with, or not at all: half of each would be neither."""
        before = {entry.path: entry.digest for entry in earlier.datasets}
        after = {entry.path: entry.digest for entry in checked.datasets}
        changed = [f"the dataset {path}" for path in before if before[path] != after.get(path)]
        targets = {entry.name: self._target_entry(entry.name).fingerprint for entry in earlier.targets}
        changed += [f"the target {entry.name}" for entry in earlier.targets if entry.fingerprint != targets[entry.name]]
        if changed:
            what = " and ".join(changed)
            hint = "Start a new run, or put back what was there; --changed-since keeps what still holds"
            raise UsageError(f"The run in progress cannot go on: {what} changed since it began", hint=hint)


def resumed_options(out: str | None, folder: str) -> EvalOptions:
    """The options of the run that `--resume` without paths goes on with."""
    path = Path(out) if out is not None else None
    if path is None:
        found = last_unfinished(project_root(folder))
        if found is None:
            raise UsageError("There is no unfinished run to go on with", hint="Name the datasets to start one")
        path = found.path
    return options_from_data(RunFolder.open(path).read_manifest().options)


def open_targets(folder: str, file: str | None = None) -> Targets:
    """The targets that a folder's datasets are run against, from the file that is named or the nearest one."""
    root = project_root(folder)
    environment = load_environment(folder, root)
    path = named_targets_file(file) if file is not None else find_targets_file(folder, root)
    if path is None:
        return without_targets(environment)
    data = parse_yaml_file(path)
    return load_targets(data, path, environment, lambda key: mark.line if (mark := locate(data, key)) else None)


def in_a_loop(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs a coroutine to its end, from plain code or from inside somebody's running loop, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(main())
        return
    failed: list[BaseException] = []

    def in_thread() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=in_thread, name="agentv-run")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def _counts(summary: RunSummary, checked: Checked) -> Counts:
    targets = summary.targets.values()
    return Counts(
        cases=checked.cases,
        jobs=checked.total,
        ok=sum(target.scored for target in targets),
        unscored=sum(target.unscored for target in targets),
        errors=sum(target.errors for target in targets),
        skipped=sum(target.skipped for target in targets),
    )


def _git_commit(root: str) -> str | None:
    try:
        command = ["git", "-C", root, "rev-parse", "HEAD"]
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None if found.returncode == 0 else None
