"""A program of the user's that reads JSON and prints an answer: run with limits, its whole group of processes ended."""

from __future__ import annotations

import msgspec

from agentv.environment import SECRET_ENDINGS, Environment, child_environment
from agentv.model.score import EvaluatorFailure
from agentv.processes import ProcessFailure, run_process

MAX_OUTPUT_BYTES = 4 * 1024 * 1024


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What is run and where: a list of arguments, or a string for the shell."""

    script: str | list[str]
    cwd: str
    timeout_s: float
    environment: Environment = Environment()

    async def run(self, stdin: bytes) -> str:
        """What the program prints. Raises EvaluatorFailure when it ends with an error, too late or with too much."""
        try:
            ended = await run_process(
                self.script,
                cwd=self.cwd,
                env=judge_environment(self.environment),
                timeout_s=self.timeout_s,
                stdin=stdin,
                max_output_bytes=MAX_OUTPUT_BYTES,
                grace_s=0,
                noun="The program",
            )
        except ProcessFailure as failure:
            raise EvaluatorFailure(failure.message) from None
        return ended.stdout


def judge_environment(environment: Environment) -> dict[str, str]:
    """What a judge's program inherits: no secret, neither by its value nor by a name that secrets have."""
    inherited = child_environment((), {}, environment)
    named = environment.secret_names
    return {
        name: value
        for name, value in inherited.items()
        if name not in named and not name.upper().endswith(SECRET_ENDINGS)
    }
