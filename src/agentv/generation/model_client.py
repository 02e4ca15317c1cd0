"""Asks a model of the project, outside a run: with its retries, limits and cache, in a form that is checked."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from agentv.datasets.files import project_root
from agentv.engine.calls.open_targets import OpenTargets
from agentv.engine.job.spec import RunFiles, RunSpec
from agentv.engine.preflight import FALLBACK_JUDGE
from agentv.engine.run_project import CACHE, open_targets
from agentv.engine.scoring.judge_calls import JudgeCalls, Judging
from agentv.errors import UsageError
from agentv.evaluators.judges.replies import Form, ask_for
from agentv.executors.base import LocalLimits
from agentv.model.case import EvalCase
from agentv.model.message import Message

Value = TypeVar("Value")

TEXTS = Path(__file__).parent / "texts"


class Model:
    """One target that is asked for things. `folder` is where the targets file is looked for."""

    def __init__(
        self, folder: str, name: str | None, file: str | None, *, workers: int | None = None, cache: bool = False
    ) -> None:
        targets = open_targets(folder, file)
        self.name = _chosen(name, targets.names)
        spec = RunSpec(
            run_id="generate",
            targets=(targets.get(self.name),),
            home=targets.home,
            folders=(os.path.abspath(folder),),
            secrets=targets.secrets,
            workers=workers,
            files=RunFiles(cache_folder=str(Path(project_root(folder)) / CACHE) if cache else None),
        )
        self._targets = OpenTargets(spec, LocalLimits())
        self._judging = Judging(self._targets, None, asked="model")
        self.most_at_once = self._targets.get(self.name).most

    async def ask(self, case: EvalCase, task: str, text: str, form: Form[Value], quoted: Iterable[str] = ()) -> Value:
        """What it answers to a task about a case. Raises EvaluatorFailure when it gives nothing of the form, twice."""
        calls = JudgeCalls(self._judging, case, task, (self.name,))
        messages = (Message("system", (TEXTS / f"{task}.md").read_text(encoding="utf-8")), Message("user", text))
        return await ask_for(calls.ask, self.name, messages, form, quoted=quoted)

    async def __aenter__(self) -> Model:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._targets.aclose()


def _chosen(name: str | None, known: tuple[str, ...]) -> str:
    """Who is asked: whom the command names, else the judge; a target that is judged does not write its own rubric."""
    if name is not None or FALLBACK_JUDGE in known:
        return name or FALLBACK_JUDGE
    listed = f"Known targets: {', '.join(known)}" if known else "There is no targets file yet; `agentv init` writes one"
    raise UsageError("Nobody to ask: no --target, and no target is called 'judge'", listed, "Name one with --target")
