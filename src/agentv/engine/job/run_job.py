"""Runs one job: asks the target, scores the answer, makes the record. A failure becomes part of the record."""

from __future__ import annotations

import copy
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any

import msgspec

from agentv.datasets.files import FileFinder
from agentv.engine.answers.stored import StoredAnswer
from agentv.engine.answers.stored_cases import last_question, replies_in
from agentv.engine.calls.open_targets import Answered, LiveTarget, Targets
from agentv.engine.job.artifacts import JobFiles, StreamLogs
from agentv.engine.job.conversation import Conversation, Reply, is_conversation, turn_check, user_target
from agentv.engine.job.request import Question
from agentv.engine.job.spec import Job, RunSpec
from agentv.engine.job.trace import summarise_trace, tool_durations
from agentv.engine.job.workspace import JobWorkspace, Workspaces, look_at
from agentv.engine.scoring.grading import Grade, failed_result, grade
from agentv.engine.scoring.scorer import Answerer, Scorer
from agentv.evaluators.code.judge_host import JudgeHost
from agentv.model.case import Origin
from agentv.model.evaluator import EvaluatorSpec
from agentv.model.execution import Verdicts
from agentv.model.judgement import Judgement
from agentv.model.message import message_to_data
from agentv.model.response import Response, TargetFailure
from agentv.model.result import SCHEMA_VERSION, ErrorInfo, EvaluatorResult, ExecutionMetrics, Result
from agentv.runs.redaction import Redactor
from agentv.settings.environment import environment_of
from agentv.support.transform import apply_transform

_ENDED_BY_ITSELF = frozenset({"stop", "tool_calls", "end_turn"})
_NONE_KEPT: Mapping[str, EvaluatorResult] = {}


class Worker:
    """Runs the jobs of one run in this process; built from the run's spec alone."""

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self.targets = Targets(spec)
        self._scorer = Scorer(self.targets, spec.judge)
        self._finders: dict[str, Callable[[str], str]] = {}
        self._environment = environment_of(spec.home)
        self._host = JudgeHost(self._environment, tuple(sorted(self.targets.names)))
        self._prompts = _job_files(spec.layers.prompts_folder, spec)
        self._traces = _job_files(spec.layers.traces_folder, spec)
        self._workspaces = Workspaces(spec.layers.workspaces_folder, self._environment)
        self._logs = StreamLogs(spec.layers.logs_folder, Redactor(spec.layers.secrets))

    @property
    def run_id(self) -> str:
        """The run that the records belong to."""
        return self._spec.run_id

    def open(self, targets: Iterable[str], embedders: Iterable[str] = ()) -> None:
        """Opens targets before the first job, so that what is wrong with one is known before anything is called."""
        for name in targets:
            self.targets.get(name)
        for name in embedders:
            self.targets.get(name, embeddings=True)

    def run(self, job: Job) -> Awaitable[Result]:
        """The record of one job, whatever happens in it."""
        target = self.targets.get(job.target)
        question = Question(job.case, prompt_id=job.prompt, trial=job.trial)
        workspace = question.job_workspace = self._workspaces.of(job, target.settings)
        if workspace is None:
            return self._run(job, target, question)
        return self._run_in(workspace, job, target, question)

    async def _run_in(self, workspace: JobWorkspace, job: Job, target: LiveTarget, question: Question) -> Result:
        try:
            result = await self._run(job, target, question)
        finally:
            wrong = await workspace.close(question.timeout_s)
        # The answer and its score stand, whatever happened to the folder afterwards.
        return msgspec.structs.replace(result, file_changes=workspace.changes, error=result.error or wrong)

    async def _run(self, job: Job, target: LiveTarget, question: Question) -> Result:
        if is_conversation(job.case):
            answered, result = await self._converse(job, target, question)
        else:
            self._prepare(job, target, question)
            answered = await target.call(question, job.case.execution.timeout_seconds)
            if question.job_workspace is not None:
                await question.job_workspace.look()
            result = await self._scored(job, target, question, answered)
        if self._traces is not None:
            self._traces.write_trace(job, question, answered, result)
        return result

    def _prepare(self, job: Job, target: LiveTarget, question: Question) -> None:
        """What is done for each question before it is asked."""
        question.open_log = self._logs.opener(job, question)
        if self._prompts is not None:
            self._prompts.write_prompt(job, question, target.responder)

    async def _converse(self, job: Job, target: LiveTarget, question: Question) -> tuple[Answered, Result]:
        """A conversation: every turn is answered, then its own checks and those of the case score it."""
        user = None if job.case.user is None else self.targets.get(user_target(job.case.user))
        talk = await Conversation(job, question, target, user, partial(self._prepare, job, target)).play()
        await look_at(question.job_workspace)
        answered = talk.answered
        if talk.failure is not None:
            so_far = talk.response
            known = {"output_messages": tuple(map(message_to_data, so_far.messages)), "conversation": talk.summary}
            metrics = _metrics_of(so_far)
            return answered, self._failed(job, answered, **known, execution_metrics=metrics)
        checks: list[tuple[EvaluatorSpec, EvaluatorResult]] = []
        if self._spec.evaluators is None:
            checks = await self._check_turns(job, target.settings.transform, talk.replies)
        return answered, await self._scored(job, target, talk.question, answered, checks, conversation=talk.summary)

    async def _check_turns(
        self,
        job: Job,
        transform: Any,
        replies: Sequence[Reply],
        kept: Mapping[str, EvaluatorResult] = _NONE_KEPT,
    ) -> list[tuple[EvaluatorSpec, EvaluatorResult]]:
        """What the evaluators of single turns say of the replies to them, under the number of the turn."""
        checks = []
        for number, reply in enumerate((reply for reply in replies if reply.turn is not None), 1):
            assert reply.turn is not None
            if not reply.turn.evaluators:
                continue
            asked = copy.copy(reply.question)
            asked.case = msgspec.structs.replace(job.case, expected_output=reply.turn.expected_output)
            for spec in reply.turn.evaluators:
                if (held := kept.get(turn_check(number, spec))) is not None:
                    checks.append((spec, held))
                    continue
                try:
                    text = self._cleaned(job, transform, reply.response)
                    result = await self._scorer.score(
                        spec, self._judgement(asked, reply.response, text), self._answerer(job, number)
                    )
                except ValueError as error:
                    result = failed_result(spec, f"The answer cannot be transformed: {error}")
                checks.append((spec, msgspec.structs.replace(result, name=turn_check(number, spec))))
        return checks

    async def _scored(
        self,
        job: Job,
        target: LiveTarget,
        question: Question,
        answered: Answered,
        checks: Sequence[tuple[EvaluatorSpec, EvaluatorResult]] = (),
        **known: Any,
    ) -> Result:
        """The record of an answer, scored by the case's evaluators; `checks` are results that are there already."""
        if answered.response is None:
            return self._failed(job, answered)
        try:
            text = self._cleaned(job, target.settings.transform, answered.response)
        except ValueError as error:
            failure = TargetFailure("invalid_response", f"The answer cannot be transformed: {error}")
            return self._failed(job, Answered(None, failure, answered.attempts), **known)
        return await self.score(job, answered, self._judgement(question, answered.response, text), checks, **known)

    async def score(
        self,
        job: Job,
        answered: Answered,
        judgement: Judgement,
        checks: Sequence[tuple[EvaluatorSpec, EvaluatorResult]] = (),
        kept: Mapping[str, EvaluatorResult] = _NONE_KEPT,
        **known: Any,
    ) -> Result:
        """The record of an answer. `checks` are results that are there already, `kept` those that hold, by name."""
        specs = job.case.evaluators if self._spec.evaluators is None else self._spec.evaluators
        scorer, verdicts = self._scorer, self.verdicts_of(job)
        found = [
            (kept.get(spec.name) if kept else None) or scorer.score_plainly(spec, judgement, verdicts) for spec in specs
        ]
        waiting = [spec for spec, result in zip(specs, found, strict=True) if result is None] if None in found else []
        waited = iter(await scorer.score_all(waiting, judgement, self._answerer(job)) if waiting else ())
        results = [result or next(waited) for result in found]
        if checks:
            specs = (*(spec for spec, _ in checks), *specs)
            results = [*(result for _, result in checks), *results]
        return self._record(job, answered, judgement, tuple(results), specs, **known)

    def _cleaned(self, job: Job, transform: Any, response: Response) -> str:
        """The answer's text, cleaned as its target says. Raises ValueError."""
        text = response.text
        return text if transform is None else apply_transform(text, transform, self.finder_of(job))

    def _answerer(self, job: Job, turn: int | None = None) -> Answerer:
        keep = None if self._prompts is None else partial(self._prompts.write_judge_prompt, job)
        parts = (job.target, job.prompt, str(job.trial), None if turn is None else f"turn-{turn}")
        said = "/".join(filter(None, parts))
        return Answerer(job.target, self.verdicts_of(job), keep_prompt=keep, job=said)

    async def rescored(
        self, job: Job, stored: StoredAnswer, text: str, transform: Any, kept: Mapping[str, EvaluatorResult]
    ) -> Result:
        """The record of an answer that an earlier run has. `transform` cleans replies to single turns.

        Raises TargetFailure when its messages cannot be read, ValueError when they do not fit the turns of the case.
        """
        record, response = stored.record, stored.response
        question = Question(job.case, prompt_id=job.prompt, trial=job.trial)
        checks: list[tuple[EvaluatorSpec, EvaluatorResult]] = []
        if is_conversation(job.case):
            replies = replies_in(question, response.messages)
            if self._spec.evaluators is None:
                checks = await self._check_turns(job, transform, replies, kept)
            question = last_question(question, replies)
        judgement = self._judgement(question, response, text)
        judgement.has_trace = stored.has_trace
        judgement.file_changes = record.file_changes
        judgement.trace_summary = judgement.trace_summary or record.trace_summary
        judgement.execution_metrics = record.execution_metrics
        result = await self.score(job, Answered(response, None, record.attempts or 1), judgement, checks, kept)
        same = ("attempts", "cached", "file_changes", "conversation")
        return msgspec.structs.replace(result, **{name: getattr(record, name) for name in same})

    def unscored(self, job: Job, message: str) -> Result:
        """The record of a job whose stored answer cannot be scored: an error, and why."""
        return self._failed(job, Answered(None, TargetFailure("invalid_response", message), 0))

    def finder_of(self, job: Job) -> Callable[[str], str]:
        """Finds files as the job's dataset finds its own."""
        return self._finder(job.case.place.origin)

    def verdicts_of(self, job: Job) -> Verdicts | None:
        """From which score on the job's answer passes."""
        return job.case.execution.verdicts or self._spec.defaults.verdicts

    async def aclose(self) -> None:
        """Closes the targets, and ends what judges have running."""
        try:
            await self._host.aclose()
        finally:
            await self.targets.aclose()

    def _judgement(self, question: Question, response: Response, text: str) -> Judgement:
        origin = question.case.place.origin
        return Judgement(
            question,
            response,
            candidate_answer=text,
            workdir=origin.base_dir or ".",
            find_file=self._finder(origin),
            trace_summary=summarise_trace(response.messages, response.tool_errors),
            execution_metrics=_metrics_of(response),
            file_changes=None if question.job_workspace is None else question.job_workspace.changes,
            environment=self._environment,
            host=self._host,
        )

    def _finder(self, origin: Origin) -> Callable[[str], str]:
        """Finds files that an evaluator names, as the dataset's own are found."""
        find = self._finders.get(origin.base_dir)
        if find is None:
            finder = FileFinder(origin.base_dir or ".", origin.root or ".")
            find = self._finders[origin.base_dir] = lambda value: finder.find(value).path
        return find

    def _failed(self, job: Job, answered: Answered, **known: Any) -> Result:
        failure = answered.failure
        assert failure is not None
        error = ErrorInfo(failure.error_class, failure.message, failure.stage)
        return self._result(job, Grade("error", error=error), answered, known)

    def _record(
        self,
        job: Job,
        answered: Answered,
        judgement: Judgement,
        results: tuple[EvaluatorResult, ...],
        specs: tuple[EvaluatorSpec, ...],
        **known: Any,
    ) -> Result:
        hits, misses, reasoning = _said(results)
        known |= {
            "hits": hits,
            "misses": misses,
            "reasoning": reasoning,
            "candidate_answer": judgement.candidate_answer,
            "output_messages": _output_messages(judgement, self._spec.include_trace),
            "evaluator_results": results,
            "trace_summary": judgement.trace_summary,
            "execution_metrics": judgement.execution_metrics,
        }
        return self._result(job, grade(results, specs, self.verdicts_of(job)), answered, known)

    def _result(self, job: Job, graded: Grade, answered: Answered, known: dict[str, Any]) -> Result:
        case = job.case
        return Result(
            schema_version=SCHEMA_VERSION,
            timestamp=now(),
            run_id=self._spec.run_id,
            eval_id=case.id,
            dataset=case.dataset,
            dataset_path=case.path,
            conversation_id=case.conversation_id,
            target=job.target,
            prompt=job.prompt,
            trial=job.trial,
            status=graded.status,
            score=graded.score,
            verdict=graded.verdict,
            partial_score=graded.partial_score,
            error=graded.error,
            attempts=answered.attempts,
            cached=answered.response is not None and answered.response.cached,
            fingerprint=job.fingerprint or case.fingerprint,
            tags=case.tags,
            metadata=case.metadata or {},
            **known,
        )


def _metrics_of(response: Response) -> ExecutionMetrics:
    ended = None if response.stop_reason in _ENDED_BY_ITSELF else response.stop_reason
    durations = tool_durations(response.messages)
    return ExecutionMetrics(
        response.usage, response.cost_usd, response.duration_ms, durations, ended, response.logprobs
    )


def now() -> str:
    """The moment, UTC, as records have it."""
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    return f"{_date_and_time(seconds)}.{nanoseconds // 1_000_000:03d}Z"


@lru_cache(maxsize=1)
def _date_and_time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _said(results: tuple[EvaluatorResult, ...]) -> tuple[tuple[str, ...], tuple[str, ...], str | None]:
    """Hits, misses and reasons of all evaluators together."""
    reasoning = " | ".join([f"{each.name}: {each.reasoning}" for each in results if each.reasoning]) or None
    if len(results) == 1:  # the common case, in which there is nothing to put together
        return results[0].hits, results[0].misses, reasoning
    hits = tuple(hit for result in results for hit in result.hits)
    misses = tuple(miss for result in results for miss in result.misses)
    return hits, misses, reasoning


def _job_files(folder: str | None, spec: RunSpec) -> JobFiles | None:
    return None if folder is None else JobFiles(folder, Redactor(spec.layers.secrets))


def _output_messages(judgement: Judgement, all_of_them: bool) -> tuple[dict[str, Any], ...]:
    """The messages, when they say more than the answer's text does, or when they are wanted anyway."""
    messages = judgement.response.messages
    says_it_all = len(messages) == 1 and messages[0].content == judgement.candidate_answer
    if says_it_all and not messages[0].tool_calls and not all_of_them:
        return ()
    return tuple(message_to_data(message) for message in messages)
