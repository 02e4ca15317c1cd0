"""The commands, code, hosts and variables that an entry of a targets file uses, as written and without running it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from agentv.registry import TARGETS
from agentv.settings.diagnostics import Problems
from agentv.settings.environment import REFERENCE, references
from agentv.settings.settings_reader import field_of
from agentv.targets.target import Target
from agentv.targets.targets_file import Entry, follow, targets_used
from agentv.targets.tools.tool import CommandTool, FunctionTool, local_tools
from agentv.trust.inventory import Inventory, Use, UseKind, command_text

Named = tuple[UseKind, str]

_VENDORS: dict[str, tuple[str, tuple[str, ...]]] = {
    "openai": ("api.openai.com", ("OPENAI_API_KEY",)),
    "anthropic": ("api.anthropic.com", ("ANTHROPIC_API_KEY",)),
    "gemini": ("generativelanguage.googleapis.com", ("GEMINI_API_KEY", "GOOGLE_API_KEY")),
    "azure": ("", ("AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN")),
}
"""The host of each vendor's API, and the variables with its key."""


def target_inventory(names: Iterable[str], entries: Mapping[str, Entry], file: str) -> Inventory:
    """Return what targets of a file and their fallbacks use."""
    return Inventory(
        (use for name in sorted(targets_used(names, entries)) for use in _entry_uses(name, entries, file)), [file]
    )


def _entry_uses(name: str, entries: Mapping[str, Entry], file: str) -> Iterator[Use]:
    found = follow(entries[name], entries, None, Problems())
    entry = (found or entries[name])[1]
    label = f"target '{name}'"
    for kind, value in dict.fromkeys(_settings_uses(entry)):
        yield Use(kind, value, file, label)
    for variable in dict.fromkeys(each.variable for each in references(entry)):
        yield Use("variable", variable, file, label)


def _settings_uses(entry: Mapping[str, Any]) -> Iterator[Named]:
    provider = str(entry.get("provider", ""))
    canonical = TARGETS.canonical(provider) or provider
    is_code = ".py:" in canonical
    kind = Target if is_code or TARGETS.canonical(provider) is None else TARGETS.find(canonical)
    named = {field.name: value for key, value in entry.items() if (field := field_of(kind, key)) is not None}
    if is_code:
        yield "code", canonical
    yield from _program_uses(kind, named)
    yield from _tool_uses(named.get("tools"))
    yield from _host_uses(canonical, kind, named)
    for variable in named.get("pass_env") or ():
        yield "variable", str(variable)


def _program_uses(kind: type[Target], named: Mapping[str, Any]) -> Iterator[Named]:
    transform = named.get("transform")
    for function in (named.get("function"), transform.get("function") if isinstance(transform, dict) else None):
        if isinstance(function, str):
            yield "code", function
    if isinstance(named.get("command_template"), str):
        yield "command", named["command_template"]
    check = named.get("healthcheck")
    command = (check.get("command_template") or check.get("command")) if isinstance(check, dict) else None
    if isinstance(command, str):
        yield "command", command
    default = {field.name: field.default for field in msgspec.structs.fields(kind)}.get("executable")
    program = named.get("executable", default)
    if isinstance(program, str):
        arguments = named.get("args")
        yield "command", command_text([program, *(arguments if isinstance(arguments, list) else ())])


def _tool_uses(entries: Any) -> Iterator[Named]:
    for tool in local_tools(entries) if isinstance(entries, list) else ():
        if isinstance(tool, FunctionTool):
            yield "code", tool.function
            continue
        for variable in tool.pass_env:
            yield "variable", variable
        if isinstance(tool, CommandTool):
            yield "command", command_text(tool.command)
        elif tool.is_remote:
            yield "host", host_of(str(tool.mcp))
        else:
            yield "command", command_text(tool.mcp)


def _host_uses(provider: str, kind: type[Target], named: Mapping[str, Any]) -> Iterator[Named]:
    check = named.get("healthcheck")
    written = [named.get(key) for key in ("url", "base_url", "endpoint")]
    written.append(check.get("url") if isinstance(check, dict) else None)
    addresses = [address for address in written if isinstance(address, str)]
    yield from (("host", host_of(address)) for address in addresses)
    host, keys = _VENDORS.get(provider, ("", getattr(kind, "secrets", ())))
    if hasattr(kind, "preset"):
        from agentv.targets.apis.openai import PRESETS  # late: imported already, by the class itself

        preset = PRESETS[provider]
        host, keys = host_of(preset.base_url), (preset.key_variable,) if preset.key_variable else ()
    if host and not addresses:
        yield "host", host
    if not named.get("api_key") and (provider == "azure" or not addresses):
        yield from (("variable", key) for key in keys)


def host_of(address: str) -> str:
    """Return the host of an address, with its port; the address as written if a variable is part of the host."""
    host = address.partition("://")[2].partition("/")[0].rpartition("@")[2]
    if REFERENCE.search(address.partition("?")[0]) or "{{" in host:
        return address.partition("?")[0]
    try:
        return urlsplit(address).netloc.rpartition("@")[2] or address
    except ValueError:
        return address
