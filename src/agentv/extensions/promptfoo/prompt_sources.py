"""The prompts of a promptfoo configuration: texts, files and chats, as templates with an id."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from agentv.datasets.foreign.foreign_format import Lose
from agentv.datasets.foreign.records import MAX_CELL_BYTES, RecordFile
from agentv.datasets.foreign.values import is_blank, messages_of, text_of
from agentv.errors import DatasetError
from agentv.extensions.promptfoo.config_templates import is_template
from agentv.extensions.promptfoo.functions.prompt_function import PromptFunction
from agentv.extensions.promptfoo.functions.prompt_lines import messages_of_lines
from agentv.extensions.promptfoo.nunjucks.prompt import prompt_names
from agentv.extensions.promptfoo.providers.provider_entries import NoCounterpart
from agentv.extensions.promptfoo.suite_files import SuiteFiles
from agentv.model.values import to_json
from agentv.support.templates import TemplateProblem
from agentv.support.yaml.yaml_parser import YamlError, parse_yaml

_FUNCTIONS = (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".py")
_PROGRAMS = (*_FUNCTIONS, ".sh", ".bash", ".rb", ".pl", ".exe", ".bat", ".cmd", ".ps1")
_TEXTS = (".txt", ".md", ".j2", ".json", ".jsonl", ".yaml", ".yml", ".csv")
_SEPARATOR = re.compile(r"^---\s*$", re.MULTILINE)
_LINE_END = re.compile(r"\r\n?|\n")
_YAML_CHAT = "- role:"
_NOT_IN_PATH = re.compile(r"[\s{}*?\[\]!()]")
"""What a text with a slash has if promptfoo does not take it for the path of a file."""

_FILE = re.compile(r"^(?:file://)?(?P<path>(?:[^\n{}]|\{[^\n{}]*,[^\n{}]*\})+?)(?::(?P<name>\w+(?:\.\w+)?))?$")


class PromptTemplate(msgspec.Struct, frozen=True):
    """A prompt: an id that is unique in its configuration, its template, its label, and the messages of a chat.

    A function, and a chat with statements or variable images, has the `key` of a `PromptFunction`. A function that
    depends on the provider is for one `target`. `source` is the text of its file. `problem` is the reason why the
    prompt cannot be sent. `own_id` is the id in the configuration, which files lose in promptfoo.
    """

    id: str
    text: str
    label: str = ""
    messages: tuple[dict[str, Any], ...] = ()
    target: str = ""
    key: str = ""
    source: str = ""
    problem: str = ""
    own_id: str = ""

    @property
    def has_history(self) -> bool:
        """Whether the prompt has the answers to earlier tests, as text or in the code of its function."""
        return "_conversation" in self.names or "_conversation" in self.source

    @property
    def content(self) -> str | list[dict[str, Any]]:
        """The messages of a chat that is sent as such, otherwise the text."""
        return self.key or list(self.messages) or self.text

    @property
    def names(self) -> frozenset[str]:
        """The variables that the prompt uses."""
        try:
            return prompt_names(self.text)
        except TemplateProblem:  # reported when the prompt is read as a part of the dataset
            return frozenset()

    def wrapped(self, prefix: str, suffix: str) -> PromptTemplate:
        """Return the prompt with a text before and after it."""
        if (
            self.key and not self.text
        ):  # as in promptfoo: they belong to the text of a prompt, not to what a function returns
            return self
        if not self.messages and not self.key:
            return msgspec.structs.replace(self, text=f"{prefix}{self.text}{suffix}")
        raise ValueError("'prefix' and 'suffix' apply to prompts that are text, and this one is a chat")

    def is_named(self, pattern: str) -> bool:
        """Whether a filter of a test or a provider selects the prompt: its id, its label, or `group:*`."""
        names = (self.id, self.label, self.own_id)
        if pattern.endswith("*"):
            return any(name.startswith(pattern[:-1]) for name in names)
        return pattern in names or any(name.startswith(f"{pattern}:") for name in names)


class PromptTargets(msgspec.Struct, frozen=True):
    """What prompts are read for: the targets with the ids of their providers, and whether models receive chats.

    `filters` are the JavaScript files of the user's filters. `config` is that of all prompts, if the targets have it.
    With `are_anthropic`, texts that functions return are read as promptfoo's provider for Anthropic reads them.
    """

    ids: Mapping[str, str]
    sends_chats: bool
    are_anthropic: bool = False
    filters: dict[str, str] = {}
    config: dict[str, Any] = {}


def read_prompts(value: Any, files: SuiteFiles, lose: Lose, targets: PromptTargets) -> list[PromptTemplate]:
    """Return all prompts; chats as messages if models receive them. Those that cannot be sent have a problem."""
    prompts: list[PromptTemplate] = []
    as_chat = (_anthropic_chat_of if targets.are_anthropic else chat_of) if targets.sends_chats else None
    for own_id, own_label, raw, config in _written(value):
        if config and config != targets.config and not _function_of(raw, files):
            lose(f"'config' of the prompt '{(own_label or raw)[:80]}': it belongs to the provider")
        try:
            for name, text, row_label in _contents_of(raw, files):
                label = row_label or own_label
                id = _unique(label or name or f"prompt-{len(prompts) + 1}", {prompt.id for prompt in prompts})
                if function := _function_of(text, files):
                    context = {"config": config if isinstance(config, dict) else {}}
                    source = PromptFunction(
                        id=id,
                        label=f"{os.path.basename(function[-2])}:{function[-1]}".removesuffix(":"),
                        path=function[-2],
                        folder=files.folder,
                        function=function[-1],
                        context=context,
                        finder=files.finder,
                        command=tuple(function[:-2]),
                        as_chat=as_chat,
                    )
                    prompts += _function_prompts(source, label, targets)
                    continue
                messages = chat_of(text) if targets.sends_chats else ()
                is_built = targets.sends_chats and (_has_statements(text) or _has_image_variables(messages))
                filters = {name: path for name, path in targets.filters.items() if re.search(rf"\|\s*{name}\b", text)}
                is_built = is_built or bool(filters)
                source = PromptFunction(id=id, finder=files.finder, template=text, as_chat=as_chat, filters=filters)
                key, own_id = source.key if is_built else "", "" if name and not raw.endswith(".csv") else own_id
                prompts.append(PromptTemplate(id, text, label, messages, key=key, own_id=own_id))
        except NoCounterpart as error:
            id = _unique(own_label or os.path.basename(raw), {prompt.id for prompt in prompts})
            prompts.append(PromptTemplate(id, raw, own_label, problem=str(error)))
        except ValueError as error:
            lose(str(error))
    return prompts


def shared_config(value: Any) -> dict[str, Any]:
    """Return the config of all prompts, which is added to that of each provider; empty if they have different ones."""
    first, *others = [config for *_, config in _written(value)] or [None]
    return first if isinstance(first, dict) and all(config == first for config in others) else {}


def _function_prompts(source: PromptFunction, label: str, targets: PromptTargets) -> Iterator[PromptTemplate]:
    """Yield the prompt of a function: one for each target if its file mentions the provider."""
    text = RecordFile(source.path).text
    depends = len(targets.ids) > 1 and "provider" in text
    for target in targets.ids if depends else [next(iter(targets.ids), "")]:
        provider = {"id": targets.ids.get(target, target)}
        provider |= {"label": target} if provider["id"] != target else {}
        own = msgspec.structs.replace(source, context={"provider": provider, **source.context})
        id = f"{source.id} [{target}]" if depends else source.id
        yield PromptTemplate(id, "", label, (), target if depends else "", own.key, text)


def _function_of(raw: str, files: SuiteFiles) -> list[str]:
    """Return the program of a prompt, its file, and the name of a function; empty for any other prompt."""
    words = shlex.split(raw.removeprefix("exec:")) if raw.startswith("exec:") else []
    match = _FILE.match(raw.strip())
    suffix = os.path.splitext(match["path"])[1].lower() if match else ""
    if not words and (match is None or suffix not in _PROGRAMS):
        return []
    own = [word for word in words if not os.path.isabs(word) and os.path.isfile(os.path.join(files.folder, word))]
    path = os.path.abspath(files.path([*own, *words[-1:]][0] if match is None or words else match["path"]))
    name = "" if match is None or words else match["name"] or ""
    files.add_program(path, name)
    if words:
        return [*words, path, ""]
    if suffix == ".py" and not name:
        return [sys.executable, path, path, ""]
    return [path, name] if suffix in _FUNCTIONS else [path, path, ""]


def _written(value: Any) -> Iterator[tuple[str, str, str, Any]]:
    """Yield the id, the label, the text or file name, and the config of each prompt."""
    if isinstance(value, dict):  # a file name and its label
        yield from (("", text_of(label), path, None) for path, label in value.items())
        return
    items = value if isinstance(value, list) else [value]
    for item in {to_json(item): item for item in items}.values():  # equal prompts are one
        if isinstance(item, dict):
            raw = next((item[key] for key in ("raw", "prompt", "file", "id") if not is_blank(item.get(key))), "")
            if is_blank(raw):
                raise ValueError(f"A prompt has no text: {text_of(item)[:80]}")
            label = next((item[key] for key in ("label", "display", "id") if not is_blank(item.get(key))), "")
            yield text_of(item.get("id")), text_of(label), text_of(raw), item.get("config")
        else:
            yield "", "", text_of(item), None


def _contents_of(raw: str, files: SuiteFiles) -> Iterator[tuple[str, str, str]]:
    """Yield a name, the text and the label of each prompt in a text or a file; a program stays its name.

    Only the rows of a table have labels. Raises ValueError.
    """
    match = _FILE.match(raw.strip())
    suffix = os.path.splitext(match["path"])[1].lower() if match else ""
    if raw.startswith(("langfuse://", "portkey://", "helicone://", "pf://", "http://", "https://")):
        raise NoCounterpart(f"The prompt '{raw[:80]}' is made by a service")
    if raw.startswith("exec:") or (suffix in _PROGRAMS and "*" not in raw):
        yield os.path.basename(raw), raw, ""
        return
    if match is None or not (raw.startswith("file://") or suffix in (*_PROGRAMS, *_TEXTS) or "*" in raw):
        if "/" in raw and not _NOT_IN_PATH.search(raw):
            raise ValueError(f"there are no prompts in '{raw[:80]}': a file of prompts has a suffix such as .txt")
        yield "", raw, ""
        return
    paths = files.matching(match["path"])
    if not paths and "*" in raw and not raw.startswith("file://"):
        yield "", raw, ""
        return
    if not paths:
        raise FileNotFoundError(f"The prompt file '{raw.removeprefix('file://')}' does not exist in {files.folder}")
    for path in paths:
        name, is_table = os.path.basename(path), path.lower().endswith(".csv")
        contents = list(_in_table(files.text(path)) if is_table else ((text, "") for text in _in_file(path, files)))
        if is_table and not contents:
            raise ValueError(f"there are no prompts in {path}: a column must be called 'prompt'")
        for number, (content, label) in enumerate(contents, 1):
            yield name if len(contents) == 1 else f"{name}:{number}", content, label


def _in_table(text: str) -> Iterator[tuple[str, str]]:
    """Yield the prompt and the label of each row; without a comma, or if rows differ in length, each line is one."""
    csv.field_size_limit(MAX_CELL_BYTES)
    lines = _LINE_END.split(text)
    cells = csv.reader([f"{line}\n" for line in lines], skipinitialspace=True)
    rows = [[cell.strip() for cell in row] for row in cells if row]
    if "," in text and len({len(row) for row in rows}) == 1:
        records = (dict(zip(rows[0], row, strict=True)) for row in rows[1:])
        yield from ((row["prompt"], row.get("label", "")) for row in records if row.get("prompt"))
        return
    lines = [line for line in lines if line.strip()]
    has_head = [line.strip().lower() for line in lines[:1]] == ["prompt"]
    yield from ((line, "") for line in lines[has_head:])


def _in_file(path: str, files: SuiteFiles) -> Iterator[str]:
    suffix = os.path.splitext(path)[1].lower()
    if suffix in _PROGRAMS:
        yield path
    elif suffix == ".txt":
        parts = [part.strip() for part in _SEPARATOR.split(files.text(path))]
        yield from filter(None, parts)
    elif suffix == ".jsonl":
        yield from (line for line in _LINE_END.split(files.text(path)) if line.strip())
    elif suffix in (".yaml", ".yml"):
        try:
            yield json.dumps(msgspec.to_builtins(files.data(path)), ensure_ascii=False)
        except DatasetError:  # as in promptfoo: a template, such as `content: {{x}}`, is a text
            yield files.text(path)
    elif suffix not in _TEXTS and os.access(path, os.X_OK):
        yield f"exec:{shlex.quote(os.path.join('.', os.path.relpath(path, files.folder)))}"
    else:
        yield files.text(path) if suffix in (".md", ".j2") else files.text(path).strip()


def chat_of(raw: str) -> tuple[dict[str, Any], ...]:
    """Return the messages of a text that is JSON with them; none for any other text. Raises ValueError."""
    data = _json(raw)
    data = data.get("messages") if isinstance(data, dict) and "messages" in data else data
    if not isinstance(data, list) or not all(isinstance(item, dict) and "role" in item for item in data):
        return ()
    return tuple(messages_of(data, _refuse_part))


def _anthropic_chat_of(raw: str) -> tuple[dict[str, Any], ...]:
    return chat_of(raw) or messages_of_lines(raw)


def changes_for_anthropic(text: str) -> bool:
    """Whether promptfoo changes a text that is not a chat for Anthropic: its lines, or lines that name a role."""
    contents = [message["content"] for message in messages_of_lines(text)]
    return bool(text) and contents != [text.strip()] and not _has_statements(text)


def _json(raw: str) -> Any:
    """Return the data of a text that is a JSON list or object, or the YAML of a chat; None for any other text."""
    if raw.lstrip().startswith(_YAML_CHAT):
        try:
            return msgspec.to_builtins(parse_yaml(raw.encode()))
        except YamlError as error:
            raise ValueError(f"a chat that is not valid YAML: {error.what}") from None
    try:
        return json.loads(raw) if raw.lstrip()[:1] in ("[", "{") else None
    except (ValueError, RecursionError):
        return None


def _has_image_variables(messages: tuple[dict[str, Any], ...]) -> bool:
    """Whether the address of an image is a variable."""
    contents = [content for message in messages if isinstance(content := message.get("content"), list)]
    return any(part["type"] != "text" and is_template(part["value"]) for content in contents for part in content)


def _has_statements(raw: str) -> bool:
    """Whether a text is a chat only after its statements and variables are replaced: JSON, or YAML in promptfoo."""
    if raw.lstrip().startswith(_YAML_CHAT):
        return True
    return raw.lstrip()[:1] in ("[", "{") and is_template(raw) and '"role"' in raw and _json(raw) is None


def _refuse_part(what: str) -> None:
    raise NoCounterpart(f"A prompt with {what}")


def _unique(name: str, names: set[str]) -> str:
    number, candidate = 1, name
    while candidate in names:
        number += 1
        candidate = f"{name}-{number}"
    return candidate
