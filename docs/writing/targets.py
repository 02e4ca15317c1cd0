"""The pages of the targets, from their classes and the table of services."""

from __future__ import annotations

import inspect
import os
import tomllib
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from agentv.engine.run_project import open_targets
from agentv.errors import AgentvError
from agentv.registry import TARGETS
from agentv.targets.apis.openai import PRESETS
from agentv.targets.cli import PLACEHOLDERS
from agentv.targets.target import OTHER_TOOLS, ModelApi, Target
from writing.markup import (
    DOCS,
    NOT_YET,
    PAGES,
    Kind,
    Lines,
    also_written,
    block,
    cell,
    code,
    reasons,
    refused_besides,
    setting_table,
    slug,
    structs_in,
)

PROVIDERS: dict[str, dict[str, str]] = tomllib.loads((DOCS / "providers.toml").read_text(encoding="utf-8"))

_SHARED: dict[str, Kind] = {"Every target": Target, "Every model API": ModelApi}
_BASES = (base for name in TARGETS.names() for base in TARGETS.find(name).__mro__)
if (_agent_base := next((base for base in _BASES if vars(base).get("takes_skills")), None)) is not None:
    _SHARED["Every coding agent"] = _agent_base


def index() -> Lines:
    """Yield the index: the settings of all targets, every provider, and unsupported keys."""
    yield from ("# Targets", "")
    yield from ("Targets are defined in `.agentv/targets.yaml` or `targets.yaml`:", "")
    yield from ("```yaml", "targets:", "  - name: default", "    provider: openai", "    model: gpt-5-mini")
    yield from ("    api_key: ${{ OPENAI_API_KEY }}", "```", "")
    yield "`${{ NAME }}` in any setting is replaced by the variable from the environment or `.env`. Unknown keys are"
    yield "errors. Settings can also be in camelCase or kebab-case. See [Configure targets](../how-to/targets.md)."
    for title, kind in _SHARED.items():
        yield from ("", f"## {title}", "", *setting_table(kind, () if kind is Target else (Target,), has_meanings=True))
        yield from refused_besides(kind, OTHER_TOOLS)
    yield from ("", "## Providers", "")
    yield from ("| provider | aliases | description |", "|---|---|---|")
    for name in TARGETS.names():
        summary = _about(name).split("\n\n")[0].replace("\n", " ").split(". ")[0].rstrip(".")
        yield f"| [{name}](targets/{name}.md) | {also_written(TARGETS, name)} | {cell(summary)} |"
    yield from ("", "## Blocks inside settings")
    for inner in dict.fromkeys(struct for name in TARGETS.names() for struct in structs_in(TARGETS.find(name))):
        if inner not in PAGES:
            yield from block(inner)
    yield from ("", "### Placeholders", "", f"In `command_template`: {code(f'{{{name}}}' for name in PLACEHOLDERS)}.")
    yield from (
        "",
        "## Refused keys",
        "",
        "These keys of other tools are rejected, unless a provider lists the key itself:",
    )
    yield from ("", *reasons(OTHER_TOOLS))


def page(name: str) -> Lines:
    """Yield the page of one provider."""
    kind = TARGETS.find(name)
    yield from (f"# {name}", "", _about(name))
    if others := also_written(TARGETS, name):
        yield from ("", f"Aliases: {others}.")
    yield from (
        "",
        "## Example",
        "",
        "In `.agentv/targets.yaml`:",
        "",
        "```yaml",
        provider_example(name).rstrip(),
        "```",
    )
    if kind.takes_skills:
        yield from ("", *_agent(kind))
    missing = missing_key(name)
    if missing:
        yield from ("", "Without the key, the run fails before any call:", "", "```text", missing, "```")
    taken = {title: base for title, base in _SHARED.items() if issubclass(kind, base)}
    links = " and ".join(f"[{title[:1].lower()}{title[1:]}](../targets.md#{slug(title)})" for title in taken)
    yield from ("", "## Settings", "", f"In addition to those of {links}:", "")
    table = [
        line.replace("](../", "](../../").replace("](#", "](../targets.md#").replace("](sandbox.md", "](../sandbox.md")
        for line in setting_table(kind, tuple(taken.values()), has_meanings=True)
    ]
    yield from table or ["None."]
    if kind.open is Target.open and not kind.responder:
        yield from ("", NOT_YET)
    shared = {key: reason for base in taken.values() for key, reason in getattr(base, "unsupported", {}).items()}
    yield from refused_besides(kind, shared)


def _about(name: str) -> str:
    """Return the description of a provider: from its preset, else from its class."""
    text = inspect.cleandoc(str(TARGETS.find(name).__doc__))
    preset = PRESETS.get(name)
    if preset is None:
        return text
    key = f"The API key is read from `{preset.key_variable}`." if preset.key_variable else "It needs no API key."
    return f"{preset.title}, with an OpenAI-compatible API at `{preset.base_url}`. {key}"


def provider_example(name: str) -> str:
    """Return a targets file with one entry."""
    preset = PRESETS.get(name)
    if preset is None and name not in PROVIDERS:
        raise SystemExit(f"Provider '{name}' has no example. Add [{name}] with an `example` to docs/providers.toml")
    settings = f"    model: {preset.model}\n" if preset else PROVIDERS[name]["example"]
    return f"targets:\n  - name: default\n    provider: {name}\n{settings}"


def _agent(kind: Kind) -> Lines:
    """Yield how to install a coding agent, and which keys it receives."""
    has_model_api = "keys_of" in vars(kind)
    keys = [code(kind.secrets)] if kind.secrets else []
    keys += ["the keys of its model API"] if has_model_api else []
    yield f"Install it with `npm install -g {kind.package}`. It receives {', '.join(keys)}; list other secrets in"
    yield "`pass_env`. See [Coding agents](../../how-to/coding-agents.md)."


def missing_key(name: str) -> str:
    """Return the error for a missing API key; empty if the provider needs none."""
    if "api_key" not in TARGETS.find(name).__struct_fields__ or name == "bedrock":
        return ""
    with TemporaryDirectory() as folder, chdir(folder), patch.dict(os.environ, clear=True):
        Path(".agentv").mkdir()
        Path(".agentv/targets.yaml").write_text(provider_example(name), encoding="utf-8")
        targets = open_targets(".")
        try:
            targets.get("default").open(targets.home)
        except AgentvError as error:
            return f"Error: {error}"
    return ""
