"""Write the pages of docs/reference and the tables of differences: `python docs/generate.py`."""

from __future__ import annotations

from agentv.registry import EXTENSIONS
from writing import peer_differences
from writing.markup import DOCS
from writing.reference import NOTE, pages


def main() -> None:
    """Replace every generated page and table."""
    folder = DOCS / "reference"
    texts = pages()
    for page in folder.rglob("*.md"):
        if page.read_text(encoding="utf-8").startswith(NOTE):
            page.unlink()
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    tables = peer_differences.pages()
    if "interop" in EXTENSIONS:
        from writing import agentv_commands  # late: it imports the extension

        tables |= agentv_commands.pages()
    for path, text in tables.items():
        path.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
