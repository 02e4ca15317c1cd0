"""Writes the pages of docs/reference from the commands, the key structs and the registry: `python docs/generate.py`."""

from __future__ import annotations

import inspect
import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import chdir
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from unittest.mock import patch

import click
import msgspec
from msgspec.structs import FieldInfo, fields

from agentv import stats
from agentv.cli import cli
from agentv.config import ProjectConfig, RunDefaults
from agentv.datasets.keys import (
    CASE_LIST_KEYS,
    CaseKeys,
    ExecutionKeys,
    HeaderKeys,
    PromptEntry,
    TurnKeys,
    UserKeys,
    WorkspaceKeys,
)
from agentv.engine.session import open_targets
from agentv.errors import AgentvError
from agentv.evaluators.base import OTHER_TOOLS as REFUSED_IN_EVALUATORS
from agentv.evaluators.base import RESERVED, Evaluator
from agentv.model.execution import Verdicts
from agentv.model.message import PART_KINDS, ROLES, ToolCall
from agentv.registry import ELSEWHERE, EVALUATORS, TARGETS, Registry
from agentv.settings import aliases_of
from agentv.targets.agents.base import CodingAgent
from agentv.targets.base import OTHER_TOOLS as REFUSED_IN_TARGETS
from agentv.targets.base import ModelApi, Target
from agentv.targets.cli import PLACEHOLDERS
from agentv.targets.presets import PRESETS

Kind = type[msgspec.Struct]
Lines = Iterator[str]

DOCS = Path(__file__).resolve().parent
MEANINGS: dict[str, dict[str, Any]] = tomllib.loads((DOCS / "meanings.toml").read_text(encoding="utf-8"))
PROVIDERS: dict[str, dict[str, str]] = tomllib.loads((DOCS / "providers.toml").read_text(encoding="utf-8"))

_NOTE = "<!-- Written by docs/generate.py. Change the code or docs/meanings.toml, then run it. -->"
_NOT_YET = "**This version reads and checks it and cannot run it.**"
_BLOCKS: dict[str, Kind] = {
    "Tool call": ToolCall,
    "Execution": ExecutionKeys,
    "Verdicts": Verdicts,
    "Prompt entry": PromptEntry,
    "Turn": TurnKeys,
    "User": UserKeys,
    "Workspace": WorkspaceKeys,
    "Run defaults": RunDefaults,
}
_SHARED: dict[str, Kind] = {"Every target": Target, "Every model API": ModelApi, "Every coding agent": CodingAgent}


def pages() -> dict[str, str]:
    """Every page by its path under docs/reference."""
    builders = {"cli.md": _cli, "keys.md": _keys, "evaluators.md": _evaluators, "targets.md": _targets}
    builders["stats.md"] = _stats
    builders |= {f"evaluators/{name}.md": partial(_evaluator, name) for name in EVALUATORS.names()}
    builders |= {f"targets/{name}.md": partial(_provider, name) for name in TARGETS.names()}
    return {name: "\n".join([_NOTE, "", *build()]).rstrip() + "\n" for name, build in builders.items()}


def example(name: str) -> dict[str, str]:
    """The files of an evaluator's example by their names, and behind them `scores`; none where there is no example."""
    path = DOCS / "examples" / f"{name}.txt"
    if not path.is_file():
        return {}
    parts = path.read_text(encoding="utf-8").split("=== ")[1:]
    return {file: text for file, _, text in (part.partition("\n") for part in parts)}


def main() -> None:
    """Writes the pages where the repository has them."""
    for name, text in pages().items():
        path = DOCS / "reference" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")


def _cli() -> Lines:
    commands = _commands()
    yield from ("# Commands", "", str(cli.help), "", *_options(cli), "", "| command | what it does |", "|---|---|")
    for name, command in commands.items():
        yield f"| [`agentv {name}`](#agentv-{name}) | {_sentence(command)} |"
    yield from ("", "Data goes to standard output, messages to standard error. Exit codes:", "")
    yield from ("| code | meaning |", "|---|---|", "| 0 | all went well |")
    yield (
        "| 1 | `agentv validate` has findings, `agentv eval` missed a gate, `agentv compare` found what `--fail-on` "
        "names, `agentv targets check` got no answer |"
    )
    yield "| 2 | wrong usage, configuration or targets, or a dataset that cannot be loaded |"
    yield from ("| 3, 4 | `agentv eval`: too many errors; budget used up |", "| 130 | interrupted |")
    for name, command in commands.items():
        yield from ("", f"## agentv {name}", "", *_command(name, command))


def _commands() -> dict[str, click.Command]:
    context = click.Context(cli)
    found = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def _command(name: str, command: click.Command) -> Lines:
    arguments = [param for param in command.params if isinstance(param, click.Argument)]
    yield from (f"`{' '.join(['agentv', name, '[OPTIONS]', *map(_argument, arguments)])}`", "")
    for paragraph in inspect.cleandoc(str(command.help)).split("\n\n"):
        if paragraph.startswith("\b"):
            yield from ("```text", *paragraph.split("\n")[1:], "```", "")
        else:
            yield from (*paragraph.split("\n"), "")
    for argument in arguments:
        if isinstance(argument.type, click.Choice):
            yield from (f"`{_argument(argument)}` is {_code(argument.type.choices, ' or ')}.", "")
    yield from _options(command)
    if command.epilog:
        text = command.epilog.removeprefix("\b\n").removeprefix("Examples:").removeprefix("Example:")
        lines = [part.strip() for line in text.split("\n") for part in line.split("  ·  ")]
        yield from ("", "```text", *lines, "```")


def _argument(argument: click.Argument) -> str:
    name = str(argument.name).upper() + ("..." if argument.nargs != 1 else "")
    return name if argument.required else f"[{name}]"


def _options(command: click.Command) -> Lines:
    yield from ("| option | value | meaning |", "|---|---|---|")
    for param in command.params:
        if isinstance(param, click.Option):
            meaning = str(param.help or _help_elsewhere(param))
            if param.show_default and not param.is_flag:
                meaning += f" Default: `{param.default}`."
            yield f"| {_code(sorted(param.opts, key=len))} | {_option_value(param)} | {_cell(meaning)} |"
    yield "| `-h`, `--help` |  | Show the help and exit. |"


def _help_elsewhere(option: click.Option) -> str:
    """An option that one command leaves out of its help says what it means at another command."""
    for command in _commands().values():
        for param in command.params:
            if isinstance(param, click.Option) and param.name == option.name and param.help:
                return param.help
    raise ValueError(f"{option.opts[0]} has no help")


def _option_value(option: click.Option) -> str:
    if option.is_flag:
        return ""
    if isinstance(option.type, click.Choice):
        return _code(option.type.choices, " or ")
    if option.metavar:
        return _cell(f"`{option.metavar}`")
    if isinstance(option.type, click.IntRange):
        return f"integer ≥ {option.type.min}"
    return "integer" if option.type is click.INT else "text"


def _sentence(command: click.Command) -> str:
    return inspect.cleandoc(str(command.help)).split("\n", 1)[0].split(". ", 1)[0].rstrip(".") + "."


def _keys() -> Lines:
    yield from ("# Keys of datasets, sidecars and configuration", "")
    yield from ("Generated from the types that files are read into. The guide is [datasets.md](../datasets.md).", "")
    yield "`null` means the same as leaving a key out. `agentv schema dataset`, `line`, `sidecar` and `config` print"
    yield "the same as JSON Schema."
    yield from ("", "## Dataset", "")
    yield f"A YAML document lists its cases under `{CASE_LIST_KEYS[0]}`; {_code(CASE_LIST_KEYS[1:])} are read as the"
    yield "same. Its other keys are also the keys of a sidecar:"
    yield from ("", *_key_table(HeaderKeys), "")
    yield f"{_code(HeaderKeys.informational)} have no effect, and a warning says so."
    yield from ("", "## Case", "", *_key_table(CaseKeys), "", "## Message", "", "| key | type |", "|---|---|")
    yield from (f"| `role` (required) | {_code(ROLES, ' or ')} |", "| `content` | string, object, or list of parts |")
    yield from ("| `tool_calls` | list of [tool call](#tool-call) |", "| `name` | string |", "")
    yield "A message has `content`, `tool_calls`, or both. A part is a string, or an object with `type`"
    yield f"({_code(PART_KINDS, ' or ')}) and `value`, a string."
    for title, kind in _BLOCKS.items():
        if kind is not RunDefaults:
            yield from ("", f"## {title}", "", *_key_table(kind))
    yield from ("", "## Configuration", "", "The file `.agentv/config.yaml`:", "", *_key_table(ProjectConfig))
    yield from ("", "### Run defaults", "", *_key_table(RunDefaults))


def _key_table(kind: Kind) -> Lines:
    meanings = _meanings(kind.__name__, [field.encode_name for field in fields(kind)])
    yield from ("| key | type | meaning | other names |", "|---|---|---|---|")
    for field in fields(kind):
        meaning = meanings[field.encode_name]
        yield f"| {_key(field)} | {_type(field.type)} | {meaning} | {_code(_others(kind, field))} |"
    refused: Mapping[str, str] = getattr(kind, "unsupported", {})
    if refused:
        yield from ("", "Known from AgentV 4.x and 5.x, and refused:", "", *_reasons(refused))


def _meanings(name: str, keys: Iterable[str]) -> dict[str, str]:
    if set(MEANINGS[name]) != set(keys):
        raise ValueError(f"[{name}] in meanings.toml has {sorted(MEANINGS[name])}, the code {sorted(keys)}")
    return MEANINGS[name]


def _evaluators() -> Lines:
    yield from ("# Evaluators", "")
    yield "Every type, each with a page of its own. How answers are scored is in [scoring.md](../scoring.md)."
    yield from ("", "An entry of `evaluators` is an object, or a string, which is an item of a rubric:", "")
    yield from ("```yaml", "evaluators:", "  - Greets the user", "  - type: contains", "    value: hello", "```", "")
    yield from ("## Every entry", "", "| key | meaning |", "|---|---|")
    yield from (f"| `{key}` | {meaning} |" for key, meaning in _meanings("Entry", RESERVED).items())
    yield from ("", "A type may be written in snake_case or kebab-case, a setting in camelCase too. A type")
    yield "`file.py:Class` is your own, and so is one that an installed package announces under `agentv.evaluators`: a"
    yield "subclass of `agentv.evaluators.base.Evaluator`, whose fields are the settings."
    yield "promptfoo's `not-` before a type is `negate: true`."
    yield from ("", "## Types", "", "| type | also written | what it does |", "|---|---|---|")
    for name in EVALUATORS.names():
        kind = EVALUATORS.find(name)
        summary = inspect.cleandoc(str(kind.__doc__)).split("\n", 1)[0]
        others = [alias for alias, meant in EVALUATORS.aliases().items() if meant == name]
        yield f"| [{name}](evaluators/{name}.md) | {_code(others)} | {_cell(summary)} |"
    yield from ("", "## Types of other tools", "")
    yield "Known from AgentV 4.x, 5.x and promptfoo, and refused with what to use instead:"
    yield from ("", *_reasons(ELSEWHERE, "type"))
    yield from ("", "## Refused keys", "", "Known from other tools, and refused unless a type lists the key:")
    yield from ("", *_reasons(REFUSED_IN_EVALUATORS))


def _evaluator(name: str) -> Lines:
    """The page of one type."""
    kind = EVALUATORS.find(name)
    yield from (f"# {name}", "", *_about(EVALUATORS, name, kind), "", "## Settings", "")
    yield "Beside the keys that [every entry](../evaluators.md#every-entry) has:"
    yield from ("", *_setting_table(kind, ()))
    if kind.score is Evaluator.score and kind.evaluate is Evaluator.evaluate:
        yield from ("", _NOT_YET)
    if kind.open_settings:
        yield from ("", "Takes any other key as your own.")
    yield from _refused_besides(kind, REFUSED_IN_EVALUATORS)
    for block in dict.fromkeys(_structs_in(kind)):
        yield from (
            "",
            f"### {_title(block)}",
            "",
            inspect.cleandoc(str(block.__doc__)),
            "",
            *_setting_table(block, ()),
        )
    files = example(name)
    scores = files.pop("scores", "")
    if files:
        yield from ("", "## Example")
    for file, text in files.items():
        language = {"py": "python", "sh": "sh"}.get(file.rpartition(".")[2], "yaml")
        yield from ("", f"`{file}`:", "", f"```{language}", text.rstrip(), "```")
    if scores:
        yield from ("", f"`agentv eval evals/{name}.yaml` gives these scores:", "", "| case | score |", "|---|---|")
        for line in scores.splitlines():
            case, _, score = line.partition(": ")
            yield f"| `{case}` | {float(score):.3g} |"


def _stats() -> Lines:
    yield from ("# Statistics", "")
    yield "What `agentv.stats` has: pure functions over numbers, which `agentv eval`, `compare` and `plan` use and that"
    yield "may be used by themselves. Each is held against closed forms, scipy and statsmodels in the tests; how often"
    yield "intervals hold the truth is in the [table of coverage](../coverage.md), and how to use them in"
    yield "[Is my change real?](../is_my_change_real.md)."
    yield from ("", "| name | what it is |", "|---|---|")
    for name in stats.__all__:
        yield f"| [`{name}`](#{name.lower()}) | {_cell(_first_sentence(getattr(stats, name)))} |"
    for module, names in stats.NAMES.items():
        home = import_module(f"agentv.stats.{module}")
        yield from ("", f"## {module}", "", (home.__doc__ or "").split("\n", 1)[0])
        for name in names:
            yield from ("", f"### {name}", "", *_stats_entry(getattr(home, name)))


def _stats_entry(entry: Any) -> Lines:
    """A function with its parameters and its docstring as it is written: formulas are no Markdown."""
    parameters = ", ".join(map(_parameter, inspect.signature(entry).parameters.values()))
    yield from ("```text", f"{entry.__name__}({parameters})", "", *inspect.cleandoc(entry.__doc__).split("\n"), "```")
    if inspect.isclass(entry):
        members = [(name, each) for name, each in vars(entry).items() if not name.startswith("_") and each.__doc__]
        yield from ("", "| member | meaning |", "|---|---|")
        for name, each in members:
            call = "" if isinstance(each, property) else "()"
            yield f"| `{name}{call}` | {_cell(inspect.cleandoc(each.__doc__).replace(chr(10), ' '))} |"


def _parameter(parameter: inspect.Parameter) -> str:
    return parameter.name if parameter.default is parameter.empty else f"{parameter.name}={parameter.default!r}"


def _first_sentence(entry: Any) -> str:
    return str(inspect.cleandoc(entry.__doc__).split("\n\n", 1)[0].replace("\n", " "))


def _targets() -> Lines:
    yield from ("# Targets", "")
    yield "Every provider has a page of its own; what all take stands here. The guide is [targets.md](../targets.md)."
    yield from ("", "A targets file is `.agentv/targets.yaml`, or `targets.yaml`:", "")
    yield from ("```yaml", "targets:", "  - name: default", "    provider: openai", "    model: gpt-5-mini")
    yield from ("    api_key: ${{ OPENAI_API_KEY }}", "```", "")
    yield "`${{ NAME }}` stands for a variable of the environment or of `.env`, in any setting. An unknown key is an"
    yield "error. A setting may be written in camelCase or kebab-case too."
    for title, kind in _SHARED.items():
        yield from ("", f"## {title}", "", *_setting_table(kind, () if kind is Target else (Target,), _of_targets))
        yield from _refused_besides(kind, REFUSED_IN_TARGETS)
    yield from ("", "## Providers", "", "Each has a page with an entry to copy.", "")
    yield from ("| provider | also written | what it is |", "|---|---|---|")
    for name in TARGETS.names():
        others = [alias for alias, meant in TARGETS.aliases().items() if meant == name]
        summary = _about_provider(name).split("\n\n")[0].replace("\n", " ").split(". ")[0].rstrip(".")
        yield f"| [{name}](targets/{name}.md) | {_code(others)} | {_cell(summary)} |"
    yield from _inner_blocks(TARGETS)
    yield from ("", "### Placeholders", "", f"In `command_template`: {_code(f'{{{name}}}' for name in PLACEHOLDERS)}.")
    yield from (
        "",
        "## Refused keys",
        "",
        "Known from other tools, and refused unless a provider lists the key itself:",
    )
    yield from ("", *_reasons(REFUSED_IN_TARGETS))


def _provider(name: str) -> Lines:
    """The page of one provider."""
    kind = TARGETS.find(name)
    yield from (f"# {name}", "", _about_provider(name))
    others = [alias for alias, meant in TARGETS.aliases().items() if meant == name]
    if others:
        yield from ("", f"Also written {_code(others)}.")
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
    if issubclass(kind, CodingAgent):
        yield from ("", *_agent(kind))
    missing = missing_key(name)
    if missing:
        yield from ("", "Without the key, nothing is called and this is said:", "", "```text", missing, "```")
    taken = {title: base for title, base in _SHARED.items() if issubclass(kind, base)}
    links = " and ".join(f"[{title[:1].lower()}{title[1:]}](../targets.md#{_slug(title)})" for title in taken)
    yield from ("", "## Settings", "", f"Beside those of {links}:", "")
    table = [
        line.replace("](#", "](../targets.md#") for line in _setting_table(kind, tuple(taken.values()), _of_targets)
    ]
    yield from table or ["None."]
    if kind.open is Target.open:
        yield from ("", _NOT_YET)
    shared = {key: reason for base in taken.values() for key, reason in getattr(base, "unsupported", {}).items()}
    yield from _refused_besides(kind, shared)


def _about_provider(name: str) -> str:
    """What a provider is: of a service with a row of its own the row, of any other what its class says."""
    text = inspect.cleandoc(str(TARGETS.find(name).__doc__))
    preset = PRESETS.get(name)
    if preset is None:
        return text
    key = f"The key is taken from `{preset.key_variable}`." if preset.key_variable else "It asks for no key."
    return f"{preset.title}, which speaks OpenAI's API, at `{preset.base_url}`. {key}"


def provider_example(name: str) -> str:
    """A targets file with one entry, to copy."""
    preset = PRESETS.get(name)
    settings = f"    model: {preset.model}\n" if preset else PROVIDERS[name]["example"]
    return f"targets:\n  - name: default\n    provider: {name}\n{settings}"


def _agent(kind: type[CodingAgent]) -> Lines:
    """How a coding agent comes to be there, and which keys it is given."""
    asks_others = kind.key_variables is not CodingAgent.key_variables
    keys = [_code(kind.secrets)] if kind.secrets else []
    keys += ["the keys of the model API that it asks"] if asks_others else []
    yield f"Installed with `npm install -g {kind.package}`. It is given {', '.join(keys)}, and no other secret unless"
    yield "`pass_env` names it."
    yield "How agents work, and where: [Coding agents](../../coding_agents.md)."


def missing_key(name: str) -> str:
    """What `agentv` says when the variable with the key of the example is not set; empty where it needs none."""
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


def _of_targets(kind: Kind) -> dict[str, str]:
    """What the settings of a target mean."""
    meanings: dict[str, Any] = MEANINGS["TargetSettings"]
    return {**meanings, **meanings.get(kind.__name__, {})}


def _about(registry: Registry, name: str, kind: Kind) -> Lines:
    yield inspect.cleandoc(str(kind.__doc__))
    others = [alias for alias, meant in registry.aliases().items() if meant == name]
    if others:
        yield from ("", f"Also written {_code(others)}.")


def _setting_table(
    kind: Kind, bases: tuple[Kind, ...], meanings_of: Callable[[Kind], dict[str, str]] | None = None
) -> Lines:
    meanings = meanings_of(kind) if meanings_of else None
    inherited = [field for base in bases for field in fields(base)]
    own = [field for field in fields(kind) if field not in inherited]
    known = {alias for base in bases for alias in aliases_of(base)}
    renamed = {alias: name for alias, name in aliases_of(kind).items() if alias not in known}
    if own:
        more = (" meaning |", "---|") if meanings else ("", "")
        yield from (f"| setting | type | default |{more[0]} other names |", f"|---|---|---|{more[1]}---|")
    for field in own:
        meaning = f" {meanings[field.encode_name]} |" if meanings else ""
        others = _code(_others(kind, field))
        yield f"| {_key(field)} | {_type(field.type)} | {_default(field)} |{meaning} {others} |"
    if not fields(kind):
        yield "It has no settings."
    for field in inherited:
        names = [alias for alias, name in renamed.items() if name == field.encode_name]
        if names and field not in own and kind not in bases and field in fields(kind):
            yield from ("", f"{_code(names)}: other names of `{field.encode_name}`.")


def _refused_besides(kind: Any, common: Mapping[str, str]) -> Lines:
    refused = {key: reason for key, reason in kind.unsupported.items() if key not in common}
    if refused:
        yield from ("", *_reasons(refused, "refused key"))


def _inner_blocks(registry: Registry) -> Lines:
    kinds = {struct: None for name in registry.names() for struct in _structs_in(registry.find(name))}
    yield from ("", "## Blocks inside settings")
    for kind in kinds:
        yield from ("", f"### {_title(kind)}", "", inspect.cleandoc(str(kind.__doc__)), "", *_setting_table(kind, ()))


def _reasons(refused: Mapping[str, str], heading: str = "key") -> Lines:
    yield from (f"| {heading} | what to do |", "|---|---|")
    for key, reason in refused.items():
        yield f"| `{key}` | {_cell(reason.removeprefix('It is a setting of AgentV 4.x or 5.x. '))} |"


def _key(field: FieldInfo) -> str:
    return f"`{field.encode_name}`" + (" (required)" if field.required else "")


def _others(kind: Kind, field: FieldInfo) -> list[str]:
    return [alias for alias, name in aliases_of(kind).items() if name == field.encode_name]


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is None or value is msgspec.NODEFAULT or value in ("", ()):
        return ""
    if isinstance(value, tuple):
        return _code(value, " ")
    return f"`{msgspec.json.encode(value).decode().strip(chr(34)).removesuffix('.0')}`"


def _type(type_: Any) -> str:
    """A type in the words of JSON, bounds included."""
    origin, arguments = get_origin(type_), get_args(type_)
    if origin is Annotated:
        return f"{_type(arguments[0])}{_bounds(arguments[1])}"
    if origin in (Union, UnionType):
        words = dict.fromkeys(_type(option) for option in arguments if option is not NoneType)
        return " or ".join(word for word in words if word != "integer" or "number" not in words)
    if origin is Literal:
        return _code((word for word in arguments if word.replace("-", "_") == word), " or ")
    if origin is tuple and Ellipsis not in arguments:
        return f"list of {len(arguments)}, each {_type(arguments[0])}"
    if origin in (list, tuple):
        return f"list of {_inside(arguments[0])}"
    if origin is dict:
        return "object" if arguments[1] is Any else f"object of {_inside(arguments[1])}"
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return f"[{_title(type_).lower()}](#{_slug(_title(type_))})"
    return {str: "string", int: "integer", float: "number", bool: "boolean", Any: "any JSON"}[type_]


def _inside(type_: Any) -> str:
    words = _type(type_)
    return f"{words}s" if words.isalpha() else f"({words})" if " or " in words else words


def _bounds(meta: msgspec.Meta) -> str:
    if meta.ge is not None and meta.le is not None:
        return f" from {meta.ge} to {meta.le}"
    signs = {" ≥ ": meta.ge, " > ": meta.gt, " ≤ ": meta.le, " < ": meta.lt}
    least = "" if meta.min_length is None else f", at least {meta.min_length}"
    return "".join(f"{sign}{bound}" for sign, bound in signs.items() if bound is not None) + least


def _structs_in(kind: Kind) -> Iterator[Kind]:
    """The structs that a struct's fields hold, and those that these hold."""
    for field in fields(kind):
        yield from _structs_of(field.type)


def _structs_of(type_: Any) -> Iterator[Kind]:
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        yield type_
        yield from _structs_in(type_)
    for argument in get_args(type_) if get_origin(type_) is not Literal else ():
        yield from _structs_of(argument)


def _title(kind: Kind) -> str:
    """A class's name as a heading: `RubricItem` is a rubric item."""
    titles = {block: title for title, block in _BLOCKS.items()}
    spaced = "".join(f" {char.lower()}" if char.isupper() else char for char in kind.__name__).strip()
    return titles.get(kind, spaced[:1].upper() + spaced[1:])


def _slug(heading: str) -> str:
    return heading.lower().replace(" ", "-")


def _code(names: Iterable[Any], between: str = ", ") -> str:
    return between.join(f"`{name}`" for name in names)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    main()
