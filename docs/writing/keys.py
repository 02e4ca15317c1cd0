"""The reference page of the keys of datasets and configuration, generated from the structs of the readers."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from msgspec.structs import fields

from agentv.datasets.case.keys import CASE_LIST_KEYS, CaseKeys, HeaderKeys
from agentv.model.message import PART_KINDS, ROLES
from agentv.settings.settings_reader import ProjectConfig, RunDefaults
from writing.markup import (
    BLOCKS,
    PAGES,
    SANDBOX_BLOCKS,
    WORKSPACE_BLOCKS,
    Kind,
    Lines,
    code,
    key_cell,
    meaning_of,
    other_names,
    reasons,
    title_of,
    type_words,
)

_EXAMPLE = (
    "tags: [support]",
    "evalcases:",
    "  - id: opening-hours",
    "    expected_outcome: Gives the opening hours",
    "    input: When are you open?",
)
_WORKSPACE = (
    "workspace:",
    "  template: shop",
    "  hooks:",
    "    before_all: {command: [make, deps]}",
)


_SANDBOX = (
    "sandbox:",
    "  engine: auto",
    "  hosts: [api.example.com]",
    "  keys: {api.example.com: {variable: EXAMPLE_API_KEY}}",
)


def page() -> Lines:
    """Yield the page: every key of datasets, sidecars and the configuration."""
    yield from ("# Keys of datasets, sidecars and configuration", "")
    yield from ("A dataset has keys for all cases, and a list of cases:", "", "```yaml", *_EXAMPLE, "```", "")
    yield "See [Write a dataset](../how-to/datasets.md)."
    yield "`null` is the same as an absent key. `agentv schema dataset`, `line`, `sidecar` and `config` print the keys"
    yield "as JSON Schema."
    yield from ("", "## Dataset", "")
    yield f"A YAML document lists its cases under `{CASE_LIST_KEYS[0]}`; {code(CASE_LIST_KEYS[1:])} are"
    yield "aliases. Its other keys are also the keys of a sidecar:"
    yield from ("", *_key_table(HeaderKeys), "")
    yield f"{code(HeaderKeys.informational)} have no effect and cause a warning."
    yield from ("", "## Case", "", *_key_table(CaseKeys), "", "## Message", "", "| key | type |", "|---|---|")
    yield from (f"| `role` (required) | {code(ROLES, ' or ')} |", "| `content` | string, object, or list of parts |")
    yield from ("| `tool_calls` | list of [tool call](#tool-call) |", "| `name` | string |", "")
    yield "A message has `content`, `tool_calls`, or both. A part is a string, or an object with `type`"
    yield f"({code(PART_KINDS, ' or ')}) and `value`, a string."
    for title, kind in BLOCKS.items():
        if kind is not RunDefaults and kind not in PAGES:
            yield from ("", f"## {title}", "", *_key_table(kind))
    yield from ("", "## Configuration", "", "The file `.agentv/config.yaml`:", "", *_key_table(ProjectConfig))
    yield from ("", "### Run defaults", "", *_key_table(RunDefaults))


def workspaces() -> Lines:
    """Yield the page of the keys of a workspace."""
    yield from ("# Keys of a workspace", "")
    yield from ("The `workspace` of a case, or of all cases of a dataset:", "", "```yaml", *_WORKSPACE, "```", "")
    yield "See [workspaces](../how-to/coding-agents.md#workspaces)."
    for title, kind in BLOCKS.items():
        if kind in WORKSPACE_BLOCKS:
            yield from ("", f"## {title}", "", *_key_table(kind))


def sandbox() -> Lines:
    """Yield the page of the keys of a sandbox."""
    yield from ("# Keys of a sandbox", "")
    yield "The key `sandbox` of a target, or of `execution` in `.agentv/config.yaml`, is an engine or an object:"
    yield from ("", "```yaml", *_SANDBOX, "```", "")
    yield "See [Isolate programs](../how-to/sandbox.md)."
    for kind in SANDBOX_BLOCKS:
        yield from ("", f"## {title_of(kind)}", "", inspect.cleandoc(str(kind.__doc__)), "", *_key_table(kind))


def refused() -> Lines:
    """List the keys of other tools that are refused, and what to use instead."""
    yield from ("# Unsupported keys", "")
    yield "These keys of AgentV (TypeScript) 4.x and 5.x are errors. The message states what to use instead:"
    example = f"  Hint: {CaseKeys.unsupported['environment']}"
    yield from ("", "```text", "Field 'environment' is not supported", example, "```")
    for title, kind in {"Dataset": HeaderKeys, "Case": CaseKeys, **BLOCKS, "Configuration": ProjectConfig}.items():
        keys: Mapping[str, str] = getattr(kind, "unsupported", {})
        if keys:
            yield from ("", f"## {title}", "", *reasons(keys))


def _key_table(kind: Kind) -> Lines:
    yield from ("| key | type | meaning | other names |", "|---|---|---|---|")
    for field in fields(kind):
        aliases = code(other_names(kind, field))
        yield f"| {key_cell(field)} | {type_words(field.type)} | {meaning_of(kind, field)} | {aliases} |"
    if getattr(kind, "unsupported", {}):
        yield from ("", "Keys of AgentV 4.x and 5.x without a counterpart are in [Unsupported keys](refused-keys.md).")
