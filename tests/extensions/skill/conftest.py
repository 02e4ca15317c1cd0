"""Shared by the tests of `agentv skill` and `agentv ablate`."""

import pytest
from skill_project import SkillProject


@pytest.fixture
def project(folder):
    """A project with a skill and a scripted coding agent."""
    return SkillProject(folder)
