"""Choose the marks of emphasis and strong emphasis that form next to each other, as mdast-util-to-markdown does."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field

_WORD, _BLANK, _PUNCTUATION = range(3)


@dataclass(eq=False, slots=True)
class Attention:
    """Emphasis, whose marks are chosen later: the preferred ones, or those with underscores."""

    children: list[Item]
    size: int

    @property
    def sequences(self) -> tuple[str, str]:
        """The marks that can be used, in order of preference."""
        return "*" * self.size, "_" * self.size


Item = str | Attention
_Marks = dict[Attention, str]


@dataclass(eq=False, slots=True)
class _Token:
    """A text, or one of the two marks of an emphasis."""

    value: str
    attention: Attention | None = None


@dataclass(slots=True)
class _Run:
    """Marks next to each other with the same character. Those from `start` to `end` are not used."""

    tokens: list[_Token]
    opens: bool
    closes: bool
    markers: list[_Token] = field(default_factory=list)
    start: int = 0
    end: int = 0


def write_items(items: list[Item], before: str, after: str) -> str:
    """Return texts and emphasis as Markdown, between two characters."""
    marks: _Marks = {}
    _guess(items, marks, before, after)
    tokens = (_fix(items, marks, before, after) if marks else None) or _fix(items, {}, before, after)
    return "".join(token.value for token in tokens or _render(items, {}, before, after))


def _guess(items: list[Item], marks: _Marks, before: str, after: str) -> None:
    """Prefer another mark where one would touch the same mark, except for `***a***`."""
    previous = before
    for place, item in enumerate(items):
        if isinstance(item, str):
            previous = ""
            continue
        following = after if place == len(items) - 1 else ""
        is_only_and_longer = len(items) == 1 and item.size > len(before)
        free = (mark for mark in item.sequences if mark[0] not in (previous[:1], following[:1]) or is_only_and_longer)
        sequence = next(free, item.sequences[0])
        if sequence != item.sequences[0]:
            marks[item] = sequence
        _guess(item.children, marks, sequence, sequence)
        previous = sequence


def _fix(items: list[Item], marks: _Marks, before: str, after: str) -> list[_Token] | None:
    """Change marks until all emphasis forms; return None if that is not possible."""
    tokens = _render(items, marks, before, after)
    mistake = _mistake(tokens, before, after)
    while mistake:
        place, candidates = mistake
        trials = (
            {**marks, item: sequence}
            for item in candidates
            for sequence in item.sequences
            if sequence != marks.get(item, item.sequences[0])
        )
        for trial in trials:
            tokens = _render(items, trial, before, after)
            following = _mistake(tokens, before, after)
            if following is None or following[0] > place:
                marks, mistake = trial, following
                break
        else:
            return None
    return tokens


def _render(items: list[Item], marks: _Marks, before: str, after: str) -> list[_Token]:
    """Return the tokens, with references for characters that would keep a mark from forming."""
    tokens: list[_Token] = []
    encoded, previous = "", before[-1:]
    for place, item in enumerate(items):
        if isinstance(item, str):
            tokens.append(_Token(item))
            if encoded and encoded == item[:1]:
                _encode(tokens[-1:], at_start=True)
            encoded = ""
            previous = tokens[-1].value[-1:] or previous
            continue
        sequence = marks.get(item, item.sequences[0])
        outside = _first(items[place + 1], marks) if place + 1 < len(items) else after[:1]
        inside = _render(item.children, marks, sequence, sequence)
        encodes_before, encodes_first = _encodes(previous, inside[0].value[:1], sequence[0])
        if encodes_first:
            _encode(inside, at_start=True)
        encodes_after, encodes_last = _encodes(outside, inside[-1].value[-1:], sequence[0])
        if encodes_last:
            _encode(inside, at_start=False)
        if encodes_before and previous not in ("\n", "\r"):
            _encode(tokens, at_start=False)
        encoded = outside if encodes_after else encoded
        tokens += [_Token(sequence, item), *inside, _Token(sequence, item)]
        previous = sequence[-1]
    return tokens


def _first(item: Item, marks: _Marks) -> str:
    return item[:1] if isinstance(item, str) else marks.get(item, item.sequences[0])[:1]


def _encodes(outside: str, inside: str, marker: str) -> tuple[bool, bool]:
    """Return whether the characters outside and inside of a mark must be references."""
    outer, inner = _kind(outside), _kind(inside)
    if outer == _WORD:
        return (marker == "_", marker == "_") if inner == _WORD else (True, inner == _BLANK)
    return outer == inner == _BLANK, inner == _BLANK


def _kind(character: str) -> int:
    if character.isspace():
        return _BLANK
    return _PUNCTUATION if character and unicodedata.category(character)[0] in "PS" else _WORD


def _encode(tokens: list[_Token], *, at_start: bool) -> None:
    """Write the first or last character of tokens as a reference, if it is text."""
    token = tokens[0 if at_start else -1] if tokens else None
    if token is None or token.attention is not None or not token.value:
        return
    if at_start:
        token.value = f"&#x{ord(token.value[0]):X};{token.value[1:]}"
        return
    rest = token.value[:-1]
    escape = "\\" if (len(rest) - len(rest.rstrip("\\"))) % 2 else ""
    token.value = f"{rest}{escape}&#x{ord(token.value[-1]):X};"


def _mistake(tokens: list[_Token], before: str, after: str) -> tuple[int, list[Attention]] | None:
    """Return the place of the first mark that does not form its emphasis, and the emphases to change for it."""
    runs = list(_runs(tokens, before, after))
    wrong = {token: list(run.tokens) for run in runs for token in run.tokens}
    _pair(runs, wrong)
    place = next((place for place, token in enumerate(tokens) if token in wrong), None)
    if place is None:
        return None
    involved = {token.attention for token in wrong[tokens[place]]}
    related = {
        one.attention for run in runs if any(token.attention in involved for token in run.tokens) for one in run.tokens
    }
    ordered = dict.fromkeys(token.attention for token in tokens if token.attention in related)
    return place, [attention for attention in reversed(ordered) if attention is not None]


def _runs(tokens: list[_Token], before: str, after: str) -> Iterator[_Run]:
    place = 0
    while place < len(tokens):
        start, marker = place, tokens[place].value[:1]
        place += 1
        if tokens[start].attention is None:
            continue
        while place < len(tokens) and tokens[place].attention is not None and tokens[place].value[:1] == marker:
            place += 1
        previous = _kind((tokens[start - 1].value if start else before)[-1:])
        following = _kind((tokens[place].value if place < len(tokens) else after)[:1])
        opens = following == _WORD or (following == _PUNCTUATION and previous != _WORD)
        closes = previous == _WORD or (previous == _PUNCTUATION and following != _WORD)
        if marker == "_":
            opens, closes = opens and (previous != _WORD or not closes), closes and (following != _WORD or not opens)
        run = _Run(tokens[start:place], opens, closes)
        run.markers = [token for token in run.tokens for _ in token.value]
        run.end = len(run.markers)
        yield run


def _pair(runs: list[_Run], wrong: dict[_Token, list[_Token]]) -> None:
    """Pair marks as CommonMark does, and remove those from `wrong` that form their emphasis."""
    waiting: dict[str, list[_Run]] = {"*": [], "_": []}
    for closer in runs:
        openers = waiting[closer.tokens[0].value[0]]
        place = len(openers) if closer.closes else 0
        while place and closer.start < closer.end:
            place -= 1
            opener = openers[place]
            sizes = opener.end - opener.start, closer.end - closer.start
            if (opener.closes or closer.opens) and sizes[1] % 3 and not sum(sizes) % 3:
                continue
            size = 2 if min(sizes) > 1 else 1
            opening = opener.markers[opener.end - size : opener.end]
            closing = closer.markers[closer.start : closer.start + size]
            pair = (opening[0], closing[0])
            is_whole = all(len(token.value) == size for token in pair)
            is_one = opening[0] is opening[-1] and closing[0] is closing[-1]
            if is_whole and is_one and pair[0].attention is pair[1].attention:
                wrong.pop(pair[0], None)
                wrong.pop(pair[1], None)
            else:
                involved = list(dict.fromkeys((*opening, *closing)))
                for token in involved:
                    wrong.get(token, []).extend(involved)
            opener.end -= size
            closer.start += size
            if opener.start == opener.end:
                del openers[place]
            place = len(openers)
        if closer.opens and closer.start < closer.end:
            openers.append(closer)
