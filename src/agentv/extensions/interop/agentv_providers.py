"""Settings of AgentV (TypeScript): provider files and configurations of 5, and providers of a project."""

import os
import re
from functools import partial
from typing import Any

from agentv.datasets.foreign.values import first_of, object_at
from agentv.datasets.variables import replace_texts
from agentv.registry import TARGETS
from agentv.settings.frozen_settings import parse_settings_file
from agentv.settings.settings_reader import field_of
from agentv.support.yaml.yaml_parser import Map, Seq

_VARIABLE = re.compile(r"\{\{-?\s*env\.(\w+)\s*-?\}\}")
_API = re.compile(r"openai:(?P<format>responses|chat):(?P<model>.+)")
_MESSAGES = "anthropic:messages:"
_CODEX = re.compile(r"openai:(?P<agent>codex(?:-sdk|-app-server|-desktop)?)(?::(?P<model>.+))?")
_CONFIG, _LOCAL = "config.yaml", "config.local.yaml"
_JUDGES = frozenset(("judge_target", "grader_target"))
_OWN, _PROGRAM, _FILE = "agentv", "exec:", "file://"
_OF_CODEX = ("exec", "app-server", "--json")
"""How the program is called, which is the same for all targets with it."""

_EARLIER = ("targets", "graders")
"""Lists of a configuration that became `providers`: entries have an `id` and a `provider`."""

_IN_FILES = ("providers", *_EARLIER, "defaults", "execution", "refs")
_NAMES = {
    "batch_requests": "provider_batching",
    "reasoning_effort": "model_reasoning_effort",
}
"""Settings with another name here, if the provider has them."""


def config_of_project(data: Map, path: str) -> Map:
    """Return a configuration with the default target and the concurrency of AgentV's, and without its providers."""
    data = _with_overlay(data, path)
    execution = data.get("execution", {})
    if not isinstance(execution, dict):
        return data
    workers, target = execution.get("max_concurrency"), first_of(object_at(data, "defaults"), "provider", "target")
    own = {key: value for key, value in execution.items() if key != "max_concurrency"}
    own |= {key: value for key, value in (("workers", workers), ("target", target)) if value is not None}
    rest = {key: value for key, value in data.items() if key not in ("providers", *_EARLIER, "defaults", "refs")}
    return data.with_values({**rest, **({"execution": own} if own else {})})


def _with_overlay(data: Map, path: str) -> Map:
    """Return a configuration with the files that it names, and with `config.local.yaml` on top, if there is one."""
    folder = os.path.dirname(path)
    local = os.path.join(folder, _LOCAL)
    overlay = parse_settings_file(local) if os.path.isfile(local) else None
    data = _with_files(data, folder)
    return _merged(data, _with_files(overlay, folder)) if isinstance(overlay, Map) else data


def _with_files(data: Map, folder: str) -> Map:
    """Return a configuration with the contents of the files that its fields name."""
    files = {key: data[key] for key in _IN_FILES if str(data.get(key)).startswith(_FILE)}
    contents = {key: parse_settings_file(os.path.join(folder, name.removeprefix(_FILE))) for key, name in files.items()}
    return data.with_values({**data, **contents})


def _merged(base: Any, overlay: Any) -> Any:
    if not isinstance(base, Map) or not isinstance(overlay, dict):
        return overlay
    return base.with_values({**base, **{key: _merged(base.get(key), overlay[key]) for key in overlay}})


def targets_of_providers(data: Any, path: str) -> Any:
    """Return the data of a targets file for providers of a list or a configuration, or for targets with providers.

    A configuration in the same folder names their judge.
    """
    if not path:
        return _targets(data)
    folder, name = os.path.split(path)
    config_path = os.path.join(folder, _CONFIG)
    config = data if name == _CONFIG else parse_settings_file(config_path) if os.path.isfile(config_path) else None
    config = _with_overlay(config, config_path) if isinstance(config, Map) else {}
    if name == _CONFIG:
        lists = [config[key] for key in ("providers", *_EARLIER) if isinstance(config.get(key), Seq)]
        data = _joined(lists) if lists else config
    elif isinstance(graders := config.get("graders"), Seq):
        if isinstance(data, Seq):
            data = _joined([data, graders])
        elif isinstance(data, Map) and isinstance(data.get("targets"), Seq):
            data = data.with_values({**data, "targets": _joined([data["targets"], graders])})
    return _with_judge(_targets(data), object_at(config, "defaults").get("grader"))


def _joined(lists: list[Seq]) -> Seq:
    joined = Seq(entry for entries in lists for entry in entries)
    joined.start, joined.marks = lists[0].start, [mark for entries in lists for mark in entries.marks]
    return joined


def _targets(data: Any) -> Any:
    key = "targets" if isinstance(data, Map) and "targets" in data else "providers"
    providers = data.get(key) if isinstance(data, Map) else data
    if not isinstance(providers, Seq):
        return data
    mapped = _target if key == "providers" else _program
    entries = [_written_out(providers, index) for index in range(len(providers))] if key == "providers" else providers
    targets = Seq(mapped(entry) if isinstance(entry, Map) else entry for entry in entries)
    targets.start, targets.marks = providers.start, providers.marks
    if key == "targets":
        return data.with_values({**data, key: targets})
    document = Map({"targets": targets})
    document.start, document.marks = providers.start, {"targets": providers.start}
    return document


def _with_judge(data: Any, grader: Any) -> Any:
    """Return a targets file whose targets have a judge, unless they name their own."""
    targets = data.get("targets") if isinstance(data, dict) else None
    for target in targets if isinstance(targets, list) and grader is not None else ():
        if isinstance(target, Map) and target.get("name") != grader and _JUDGES.isdisjoint(target):
            target["judge_target"] = grader
    return data


def _program(entry: Map) -> Map:
    """Return a target whose provider is a program of the project (`.agentv/providers`), as AgentV calls it: `cli`."""
    if "id" in entry and "name" not in entry:
        return _target(entry)
    provider = entry.get("provider")
    is_own = "command" in entry and isinstance(provider, str) and TARGETS.canonical(provider) is None
    return entry.with_values({**entry, "provider": "cli"}) if is_own else entry


def _written_out(providers: Seq, index: int) -> Any:
    """Return an entry of a list; one that is only an id, as an object at its position."""
    entry = providers[index]
    if not isinstance(entry, str):
        return entry
    provider = Map({"id": entry})
    provider.start, provider.marks = providers.marks[index], {"id": providers.marks[index]}
    return provider


def _target(entry: Map) -> Map:
    if "provider" in entry and "label" not in entry:
        rest = {key: value for key, value in entry.items() if key != "provider"}
        entry = entry.with_values({**rest, "id": entry["provider"], "label": entry.get("id")})
    id = str(entry.get("id", ""))
    if id.startswith(_PROGRAM):
        entry = entry.with_values({"command": id.removeprefix(_PROGRAM), **entry, "id": "cli"})
        entry.setdefault("label", id)
        id = "cli"
    settings = {**entry, **(entry["config"] if isinstance(entry.get("config"), dict) else {})}
    parts = _parts(id)
    provider = parts["provider"]
    kind = TARGETS.canonical(provider)
    has_field = partial(field_of, TARGETS.find(kind)) if kind is not None else None
    own = {
        _NAMES[key] if has_field and key in _NAMES and has_field(_NAMES[key]) and not has_field(key) else key: value
        for key, value in settings.items()
        if key not in ("id", "label", "config")
    }
    if own.get("runtime") in ("host", {"type": "host"}, {"mode": "host"}):  # the only one here
        del own["runtime"]
    command = own.get("command")
    if isinstance(command, list) and command and provider != "cli":
        own = {key: value for key, value in own.items() if key != "command"} | {"executable": command[0]}
        args = [word for word in command[1:] if kind != "codex" or word not in _OF_CODEX]
        own |= {"args": args} if args else {}
    target = {"name": str(entry.get("label") or id), **parts}
    return entry.with_values(replace_texts({**target, **own}, lambda text, _: _VARIABLE.sub(r"${{ \1 }}", text)))


def _parts(id: str) -> dict[str, str]:
    """Return the settings that an id names: the provider, the model and the API of `openai:chat:gpt-5`, for example."""
    if api := _API.fullmatch(id):
        return {"provider": "openai", "model": api["model"], "api_format": api["format"]}
    if codex := _CODEX.fullmatch(id):
        return _without_blanks(codex["agent"], codex["model"])
    first, _, rest = id.replace(_MESSAGES, "anthropic:", 1).partition(":")
    if not rest or TARGETS.canonical(rest) is not None:
        return _without_blanks(rest or first, "")
    if first == _OWN and TARGETS.canonical(rest.partition(":")[0]) is not None:
        return _parts(rest)
    return _without_blanks(first, rest) if TARGETS.canonical(first) is not None else {"provider": id}


def _without_blanks(provider: str, model: str | None) -> dict[str, str]:
    return {"provider": provider, **({"model": model} if model else {})}
