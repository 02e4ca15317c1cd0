"""The labelling loop: one answer at a time, one key per label, each on disk before the next is shown."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Literal

import click

from agentv.cli import output
from agentv.engine.job.answer import now
from agentv.extensions.judge.label_file import LabelFile
from agentv.extensions.judge.labels import AnswerKey, Card, Drawn, Label, LabelValue
from agentv.report.figures import lines, one_line

try:
    import termios
    import tty

    HAS_TERMIOS = True
except ImportError:  # on Windows, click reads single keys
    HAS_TERMIOS = False

Key = Literal["pass", "fail", "skip", "undo", "quit"]

_QUIT = "q\x03\x04"
_KEYS: dict[str, Key] = {"p": "pass", "f": "fail", "s": "skip", "u": "undo", **dict.fromkeys(_QUIT, "quit")}
_PROMPT = "p pass   f fail   s skip   u undo   q quit > "
_MOST_LINES, _LONGEST_LINE = 60, 400


PassedOver = Callable[[AnswerKey], list[Label]]
"""Returns the labels of answers that were picked on the page and come before an answer in the random order."""


class LabelSession:
    """A labelling session of one person. `drawn` is how the cards were selected."""

    def __init__(
        self, file: LabelFile, *, labeller: str, drawn: Drawn, run_id: str, passed_over: PassedOver = lambda _: []
    ) -> None:
        self._file = file
        self._passed_over = passed_over
        self._labeller = labeller
        self._drawn = drawn
        self._run_id = run_id
        self._interactive = sys.stdin.isatty() and sys.stdout.isatty()
        self._read: Callable[[], str] = _line

    def run(self, cards: list[Card]) -> None:
        """Label cards until all are done or the person quits."""
        with _keys() if self._interactive else nullcontext(_line) as self._read:
            self._label_all(cards)

    def _label_all(self, cards: list[Card]) -> None:
        place = 0
        while place < len(cards):
            self._show(cards[place], place, len(cards))
            if (key := self._read_key()) == "quit":
                return
            if key != "undo":
                self._record(cards[place], key)
                place += 1
            elif place:
                place -= 1
                self._record(cards[place], None)
            else:
                output.echo("Nothing to undo.")

    def _read_key(self) -> Key:
        while True:
            output.echo(_PROMPT, nl=False)
            try:
                typed = self._read()
            except (EOFError, KeyboardInterrupt):
                typed = "q"
            key = _KEYS.get(typed[:1].lower())
            output.echo(key or f"Unknown key {typed!r}")
            if key is not None:
                return key

    def _record(self, card: Card, value: LabelValue | None) -> None:
        session: dict[str, Any] = {
            "drawn": self._drawn,
            "labeller": self._labeller,
            "run_id": card.run_id or self._run_id,
        }
        comment = self._file.labels.comment(card.key, self._labeller)
        label = Label(timestamp=now(), **card.key._asdict(), label=value, comment=comment, **session)
        self._file.add(*(self._passed_over(card.key) if value is not None else ()), label)

    def _show(self, card: Card, place: int, total: int) -> None:
        if self._interactive:
            click.clear()
        output.echo(f"\n{place + 1} of {total}   {one_line(card.key.eval_id, 60)}")
        for title, text in _parts(card):
            output.echo(output.Styled(f"\n{title}", bold=True))
            for line in lines(text, _MOST_LINES, _LONGEST_LINE):
                output.echo(f"  {line}")
        output.echo()


def _parts(card: Card) -> Iterator[tuple[str, str]]:
    """Yield the parts to show, in reading order. Scores, judges and targets are hidden."""
    parts = {
        "Input": card.question,
        "Context": "\n".join(card.context),
        "Expected outcome": card.expected_outcome,
        "Expected output": card.reference,
        "Tool calls": "\n".join(card.calls),
        "Answer": card.answer or "(empty answer)",
    }
    yield from ((title, text) for title, text in parts.items() if text)


@contextmanager
def _keys() -> Iterator[Callable[[], str]]:
    """Read single keys without Enter, and restore the terminal afterwards. Keys typed ahead are kept."""
    if sys.platform == "win32" or not HAS_TERMIOS:
        yield click.getchar
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal, termios.TCSADRAIN)
    try:
        # Read all characters of a key: an arrow key sends several, and the last may look like a label key.
        yield lambda: os.read(terminal, 32).decode(errors="replace")
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _line() -> str:
    """Read a line from a pipe or a file, for labels from a program. A blank line is not a key."""
    if not (line := sys.stdin.readline()):
        raise EOFError
    return line.strip() or " "
