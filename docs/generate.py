"""Writes the pages of docs/reference from the commands, the key structs and the registry: `python docs/generate.py`."""

from __future__ import annotations

from writing.markup import DOCS
from writing.reference import pages


def main() -> None:
    """Writes the pages where the repository has them."""
    for name, text in pages().items():
        path = DOCS / "reference" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
