"""A program of the user's that reads JSON and prints an answer: run with limits, its whole group of processes ended."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from agentv.environment import Environment, judge_environment
from agentv.evaluators.isolation import limit_process, prefix, scratch_folder
from agentv.evaluators.pool.setup import Way
from agentv.model.score import EvaluatorFailure
from agentv.processes import ProcessFailure, run_process

MAX_OUTPUT_BYTES = 4 * 1024 * 1024


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What is run and where: a list of arguments, or a string for the shell. `variables` are set besides."""

    script: str | list[str]
    cwd: str
    timeout_s: float
    environment: Environment = Environment()
    variables: Mapping[str, str] = {}
    memory_mb: int = 4096
    way: Way = "limits"
    port: int | None = None

    async def run(self, stdin: bytes) -> str:
        """What the program prints. Raises EvaluatorFailure when it ends with an error, too late or with too much."""
        with scratch_folder(self.way) as scratch:
            variables = {**self.variables, **({"TMPDIR": scratch} if scratch else {})}
            try:
                ended = await run_process(
                    self._command(scratch),
                    cwd=self.cwd,
                    env={**judge_environment(self.environment), **variables},
                    timeout_s=self.timeout_s,
                    stdin=stdin,
                    max_output_bytes=MAX_OUTPUT_BYTES,
                    grace_s=0,
                    noun="The program",
                    started=lambda pid: limit_process(pid, self.memory_mb),
                    leaves_nothing=True,
                )
            except ProcessFailure as failure:
                raise EvaluatorFailure(failure.message) from None
        return ended.stdout

    def _command(self, scratch: str) -> str | list[str]:
        if self.way == "limits":
            return self.script
        arguments = ["/bin/sh", "-c", self.script] if isinstance(self.script, str) else self.script
        return [*prefix(self.way, scratch, self.cwd, self.port), *arguments]
