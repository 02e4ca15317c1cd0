"""Configurations of promptfoo that are programs: `promptfooconfig.js` and its variants, run under trust."""

from __future__ import annotations

import os
import re
from typing import Any

from agentv.datasets.foreign.foreign_format import document_of, record_file
from agentv.extensions.promptfoo.functions import CodeNotRun
from agentv.extensions.promptfoo.functions.exported_object import exported_object, functions_in
from agentv.model.values import to_json
from agentv.support.yaml.yaml_parser import parse_yaml

NOT_CALLED = "agentv:not-called"
"""The key of the document of a file that is not called, because the command only checks files."""

_NAME = re.compile(r"promptfooconfig[^/\\]*\.[cm]?[jt]s", re.IGNORECASE)
_SETTING = re.compile(r"(?:providers|targets)\[\d+\]\.config\..*")
"""Where a function is a setting of a provider, which is reported with the provider."""


def is_script_config(path: str) -> bool:
    """Whether a file is a configuration that is a program, by its name."""
    return bool(_NAME.fullmatch(os.path.basename(path)))


def document_at(path: str) -> dict[str, Any]:
    """Return the document of a configuration: of a file, or the object that a program exports. Raises ValueError."""
    if not is_script_config(path):
        return document_of(record_file(path))
    name = os.path.basename(path)
    try:
        exported = exported_object(path)
    except CodeNotRun:
        providers = [{"id": "echo", "label": f"(the providers of {name})"}]
        tests = [{"description": f"(the tests of {name})"}]
        return {NOT_CALLED: True, "prompts": [f"(the prompts of {name})"], "providers": providers, "tests": tests}
    if not isinstance(exported, dict):
        raise ValueError(f"'{name}' must export a configuration as its default, or as `module.exports`")
    for place in functions_in(exported):
        if not _SETTING.match(place):
            raise ValueError(f"'{place}' of '{name}' is a function. Move it to a file, and name that: file://…")
    document: dict[str, Any] = parse_yaml(to_json(exported))
    return document
