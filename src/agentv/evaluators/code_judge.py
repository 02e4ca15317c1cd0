"""The code judge: a program that reads the answer as JSON on its standard input and prints a score."""

from __future__ import annotations

from typing import Any, ClassVar

from agentv.evaluators.base import Evaluator, Seconds, program_complaints


class CodeJudge(Evaluator, frozen=True, kw_only=True):
    """A program as a list of arguments or a shell string. Keys that are no fields join `config`, which it is given."""

    aliases: ClassVar[dict[str, str]] = {"command": "script"}
    unsupported: ClassVar[dict[str, str]] = {}
    open_settings: ClassVar[bool] = True
    files: ClassVar[tuple[str, ...]] = ("script",)

    script: str | list[str]
    cwd: str | None = None
    timeout_seconds: Seconds = 60.0
    config: dict[str, Any] = {}

    def complaints(self) -> list[str]:
        """A blank program."""
        return program_complaints("script", self.script)
