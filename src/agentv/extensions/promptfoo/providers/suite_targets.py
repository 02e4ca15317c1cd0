"""The targets of a promptfoo configuration: its providers, and the graders of its tests."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from agentv.datasets.foreign.foreign_format import Lose
from agentv.datasets.foreign.values import is_blank, object_at, text_of
from agentv.extensions.promptfoo.config_templates import is_template
from agentv.extensions.promptfoo.evaluators.judge_entries import EMBEDDED, JUDGED, PromptForm
from agentv.extensions.promptfoo.functions.calls import FUNCTION_FILE
from agentv.extensions.promptfoo.prompt_sources import PromptTemplate, changes_for_anthropic
from agentv.extensions.promptfoo.providers.provider_entries import (
    NoCounterpart,
    UnmappedProvider,
    is_script,
    provider_name,
    provider_parts,
    target_entry,
)
from agentv.extensions.promptfoo.suite_files import SuiteFiles
from agentv.extensions.promptfoo.transform_code import transforms_of
from agentv.model.values import to_json

_EMBEDDINGS = "openai:embedding:text-embedding-3-large"
"""The model that promptfoo compares texts with by default."""

_GRADERS = {
    "OPENAI_API_KEY": "openai:chat:gpt-5.5-2026-04-23",
    "AZURE_OPENAI_DEPLOYMENT_NAME": "",
    "ANTHROPIC_API_KEY": "anthropic:messages:claude-sonnet-4-6",
    **dict.fromkeys(("GEMINI_API_KEY", "GOOGLE_API_KEY", "PALM_API_KEY"), "google:gemini-2.5-pro"),
    "MISTRAL_API_KEY": "mistral:mistral-large-latest",
    "XAI_API_KEY": "xai:grok-4.3",
}
"""The model that promptfoo grades with by default: that of the first variable that is set. Azure's has no default."""

_DEFAULT_GRADER = "judge"
"""The name of the target for assertions without a grader; a target of the project with this name replaces it."""

_CLAUDE = re.compile(r"bedrock:(?!converse:).*anthropic\.claude-")
_ROLE_LINE = re.compile(r"^\s*(?:system|user|assistant):", re.IGNORECASE | re.MULTILINE)
_PROGRAMS = ("python", "cli", "javascript", "promptfoo_http")
_TEXT_TARGETS = ("mock",)
_CONTENTS = (".json", ".yaml", ".yml", ".txt", ".md")
"""The files whose content is a part of a provider's config."""


class SuiteTargets:
    """The targets of a configuration by name. `names` are those that are evaluated; graders are added on use.

    `unusable` are the labels of providers without a counterpart, for which a project may have targets.
    """

    def __init__(self, providers: Any, files: SuiteFiles, lose: Lose, variables: Mapping[str, Any] = {}) -> None:
        self._files = files
        self._lose = lose
        self._variables = variables
        self._known: dict[bytes, str | None] = {}
        self._ids: dict[str, str] = {}
        self._labels: dict[str, str] = {}
        self._transforms: dict[str, Any] = {}
        self._prompts: dict[str, list[str] | None] = {}
        self.entries: list[dict[str, Any]] = []
        self.names: list[str] = []
        self.unusable: list[str] = []
        for provider in self.listed(providers):
            name = self.add(provider)
            if name is None:
                self.unusable.append(provider if isinstance(provider, str) else _label_of(provider))
            elif name not in self.names:
                self.names.append(name)

    def listed(self, providers: Any) -> list[Any]:
        """Return the providers, including those in files."""
        entries: list[Any] = []
        for provider in providers if isinstance(providers, list) else [] if is_blank(providers) else [providers]:
            is_file = isinstance(provider, str) and provider.startswith("file://")
            if is_file and provider.lower().endswith((".yaml", ".yml", ".json")):
                for path in self._files.matching(provider):
                    content = self._files.data(path)
                    entries += content if isinstance(content, list) else [content]
            else:
                entries.append(provider)
        return entries

    def add(self, provider: Any) -> str | None:
        """Return the name of the target for a provider; None if it cannot be mapped, which is a loss."""
        key = to_json(provider)
        if key not in self._known:
            self._known[key] = self._added(provider)
        return self._known[key]

    def _added(self, provider: Any) -> str | None:
        try:
            id, options = provider_parts(provider)
            entry = target_entry(self._with_files(provider), self._files.folder, self._lose, self._variables)
        except UnmappedProvider as error:
            name = provider if isinstance(provider, str) else _shown(provider)
            self._lose(f"the provider '{name}': {error}. Define a target, and pass --target")
            return None
        label = text_of(options.get("label")) or id
        names = {item["name"] for item in self.entries}
        name, number = label, 1
        while name in names:
            number += 1
            name = f"{label}-{number}"
        self.entries.append({"name": name, **entry})
        self._ids[name], self._labels[name] = id, label
        self._transforms[name] = transforms_of(options.get("transform"))
        if isinstance(provider, dict):  # as in promptfoo: the last of several with the same id decides
            prompts = options.get("prompts")
            patterns = [str(item) for item in prompts] if isinstance(prompts, list) else None
            self._prompts |= dict.fromkeys((id, label), patterns)
        return name

    def _with_files(self, provider: Any) -> Any:
        """Return a provider with the content of the files in its config, which JavaScript reads itself."""
        id, options = provider_parts(provider)
        if is_blank(options.get("config")) or is_script(id):
            return provider
        return {**options, "id": id, "config": self._loaded(options["config"])}

    def _loaded(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._loaded(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._loaded(item) for item in value]
        is_content = isinstance(value, str) and value.startswith("file://") and value.lower().endswith(_CONTENTS)
        if not is_content or is_template(value):
            return value
        self._files.count_reference(100)
        return self._loaded(self._files.content(value))

    def add_answer(self, name: str, text: str) -> str:
        """Return the name of a target that gives an answer of a test instead of a provider, with its transform."""
        key = to_json([name, text])
        if key not in self._known:
            number = sum(entry["name"].startswith(f"{name} answer ") for entry in self.entries) + 1
            answer = f"{name} answer {number}"
            entry = {"name": answer, "provider": "mock", "response": text, "transform": self._transforms[name]}
            self.entries.append({key: value for key, value in entry.items() if value is not None})
            self._known[key], self._ids[answer], self._labels[answer] = answer, self._ids[name], self._labels[name]
        return self._known[key] or name

    @property
    def ids(self) -> dict[str, str]:
        """The ids of the providers that are evaluated, by the names of their targets."""
        return {name: self._ids[name] for name in self.names}

    @property
    def sends_chats(self) -> bool:
        """Whether a target may receive chats as messages: all do but programs, which receive the text of a prompt."""
        kinds = {entry["provider"] for entry in self.entries if entry["name"] in self.names}
        has_others = not kinds or None in self._known.values()
        return has_others or not kinds <= {*_PROGRAMS, *_TEXT_TARGETS}

    @property
    def are_anthropic(self) -> bool:
        """Whether all targets are models of Anthropic, which receive texts in another form."""
        forms = [self.form_of(name) for name in self.names]
        return bool(forms) and set(forms) == {"lines"} and None not in self._known.values()

    def evaluated(self, provider: Any = None) -> list[dict[str, Any]]:
        """Return the entries of the targets that are evaluated, or of the one for a test's own provider."""
        names = self.names if is_blank(provider) else [self.add(provider)]
        return [entry for entry in self.entries if entry["name"] in names]

    def set_chat_format(self, prompts: Sequence[PromptTemplate]) -> None:
        """Send chats to programs next to models as the JSON of their messages, if all prompts are plain chats."""
        has_chats = any(prompt.messages or (prompt.key and self.sends_chats) for prompt in prompts)
        is_exact = all(_is_plain_chat(prompt) for prompt in prompts)
        for entry in self.entries if has_chats else ():
            if entry["provider"] in _PROGRAMS and is_exact:
                entry["chat_format"] = "json"
            elif entry["provider"] in (*_PROGRAMS, *_TEXT_TARGETS):
                self._lose(f"the JSON of chat prompts for the provider '{entry['name']}': it receives their text")

    def form_of(self, name: str | None) -> PromptForm:
        """Return what a target receives: the text of a chat, or its messages; a model of Anthropic, those of lines."""
        name = name or _DEFAULT_GRADER
        kind = next((entry["provider"] for entry in self.entries if entry["name"] == name), "")
        if kind == "anthropic" or (kind == "bedrock" and _CLAUDE.match(self._ids.get(name, ""))):
            return "lines"
        return "text" if kind in (*_PROGRAMS, *_TEXT_TARGETS) else "chat"

    def is_model(self, name: str | None) -> bool:
        """Whether a target receives a chat as messages, and not as text."""
        return self.form_of(name) != "text"

    def has_other_form(self, name: str, text: str) -> bool:
        """Whether promptfoo sends a text to a target in another form than here."""
        if self._is_converse(name):
            return _ROLE_LINE.search(text) is not None
        return (self.form_of(name) == "lines") is not self.are_anthropic and changes_for_anthropic(text)

    def has_other_chat(self, name: str, text: str) -> bool:
        """Whether promptfoo sends the text of a chat to a target: it reads only lists in JSON for some."""
        return (self._is_converse(name) or self.form_of(name) == "lines") and not text.lstrip().startswith("[")

    def _is_converse(self, name: str) -> bool:
        return self._ids.get(name, "").startswith("bedrock:converse:")

    def is_selected(self, name: str, patterns: list[str]) -> bool:
        """Whether a test's filter selects a target: by its name, its id, or `prefix*`."""
        names = (name, self._ids[name])
        return any(
            pattern in names or (pattern.endswith("*") and any(label.startswith(pattern[:-1]) for label in names))
            for pattern in patterns
        )

    def accepts(self, name: str, is_named: Callable[[str], bool]) -> bool:
        """Whether a target gets a prompt: all targets get all prompts, unless the provider lists its own."""
        patterns = self._prompts.get(self._labels[name])
        return patterns is None or any(map(is_named, patterns))

    def judge(self, provider: Any, default: Any) -> str | None:
        """Return the target of a grader: that of the assertion, or else of the test; None if there is none."""
        value = provider if _grader(provider, "text") else default
        return None if _grader(value, "text") is None else self._configured(value, "text")

    def embedder(self, provider: Any, default: Any) -> str | None:
        """Return the target that compares texts: the grader's, or the default of promptfoo.

        Raises NoCounterpart for a provider that is not a model for embeddings, as the grader of a test too.
        """
        grader = default if is_blank(provider) else provider
        if is_blank(grader):
            return self.add(_EMBEDDINGS)
        name = provider_name(_grader(grader, "embedding"))
        name = next((self._ids[target] for target in self.names if self._labels[target] == name), name)
        file = FUNCTION_FILE.search(name)
        if file["file"].endswith(".py") if file else "embed" not in name and not name.startswith("voyage:"):
            whose = "the grader of the test" if is_blank(provider) else "its provider"
            hint = ". Set `embedding` next to `text` in `options.provider`" if is_blank(provider) else ""
            raise NoCounterpart(f"'similar' needs a model for embeddings, and {whose} is {text_of(grader)[:80]}{hint}")
        if (target := self._configured(grader, "embedding")) is None:
            raise NoCounterpart(f"'similar' needs a model for embeddings, and '{name}' has no counterpart here")
        return target

    def _configured(self, value: Any, use: str) -> str | None:
        """Return the target of a grader. A name is the id of a provider that is evaluated, the last one, or a label."""
        grader = _grader(value, use)
        is_typed = grader is not value
        name = grader["id"] if is_typed and isinstance(grader, dict) and grader.keys() == {"id"} else grader
        same = [target for target in self.names if self._ids[target] == name]
        labelled = [target for target in self.names if self._labels[target] == name]
        return (same[-1:] or labelled)[0] if same or labelled else self.add(grader)

    def add_graders(self, test: dict[str, Any], templates: Mapping[str, Any]) -> None:
        """Add the targets that a test names: its own provider, and the graders of its assertions."""
        own = [self.add(test["provider"])] if not is_blank(test.get("provider")) else self.names
        answer = test.get("providerOutput")
        if isinstance(answer, str) and answer:
            for name in filter(None, own):
                self.add_answer(name, answer)
        default = object_at(test, "options").get("provider")
        for assertion in _flat(test.get("assert"), templates):
            type_ = text_of(assertion.get("type")).removeprefix("not-")
            if type_ in JUDGED:
                graders = (_grader(value, "text") for value in (assertion.get("provider"), default))
                if any(graders):
                    self.judge(assertion.get("provider"), default)
                else:
                    self._add_default_grader()
            elif type_ in EMBEDDED:
                with suppress(NoCounterpart):  # reported when the test is read
                    self.embedder(assertion.get("provider"), default)

    def _add_default_grader(self) -> None:
        model = next((model for variable, model in _GRADERS.items() if variable in self._variables), "")
        if model and all(entry["name"] != _DEFAULT_GRADER for entry in self.entries):
            entry = target_entry(model, self._files.folder, self._lose, self._variables)
            self.entries.append({"name": _DEFAULT_GRADER, **entry})


def _is_plain_chat(prompt: PromptTemplate) -> bool:
    """Whether the JSON of the messages is the text of the prompt: a list of roles and texts."""
    if not prompt.messages or not prompt.text.lstrip().startswith(("[", "{")):
        return False
    chat = json.loads(prompt.text)
    return isinstance(chat, list) and all(
        list(message) == ["role", "content"] and isinstance(message["content"], str) for message in chat
    )


def _label_of(provider: Any) -> str:
    """Return the label of a provider, or else its id."""
    label = provider.get("label") if isinstance(provider, dict) else ""
    return text_of(label) or provider_name(provider) or text_of(provider)[:80]


def _shown(provider: Any) -> str:
    """Return the label and the id of a provider, for messages."""
    names = [text_of(provider.get(key)) for key in ("label", "id")] if isinstance(provider, dict) else []
    return " = ".join(filter(None, names)) or text_of(provider)[:80]


def _flat(assertions: Any, templates: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for assertion in assertions if isinstance(assertions, list) else ():
        if isinstance(assertion, dict):
            name = text_of(assertion.get("$ref")).removeprefix("#/assertionTemplates/")
            template = templates.get(name)
            assertion = {**template, **assertion} if isinstance(template, dict) else assertion
            yield assertion
            yield from _flat(assertion.get("assert"), templates)


def _grader(value: Any, use: str) -> Any:
    """Return the provider for a use: `{text: …, embedding: …}` has one for each."""
    if is_blank(value):
        return None
    if isinstance(value, dict) and "id" not in value and ({"text", "embedding", "classification"} & value.keys()):
        return value.get(use)
    return value
