"""The JavaScript check: inline code in QuickJS inside the judging processes, or a file with Node.js."""

import json
import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, ClassVar, Literal

from agentv.evaluators.base import OTHER_TOOLS, Limit, Seconds, cut, find_path
from agentv.evaluators.code.judge_host import host_of
from agentv.evaluators.code.judge_io import Setup
from agentv.evaluators.code.program import Program, SandboxedEvaluator, confinement_for, with_level
from agentv.evaluators.code.static_checks import file_check
from agentv.extensions.javascript.javascript_engine import INSTALL, score_of_value
from agentv.extensions.javascript.javascript_provider import check_program
from agentv.model.evaluator import EvaluatorFailure, FileReference, Score
from agentv.model.job import Judgement
from agentv.model.sandbox_settings import Megabytes
from agentv.model.values import to_json

FILE_ENDINGS = (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts")
_REFERENCE = "agentv.extensions.javascript.javascript_engine:javascript_score"
_ROOM_MB = 256
"""Memory of a judging process beyond that of the engine: for Python and for the answer."""


class JavaScriptCheck(SandboxedEvaluator, frozen=True, kw_only=True):
    """JavaScript that returns a verdict: `true` or `false`, a number, or `{pass, score, reason}`.

    `code` is one expression, or several lines with a `return`. It has `output`, the answer, and `context` with `vars`,
    `prompt`, `expected`, `provider`, `latencyMs`, `cost`, `metadata` and `config`. It runs in QuickJS, without files,
    network or modules, and needs `pip install 'agentv[js]'`. `file` is a JavaScript file whose default export, or the
    function after a colon, is called with the same arguments by Node.js. A number passes if it is above 0, or at least
    `threshold`. An exception is an error; with `on_throw: fail`, it is a failed check. With `syntax: promptfoo`, code
    is valid where it is valid in promptfoo: without `await`, with `return` only in several lines, and an object has
    all three keys. With `inverse: true`, a fail passes and a pass fails; a number and an object keep their score. A
    score below 0 or above 1 is limited; with `out_of_range: error`, it is an error.
    """

    aliases: ClassVar[dict[str, str]] = {"value": "code"}
    unsupported: ClassVar[dict[str, str]] = {key: hint for key, hint in OTHER_TOOLS.items() if key != "threshold"}

    code: str | None = None
    file: str | None = None
    threshold: Limit | None = None
    on_throw: Literal["error", "fail"] = "error"
    syntax: Literal["any", "promptfoo"] = "any"
    inverse: bool = False
    out_of_range: Literal["limit", "error"] = "limit"
    config: dict[str, Any] = {}
    timeout_seconds: Seconds = 10.0
    memory_mb: Megabytes = 256

    def complaints(self) -> list[str]:
        """Not exactly one of code and file, blank code, or a file that is not JavaScript."""
        if (self.code is None) == (self.file is None):
            return ["needs either 'code' or 'file'"]
        if self.code is not None:
            if self.code.strip().startswith("file://"):
                return [f"'code' is a file name. Write: file: {self.code.strip().removeprefix('file://')}"]
            return [] if self.code.strip() else ["'code' is blank"]
        if not self._path.lower().endswith(FILE_ENDINGS):
            return [f"'file' must be a JavaScript file ({', '.join(FILE_ENDINGS)}), got '{self.file}'"]
        return []

    @property
    def refusal(self) -> str:
        """Why this machine cannot run the code: its engine is not installed."""
        if self.code is not None and find_spec("_quickjs") is None:
            return f"JavaScript needs quickjs-ng, which is not installed. Install it with: {INSTALL}"
        if self.file is not None and shutil.which("node") is None:
            return f"The JavaScript file '{self.file}' needs Node.js, and `node` is not on the PATH. Install Node.js"
        return super().refusal

    def references(self) -> Iterator[FileReference]:
        """The code, or the file that Node.js runs."""
        if self.code is not None:
            yield FileReference(("code",), self.code, executes="script")
            return
        yield FileReference(("file",), self._path, file_check(self._path))
        yield FileReference(("file",), ["node", self._path], executes="command")

    @property
    def _path(self) -> str:
        file, colon, name = (self.file or "").removeprefix("file://").rpartition(":")
        return file if colon and name.isidentifier() else (self.file or "").removeprefix("file://")

    @property
    def _function(self) -> str:
        return (self.file or "").removeprefix("file://")[len(self._path) + 1 :]

    async def evaluate(self, judgement: Judgement) -> Score:
        """Run the code in a judging process, or the file with Node.js."""
        data = {"output": judgement.candidate_value, "context": self._context(judgement)}
        if self.file is not None:
            return await self._with_node(judgement, data)
        settings = {"code": self.code, **self._reading}
        limits = {"memory_mb": self.memory_mb, "seconds": self.timeout_seconds}
        confinement = confinement_for(self.sandbox, judgement)
        setup = Setup(
            reference=_REFERENCE,
            path="",
            cwd=os.getcwd(),
            given="payload",
            memory_mb=self.memory_mb + _ROOM_MB,
            confinement=confinement,
        )
        try:
            async with host_of(judgement) as host:
                score = await host.pool.judge(
                    setup, judgement, {**data, **settings, **limits}, self.timeout_seconds, {}
                )
        except EvaluatorFailure as failure:
            raise EvaluatorFailure(str(failure).replace(_REFERENCE, "The JavaScript code")) from None
        return with_level(score, self.sandbox, confinement)

    @property
    def _reading(self) -> dict[str, Any]:
        """How the returned value is read."""
        return {name: getattr(self, name) for name in ("threshold", "on_throw", "syntax", "inverse", "out_of_range")}

    def _engine_options(self, program: str) -> list[str]:
        return [f"--max-old-space-size={self.memory_mb}"] if os.path.basename(program).startswith("node") else []

    def _context(self, judgement: Judgement) -> dict[str, Any]:
        """Return the context of the code. In promptfoo, `metadata` is that of the answer, and `config` is optional."""
        context = {**context_of(judgement), "config": self.config}
        if self.syntax == "promptfoo":
            own = {"metadata": judgement.response.metadata, "config": self.config}
            context = {name: own.get(name, value) for name, value in context.items() if own.get(name, True)}
        return context

    async def _with_node(self, judgement: Judgement, data: dict[str, Any]) -> Score:
        try:
            path = os.path.abspath(find_path(judgement, self._path))
            program_name, *words = check_program(path)
        except Exception as error:
            raise EvaluatorFailure(str(error)) from None
        confinement = confinement_for(self.sandbox, judgement)
        program = Program(
            script=[program_name, *self._engine_options(program_name), *words, self._function],
            cwd=os.path.dirname(path),
            timeout_s=self.timeout_seconds,
            environment=judgement.environment,
            memory_mb=self.memory_mb + 4 * _ROOM_MB,
            confinement=confinement,
            noun=f"The JavaScript file '{self._path}'",
        )
        try:
            result = json.loads((await program.run(to_json(data))).splitlines()[-1])
        except (ValueError, IndexError) as error:
            raise EvaluatorFailure(f"{program.noun} printed no result: {error}") from None
        if "missing" in result:
            raise EvaluatorFailure(f"{program.noun} does not export {result['missing']}")
        if "syntax" in result:
            raise EvaluatorFailure(f"{program.noun} cannot be loaded: {cut(result['syntax'])}")
        score = score_of_value(result, self._reading)
        return with_level(score, self.sandbox, confinement)


def context_of(judgement: Judgement) -> dict[str, Any]:
    """Return the second argument of the code, under promptfoo's names."""
    case, response, metrics = judgement.case, judgement.response, judgement.execution_metrics
    variables: dict[str, Any] = case.variables or {}
    cost = response.cost_usd if metrics is None else metrics.cost_usd
    latency = response.duration_ms if metrics is None else metrics.duration_ms
    return {
        "vars": variables,
        "prompt": judgement.question,
        "expected": judgement.reference_answer or None,
        "provider": {"id": response.model},
        "latencyMs": latency,
        "cost": cost,
        "metadata": case.metadata,
        "test": {"vars": variables, "metadata": case.metadata, "description": case.id},
        "providerResponse": _provider_response(judgement, cost, latency),
    }


def _provider_response(judgement: Judgement, cost: float | None, latency: float | None) -> dict[str, Any]:
    """Return the figures of the answer that are known, under promptfoo's names."""
    usage = judgement.response.usage
    tokens = usage and {"total": usage.input + usage.output, "prompt": usage.input, "completion": usage.output}
    figures = {"cost": cost, "latencyMs": latency, "tokenUsage": tokens, "finishReason": judgement.response.stop_reason}
    reported_figures = {name: value for name, value in figures.items() if value is not None}
    return {**(judgement.response.provider_data or {}), "output": judgement.response.value, **reported_figures}
