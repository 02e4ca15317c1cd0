"""The state shared by all jobs of a run in one process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from typing import TYPE_CHECKING, Any

import msgspec

from agentv.datasets.files import finder_of
from agentv.engine.answers.answer_log import AnswerLog, encode_answer
from agentv.engine.calls.open_targets import MOST_BATCHED, OpenTarget, OpenTargets
from agentv.engine.calls.payments import batch_cost, job_account
from agentv.engine.job.answer import Answer
from agentv.engine.job.artifacts import JobFiles, StreamLogs
from agentv.engine.job.judge_hold import JudgeHold
from agentv.engine.job.request import CaseRequest
from agentv.engine.job.spec import MOST_AT_ONCE, RunSpec
from agentv.engine.scoring.scorer import Scorer
from agentv.evaluators.code.judge_host import JudgeHost
from agentv.executors.executor import Limits, UnfinishedJob
from agentv.model.evaluator import Verdicts
from agentv.model.job import Job
from agentv.model.origin import Origin
from agentv.model.result import Result
from agentv.model.workspace_settings import Workspace
from agentv.runs.redaction import Redactor
from agentv.trust.env_file import environment_of

if TYPE_CHECKING:
    from agentv.engine.job.suite_workspace import SuiteWorkspaces
    from agentv.engine.job.workspace import JobWorkspace

Runner = Callable[[Job, "JobContext"], Awaitable[Result | UnfinishedJob]]


class JobContext:
    """The state shared by all jobs of a run in one process: open targets, evaluators and files.

    `runner` is `run_job`, or calls it and redacts the record.
    """

    def __init__(self, spec: RunSpec, limits: Limits, runner: Runner) -> None:
        redactor = Redactor(spec.secrets)
        self.redact_line = redactor.redact_line
        self._runner = runner
        files = spec.files
        self.spec = spec
        self.targets = OpenTargets(spec, limits)
        self.environment = environment_of(spec.home)
        self.host = JudgeHost(self.environment, tuple(sorted(self.targets.names)))
        self.scorer = Scorer(self.targets, spec.judge)
        self.verdicts = spec.defaults.verdicts
        self.transforms = {target.name: target.transform for target in spec.targets if target.transform is not None}
        self.prompts = None if files.prompts_folder is None else JobFiles(files.prompts_folder, redactor)
        self.traces = None if files.traces_folder is None else JobFiles(files.traces_folder, redactor)
        self.logs = StreamLogs(files.logs_folder, redactor)
        self.finders: dict[tuple[str, bool], Callable[[str], str]] = {}
        self._suites: SuiteWorkspaces | None = None
        self._answers: AnswerLog | None = None
        for name in (*spec.answering, *spec.users, *spec.judges):
            settings = self.targets.get(name).settings
            if spec.replay is None:
                settings.check_ready(spec.home)
        judges = [self.targets.get(name).alone.limit for name in spec.judges]
        judges += [self.targets.get(name, embeddings=True).alone.limit for name in spec.embedders]
        self.judge_hold = JudgeHold(judges, limits) if judges else None

    @property
    def capacity(self) -> int:
        """The number of concurrent jobs: enough to fill every endpoint's limit and every batch."""
        called = {*self.spec.answering, *self.spec.judges}
        open_targets = [self.targets.get(name) for name in called]
        configured = [self.spec.workers or target.settings.workers or 0 for target in open_targets]
        configured += [MOST_BATCHED for target in open_targets if target.settings.is_batched]
        useful = self.spec.most_given or sum(target.most for target in open_targets)
        return max(1, min(max(MOST_AT_ONCE, *configured, 0), useful, self.spec.jobs))

    @property
    def missing(self) -> tuple[str, ...]:
        """The calls missing from the replay."""
        return self.targets.missing

    def run(self, job: Job) -> Awaitable[Result | UnfinishedJob]:
        """Return the record of one job, even if it fails; none if the budget is used up, or its judge is down."""
        payments = self.targets.payments
        work = self._runner(job, self)
        if payments is None or job.case.details.case_error is not None:
            return work
        settings = self.targets.settings(job.target)
        is_batched = settings is not None and settings.is_batched and job.answer is None
        expected = batch_cost(settings, CaseRequest(job.case, prompt_id=job.prompt)) if is_batched else None
        return payments.run(job.target, work, expected)

    async def aclose(self) -> None:
        """End the processes of evaluators, remove the workspaces of suites, and close the targets."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.targets.aclose)
            if self._answers is not None:
                stack.callback(self._answers.close)
            if self._suites is not None:
                stack.push_async_callback(self._suites.aclose)
            await self.host.aclose()

    def needs_judges(self, job: Job) -> bool:
        """Whether the evaluators of a job may call judges."""
        specs = job.case.evaluators if self.spec.evaluators is None else self.spec.evaluators
        return bool(job.case.turns) or any(spec.evaluator is None or not spec.evaluator.is_plain for spec in specs)

    def scoring(self) -> AbstractContextManager[None]:
        """Return a context for scoring an answer with evaluators that wait."""
        return nullcontext() if self.judge_hold is None else self.judge_hold

    def find_file(self, origin: Origin, *, own: bool) -> Callable[[str], str]:
        """Return a function that finds files as for paths in the dataset; with `own`, as for paths in the project."""
        find = self.finders.get((origin.base_dir, own))
        if find is None:
            finder = finder_of(origin, own=own)
            find = self.finders[origin.base_dir, own] = lambda value: finder.find(value).path
        return find

    def verdicts_of(self, job: Job) -> Verdicts | None:
        """Return the verdict limits of a job: the scores needed to pass or to be borderline."""
        return job.case.execution.verdicts or self.verdicts

    def workspace_of(self, job: Job, target: OpenTarget) -> JobWorkspace | None:
        """Return the workspace of a job: its case's, or an empty one for an agent that needs one; None otherwise."""
        workspace, settings = job.case.details.workspace, target.settings
        if workspace is None and not target.needs_workspace:
            return None
        if not settings.is_live:  # the files would not belong to the answer
            return None
        from agentv.engine.job.workspace import JobWorkspace  # late: few jobs work in a folder

        if self._suites is None:
            from agentv.engine.job.suite_workspace import SuiteWorkspaces  # late: as above

            self._suites = SuiteWorkspaces(self.spec.run_id, self.environment)
        workspace = workspace or Workspace()
        if added := settings.added_files(self.spec.home):
            workspace = msgspec.structs.replace(workspace, files=(*workspace.files, *added))
        return JobWorkspace(job, workspace, self.spec.files.workspaces_folder, self._suites)

    def store_answer(self, job: Job, answer: Answer, value: Any) -> tuple[bool, bytes | None]:
        """Store an answer that a target was called for before its evaluators wait. A workspace cannot be stored.

        Returns whether the answer can be scored later without another call, and the answer if it has to be returned.
        """
        files, settings = self.spec.files, self.targets.settings(job.target)
        folder = files.answers_folder
        is_called = settings is not None and settings.is_live and self.spec.replay is None and not answer.cached
        if job.answer is not None or not is_called:
            return True, None
        if answer.request.job_workspace is not None or (folder is None and not files.returns_answers):
            return False, None
        line, cost_usd = encode_answer(job, answer, value, self.spec.run_id)
        returned = self.redact_line(line) if line is not None and files.returns_answers else None
        if line is not None and folder is not None:
            self._answers = self._answers or AnswerLog(folder, self.redact_line)
            self._answers.write(line)
        if (account := job_account.get()) is not None:
            account.stored_usd, account.answer = cost_usd, returned
        return line is not None, returned

    def prepare_call(self, job: Job, target: OpenTarget, request: CaseRequest) -> None:
        """Open the log of a call, and store its prompt if prompts are kept."""
        if target.settings.writes_logs:
            request.open_log = self.logs.opener(job, request)
        if self.prompts is not None:
            self.prompts.write_prompt(job, request, target.responder)
