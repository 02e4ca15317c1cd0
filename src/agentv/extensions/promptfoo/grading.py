"""What the assertions of one promptfoo test are translated with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from agentv.datasets.foreign.foreign_format import Lose
from agentv.extensions.promptfoo.text_assertions import is_number

ABOVE_ZERO = 1e-9
"""The minimum of a number that passes if it is above 0."""


class Grading(msgspec.Struct, frozen=True):
    """What the assertions of one test are translated with.

    `judge` and `embedder` return the name of the target for a grader, given as a provider of promptfoo or None.
    `read_file` returns the content of a file that an assertion names. `ignores_case` is true if the names of tools are
    compared without their case. `options` are those of the test. `read_prompt` returns the text of a judge's prompt,
    and `is_model` whether a target receives it as messages.
    """

    variables: Mapping[str, Any]
    has_threshold: bool
    judge: Callable[[Any], str | None]
    embedder: Callable[[Any], str | None]
    read_file: Callable[[str], Any]
    lose: Lose
    templates: Mapping[str, Any] = {}
    ignores_case: bool = False
    options: Mapping[str, Any] = {}
    read_prompt: Callable[[Any], str] = str
    is_model: Callable[[str | None], bool] = lambda _: True


def minimum_of(threshold: Any, default: float | None) -> float:
    """Return the minimum score of a pass: the threshold of an assertion, or the default. Raises ValueError."""
    if is_number(threshold):
        if threshold > 1:
            raise ValueError(f"The threshold of an assertion is {threshold}, and no score is above 1")
        return max(0.0, float(threshold))
    return ABOVE_ZERO if default is None else default
