"""The simulated user: what the model that plays one is asked, and what its reply means. Calls nobody."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import minijinja
import msgspec

from agentv.model.case import SimulatedUser
from agentv.model.message import Message
from agentv.model.response import content_text
from agentv.model.result import Ending

MAX_TURNS = 10

_PROMPT = Path(__file__).with_name("simulated_user.md")
_ENDINGS: dict[str, Ending] = {"GOAL MET": "goal_met", "GIVE UP": "gave_up"}
_MARK = re.compile(r"^[ \t]*\[\[ ?(GOAL MET|GIVE UP) ?\]\][ \t]*$", re.MULTILINE | re.IGNORECASE)
_NAMES = {"user": "You", "assistant": "Assistant"}


class Said(msgspec.Struct, frozen=True):
    """What the simulated user says next, and how the conversation ends with it, if it does."""

    text: str
    ending: Ending | None = None


def asked_of(user: SimulatedUser, conversation: Sequence[Message]) -> tuple[Message, ...]:
    """What the model is asked: its part, then what both have said so far, without tools and instructions."""
    part = _environment().render_template("user", persona=user.persona, goal=user.goal, stop=user.stop)
    said = [
        f"@[{_NAMES[message.role]}]:\n{content_text(message.content)}"
        for message in conversation
        if message.role in _NAMES and message.content not in (None, "", ())
    ]
    so_far = "The conversation so far:\n\n" + "\n\n".join(said) if said else "Nothing has been said yet: you begin."
    return Message("system", part.strip()), Message("user", f"{so_far}\n\nYour next message:")


def read_said(text: str, stop: str | None) -> Said:
    """A reply without its marks. One with `stop` in it ends the conversation too."""
    marks = _MARK.findall(text)
    said = _MARK.sub("", text).strip()
    if marks:
        return Said(said, _ENDINGS[marks[-1].upper()])
    return Said(said, "stop" if stops(said, stop) else None)


def stops(text: str, stop: str | None) -> bool:
    """Whether a message has the words in it that end the conversation."""
    return stop is not None and stop.strip().casefold() in text.casefold()


@cache
def _environment() -> minijinja.Environment:
    template = _PROMPT.read_text(encoding="utf-8")
    # Personas and goals are texts, not markup: they go in as they are, and are not rendered again.
    return minijinja.Environment(
        templates={"user": template}, auto_escape_callback=lambda _: False, trim_blocks=True, lstrip_blocks=True
    )
