"""The settings of a JavaScript target: a provider of promptfoo, a class with the method `callApi`."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from agentv.errors import UsageError
from agentv.model.message import ChatFormat
from agentv.model.response import Responder
from agentv.targets.target import OTHER_TOOLS, Target
from agentv.trust.inventory import NamedUse


class JavaScriptTarget(Target, frozen=True, kw_only=True):
    """A provider of promptfoo in a JavaScript or TypeScript file, run with Node.js.

    The file exports a class: `new Provider(options)` is called once, and `callApi(prompt, context)` for each case. It
    returns `{output}` or `{error}`, and optionally `tokenUsage` and `cost`. `options` has `id` and `config`. With
    `chat_format: json`, the prompt is the JSON list of the messages. For embeddings, `callEmbeddingApi(text)` returns
    `{embedding}`.
    """

    unsupported: ClassVar[dict[str, str]] = {key: hint for key, hint in OTHER_TOOLS.items() if key != "config"}
    responder: ClassVar[str] = "agentv.extensions.javascript.javascript_provider:ProviderResponder"

    file: str
    """JavaScript or TypeScript file next to the targets file, which exports the class."""

    id: str | None = None
    """Id that the class receives (default: `file`)."""

    config: dict[str, Any] = {}
    """Data that the function or class receives in its `options`, as `{"config": …}`."""

    chat_format: ChatFormat = "text"
    """Form of a prompt with several messages: `text` with a heading for each, or `json`, the list of all messages."""

    @classmethod
    def uses(cls, settings: Mapping[str, Any]) -> Iterable[NamedUse]:
        """Return the file."""
        return (("code", str(settings["file"])),) if settings.get("file") else ()

    def open_embeddings(self, home: str) -> Responder:
        """Open the provider for embeddings. Raises UsageError without the program that runs it."""
        return self.responder_class(self, home, embeds=True)

    def files_named(self, home: str, folders: Sequence[str]) -> Iterable[str]:  # noqa: ARG002
        """Return the provider's file."""
        return (os.path.join(home, self.file),)

    def check_ready(self, home: str) -> None:
        """Raise UsageError if the file does not exist."""
        path = os.path.join(home, self.file)
        if not os.path.isfile(path):
            raise UsageError(f"Target '{self.name}': the file {self.file} was not found", f"Looked for {path}")
