"""The code judge: a program that reads the answer as JSON on its standard input and prints a score."""

from __future__ import annotations

import os
from typing import Any, ClassVar

import msgspec

from agentv.evaluators.base import Count, Evaluator, Seconds, program_complaints
from agentv.evaluators.scoring import as_sentences, as_share, quoted
from agentv.model.judgement import Judgement
from agentv.model.score import EvaluatorFailure, Score

_SOURCE = "The program"


class ProxyLimit(msgspec.Struct, frozen=True, kw_only=True):
    """How often the program may ask a model."""

    max_calls: Count = 50


class CodeJudge(Evaluator, frozen=True, kw_only=True):
    """A program as a list of arguments or a shell string. Keys that are no fields join `config`, which it is given.

    `target_proxy` lets it ask a model; `target: true` and `target: {max_calls: 10}` on the entry mean the same.
    """

    aliases: ClassVar[dict[str, str]] = {"command": "script"}
    unsupported: ClassVar[dict[str, str]] = {}
    open_settings: ClassVar[bool] = True
    files: ClassVar[tuple[str, ...]] = ("script",)

    script: str | list[str]
    cwd: str | None = None
    timeout_seconds: Seconds = 60.0
    config: dict[str, Any] = {}
    target_proxy: bool | ProxyLimit = False

    def complaints(self) -> list[str]:
        """A blank program."""
        return program_complaints("script", self.script)

    @property
    def can_run(self) -> bool:
        """A program that asks a model finds nobody to ask yet."""
        return not self.target_proxy

    async def evaluate(self, judgement: Judgement) -> Score:
        """Runs the program once and takes the score that it prints."""
        from agentv.evaluators.program import Program  # late: it needs asyncio, and settings are read without it

        cwd = os.path.join(judgement.workdir, self.cwd or "")
        program = Program(
            script=self.script, cwd=cwd, timeout_s=self.timeout_seconds, environment=judgement.environment
        )
        try:
            stdin = msgspec.json.encode(payload(judgement, self.config))
        except (TypeError, ValueError) as error:
            raise EvaluatorFailure(f"The answer cannot be written as JSON: {error}") from None
        return read_score(await program.run(stdin))


def payload(judgement: Judgement, config: dict[str, Any]) -> dict[str, Any]:
    """What a program is told, under AgentV's names of 2.x and of 4.x; what users wrote arrives as they wrote it.

    `output` is the text, which it has been since AgentV 4.38.
    """
    return {
        "question": judgement.question,
        "expected_outcome": judgement.expected_outcome,
        "expected_messages": judgement.expected_messages,
        "reference_answer": judgement.reference_answer,
        "candidate_answer": judgement.candidate_answer,
        "output_messages": judgement.output_messages,
        "guideline_files": judgement.guideline_files,
        "input_files": judgement.input_files,
        "input_messages": judgement.input_messages,
        "context": judgement.context,
        "trace_summary": judgement.trace_summary,
        "execution_metrics": judgement.execution_metrics,
        "workspace_path": judgement.workspace_path,
        "config": config,
        "criteria": judgement.expected_outcome,
        "input": judgement.input_messages,
        "output": judgement.candidate_answer,
        "expected_output": judgement.expected_messages,
    }


def read_score(printed: str) -> Score:
    """The score that a program printed as a JSON object. Anything else raises EvaluatorFailure."""
    try:
        data = msgspec.json.decode(printed.strip())
    except (ValueError, RecursionError) as error:
        what = f"{quoted(printed)} ({error})" if printed.strip() else "nothing"
        raise EvaluatorFailure(f"The program must print a JSON object with a score, and printed {what}") from None
    if not isinstance(data, dict):
        raise EvaluatorFailure(f"The program must print a JSON object with a score, and printed {quoted(printed)}")
    held, failed, share = _assertions(data.get("assertions"))
    value = data.get("score", share)
    if value is None:
        raise EvaluatorFailure(f"The program printed no 'score': {quoted(printed)}")
    reasoning = data.get("reasoning")
    return Score(
        as_share(value, _SOURCE),
        hits=(*as_sentences(data.get("hits"), "'hits' of the program"), *held),
        misses=(*as_sentences(data.get("misses"), "'misses' of the program"), *failed),
        reasoning=reasoning if reasoning is None or isinstance(reasoning, str) else str(reasoning),
        details=data.get("details"),
    )


def _assertions(value: Any) -> tuple[list[str], list[str], float | None]:
    """What AgentV 4.x programs print instead of hits and misses, and the share that holds for those without a score."""
    if value is None or value == []:
        return [], [], None
    if not isinstance(value, list) or not all(isinstance(item, dict) and "passed" in item for item in value):
        raise EvaluatorFailure("'assertions' of the program must be a list of {text, passed}")
    held = [_sentence(item) for item in value if item["passed"] is True]
    failed = [_sentence(item) for item in value if item["passed"] is not True]
    return held, failed, len(held) / len(value)


def _sentence(item: dict[str, Any]) -> str:
    text, evidence = str(item.get("text", "")), item.get("evidence")
    return f"{text} ({evidence})" if evidence else text
