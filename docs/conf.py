"""Configure the documentation site. The Markdown files stay plain: navigation is derived from docs/index.md."""

from __future__ import annotations

import re
from pathlib import Path

from pygments.lexers.data import JsonLexer
from sphinx.application import Sphinx

REPOSITORY = Path(__file__).resolve().parent.parent

project = "agentv"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/*.md",
    "docs/**/*.md",
    "examples/*/README.md",
    "bench/README.md",
    "packages/*/README.md",
]
exclude_patterns = [".*"]
myst_heading_anchors = 4
suppress_warnings = ["misc.highlighting_failure"]  # no lexer for tables
html_theme = "furo"
html_title = "agentv"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False

_HEADING = re.compile(r"^##+ (?P<title>.*)$", re.MULTILINE)
_PAGE = re.compile(r"^\|[^|]*\]\((?P<page>[\w/-]+)\.md\)", re.MULTILINE)
_DATA_LINK = re.compile(r"\[(?P<text>`[^`]+`)\]\((?!\.\./)[^)]+\.md\)")
_PROJECT_PAGES = [
    "README",
    "CHANGELOG",
    "DECISIONS",
    "CONTRIBUTING",
    "SECURITY",
    "RELEASING",
    "examples/*/README",
    "bench/README",
    "packages/*/README",
]


def _toctree(caption: str, pages: list[str]) -> str:
    title = f":caption: {caption}\n" if caption else ""
    return "\n\n```{toctree}\n:hidden:\n:glob:\n" + title + "\n".join(["", *pages]) + "\n```\n"


def _index_navigation(text: str) -> str:
    """Return a toctree for each section of the index, with the pages in the order of its tables."""
    _, *parts = _HEADING.split(text)
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    trees = [_toctree("", ["tutorial"])]
    trees += [_toctree(title, pages) for title, body in sections.items() if (pages := _PAGE.findall(body))]
    return "".join([*trees, _toctree("Project", [f"/{page}" for page in _PROJECT_PAGES])])


def _add_navigation(_app: Sphinx, name: str, source: list[str]) -> None:
    """Add toctrees to the pages that list others, and drop links to Markdown files that are data of an example."""
    if name == root_doc:
        source[0] += _index_navigation(source[0])
    elif (REPOSITORY / name).is_dir():
        source[0] += _toctree("", [f"{Path(name).name}/*"])
    elif name.startswith("examples/"):
        source[0] = _DATA_LINK.sub(r"\g<text>", source[0])


def _add_start_page(app: Sphinx, error: Exception | None) -> None:
    """Redirect the root of the site to the index of the documentation."""
    if error is None:
        start = f'<!doctype html><meta http-equiv="refresh" content="0; url={root_doc}.html"><title>agentv</title>'
        (Path(app.outdir) / "index.html").write_text(start, encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Register the hooks."""
    app.add_lexer("jsonl", JsonLexer)
    app.connect("source-read", _add_navigation)
    app.connect("build-finished", _add_start_page)
