"""Read and parse YAML files."""

from functools import lru_cache
from pathlib import Path
from typing import Any

from agentv.errors import DatasetNotFoundError, DatasetParseError
from agentv.support.lines import LFS_POINTER, LFS_PROBLEM
from agentv.support.yaml.yaml_parser import YamlError, parse_yaml

_SMALL_BYTES = 64 * 1024
_CACHED_DOCUMENTS = 16
"""Small documents are cached: discovery, validation and the run parse them once."""


def parse_yaml_file(path: str) -> Any:
    """Parse a YAML file to data with line numbers. Raises DatasetParseError."""
    return parse_yaml_content(path, read_yaml_file(path))


def parse_yaml_content(path: str, data: bytes) -> Any:
    """Parse the contents of a YAML file. Raises DatasetParseError."""
    headline = f"Failed to parse YAML file: {path}"
    if data.startswith(LFS_POINTER):
        raise DatasetParseError(headline, *LFS_PROBLEM, path=path, line=1)
    try:
        return parsed(data) if len(data) <= _SMALL_BYTES else parse_yaml(data)
    except YamlError as error:
        at = "" if error.column is None else f", at column {error.column}"
        detail = f"Line {error.line}: Invalid YAML - {error.what}{at}"
        raise DatasetParseError(headline, detail, error.hint, path=path, line=error.line, column=error.column) from None


parsed = lru_cache(maxsize=_CACHED_DOCUMENTS)(parse_yaml)
"""`parse_yaml`, cached by content. The result is shared: do not modify it."""


def read_yaml_file(path: str) -> bytes:
    """Return the contents of a file. Raises DatasetNotFoundError."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise DatasetNotFoundError(f"Cannot read {path}: {error.strerror or error}", path=path) from None
