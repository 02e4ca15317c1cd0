"""Configurations and suites that are programs: the object that a trusted file of JavaScript or TypeScript exports."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from agentv.extensions.promptfoo.functions.calls import call_function

_FUNCTION = "agentv:function"


def exported_object(path: str) -> Any:
    """Return what a file exports, in which functions are marked. Raises CodeNotRun or ValueError."""
    try:
        return call_function(os.path.abspath(path), "default", [])
    except ValueError as error:
        if "Cannot find package" not in str(error):
            raise
        raise ValueError(f"{error}. Install the project's packages: npm install") from None


def functions_in(value: Any, place: str = "") -> Iterator[str]:
    """Yield where functions are in what a file exports."""
    if isinstance(value, dict) and _FUNCTION in value:
        yield place
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from functions_in(item, f"{place}.{key}" if place else key)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from functions_in(item, f"{place}[{index}]")
