"""An HTML page from a Markdown report of a comparison: one file, without scripts, that opens offline."""

from __future__ import annotations

import base64
import hashlib
from html import escape

from agentv.report.figures import one_line

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; margin: 1rem 0; }
th, td { border: 1px solid #8886; padding: 0.25rem 0.6rem; text-align: left; }
pre { background: #8881; padding: 0.6rem; overflow-x: auto; border-radius: 6px; }
code { font-size: 0.92em; overflow-wrap: anywhere; }
blockquote { margin: 0.5rem 0; padding: 0.2rem 0.8rem; border-left: 4px solid #c90; }
h3 { font-size: 1.5rem; }
"""
_POLICY = "default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'"


def markdown_page(title: str, text: str) -> str:
    """Return a page with a report, whose user text is escaped for Markdown. The policy of the page blocks scripts."""
    from markdown_it import MarkdownIt  # late: only `--html` needs it

    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    body = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY.format(hash=digest)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(one_line(title, 120))}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n{body}</body>\n</html>\n"
    )
