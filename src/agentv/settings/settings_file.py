"""Parse YAML files with settings."""

from __future__ import annotations

from typing import Any

from agentv.settings.frozen_settings import check_settings_file
from agentv.support.yaml.yaml_file import parse_yaml_content, read_yaml_file


def parse_settings_file(path: str) -> Any:
    """Parse a YAML file with settings. Raises DatasetParseError, or UsageError if a server froze other contents."""
    data = read_yaml_file(path)
    check_settings_file(path, data)
    return parse_yaml_content(path, data)
