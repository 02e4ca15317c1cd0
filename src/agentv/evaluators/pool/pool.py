"""The templates of a run, by what they import. The least recently used go when there are too many."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from agentv.evaluators.pool.judging import Asked
from agentv.evaluators.pool.setup import Setup
from agentv.evaluators.pool.templates import TemplateProcess

START_S = 60.0
"""How long a file may take to import, at least."""

MOST_TEMPLATES = 8


class WorkerPool:
    """Warm processes for judges; `size` of them at once for each function."""

    def __init__(self, environment: Mapping[str, str], size: int | None = None) -> None:
        self._environment = environment
        self._size = size or usable_cores()
        self._templates: dict[Setup, TemplateProcess] = {}

    async def judge(self, setup: Setup, asked: Asked) -> dict[str, Any]:
        """The score of one judgement as plain data. Raises EvaluatorFailure."""
        template = self._templates.pop(setup, None)
        if template is None or template.is_gone:
            lost = [template] if template is not None else []
            template = TemplateProcess(setup, self._environment, self._size, max(START_S, asked.timeout_s))
            self._templates[setup] = template
            await _all_ended([*lost, *self._superfluous()])
        else:
            self._templates[setup] = template  # last: the most recently used
        return await template.judge(asked)

    async def aclose(self) -> None:
        """Ends every process."""
        templates, self._templates = list(self._templates.values()), {}
        await _all_ended(templates)

    def _superfluous(self) -> list[TemplateProcess]:
        """The least recently used that nobody waits for, when there are too many."""
        idle = [setup for setup, template in self._templates.items() if template.is_idle]
        return [self._templates.pop(setup) for setup in idle[: max(0, len(self._templates) - MOST_TEMPLATES)]]


async def _all_ended(templates: list[TemplateProcess]) -> None:
    for template in templates:
        template.end()  # all at once, and before anything is waited for: a cancellation finds nothing to leave behind
    for template in templates:
        await template.ended()


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
