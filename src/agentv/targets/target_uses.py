"""The commands, code, hosts and variables that an entry of a targets file uses, as written and without running it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agentv.model.diagnostics import Problems
from agentv.registry import TARGETS
from agentv.settings.addresses import host_of
from agentv.settings.environment import references
from agentv.settings.settings_reader import field_of
from agentv.settings.transform import code_of, script_file
from agentv.targets.target import Target
from agentv.targets.targets_file import Entry, follow, targets_used
from agentv.targets.tools.tool import CommandTool, FunctionTool, RecordedTools, local_tools
from agentv.trust.inventory import ANY_HOST, Inventory, NamedUse, Use, command_text


def target_inventory(names: Iterable[str], entries: Mapping[str, Entry], file: str) -> Inventory:
    """Return what targets of a file and their fallbacks use."""
    return Inventory(
        (use for name in sorted(targets_used(names, entries)) for use in _entry_uses(name, entries, file)), [file]
    )


def _entry_uses(name: str, entries: Mapping[str, Entry], file: str) -> Iterator[Use]:
    final_entry = follow(entries[name], entries, None, Problems())
    entry = (final_entry or entries[name])[1]
    label = f"target '{name}'"
    for kind, value in dict.fromkeys(_settings_uses(entry)):
        yield Use(kind, value, file, label)
    for variable in dict.fromkeys(ref.variable for ref in references(entry)):
        yield Use("variable", variable, file, label)


def _settings_uses(entry: Mapping[str, Any]) -> Iterator[NamedUse]:
    provider = str(entry.get("provider", ""))
    canonical = TARGETS.canonical(provider) or provider
    if ".py:" in canonical:
        yield "code", canonical
        kind: type[Target] = AnyTarget
    else:
        kind = TARGETS.find(canonical) if TARGETS.canonical(provider) is not None else Target
    settings = {field.name: value for key, value in entry.items() if (field := field_of(kind, key)) is not None}
    yield from declared_uses(kind, {**settings, "provider": canonical})


class AnyTarget(Target, frozen=True, kw_only=True):
    """A target of a class in a user's file, which is not imported: it is listed as code, which may call any host."""

    @classmethod
    def uses(cls, settings: Mapping[str, Any]) -> Iterable[NamedUse]:  # noqa: ARG003
        return ()


def declared_uses(kind: type[Target], settings: Mapping[str, Any]) -> Iterator[NamedUse]:
    """Yield what settings of a kind would use: what the kind declares, and what every kind can name.

    An API that declares no host, and a kind that makes calls of its own without declaring them, may call any host.
    """
    uses = dict.fromkeys(kind.uses(settings))
    is_missing = kind.is_api and not any(use == "host" for use, _ in uses)
    if is_missing or not _declares_its_calls(kind):
        uses["host", ANY_HOST] = None
    yield from uses
    for function in code_of(settings.get("transform"), "function"):
        script = script_file(function)
        yield ("code", function) if script is None else ("command", f"node {script[0]}")
    for code in code_of(settings.get("transform"), "javascript"):
        yield "script", code
    yield from _tool_uses(settings.get("tools"))
    yield from _sandbox_uses(settings.get("sandbox"))
    passed = settings.get("pass_env")
    yield from (("variable", str(name)) for name in (passed if isinstance(passed, list | tuple) else ()))


def _declares_its_calls(kind: type[Target]) -> bool:
    """Whether the class that opens the target, or one derived from it, declares what it uses."""

    def place_of(*names: str) -> int:
        return next(place for place, base in enumerate(kind.__mro__) if vars(base).keys() & set(names))

    opening = place_of("open", "open_embeddings", "open_batches", "responder", "address")
    return place_of("uses", "vendor_url") <= opening


def _sandbox_uses(sandbox: Any) -> Iterator[NamedUse]:
    """Yield the hosts that a sandbox lets a program call, and the variables with keys that are sent to them."""
    settings = sandbox if isinstance(sandbox, dict) else {}
    hosts, keys = settings.get("hosts"), settings.get("keys")
    yield from (("host", str(host)) for host in (hosts if isinstance(hosts, list | tuple) else ()))
    for key in keys.values() if isinstance(keys, dict) else ():
        if isinstance(key, dict) and key.get("variable"):
            yield "variable", str(key["variable"])


def _tool_uses(entries: Any) -> Iterator[NamedUse]:
    for tool in local_tools(entries) if isinstance(entries, list) else ():
        if isinstance(tool, FunctionTool):
            yield "code", tool.function
            continue
        if isinstance(tool, RecordedTools):
            continue
        for variable in tool.pass_env:
            yield "variable", variable
        if isinstance(tool, CommandTool):
            yield "command", command_text(tool.command)
        elif tool.is_remote:
            yield "host", host_of(str(tool.mcp))
        else:
            yield "command", command_text(tool.mcp)
