"""The exit code of a program as a score: run tests, a linter or any other check on an answer and its workspace."""

import shlex
from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from agentv.evaluators.base import Seconds, cut, pass_if, program_complaints
from agentv.evaluators.code.program import Program, SandboxedEvaluator, with_level, workspace_confinement
from agentv.model.evaluator import FileReference, Score
from agentv.model.job import Judgement
from agentv.sandbox.subprocesses import ending_of, tail_of

ExitCodes = Annotated[tuple[Annotated[int, Meta(ge=0, le=255)], ...], Meta(min_length=1)]


class CommandCheck(SandboxedEvaluator, frozen=True, kw_only=True):
    """A program whose exit code decides: 0 passes, 1 fails. Its output is the reason.

    `command` is a list of arguments, or a string for the shell, such as `pytest -q`. It runs in the job's workspace, or
    in the dataset's folder if there is none; `cwd` is relative to that. It reads the answer from stdin. Exit codes that
    are neither in `pass_codes` nor in `fail_codes`, signals and timeouts are errors: a crash is not a score. With
    `sandbox`, the program may write to the workspace.
    """

    command: str | list[str]
    cwd: str | None = None
    timeout_seconds: Seconds = 300.0
    pass_codes: ExitCodes = (0,)
    fail_codes: ExitCodes = (1,)

    def complaints(self) -> list[str]:
        """A blank program, or an exit code that means both."""
        both = sorted(set(self.pass_codes) & set(self.fail_codes))
        twice = [f"Exit code {both[0]} is in 'pass_codes' and in 'fail_codes'"] if both else []
        return program_complaints("command", self.command) + twice

    def references(self) -> Iterator[FileReference]:
        """The program, which may be in the workspace and is therefore not checked."""
        yield FileReference(("command",), self.command, executes="command")

    async def evaluate(self, judgement: Judgement) -> Score:
        """Run the program and score its exit code."""
        workspace = judgement.workspace_path
        program = Program.of(
            self,
            judgement,
            script=self.command,
            folder=workspace or judgement.workdir,
            variables={"AGENTV_WORKSPACE_PATH": workspace} if workspace else {},
            memory_mb=self.memory_mb,
            confinement=workspace_confinement(self.sandbox, judgement),
            writable=(workspace,) if workspace else (),
            noun="The command",
        )
        ended = await program.finish(
            judgement.candidate_answer.encode(errors="replace"), frozenset((*self.pass_codes, *self.fail_codes))
        )
        command = self.command if isinstance(self.command, str) else shlex.join(self.command)
        sentence = cut(f"`{command}` {ending_of(ended.code)}")
        output = tail_of((ended.stdout + ended.stderr).encode(errors="replace")).removeprefix(": ")
        score = pass_if(ended.code in self.pass_codes, sentence)
        return with_level(replace(score, reasoning=output or None), self.sandbox, program.confinement)
