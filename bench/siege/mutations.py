"""Change valid inputs at one to four places: other types, missing keys, swapped values, pieces of other inputs.

The result is valid JSON, YAML, CSV or a spreadsheet, so that a reader gets past its first check.
"""

from __future__ import annotations

import copy
import csv
import io
import json
import re
import zipfile
from collections.abc import Callable, Iterator
from random import Random
from typing import Any
from xml.etree import ElementTree

VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 1.5, 1e308, 10**30, "", " ", "x", "0", "null", "é\u2028", "x" * 5000, "{{x}}", "../x",
    "2026-11-16T00:00:00Z", [], {}, [None], [[]], [{}], ["x"], {"": None}, {"role": "user"}, {"x": []}, {"text": {}},
    [1, "x", None], [[[[[[[[]]]]]]]],
)  # fmt: skip
_TOKEN = re.compile(r"\w+|\s+|.", re.DOTALL)
_MOST_CHANGES = 4

Place = tuple[Any, Any]
"""A container and the key or index of one of its values."""


class Mutator:
    """Changes inputs at random. It collects keys and values of all inputs, to put them where they do not belong."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self._keys: list[str] = ["id", "input", "type", "content"]
        self._pieces: list[Any] = list(VALUES)

    def learn(self, data: bytes, name: str) -> None:
        """Collect the keys and values of an input."""
        for container, key in _places([_parsed(data, _form(name))]):
            if isinstance(key, str):
                self._keys.append(key)
            self._pieces.append(container[key])

    def changed(self, data: bytes, name: str) -> bytes:
        """Return a changed input of the kind that its file name tells."""
        if name.endswith((".xlsx", ".ods")):
            return self._archive(data)
        form = _form(name)
        tree = [_parsed(data, form)]
        if tree == [None] or form == "text":
            return self._text(data)
        for _ in range(self.random.randint(1, _MOST_CHANGES)):
            self._change(tree)
        return _dumped(tree[0] if tree else None, form)

    def _change(self, tree: list[Any]) -> None:
        places = list(_places(tree))
        if not places:
            return
        container, key = self.random.choice(places)
        value = container[key]
        if isinstance(value, str) and value[:1] in ("[", "{") and self.random.random() < 0.5:
            container[key] = self._inside(value)
            return
        changes: tuple[Callable[[], Any], ...] = (
            lambda: copy.deepcopy(self.random.choice(VALUES)),
            lambda: copy.deepcopy(self.random.choice(self._pieces)),
            lambda: [value],
            lambda: {self.random.choice(self._keys): value},
            lambda: next(iter(value.values() if isinstance(value, dict) else value), None)
            if isinstance(value, list | dict) else str(value),
        )  # fmt: skip
        draw = self.random.random()
        if draw < 0.2 and container is not tree:
            del container[key]
        elif draw < 0.3 and isinstance(container, dict):
            container[self.random.choice(self._keys)] = container.pop(key)
        elif draw < 0.4 and isinstance(container, dict):
            container[self.random.choice(self._keys)] = copy.deepcopy(self.random.choice(self._pieces))
        elif draw < 0.5 and isinstance(container, list) and container is not tree:
            container.insert(key, copy.deepcopy(value))
        elif draw < 0.6:
            other, place = self.random.choice(places)
            container[key], other[place] = copy.deepcopy(other[place]), copy.deepcopy(value)
        else:
            container[key] = self.random.choice(changes)()

    def _inside(self, text: str) -> Any:
        """Change JSON that is a text in another document."""
        try:
            tree = [json.loads(text)]
        except ValueError:
            return text[: len(text) // 2]
        self._change(tree)
        return json.dumps(tree[0] if tree else None)

    def _text(self, data: bytes) -> bytes:
        tokens = _TOKEN.findall(data.decode("utf-8", "replace")) or ["x"]
        for _ in range(self.random.randint(1, _MOST_CHANGES)):
            place = self.random.randrange(len(tokens))
            piece = str(self.random.choice(self._pieces))[:200]
            tokens[place : place + self.random.randint(0, 3)] = self.random.choice(
                [[], [piece], tokens[place : place + 2] * 2, [self.random.choice(tokens)]]
            )
            tokens = tokens or ["x"]
        return "".join(tokens).encode("utf-8", "replace")

    def _archive(self, data: bytes) -> bytes:
        """Change the elements and attributes of one XML file of a spreadsheet."""
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        chosen = self.random.choice([name for name in files if name.endswith((".xml", ".rels"))])
        root = ElementTree.fromstring(files[chosen])
        for _ in range(self.random.randint(1, _MOST_CHANGES)):
            self._change_element(root)
        files[chosen] = ElementTree.tostring(root)
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return stream.getvalue()

    def _change_element(self, root: ElementTree.Element) -> None:
        element = self.random.choice(list(root.iter()))
        value = self.random.choice(["", "0", "-1", "x", "XFD1048576", "A99999999999", "1e999", "s", "9" * 30, "é"])
        draw = self.random.random()
        if draw < 0.4 and element.attrib:
            element.set(self.random.choice(list(element.attrib)), value)
        elif draw < 0.6:
            element.text = value
        elif draw < 0.8 and len(element):
            element.remove(self.random.choice(list(element)))
        else:
            element.append(copy.deepcopy(self.random.choice(list(root.iter()))))


def _form(name: str) -> str:
    suffix = name.rpartition(".")[2].lower().replace("yml", "yaml")
    return suffix if suffix in ("json", "jsonl", "yaml", "csv", "tsv") else "text"


def _parsed(data: bytes, form: str) -> Any:
    """Return an input as a tree; None if it is not valid."""
    try:
        text = data.decode("utf-8-sig")
        if form == "json":
            return json.loads(text)
        if form == "jsonl":
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        if form == "yaml":
            import yaml

            return yaml.safe_load(text)
        if form in ("csv", "tsv"):
            return list(csv.reader(io.StringIO(text), delimiter="," if form == "csv" else "\t"))
    except Exception:
        return None
    return None


def _dumped(tree: Any, form: str) -> bytes:
    if form == "jsonl":
        rows = tree if isinstance(tree, list) else [tree]
        return b"\n".join(json.dumps(row, default=str).encode() for row in rows) + b"\n"
    if form == "yaml":
        import yaml

        return yaml.safe_dump(json.loads(json.dumps(tree, default=str)), sort_keys=False).encode()
    if form in ("csv", "tsv"):
        stream = io.StringIO()
        rows = [row if isinstance(row, list) else [row] for row in (tree if isinstance(tree, list) else [tree])]
        csv.writer(stream, delimiter="," if form == "csv" else "\t").writerows(rows)
        return stream.getvalue().encode("utf-8", "replace")
    return json.dumps(tree, default=str).encode()


def _places(tree: Any) -> Iterator[Place]:
    """Yield all places of a tree, at most a few thousand."""
    pending, count = [tree], 0
    while pending and count < 5000:
        container = pending.pop()
        for key in list(container) if isinstance(container, dict) else range(len(container)):
            yield container, key
            count += 1
            if isinstance(container[key], dict | list):
                pending.append(container[key])
