"""The Python target: a function of the user's that answers."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType
from typing import Any, ClassVar

from agentv.model.response import Responder
from agentv.settings.environment import REFERENCE
from agentv.support.hashes import file_of
from agentv.support.user_code import built, import_reference
from agentv.targets.target import COMMON_ALIASES, Target

_FUNCTION = re.compile(r"(.+\.py|[^\W\d][\w.]*):[^\W\d][\w.]*")


class PythonTarget(Target, frozen=True, kw_only=True):
    """A function, plain or async, named as `module:name` or `file.py:name`; `name` may lead to a method: `agent.ask`.

    It may take `messages`, `prompt`, `case`, `variables` and `trial` by name; one other parameter gets the prompt. One
    that makes embeddings takes `texts` and returns a vector for each.
    """

    aliases: ClassVar[dict[str, str]] = {**COMMON_ALIASES, "callable": "function"}

    function: str

    def open(self, home: str) -> Responder:
        """Import the function, its file relative to `home`. A class is made into an object, once."""
        call = import_reference(self.function, home)
        if isinstance(call, type):
            call = built(call, self.function, home)
        return FunctionTarget(name=self.name, provider=self.provider, call=call, reference=self.function).open(home)

    def open_embeddings(self, home: str) -> Responder:
        """The same function, which returns vectors."""
        return self.open(home)

    def files_named(self, home: str, folders: Sequence[str]) -> Iterable[str]:  # noqa: ARG002
        """The file of the function."""
        found = file_of(self.function, home)
        return () if found is None else (found,)

    def complaints(self) -> list[str]:
        """A function named in no known form."""
        if _FUNCTION.fullmatch(self.function) or REFERENCE.search(self.function):
            return []
        return [f"'function' must be of the form 'module:name' or 'file.py:name', got '{self.function}'"]


class FunctionTarget(Target, frozen=True, kw_only=True):
    """A function itself instead of its name, for `agentv.evaluate`. It travels only where the function can."""

    responder: ClassVar[str] = "agentv.targets.python_call:FunctionResponder"

    call: Callable[..., Any]
    reference: str = ""

    def files_named(self, home: str, folders: Sequence[str]) -> Iterable[str]:  # noqa: ARG002
        """The file that the function is written in."""
        return (self.call.__code__.co_filename,) if isinstance(self.call, FunctionType) else ()

    @property
    def has_stable_fingerprint(self) -> bool:
        """Not for what carries values of its own, as objects, methods and closures do, nor for what is in no file."""
        call = self.call
        return isinstance(call, FunctionType) and not call.__closure__ and os.path.isfile(call.__code__.co_filename)
