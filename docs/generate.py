"""Write the pages of docs/reference from the commands, the key structs and the registry: `python docs/generate.py`."""

from __future__ import annotations

from writing.markup import DOCS
from writing.reference import NOTE, pages


def main() -> None:
    """Replace every generated page."""
    folder = DOCS / "reference"
    for page in folder.rglob("*.md"):
        if page.read_text(encoding="utf-8").startswith(NOTE):
            page.unlink()
    for name, text in pages().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
