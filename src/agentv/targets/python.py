"""The Python target: a user's function."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any, ClassVar

import msgspec

from agentv.model.message import ChatFormat
from agentv.model.response import Responder
from agentv.settings.environment import REFERENCE
from agentv.support.hashes import file_of
from agentv.support.user_code import UninspectableError, built, import_reference, is_plain_function
from agentv.targets.target import COMMON_ALIASES, Target
from agentv.trust.inventory import NamedUse

_FUNCTION = re.compile(r"(.+\.py|[^\W\d][\w.]*):[^\W\d][\w.]*")


class PythonTarget(Target, frozen=True, kw_only=True):
    """A sync or async function, as `module:name` or `file.py:name`; `name` may be a method, such as `agent.ask`.

    Its parameters may be `messages`, `prompt`, `case`, `variables` and `trial`; one parameter with any other name gets
    the prompt. A function for embeddings takes `texts` and returns a vector for each. With `chat_format: json`, the
    prompt is the JSON list of the messages. A parameter `options` receives `{"config": …}`, as in promptfoo; then
    `output` in the object that the function returns may be text or data.
    """

    aliases: ClassVar[dict[str, str]] = {**COMMON_ALIASES, "callable": "function"}

    function: str
    """`file.py:name` next to the targets file, or `module:name`."""

    chat_format: ChatFormat = "text"
    """Form of a prompt with several messages: `text` with a heading for each, or `json`, the list of all messages."""

    config: dict[str, Any] | None = None
    """Data that the function or class receives in its `options`, as `{"config": …}`."""

    @classmethod
    def uses(cls, settings: Mapping[str, Any]) -> Iterable[NamedUse]:
        """Return the function."""
        return (("code", str(settings["function"])),) if settings.get("function") else ()

    def open(self, home: str) -> Responder:
        """Import the function, whose file is relative to `home`. A class is instantiated once."""
        try:
            call = import_reference(self.function, home)
        except UninspectableError:
            call = _unknown
        if isinstance(call, type):
            call = built(call, self.function, home)
        target = FunctionTarget(name=self.name, provider=self.provider, call=call, reference=self.function)
        return msgspec.structs.replace(target, chat_format=self.chat_format, config=self.config).open(home)

    def open_embeddings(self, home: str) -> Responder:
        """Open the function, which must return vectors."""
        return self.open(home)

    def files_named(self, home: str, folders: Sequence[str]) -> Iterable[str]:  # noqa: ARG002
        """Return the function's file."""
        path = file_of(self.function, home)
        return () if path is None else (path,)

    def complaints(self) -> list[str]:
        """Check the form of the function's name."""
        if _FUNCTION.fullmatch(self.function) or REFERENCE.search(self.function):
            return []
        return [f"'function' must have the form 'module:name' or 'file.py:name', got '{self.function}'"]


def _unknown(prompt: str) -> str:
    """Take the place of a function whose parameters are not known, while nothing may be imported."""
    raise NotImplementedError(prompt)


class FunctionTarget(Target, frozen=True, kw_only=True):
    """A function object, for `agentv.evaluate`. Other processes can use it only if it can be pickled."""

    responder: ClassVar[str] = "agentv.targets.python_call:FunctionResponder"

    call: Callable[..., Any]
    reference: str = ""
    chat_format: ChatFormat = "text"
    config: dict[str, Any] | None = None

    def files_named(self, home: str, folders: Sequence[str]) -> Iterable[str]:  # noqa: ARG002
        """Return the function's file."""
        return (self.call.__code__.co_filename,) if isinstance(self.call, FunctionType) else ()

    @property
    def has_stable_fingerprint(self) -> bool:
        """True for a plain function in a file; objects, methods and closures may have state."""
        return is_plain_function(self.call)
