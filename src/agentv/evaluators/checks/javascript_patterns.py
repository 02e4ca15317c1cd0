"""Translate regular expressions of JavaScript to Python. Without the flag `u`, JavaScript matches UTF-16 code units."""

import re

_SPACE = r"\t\n\v\f\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_NO_SPACE = (
    r"\x00-\x08\x0e-\x1f!-\x9f\xa1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e\u2030-\u205e"
    r"\u2060-\u2fff\u3001-\ufefe\uff00-\uffff"
)
_LINE_ENDS = r"\n\r\u2028\u2029"
_TOKEN = re.compile(
    r"""\\k<(?P<reference>[^>]*)>|\\c(?P<control>[A-Za-z])|\\(?P<escape>u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[1-9][0-9]*|.)
    |\((?P<group>\?(?:<[=!]|<[A-Za-z_$][\w$]*>|[:=!]|[\s\S]?))?|(?P<quantifier>[*+?]|\{[0-9]+(?:,[0-9]*)?\})(?P<lazy>\??)
    |(?P<other>[\s\S])""",
    re.VERBOSE | re.DOTALL,
)
_CLASS_ITEM = re.compile(r"\\c([A-Za-z])|\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)|([^\]])", re.DOTALL)
_CLASSES = {
    "d": "0-9",
    "D": r"\x00-/:-\uffff",
    "w": "A-Za-z0-9_",
    "W": r"\x00-/:-@\[-\^`{-\uffff",
    "s": _SPACE,
    "S": _NO_SPACE,
}
"""The characters of each class, in the notation of Python: letters, digits and white space of JavaScript."""

_WORD = "[A-Za-z0-9_]"
_ESCAPES = {
    **{name: f"[{characters}]" for name, characters in _CLASSES.items()},
    "b": f"(?:(?<={_WORD})(?!{_WORD})|(?<!{_WORD})(?={_WORD}))",
    "B": f"(?:(?<={_WORD})(?={_WORD})|(?<!{_WORD})(?!{_WORD}))",
    "0": r"\x00",
}
_IN_CLASS = {**_CLASSES, "b": r"\x08", "0": r"\x00"}
_SAME_ESCAPES = "fnrtv"
_NAMED_CLASS = re.compile(r"\\[dDwWsS]")
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def code_units(text: str) -> str:
    """Return a text with the two code units of each character that UTF-16 writes as a pair."""
    return _ASTRAL.sub(lambda match: "".join(map(chr, _pair(ord(match[0])))), text)


def _pair(code: int) -> tuple[int, int]:
    high, low = divmod(code - 0x10000, 0x400)
    return 0xD800 + high, 0xDC00 + low


def characters(text: str) -> str:
    """Return code units as characters; half a pair becomes a replacement character."""
    joined = _PAIR.sub(lambda match: match[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le"), text)
    return joined.encode("utf-8", "replace").decode("utf-8")


def translated(pattern: str, multiline: bool = False, dot_all: bool = False) -> str:
    """Return the same pattern in Python. Raises ValueError if it is not valid in JavaScript, or only valid there."""
    text, position, parts = code_units(pattern), 0, []
    names = set(re.findall(r"\(\?<([A-Za-z_$][\w$]*)>", text))
    can_repeat = False
    while position < len(text):
        if text[position] == "[":
            part, position = _class(text, position + 1)
            can_repeat = True
        else:
            token = _TOKEN.match(text, position)
            assert token is not None  # any character is a token
            position = token.end()
            if token["quantifier"] and not can_repeat:
                raise ValueError(f"nothing to repeat before '{token[0]}'; JavaScript has no possessive quantifiers")
            part = _part(token, names, multiline, dot_all)
            can_repeat = not token["quantifier"] and token[0] not in "(|^$" and not token["group"]
        parts.append(part)
    return "".join(parts)


def _part(token: re.Match[str], names: set[str], multiline: bool, dot_all: bool) -> str:
    if token["reference"] is not None and token["reference"] in names:
        return f"(?({token['reference']})(?P={token['reference']}))"
    if token["control"]:
        return re.escape(chr(ord(token["control"]) % 32))
    if token["escape"]:
        return _escape(token["escape"])
    if token[0].startswith("("):
        return _group(token["group"] or "")
    if token["quantifier"]:
        return token[0]
    other = token["other"] or token[0]
    if other == "\\":
        raise ValueError("a backslash at the end")
    if other == ".":
        return r"[\s\S]" if dot_all else f"[^{_LINE_ENDS}]"
    if other == "$":
        return f"(?=[{_LINE_ENDS}]|\\Z)" if multiline else r"\Z"
    if other == "^" and multiline:
        return f"(?:(?<=[{_LINE_ENDS}])|\\A)"
    return other if other in "|)^" else "".join(map(re.escape, other))


def _escape(escape: str) -> str:
    if escape in _ESCAPES:
        return _ESCAPES[escape]
    if escape.isdigit():  # a group that did not take part matches nothing here, and the empty text there
        return f"(?({escape})\\{escape})"
    return f"\\{escape}" if len(escape) > 1 or escape in _SAME_ESCAPES else re.escape(escape)


def _group(group: str) -> str:
    if group in ("", "?:", "?=", "?!", "?<=", "?<!"):
        return f"({group}"
    if group.startswith("?<") and group.endswith(">"):
        return f"(?P<{group[2:-1]}>"
    raise ValueError(f"JavaScript has no group that starts with '({group}'")


def _class(text: str, position: int) -> tuple[str, int]:
    """Return a class of characters, and the position after it."""
    negated = text.startswith("^", position)
    position += negated
    items: list[str] = []
    while not text.startswith("]", position):
        if (item := _CLASS_ITEM.match(text, position)) is None:
            raise ValueError("a class of characters without an end")
        # Next to a class such as \\w, a hyphen is a character and makes no range.
        is_hyphen = item[0] == "-" and (_NAMED_CLASS.match(text, position - 2) or _NAMED_CLASS.match(text, item.end()))
        items.append(r"\-" if is_hyphen else _class_item(item))
        position = item.end()
    if not items:
        return (r"[\s\S]" if negated else "(?!)"), position + 1
    return f"[{'^' * negated}{''.join(items)}]", position + 1


def _class_item(item: re.Match[str]) -> str:
    control, escape, character = item.groups()
    if control:
        return f"\\x{ord(control) % 32:02x}"
    if escape in _IN_CLASS:
        return _IN_CLASS[escape]
    if escape and (len(escape) > 1 or escape in _SAME_ESCAPES):
        return f"\\{escape}"
    character = escape or character
    return character if character == "-" and not escape else re.escape(character)
