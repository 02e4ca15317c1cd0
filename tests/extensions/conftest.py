"""Fixtures for tests of extensions; `project` is described in `run_project`."""

import sys
from pathlib import Path
from typing import Any

import pytest
from run_project import Project

from agentv.registry import EXTENSIONS

if str(Path(__file__).parent) in sys.path:  # by pytest: without Ray, `import ray` would find the folder `ray` here
    sys.path.remove(str(Path(__file__).parent))

FOLDERS = (path for path in Path(__file__).parent.iterdir() if path.is_dir())
collect_ignore = [path.name for path in FOLDERS if path.name not in EXTENSIONS]


@pytest.fixture
def project(folder: Any, command: Any) -> Project:
    return Project(folder, command)
