"""The scoring function of a promptfoo test, which combines the scores of its assertions and decides the verdict."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import msgspec

from agentv.evaluators.base import Seconds, cut, find_path
from agentv.evaluators.code.judge_io import promptfoo_result
from agentv.evaluators.code.program import Program, confinement_for
from agentv.evaluators.code.static_checks import transform_references
from agentv.evaluators.composite import AggregatorType, Composite, refuse_failed
from agentv.extensions.promptfoo.evaluators.rubric_prompt import own_score
from agentv.extensions.promptfoo.functions.calls import FUNCTION_FILE, PYTHON_RUNNER
from agentv.model.diagnostics import Problems
from agentv.model.evaluator import EvaluatorFailure, FileReference, Score
from agentv.model.job import Judgement
from agentv.model.result import EvaluatorResult
from agentv.model.values import to_json
from agentv.registry import service
from agentv.support.processes.function_process import CallFailure

_DEFAULT = "func"
"""The function of a file that names no other."""


class ScoringFunction(Composite, frozen=True, kw_only=True):
    """Several evaluators whose scores a function of the user combines, as `assertScoringFunction` of promptfoo does.

    `function` is `file.js`, `file.py`, or `file.js:name`. It is called with the mean score of each metric, and an
    object with `threshold` and `componentResults`. It returns `{pass, score, reason}`. `assertions` are those of
    promptfoo, in the order of the evaluators; those with a `metric` have a named score.
    """

    aliases: ClassVar[dict[str, str]] = {}

    function: str
    assertions: list[dict[str, Any]] = []
    threshold: float | None = None
    aggregator: AggregatorType = "weighted_average"  # not used
    timeout_seconds: Seconds = 60.0

    def complaints(self) -> list[str]:
        """A function that is not in a file of Python or JavaScript, in addition to those of a composite."""
        own = [] if self._file else [f"'function' names no function of a file: {self.function}"]
        return own + super().complaints()

    def references(self) -> Iterator[FileReference]:
        """The file of the function."""

        def check(find_file: Any, _: str) -> Problems:
            find_file(self._file)
            return Problems()

        if self._file.endswith(".py"):
            yield FileReference(("function",), f"{self._file}:{self._name or _DEFAULT}", check, executes="code")
        else:
            yield from transform_references({"function": self._file})

    @property
    def _file(self) -> str:
        match = FUNCTION_FILE.match(self.function)
        return match["file"] if match else ""

    @property
    def _name(self) -> str:
        return self.function.removeprefix("file://").removeprefix(self._file).removeprefix(":")

    async def _aggregated(
        self,
        results: tuple[EvaluatorResult, ...],
        missed: list[bool],  # noqa: ARG002
        judgement: Judgement,
    ) -> Score:
        refuse_failed(results)
        scores, components = _named_scores(results, self.assertions), list(_components(results, self.assertions))
        limit = {} if self.threshold is None else {"threshold": self.threshold}
        returned = await self._returned([scores, {**limit, "componentResults": components}], judgement)
        value = promptfoo_result(returned, self.function)
        if not isinstance(value, dict):
            raise EvaluatorFailure(f"{self.function} must return an object with 'pass', 'score' and 'reason'")
        return own_score(value["pass"], value["score"], value["reason"])

    async def _returned(self, arguments: list[Any], judgement: Judgement) -> Any:
        """Return what the function returns. Raises EvaluatorFailure if it fails."""
        path, name = os.path.abspath(find_path(judgement, self._file)), self._name
        if path.endswith(".py"):
            words = [sys.executable, PYTHON_RUNNER, path, ""]
            data: dict[str, Any] = {"call": 0, "name": name or _DEFAULT, "arguments": arguments}
        else:
            try:
                words = [*service("javascript-program", self.function)(path), name, _DEFAULT]
            except CallFailure as failure:
                raise EvaluatorFailure(str(failure)) from None
            data = {"output": arguments[0], "context": arguments[1]}
        program = Program(
            script=words,
            cwd=os.path.dirname(path),
            timeout_s=self.timeout_seconds,
            environment=judgement.environment,
            confinement=confinement_for("limits", judgement),
            noun=f"The function {self.function}",
        )
        reply = (await program.run(to_json(data) + b"\n")).splitlines()
        try:
            result = msgspec.json.decode(reply[-1])
        except (msgspec.DecodeError, IndexError):
            raise EvaluatorFailure(f"{program.noun} printed no result") from None
        if "value" not in result:
            reasons = (result[key] for key in ("error", "message", "syntax", "missing", "odd") if result.get(key))
            raise EvaluatorFailure(f"{program.noun} failed: {cut(str(next(reasons, 'no result')))}")
        return result["value"]


def _named_scores(results: Sequence[EvaluatorResult], assertions: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the weighted mean score of each metric, those of the members of sets included."""
    totals: dict[str, tuple[float, float]] = {}
    for metric, score, weight in _measured(results, assertions, 1.0):
        total, weights = totals.get(metric, (0.0, 0.0))
        totals[metric] = (total + score * weight, weights + weight)
    return {metric: total / weights if weights > 0 else 0.0 for metric, (total, weights) in totals.items()}


def _measured(
    results: Sequence[EvaluatorResult], assertions: Sequence[dict[str, Any]], factor: float
) -> Iterator[tuple[str, float, float]]:
    """Yield the metric, the score and the weight of each result with a metric, and of the scores that code names."""
    for result, assertion in zip(results, assertions, strict=False):
        own = assertion.get("metric")
        if own:
            yield own, _score(result), result.weight * factor
        named = result.details.get("namedScores", {}) if isinstance(result.details, dict) else {}
        yield from ((name, float(score), result.weight * factor) for name, score in named.items() if name != own)
        members = _measured(result.evaluator_results, assertion.get("assert") or (), result.weight * factor)
        yield from (item for item in members if item[0] != own)


def _components(results: Sequence[EvaluatorResult], assertions: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the results as promptfoo has them, each before those inside of it: of a set, or returned by code."""
    for result, assertion in zip(results, assertions, strict=False):
        reason = result.reasoning or "; ".join((*result.misses, *result.hits))
        own = {"pass": result.verdict == "pass" or result.weight == 0, "score": _score(result), "reason": reason}
        if "assert" in assertion:
            members = list(_components(result.evaluator_results, assertion["assert"]))
            yield {**own, "componentResults": members}
        else:
            details = result.details if isinstance(result.details, dict) else {}
            members = [item for item in details.get("componentResults", ()) if isinstance(item, dict)]
            yield {**own, **({"componentResults": members} if members else {}), "assertion": assertion}
        yield from ({**item, "assertion": item.get("assertion") or assertion} for item in members)


def _score(result: EvaluatorResult) -> float:
    """Return the score, before it was limited to 0 and 1."""
    details = result.details if isinstance(result.details, dict) else {}
    return float(details.get("returned", result.score or 0.0))
