"""The fixture `project`; see `run_project`."""

import pytest
from run_project import Project


@pytest.fixture
def project(folder, command):
    return Project(folder, command)
