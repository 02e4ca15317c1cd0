"""Text from models is escaped on a terminal and in Markdown."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from agentv.report.figures import cell, code, excerpt, fenced, lines, markdown, one_line, usd, visible
from agentv.report.target_facts import columns
from agentv.runs.target_summary import TargetSummary

HOSTILE = {
    "a script": "<script>alert(1)</script>",
    "colours": "\x1b[31mred\x1b[0m",
    "a title": "\x1b]0;title\x07",
    "a line drawn over": "good\rbad",
    "a backspace": "a\x08b",
    "an override": "a\u202eb\u2066c",
    "hidden tags": "a\U000e0041\U000e0042",
    "half a pair": "broken \ud83d here",
    "a link": "[x](javascript:alert(1)) https://example.org www.example.org",
    "a mention": "@everyone #12 !5",
    "a table": "a | b \\| c",
    "backticks": "`` ` ``` x `",
    "a heading": "# title\n- item\n> quote\n\n---\n1. one",
    "an entity": "&lt;b&gt; &amp; &copy;",
    "emphasis": "*a* _b_ ~~c~~ **d**",
    "right to left": "שלום עולם مرحبا",
    "an image": "![x](http://127.0.0.1/x.png)",
}
texts = st.text(st.characters(codec=None) | st.sampled_from("`|*_<>[]()#@&\\\n\x1b\u202e\ud800"), max_size=60)
reader = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def shown(source):
    """What a reader of Markdown sees: the text of all that was parsed, and the kinds of markup in it."""
    found, kinds = [], set()
    for token in reader.parse(source):
        for part in [token, *(token.children or [])]:
            if part.type in ("text", "code_inline", "fence", "html_inline", "html_block", "text_special"):
                found.append(part.content)
            kinds.add(part.type)
    return "".join(found), kinds


def acts(text):
    return [
        c for c in text if (unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t") or c in "\u202e\u2066\u200e"
    ]


@given(texts)
def test_visible_text_has_no_control_characters(text):
    for safe in (visible(text), one_line(text, 30), *lines(text, 3, 20), excerpt(text, 20)):
        assert acts(safe) == []
        safe.encode()


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_is_escaped(text):
    for safe in (visible(text), markdown(text, 99), code(text, 99), cell(text, 99), fenced(text, 99)):
        assert acts(safe) == []


def test_only_control_characters_are_escaped():
    assert visible("a\x1b[31mb\u202ec\r\nd\te") == "a\\x1b[31mb\\u{202e}c\nd\te"
    assert visible("half \ud83d pair") == "half \ufffd pair"
    assert visible("👩‍🚀 می‌خواهم שלום") == "👩‍🚀 می‌خواهم שלום"
    assert one_line("a\x1b]0;title\x07b\u202ec\r\nd", 40) == "a\\x1b]0;title\\x07b\\u{202e}c d"


def test_long_text_is_cut_with_a_note():
    assert one_line("x" * 50, 10) == "xxxxxxxxx…"
    assert excerpt("x" * 1_000_000, 10) == "xxxxxxxxxx… [999,990 more characters]"
    assert lines("x" * 1_000_000, 2, 10) == ["xxxxxxxxx…", "[1,000,000 characters in total]"]
    assert lines("a\nb\nc", 2, 10) == ["a", "b", "[5 characters in total]"]
    assert lines("a\nb", 2, 10) == ["a", "b"]
    assert one_line(" " * 1_000_000 + "x", 10) == "…"


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_markdown_renders_the_exact_text(text):
    line = one_line(text, 200)
    assert shown(code(text, 200)) == (line, {"paragraph_open", "paragraph_close", "inline", "code_inline"})
    found, kinds = shown(markdown(text, 200))
    assert found.replace("\u2060", "") == line
    assert kinds <= {"paragraph_open", "paragraph_close", "inline", "text", "text_special"}
    found, kinds = shown(fenced(text, 200))
    assert (found, kinds) == (excerpt(text, 200) + "\n", {"fence"})


@given(texts)
def test_markdown_is_never_markup(text):
    line = one_line(text, 200)
    found, kinds = shown(markdown(text, 200))
    assert found.replace("\u2060", "").strip() == line.replace("\u2060", "").strip()
    assert kinds <= {"paragraph_open", "paragraph_close", "inline", "text", "text_special"}
    assert shown(fenced(text, 200))[1] == {"fence"}
    if line:
        assert shown(code(text, 200))[0].strip() == line


@given(texts)
def test_a_cell_stays_one_cell(text):
    # Split a row at its pipes; markdown-it reads `\|` as a pipe inside a cell, as GitHub does.
    table = f"| a | b |\n|---|---|\n| {cell(text, 200)} | end |\n"
    tokens = reader.parse(table)
    assert [token.type for token in tokens].count("td_open") == 2
    cells = [token.content for token in tokens if token.type == "inline"]
    assert cells[3] == "end"
    assert shown(table)[0].startswith("ab")


def test_mentions_links_and_lists_are_broken():
    assert "@" not in re.sub("&#64;\u2060", "", markdown("@someone", 50))
    assert "www." not in markdown("www.example.org", 50)
    assert "http:" not in markdown("http://example.org", 50)
    assert markdown("- item", 50).startswith("\u2060")
    assert code("", 10) == code(" \n", 10) == ""


@pytest.mark.parametrize("table", ["terminal", "markdown", "list"])
def test_the_cost_of_a_target_includes_its_judges_in_every_table(table):
    target = TargetSummary(
        cases=1, jobs=1, scored=1, errors=0, unscored=0, skipped=0, cost_usd=0.25, judge_cost_usd=0.5
    )
    assert columns(table, target)["total_cost_usd"] == usd(0.75)
