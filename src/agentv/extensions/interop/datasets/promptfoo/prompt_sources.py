"""The prompts of a promptfoo configuration: texts, files and chats, as templates with an id."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from agentv.datasets.case.promptfoo_prompt import prompt_names
from agentv.datasets.foreign.foreign_format import Lose
from agentv.datasets.foreign.values import is_blank, messages_of, text_of
from agentv.extensions.interop.datasets.promptfoo.nunjucks import is_template
from agentv.extensions.interop.datasets.promptfoo.suite_files import SuiteFiles
from agentv.support.templates import TemplateProblem

_PROGRAMS = (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".py", ".sh", ".rb", ".pl", ".exe", ".bat", ".cmd", ".ps1")
_TEXTS = (".txt", ".md", ".j2", ".json", ".jsonl", ".yaml", ".yml", ".csv")
_SEPARATOR = re.compile(r"^---\s*$", re.MULTILINE)
_FILE = re.compile(r"^(?:file://)?(?P<path>[^\n{}]+?)(?::(?P<name>\w+))?$")


class PromptTemplate(msgspec.Struct, frozen=True):
    """A prompt: an id that is unique in its configuration, its template, its label, and the messages of a chat."""

    id: str
    text: str
    label: str = ""
    messages: tuple[dict[str, Any], ...] = ()

    @property
    def content(self) -> str | list[dict[str, Any]]:
        """The messages of a chat that is sent as such, otherwise the text."""
        return list(self.messages) or self.text

    @property
    def names(self) -> frozenset[str]:
        """The variables that the prompt uses."""
        try:
            return prompt_names(self.text)
        except TemplateProblem:  # reported when the prompt is read as a part of the dataset
            return frozenset()

    def wrapped(self, prefix: str, suffix: str) -> PromptTemplate:
        """Return the prompt with a text before and after it."""
        if not self.messages:
            return msgspec.structs.replace(self, text=f"{prefix}{self.text}{suffix}")
        raise ValueError("'prefix' and 'suffix' apply to prompts that are text, and this one is a chat")

    def is_named(self, wanted: str) -> bool:
        """Whether a filter of a test or a provider selects the prompt: its id, its label, or `group:*`."""
        names = (self.id, self.label)
        if wanted.endswith("*"):
            return any(name.startswith(wanted[:-1]) for name in names)
        return wanted in names or any(name.startswith(f"{wanted}:") for name in names)


def read_prompts(value: Any, files: SuiteFiles, lose: Lose, sends_chats: bool) -> list[PromptTemplate]:
    """Return all prompts; chats as messages if models receive them. Those that are programs are lost, by name."""
    prompts: list[PromptTemplate] = []
    for label, raw in _written(value):
        try:
            for name, text in _contents_of(raw, files):
                id = _unique(label or name or f"prompt-{len(prompts) + 1}", {prompt.id for prompt in prompts})
                prompts.append(PromptTemplate(id, text, label, _chat(text) if sends_chats else ()))
        except ValueError as error:
            lose(str(error))
    return prompts


def _written(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the label and the text or file name of each prompt."""
    if isinstance(value, dict):  # a file name and its label
        yield from ((text_of(label), path) for path, label in value.items())
        return
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict):
            raw = next((item[key] for key in ("raw", "prompt", "file", "id") if not is_blank(item.get(key))), "")
            label = next((item[key] for key in ("label", "display", "id") if not is_blank(item.get(key))), "")
            yield text_of(label), text_of(raw)
        else:
            yield "", text_of(item)


def _contents_of(raw: str, files: SuiteFiles) -> Iterator[tuple[str, str]]:
    """Yield a name and the text of each prompt in a text or a file. Raises ValueError."""
    found = _FILE.match(raw.strip())
    suffix = os.path.splitext(found["path"])[1].lower() if found else ""
    if raw.startswith(("exec:", "langfuse://", "portkey://", "helicone://", "http://", "https://")):
        raise ValueError(f"the prompt '{raw[:80]}': it is made by a program or a service")
    if found is None or not (raw.startswith("file://") or suffix in (*_PROGRAMS, *_TEXTS) or "*" in raw):
        yield "", raw
        return
    if suffix in _PROGRAMS:
        raise ValueError(f"the prompt function '{raw}': write the prompt as text")
    paths = files.matching(found["path"])
    if not paths and not raw.startswith("file://"):
        yield "", raw
        return
    if not paths:
        raise FileNotFoundError(f"The prompt file '{raw.removeprefix('file://')}' does not exist in {files.folder}")
    for path in paths:
        yield from _named(os.path.basename(path), list(_in_file(path, files)))


def _named(name: str, contents: list[str]) -> Iterable[tuple[str, str]]:
    if len(contents) == 1:
        return [(name, contents[0])]
    return [(f"{name}:{number}", content) for number, content in enumerate(contents, 1)]


def _in_file(path: str, files: SuiteFiles) -> Iterator[str]:
    suffix = os.path.splitext(path)[1].lower()
    if suffix in _PROGRAMS:
        raise ValueError(f"the prompt function '{os.path.basename(path)}': write the prompt as text")
    if suffix == ".txt":
        parts = [part.strip() for part in _SEPARATOR.split(files.text(path))]
        yield from filter(None, parts)
    elif suffix == ".jsonl":
        yield from (line for line in files.text(path).splitlines() if line.strip())
    elif suffix == ".csv":
        for record in files.records(path):
            yield text_of(next(iter(record.data.values()), ""))
    elif suffix in (".yaml", ".yml") and not is_template(files.text(path).split("content:", 1)[0]):
        yield json.dumps(msgspec.to_builtins(files.data(path)), ensure_ascii=False)
    else:
        yield files.text(path).strip()


def _chat(raw: str) -> tuple[dict[str, Any], ...]:
    """Return the messages of a text that is JSON with them; none for any other text. Raises ValueError."""
    try:
        data = json.loads(raw) if raw.lstrip()[:1] in ("[", "{") else None
    except (ValueError, RecursionError):
        if raw.lstrip().startswith("[") and '"role"' in raw:
            raise ValueError("a prompt that builds its messages with statements: write them as JSON") from None
        return ()
    data = data.get("messages") if isinstance(data, dict) and "messages" in data else data
    if not isinstance(data, list) or not all(isinstance(item, dict) and "role" in item for item in data):
        return ()
    messages = tuple(messages_of(data, _refuse_part))
    for content in (message.get("content") for message in messages):
        if isinstance(content, list) and any(part["type"] != "text" and is_template(part["value"]) for part in content):
            raise ValueError("a prompt with an image whose address is a variable")
    return messages


def _refuse_part(what: str) -> None:
    raise ValueError(f"a prompt with {what}")


def _unique(name: str, taken: set[str]) -> str:
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}-{number}"
    return found
