"""Sets a run up and sees it through: finds datasets and targets, checks, opens the folder, runs, sums up."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

import msgspec

from agentv import __version__
from agentv.datasets.files import project_root
from agentv.engine.answers.carried import Earlier, carried
from agentv.engine.calls.layers import LayerSettings
from agentv.engine.calls.prices import why_unpriced
from agentv.engine.calls.run_targets import RunTargets, open_targets
from agentv.engine.early_stop import Stopping, label, parse_rule
from agentv.engine.gates import Stop, Verdict, judge, with_missing
from agentv.engine.interrupts import git_commit, in_a_loop
from agentv.engine.job.artifacts import FOLDER as LOGS
from agentv.engine.job.artifacts import PROMPTS, TRACES
from agentv.engine.job.run_job import Worker, now
from agentv.engine.job.spec import Job, RunSpec
from agentv.engine.job.workspace import FOLDER as WORKSPACES
from agentv.engine.named_runs import open_run
from agentv.engine.run import CostUnknown, Observer, Running, milliseconds_since
from agentv.engine.run_options import EvalOptions, default_target, given_defaults, load_defaults
from agentv.engine.run_plan import Cases, Checked, Plan, check, files_of
from agentv.engine.scoring.fingerprints import EvaluatorFiles
from agentv.errors import AgentvError, UsageError
from agentv.model.evaluator import EvaluatorSpec
from agentv.model.manifest import Counts, RunManifest, RunSummary, TargetEntry, TargetSummary
from agentv.registry import EXECUTORS
from agentv.runs.folder import RunFolder, new_run_id
from agentv.runs.redaction import Redactor
from agentv.runs.summary import TargetDetails
from agentv.targets.replay.replay import Replay
from agentv.targets.target import Target

RESULTS = os.path.join(".agentv", "results")
CACHE = os.path.join(".agentv", "cache")

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
    stopped: Stop | None = None
    stopped_early: bool = False


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
        self.defaults = load_defaults(folder, self.root, cases.sink.warning)
        self._folders = tuple(dict.fromkeys(os.path.abspath(each.folder) for each in cases.sources)) or (os.getcwd(),)
        self._given = {target.name: target for target in given}
        self._file = open_targets(folder, options.targets_file)
        self._targets = RunTargets(self._file, self._given, options.replay, self._folders)
        self._evaluators = evaluators
        self.plan = self._plan()

    @property
    def home(self) -> str:
        """The folder that paths in targets' settings start from."""
        return self._file.home

    @property
    def secrets(self) -> frozenset[str]:
        """What must not be written anywhere."""
        return self._file.secrets

    def keep_inputs(self, *written: str | None) -> None:
        """Raises UsageError when a file that is to be written is one that the run reads."""
        read = {os.path.realpath(file) for source in self.cases.sources for file in files_of(source)}
        if self._file.path is not None:
            read.add(os.path.realpath(self._file.path))
        for path in written:
            if path is not None and os.path.realpath(path) in read:
                raise UsageError(f"Cannot write {path}", "The run reads it", "Name another file")

    def check(self) -> Checked:
        """Reads everything once; raises for whatever would go wrong later."""
        self.keep_inputs(self.options.record)
        executor = self.options.executor
        if EXECUTORS.canonical(executor) is None:
            raise UsageError(f"Unknown executor '{executor}'", hint=EXECUTORS.suggestion(executor))
        checked = check(self.plan)
        if self.options.budget_usd is not None:
            self._check_prices(checked)
        return checked

    def _check_prices(self, checked: Checked) -> None:
        """A budget is held by what calls cost: every target that is asked, judges too, must have a price."""
        for name in dict.fromkeys(self._asked(checked)):
            why = why_unpriced(self.target(name))
            if why is not None:
                message = f"No price is known for target '{name}', so --budget-usd cannot be held"
                raise UsageError(message, why, "Leave --budget-usd out, or use a target with a price")

    def _asked(self, checked: Checked) -> tuple[str, ...]:
        """The targets that are asked something."""
        return (*checked.jobs, *checked.users, *checked.embedders, *checked.judges)

    def target(self, name: str) -> Target:
        """The settings of a target."""
        return self._targets.get(name)

    def answering(self, name: str) -> Target:
        """What answers for a target: itself, or the file that is replayed."""
        replay = self._targets.replay
        return self.target(name) if replay is None else Replay(name=name, provider="replay", source=replay)

    def layers(self, run_folder: Path | None) -> LayerSettings:
        """What is kept of calls, and where; prompts and traces go to the run's folder unless another one is named."""
        options = self.options

        def place(said: str | None, name: str) -> str | None:
            return said or (None if said is None or run_folder is None else str(run_folder / name))

        return LayerSettings(
            cache_folder=os.path.join(self.root, CACHE) if options.cache else None,
            record_file=options.record,
            prompts_folder=place(options.dump_prompts, PROMPTS),
            traces_folder=place(options.dump_traces, TRACES),
            logs_folder=None if run_folder is None else str(run_folder / LOGS),
            workspaces_folder=None if run_folder is None else str(run_folder / WORKSPACES),
            secrets=self.secrets,
            home=self.home,
            folders=self._folders,
        )

    def execute(
        self,
        checked: Checked,
        out: str | None,
        resume: bool,
        observer: Observer,
        watch: Watch,
    ) -> Outcome:
        """Runs the plan into its folder and sums up. `watch` goes along while it runs."""
        redactor = Redactor(self.secrets)
        run_id = new_run_id()
        stopping = self._stopping()
        folder, begun = self._open_folder(out, resume, run_id, redactor)
        lock = folder.lock()
        manifest = begun
        try:
            if begun is not None:
                self._check_unchanged(begun, checked)
            planned = begun or self._manifest(checked, run_id)
            worker = self._worker(planned.run_id, checked, folder)
            earlier = self._earlier()
            folder.write_manifest(planned)
            manifest = planned
            return self._run(folder, manifest, worker, checked, observer, watch, earlier, stopping)
        except CostUnknown as error:
            folder.write_manifest(msgspec.structs.replace(planned, exit_code=error.exit_code))
            raise
        finally:
            lock.close()
            if manifest is None:
                with suppress(OSError):
                    folder.path.rmdir()  # nothing has begun: what was made for it goes again

    def _stopping(self) -> Stopping | None:
        """What watches whether enough is known, when that is asked for."""
        rule = None if self.options.stop_when is None else parse_rule(self.options.stop_when)
        return None if rule is None else Stopping(rule, self.options.seed, self.plan)

    def _worker(self, run_id: str, checked: Checked, folder: RunFolder) -> Worker:
        """What runs the jobs, everything that they need opened."""
        worker = Worker(self._spec(run_id, checked, folder))
        worker.open((*checked.jobs, *checked.users, *checked.judges), checked.embedders)
        return worker

    def _spec(self, run_id: str, checked: Checked, folder: RunFolder) -> RunSpec:
        answering = (*checked.jobs, *checked.users)
        return RunSpec(
            run_id=run_id,
            replay=self._targets.replay,
            answering=answering,
            targets=self._targets.reachable(answering, (*checked.judges, *checked.embedders)),
            home=self.home,
            judge=self.options.judge,
            evaluators=self._evaluators,
            workers=self.options.workers,
            timeout_s=self.options.timeout_s,
            max_retries=self.options.max_retries,
            defaults=self.defaults,
            layers=self.layers(folder.path),
            include_trace=self.options.include_trace,
        )

    def _earlier(self) -> Earlier | None:
        """The run whose records are carried over, when there is one."""
        chosen = carried(self.options)
        if chosen is None:
            return None
        run, keep = chosen
        files = EvaluatorFiles()

        def evaluators_fingerprint(job: Job) -> str:
            return files.fingerprint(job.case, self.plan.evaluators_of(job.case))

        return Earlier(open_run(run), keep, self._targets.change, evaluators_fingerprint, self.options.judge)

    def _run(
        self,
        folder: RunFolder,
        manifest: RunManifest,
        worker: Worker,
        checked: Checked,
        observer: Observer,
        watch: Watch,
        earlier: Earlier | None,
        stopping: Stopping | None,
    ) -> Outcome:
        started = time.perf_counter()
        running = self._running(folder, worker, checked, observer, earlier, stopping)
        try:
            with watch(running):
                in_a_loop(running.run, running.interrupt)
        finally:
            running.close()
            if earlier is not None:
                earlier.close()
        summary, details = running.summary.build(checked.jobs, checked.asked), running.summary.details()
        spared = {name: stopping.side(name) is not None for name in stopping.bets} if stopping is not None else {}
        missing = any(target.skipped and not spared.get(name) for name, target in summary.targets.items())
        if running.stopped is None and missing:
            hint = "Put the files back and go on with --resume, or start a new run"
            raise AgentvError("The datasets changed while they were run", f"Done so far is in {folder.path}", hint)
        if stopping is not None:
            summary = self._caught_up(summary, stopping, folder)
            summary, details = label(summary, details, stopping, folder.path)
        verdict = judge(summary, self.options.gates, running.stopped, checked.thresholds)
        verdict = with_missing(verdict, worker.targets.missing)
        folder.write_summary(summary)
        spared_any = manifest.stopped_early or any(map(_stopped, summary.targets.values()))
        early = running.stopped in (None, "decided") and spared_any
        ended = manifest.finished_at or now() if running.stopped in (None, "decided") else None
        folder.write_manifest(
            msgspec.structs.replace(
                manifest,
                finished_at=ended,
                stopped_early=early,
                exit_code=verdict.exit_code,
                counts=_counts(summary, checked),
            )
        )
        return Outcome(
            folder=folder.path,
            summary=summary,
            details=details,
            verdict=verdict,
            duration_ms=milliseconds_since(started),
            skipped_cases=self.cases.sink.skipped,
            stopped=running.stopped,
            stopped_early=early,
        )

    def _caught_up(self, summary: RunSummary, stopping: Stopping, folder: RunFolder) -> RunSummary:  # noqa: ARG002
        """The figures to be labelled, and all bets made: here they were while the run went on."""
        return summary

    def _running(
        self,
        folder: RunFolder,
        worker: Worker,
        checked: Checked,
        observer: Observer,
        earlier: Earlier | None,
        stopping: Stopping | None,
    ) -> Running:
        return Running(folder, self.plan, worker, checked, self.options, observer, earlier, stopping)

    def _plan(self) -> Plan:
        known = self._targets.names
        targets = self.options.targets or tuple(self._given)
        for name in targets:
            if name not in self._given:
                self._file.pick([name])
        if not known:
            self._file.pick()
        return Plan(
            cases=self.cases,
            known=known,
            targets=targets,
            default=default_target(known, self.defaults),
            trials=self.options.trials,
            default_trials=self.defaults.trials or 1,
            evaluators=self._evaluators,
            judge=self.options.judge,
            judge_target=lambda name: self._targets.get(name).judge_target,
            transform=lambda name: self._targets.get(name).transform,
            whole=not self.options.narrows,
        )

    def _open_folder(
        self, out: str | None, resume: bool, run_id: str, redactor: Redactor
    ) -> tuple[RunFolder, RunManifest | None]:
        if resume and out is not None and RunFolder(out).manifest_path.is_file():
            folder = RunFolder.open(out, redactor.redact_line)
            return folder, folder.read_manifest()
        path = Path(self.root) / RESULTS / run_id if out is None else Path(out)
        return RunFolder.create(path, redactor.redact_line), None

    def _manifest(self, checked: Checked, run_id: str) -> RunManifest:
        return RunManifest(
            run_id=run_id,
            started_at=now(),
            paths=self.options.paths,
            options=msgspec.to_builtins(self.options),
            versions={"agentv": __version__, "python": platform.python_version()},
            datasets=checked.datasets,
            targets=tuple(self._entry(name) for name in checked.jobs),
            judges=tuple(self._targets.entry(name) for name in dict.fromkeys((*checked.judges, *checked.embedders))),
            fingerprints=checked.evaluators,
            defaults=given_defaults(self.defaults),
            seed=self.options.seed,
            git_commit=git_commit(self.root),
            counts=Counts(cases=checked.cases, jobs=checked.total),
        )

    def _entry(self, name: str) -> TargetEntry:
        """What the manifest says of a target."""
        return self._targets.entry(name)

    def _check_unchanged(self, earlier: RunManifest, checked: Checked) -> None:
        """A run goes on with what it began with, or not at all: half of each would be neither."""
        before = {entry.path: entry.digest for entry in earlier.datasets}
        after = {entry.path: entry.digest for entry in checked.datasets}
        changes = [f"the dataset {path} changed" for path in before if before[path] != after.get(path)]
        changes += filter(None, (self._change(entry) for entry in earlier.targets))
        changes += filter(None, (self._targets.change(entry, "judge") for entry in earlier.judges))
        then, now = earlier.fingerprints, checked.evaluators
        changes += [f"the evaluator {name} changed" for name in {**then, **now} if then.get(name) != now.get(name)]
        if earlier.defaults != given_defaults(self.defaults):
            changes.append("`execution` of .agentv/config.yaml changed")
        if changes:
            what = " and ".join(changes)
            hint = "Start a new run, or put back what was there; --changed-since keeps what still holds"
            raise UsageError(f"The run in progress cannot go on: {what} since it began", hint=hint)

    def _change(self, then: TargetEntry) -> str:
        """What changed about a target that answers."""
        return self._targets.change(then)


def _stopped(target: TargetSummary) -> bool:
    return target.early_stop is not None and target.early_stop.not_needed > 0


def _counts(summary: RunSummary, checked: Checked) -> Counts:
    targets = summary.targets.values()
    return Counts(
        cases=checked.cases,
        jobs=sum(target.jobs for target in targets),
        ok=sum(target.scored for target in targets),
        unscored=sum(target.unscored for target in targets),
        errors=sum(target.errors for target in targets),
        skipped=sum(target.skipped for target in targets),
    )
