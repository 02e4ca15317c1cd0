"""The code judge: a program that reads the answer as JSON on its standard input and prints a score."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from agentv.evaluators.base import Count, Evaluator, Seconds, program_complaints


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
