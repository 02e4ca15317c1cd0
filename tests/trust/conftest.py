"""A user with settings of their own, so that no file of this machine takes part."""

import pytest


@pytest.fixture(autouse=True)
def config(tmp_path_factory, monkeypatch):
    """The user's folder of settings."""
    base = tmp_path_factory.mktemp("config")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(base))
    (base / "agentv").mkdir()
    return base / "agentv"


@pytest.fixture
def policy(config):
    """Write the user's policy."""
    return (config / "policy.yaml").write_text
