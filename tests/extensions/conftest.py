"""Fixtures for tests of extensions; `project` is described in `run_project`."""

from pathlib import Path
from typing import Any

import pytest
from run_project import Project

from agentv.registry import EXTENSIONS

FOLDERS = (path for path in Path(__file__).parent.iterdir() if path.is_dir())
collect_ignore = [path.name for path in FOLDERS if path.name not in EXTENSIONS]


@pytest.fixture
def project(folder: Any, command: Any) -> Project:
    return Project(folder, command)
