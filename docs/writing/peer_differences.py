"""The tables of differences in the migration pages, from the entries that explain the records of other tools."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from writing.markup import DOCS, Lines, cell

ENTRIES = DOCS.parent / "tests" / "data" / "peers" / "differences.toml"
PAGES = {
    "how-to/migrating-from-promptfoo.md": ("promptfoo", "promptfoo"),
    "how-to/migrating-from-agentv.md": ("agentv_ts", "AgentV (TypeScript)"),
}
"""The tool of each page with a table: its name in the entries, and in the text."""

_TABLE = re.compile(r"(?P<start><!-- Written by docs/generate\.py from \S+\. -->\n)[\s\S]*?(?P<end><!-- end -->)")


def pages() -> dict[Path, str]:
    """Return the text of each page, with its table up to date."""
    entries = tomllib.loads(ENTRIES.read_text(encoding="utf-8"))["difference"]
    texts = {}
    for name, (tool, title) in PAGES.items():
        table = "\n".join(_table(title, [entry for entry in entries if entry["tool"] == tool]))
        texts[DOCS / name] = with_table((DOCS / name).read_text(encoding="utf-8"), table)
    return texts


def with_table(text: str, table: str) -> str:
    """Return a page with its generated table replaced."""
    if not _TABLE.search(text):
        raise ValueError("The page has no place for a generated table")
    return _TABLE.sub(lambda match: f"{match['start']}\n{table}\n\n{match['end']}", text)


def _table(title: str, entries: list[dict[str, Any]]) -> Lines:
    """Yield a row for each difference; entries with the same texts are one."""
    rows = dict.fromkeys(f"| {cell(e['theirs'])} | {cell(e['ours'])} | {cell(e['reason'])} |" for e in entries)
    yield from (f"| {title} | agentv | why |", "|---|---|---|", *rows)
