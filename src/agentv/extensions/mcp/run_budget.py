"""The budget of a tool server: what all its runs together may cost, and how many jobs they may start."""

import msgspec

from agentv.errors import UsageError, plural
from agentv.executors.executor import Emit, Executor, Jobs, Load, UnfinishedJob, WorkSpec
from agentv.model.result import Result
from agentv.report.figures import usd


class BudgetState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is left of the budget that the user set when the server was started."""

    spent_usd: float
    left_usd: float | None = None
    jobs_started: int
    jobs_left: int | None = None

    def __str__(self) -> str:
        money = [] if self.left_usd is None else [f"{usd(self.left_usd)} left"]
        jobs = [] if self.jobs_left is None else [f"{plural(self.jobs_left, 'job')} left"]
        return f"Budget of this server: {', '.join((*money, *jobs)) or 'none'}"


class ServerBudget:
    """Counts what the runs of a server cost. Only the user can set a budget; without one, nothing runs."""

    def __init__(self, usd: float | None = None, jobs: int | None = None) -> None:
        self._usd = usd
        self._jobs = jobs
        self.spent_usd = 0.0
        self.jobs_started = 0
        self.is_cost_unknown = False

    @property
    def allows_runs(self) -> bool:
        """Whether the user set a budget."""
        return self._usd is not None or self._jobs is not None

    @property
    def left_usd(self) -> float | None:
        """The money that is left; None if the budget has no such limit."""
        return None if self._usd is None else max(0.0, self._usd - self.spent_usd)

    @property
    def state(self) -> BudgetState:
        """Return what is spent and left."""
        jobs_left = None if self._jobs is None else max(0, self._jobs - self.jobs_started)
        return BudgetState(
            spent_usd=self.spent_usd, left_usd=self.left_usd, jobs_started=self.jobs_started, jobs_left=jobs_left
        )

    def check(self) -> None:
        """Raise UsageError if there is no budget, or if it is used up."""
        if not self.allows_runs:
            raise UsageError(
                "run_cases needs a budget that only the user can set",
                "The server was started without one. Everything else works.",
                "Ask the user to start `agentv mcp` with --budget-usd USD, or --max-jobs N if prices are unknown",
            )
        if self.is_cost_unknown:
            raise UsageError(
                "The budget of this server cannot be enforced any more",
                "A target or judge of an earlier run did not report its cost",
                "Ask the user to restart `agentv mcp` with --max-jobs N instead of --budget-usd",
            )
        if self.left_usd == 0 or self.state.jobs_left == 0:
            spent = f"{usd(self.spent_usd)} and {plural(self.jobs_started, 'job')} were used since the server started"
            hint = "Ask the user to restart `agentv mcp` with a larger --budget-usd or --max-jobs"
            raise UsageError("The budget of this server is used up", spent, hint)

    def check_jobs(self, count: int, *, is_resumed: bool = False) -> None:
        """Raise UsageError if a run has more jobs than are left."""
        rest = self.state.jobs_left
        if rest is not None and count > rest:
            headline = f"The run has {plural(count, 'job')}, but only {rest:,} of --max-jobs {self._jobs:,} are left"
            hint = "Select fewer cases with `cases`, `filters` or `limit`, or use fewer trials"
            if is_resumed:
                hint = (
                    "Ask the user to restart `agentv mcp` with a larger --max-jobs, or start a new run of fewer cases"
                )
            raise UsageError(headline, hint=hint)


class CountedJobs(Executor):
    """An executor that counts the jobs it starts in the budget of the server.

    A job that only waited for the budget or for its endpoint when the run stopped was not started. If the run is
    cancelled, all jobs in flight count, because some of them have made calls.
    """

    is_remote = False

    def __init__(self, inner: Executor, budget: ServerBudget) -> None:
        self._inner = inner
        self._budget = budget
        self._in_flight = 0

    async def run(self, spec: WorkSpec, jobs: Jobs, emit: Emit) -> tuple[str, ...]:
        """Run the jobs."""

        def ended(result: Result | UnfinishedJob) -> bool | None:
            self._in_flight -= 1
            self._budget.jobs_started += result != UnfinishedJob()
            return emit(result)

        try:
            return await self._inner.run(spec, self._taken(jobs), ended)
        except BaseException:
            self._budget.jobs_started += self._in_flight
            raise

    def load(self) -> Load:
        """Return the load of the executor."""
        return self._inner.load()

    def _taken(self, jobs: Jobs) -> Jobs:
        for job in jobs:
            self._in_flight += job is not None
            yield job
