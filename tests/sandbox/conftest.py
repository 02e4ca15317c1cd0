"""The fixture `project`; see `run_project`."""

from typing import Any

import pytest
from run_project import Project


@pytest.fixture
def project(folder: Any, command: Any) -> Project:
    return Project(folder, command)
