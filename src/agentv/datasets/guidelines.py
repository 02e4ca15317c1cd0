"""Which files are guidelines: the patterns in the nearest `.agentv/config.yaml` between a dataset and its root."""

from __future__ import annotations

import os
from functools import lru_cache

from agentv.datasets.files import CONFIG_FILE
from agentv.datasets.yaml_document import parse_yaml_file
from agentv.datasets.yaml_nodes import locate
from agentv.errors import InvalidDatasetError
from agentv.folders import upward
from agentv.problems import Problems
from agentv.settings import read_value


def guideline_patterns(folder: str, root: str) -> tuple[str, ...]:
    """The patterns that hold for datasets in a folder; none when no configuration gives any."""
    path = config_file(folder, root)
    if path is None:
        return ()
    return _patterns(path, os.stat(path).st_mtime_ns)


def config_file(folder: str, root: str) -> str | None:
    """The nearest configuration from a folder up to the root."""
    places = (os.path.join(parent, CONFIG_FILE) for parent in upward(folder, root))
    return next((path for path in places if os.path.isfile(path)), None)


@lru_cache(maxsize=64)
def _patterns(path: str, modified: int) -> tuple[str, ...]:  # noqa: ARG001  # a changed file is read again
    data = parse_yaml_file(path)
    if not isinstance(data, dict) or data.get("guideline_patterns") is None:
        return ()
    problems = Problems()
    patterns = read_value(list[str], data["guideline_patterns"], ("guideline_patterns",), problems)
    for problem in problems:
        mark = locate(data, problem.path)
        line = mark.line if mark else 1
        raise InvalidDatasetError(
            f"Invalid configuration at line {line} in {path}", problem.message, path=path, line=line
        )
    return tuple(patterns)
