"""The HTML page: bundled modules, packed data, and its behaviour in a real Chromium."""

import base64
import json
import re
import zlib
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import pytest

from agentv.report import figures
from agentv.report.formats import write_report
from agentv.report.page_bundle import joined, page_file, page_style
from agentv.runs.store import RunStore

BLOCK = re.compile(r'<script type="text/plain" data-block="(\w+)" data-first="(\d+)">([A-Za-z0-9+/=]*)</script>')


def page_of(path, file="report.html"):
    run = RunStore.open(path)
    write_report("html", run, run.figures(), file)
    return Path(file).resolve()


def blocks_of(page):
    """What the page unpacks, by kind, in the order of the file."""
    found = {}
    for kind, _, packed in BLOCK.findall(page.read_text(encoding="utf-8")):
        found.setdefault(kind, []).append(json.loads(zlib.decompress(base64.b64decode(packed), -15)))
    return found


def test_modules_are_bundled_after_their_imports():
    modules = {
        "a.js": 'import { two, one as first } from "./b.js";\nexport function sum() { return first + two; }\n',
        "b.js": "export const one = 1;\nexport const two = 2;\nconst sum = 0;\n",
    }
    script = joined(modules.__getitem__, "a.js")
    assert script.index("module_b_js =") < script.index("module_a_js =")
    assert "const { two, one: first } = module_b_js;" in script
    assert "return { one, two };" in script and "import" not in script and "export" not in script


@pytest.mark.parametrize(
    "text",
    ['import x from "./b.js";\n', "export default 1;\n", 'import "./b.js";\n', "export { a };\n", "export let a;\n"],
)
def test_other_forms_of_import_and_export_are_refused(text):
    with pytest.raises(ValueError, match="unknown form"):
        joined({"a.js": text, "b.js": ""}.__getitem__, "a.js")


@pytest.mark.parametrize("entry", ["report.js", "comparison.js", "served.js"])
def test_modules_import_only_what_others_export(entry):
    assert joined(page_file, entry)
    with pytest.raises(ValueError, match=r"a\.js imports two, which b\.js does not export"):
        joined({"a.js": 'import { one, two } from "./b.js";\n', "b.js": "export const one = 1;\n"}.__getitem__, "a.js")


def test_circular_imports_are_refused():
    modules = {
        "a.js": 'import { b } from "./b.js";\nexport const a = 1;\n',
        "b.js": 'import { a } from "./a.js";\nexport const b = 1;\n',
    }
    with pytest.raises(ValueError, match=r"a\.js → b\.js → a\.js"):
        joined(modules.__getitem__, "a.js")


def test_the_page_never_parses_text_as_html():
    script = joined(page_file, "report.js")
    for name in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "fetch("):
        assert name not in script
    assert "</script" not in script and "<!--" not in script


def test_every_class_of_the_styles_is_used_in_a_script_and_the_reverse():
    page = Path(files("agentv.report") / "page")
    scripts = re.sub(r"(?m)^\s*//.*|\s//\s.*", "", "".join(each.read_text("utf-8") for each in page.rglob("*.js")))
    words = set(re.findall(r"\w+", scripts.lower()))
    styled = set(re.findall(r"\.([a-z][\w-]*)", re.sub(r"{[^{}]*}", "", page_style())))
    assert [name for name in styled if not words.issuperset(name.split("-"))] == []
    named = {name for names in re.findall(r'class: [`"]([\w -]+)', scripts) for name in names.split()}
    assert {name for name in named - styled if not name.endswith("-")} == {"run"}  # marks a line of the list of runs


def test_the_file_has_no_plain_text_of_the_run_except_its_id(hostile):
    text = page_of(hostile, hostile / "page.html").read_text(encoding="utf-8")
    assert "pwned" not in text and "HYPERLINK" not in text
    assert text.count("<script") == len(BLOCK.findall(text)) + 1
    assert "<title>hostile &lt;/title&gt;&lt;script&gt; · agentv</title>" in text
    assert "default-src 'none'" in text and "http://" not in text.replace("http://www.w3.org", "")


def test_every_result_and_case_is_in_the_file(shop):
    blocks = blocks_of(page_of("run"))
    [head], [rows] = blocks["head"], blocks["rows"]
    assert head["total"] == rows["n"] == 5 == len(blocks["results"][0]) == len(blocks["cases"][0])
    assert sorted(rows["id"]) == ["breaks", "fails", "nearly", "passes", "unscored"]
    assert head["summary"]["targets"]["shop"]["mean"] == pytest.approx(0.6333333)
    assert [blocks["cases"][0][number]["id"] for number in rows["case"]] == rows["id"]


def test_a_run_with_many_blocks_is_complete(folder, record):
    rows = [record(f"case-{number}", candidate_answer=f"{number} " * 40) for number in range(20_000)]
    folder.write("results.jsonl", rows)
    blocks = blocks_of(page_of("results.jsonl"))
    assert [part["n"] for part in blocks["rows"]] == [8192, 8192, 3616]
    assert len(blocks["results"]) > 3
    answers = [result["candidate_answer"] for block in blocks["results"] for result in block]
    assert answers == [row["candidate_answer"] for row in rows]
    assert [id for part in blocks["rows"] for id in part["id"]] == [row["eval_id"] for row in rows]


def test_figures_are_rounded_as_in_the_terminal(browser):
    eighths = [n / 32 for n in range(65)] + [n / 400 for n in range(401)]
    values = {
        "number": (figures.number, eighths),
        "percent": (figures.percent, eighths),
        "percentInterval": (figures.percent_interval, list(pairwise(eighths))),
        "usd": (figures.usd, [0.0, 0.00625, 0.03125, 0.71875, 1.005, 2.125, 1234.5]),
        "duration": (figures.duration, [0.5, 2.5, 999.5, 1250, 60_500, 61_500, 3_599_500, 7_200_000]),
    }
    page = browser.new_page()
    page.add_script_tag(content=joined(page_file, "core/format.js"))
    for name, (formatted, given) in values.items():
        shown = page.evaluate(f"(given) => given.map(module_core_format_js.{name})", given)
        assert shown == [formatted(value) for value in given]
    page.close()


def test_a_page_opens_and_shows_figures_table_and_a_case(shop, chromium):
    with chromium(page_of("run")) as page:
        assert page.locator(".card .mean strong").inner_text() == "0.633"
        assert page.locator("h1").inner_text() == "shop · shop" and page.title() == "shop · shop · agentv"
        assert "[object" not in page.locator(".card").inner_text()
        assert "did not pass, 1 error among them" in page.locator(".failures summary").inner_text()
        assert page.locator(".spacer .row").count() == 5
        page.get_by_text("fails", exact=True).click()
        detail = page.locator(".detail")
        detail.get_by_text("0.200").first.wait_for()
        assert detail.locator(".message.user .text").text_content() == "c"
        assert detail.locator(".message.answer .text").text_content() == "no"
        assert "No command runs this result again: a program passed the target" in detail.inner_text()
        assert "shop.jsonl:3" in detail.inner_text()
        assert "open=" in page.url


def test_findings_are_shown_once(folder, chromium):
    said = {"name": "e", "type": "contains", "score": 0.5, "hits": ["says hello"], "misses": ["says no name"]}
    row = {"test_id": "a", "score": 0.5, "hits": ["is polite", "says hello"], "misses": ["says no name", "too long"]}
    folder.write("rows.jsonl", [{**row, "scores": [said]}])
    with chromium(page_of("rows.jsonl")) as page:
        page.locator(".spacer .row").click()
        page.locator(".detail .findings li").first.wait_for()
        found = [text.partition(": ")[2] for text in page.locator(".detail .findings li").all_text_contents()]
        assert found == ["is polite", "too long", "says hello", "says no name"]


def test_filters_search_order_and_keys(shop, chromium):
    with chromium(page_of("run")) as page:
        names = lambda: page.locator(".spacer .row .id bdi").all_inner_texts()  # noqa: E731
        assert names() == ["breaks", "fails", "nearly", "passes", "unscored"]
        page.get_by_role("button", name="1 failed").click()
        assert names() == ["fails"]
        assert page.locator(".count-line").inner_text() == "1 of 5 results"
        page.get_by_role("button", name="Show all").click()
        page.get_by_role("button", name="Score", exact=True).click()
        assert names()[:3] == ["fails", "nearly", "passes"]
        page.keyboard.press("/")
        page.keyboard.type("break")
        page.locator(".count-line").get_by_text("1 of 5 results").wait_for()
        assert names() == ["breaks"]
        page.keyboard.press("Enter")
        page.keyboard.press("Enter")
        page.locator(".detail .message.error").wait_for()
        page.keyboard.press("Escape")
        assert page.locator(".detail").is_hidden()


def test_answers_can_be_searched(shop, chromium):
    with chromium(page_of("run"), "#search=anything") as page:
        assert page.locator(".count-line").inner_text() == "0 of 5 results"
        page.get_by_label("also in conversations").check()
        page.locator(".count-line").get_by_text("1 of 5 results").wait_for()
        assert page.locator(".spacer .row .id bdi").all_inner_texts() == ["unscored"]


def test_answers_of_a_file_without_cases_can_be_searched(folder, record, chromium):
    folder.write(
        "rows.jsonl", [record(f"case-{n}", candidate_answer="needle" if n % 100 == 7 else "hay") for n in range(2_000)]
    )
    with chromium(page_of("rows.jsonl"), "#search=needle") as page:
        page.get_by_label("also in conversations").check()
        page.locator(".count-line").get_by_text("20 of 2,000 results").wait_for()
        assert page.locator(".spacer .row .id bdi").first.inner_text() == "case-7"


def test_a_quick_click_does_not_lose_typed_text(shop, chromium):
    with chromium(page_of("run")) as page:
        page.locator("input[type=search]").fill("anything")
        page.get_by_label("also in conversations").check()
        page.locator(".count-line").get_by_text("1 of 5 results").wait_for()
        assert page.locator("input[type=search]").input_value() == "anything"


def test_inputs_can_be_searched(shop, chromium):
    with chromium(page_of("run"), "#search=says+something&answers=1") as page:
        page.locator(".count-line").get_by_text("1 of 5 results").wait_for()
        assert page.locator(".spacer .row .id bdi").all_inner_texts() == ["unscored"]


def test_a_link_restores_the_view(shop, chromium):
    with chromium(page_of("run"), "#verdict=pass&verdict=fail&sort=-score&open=0") as page:
        assert page.locator(".count-line").inner_text() == "2 of 5 results"
        assert page.locator(".detail").is_visible()


def test_hostile_texts_are_shown_as_text(hostile, chromium):
    with chromium(page_of(hostile, hostile / "page.html")) as page:
        total = len(list(RunStore.open(hostile).records()))
        for number in range(total):
            page.evaluate(f"location.hash = 'sort=order&open={number}'")
            page.locator(".detail .place").get_by_text(f"{number + 1} of {total}").wait_for()
            page.locator(".detail section").first.wait_for()
            page.evaluate("document.querySelectorAll('.detail details').forEach((each) => (each.open = true))")
        assert page.evaluate("window.pwned") is None
        assert page.locator("#app script, #app img").count() == 0
        page.evaluate("location.hash = 'open=0'")
        page.locator(".detail .message.answer .text").first.get_by_text("</script><script>").wait_for()
        page.evaluate("location.hash = 'open=4'")
        page.locator(".detail .message.answer .text").first.get_by_text("\\x1b[31mred").wait_for()


def test_long_text_is_shortened_until_expanded(hostile, chromium):
    with chromium(page_of(hostile, hostile / "page.html"), "#search=long+x") as page:
        page.locator(".spacer .row").first.click()
        answer = page.locator(".detail .message.answer").first
        answer.locator(".rest").first.wait_for()
        assert len(answer.locator(".text").first.inner_text()) < 30_000
        answer.get_by_text("Show all 1,000,000 characters").first.click()
        assert answer.locator(".text").first.evaluate("(text) => text.textContent.length") == 1_000_000


@pytest.mark.parametrize("width", [1440, 420])
def test_only_visible_rows_are_rendered(folder, record, width, chromium):
    folder.write("results.jsonl", [record(f"case-{number}") for number in range(30_000)])
    with chromium(page_of("results.jsonl"), width=width) as page:
        page.locator(".count-line").get_by_text("30,000 results", exact=True).wait_for()
        assert page.locator(".spacer .row").count() < 100
        page.locator(".scroller").focus()
        page.keyboard.press("End")
        page.get_by_text("case-29999", exact=True).wait_for()
        assert page.locator(".spacer .row").count() < 100
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_result_links_to_other_results_of_its_case(folder, record, chromium):
    folder.write(
        "results.jsonl", [record("same", target="one"), record("same", target="two", score=1.0, verdict="pass")]
    )
    with chromium(page_of("results.jsonl"), "#open=0") as page:
        page.locator(".others button").get_by_text("two").click()
        page.locator(".reasons .badge.pass").wait_for()
        assert page.locator(".others button").inner_text().split() == ["fail", "one", "0.000"]
    folder.write("results.jsonl", [record("same", trial=trial) for trial in range(1, 151)])
    with chromium(page_of("results.jsonl"), "#open=1") as page:
        page.get_by_role("button", name="Show all 149 results").click()
        page.locator(".others button").nth(148).wait_for()
        assert page.locator(".others button").first.inner_text().split() == ["fail", "model,", "trial", "1", "0.000"]
        page.locator(".others button").first.click()
        page.locator(".figures").get_by_text("trial", exact=True).wait_for()
        assert "trial\n1\n" in page.locator(".figures").inner_text() + "\n"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_in_both_themes(shop, chromium, scheme):
    """The contrast of small text with its background is at least 4.5, as WCAG level AA requires."""
    contrast = """() => {
        const rgba = (text) => {
            const canvas = new OffscreenCanvas(1, 1).getContext("2d");
            canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
            return [...canvas.getImageData(0, 0, 1, 1).data];
        };
        const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
            .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
            .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
        const ground = (node) => {
            for (; node; node = node.parentElement) {
                const found = rgba(getComputedStyle(node).backgroundColor);
                if (found[3] === 255) return found;
            }
            return [255, 255, 255, 255];
        };
        const bad = [];
        for (const node of document.querySelectorAll("#app *")) {
            const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
            if (!own || !node.checkVisibility() || node.closest(":disabled, .unseen")) continue;
            const [a, b] = [light(rgba(getComputedStyle(node).color)), light(ground(node))];
            const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
            if (ratio < 4.5) bad.push(`${node.className} ${ratio.toFixed(2)} ${node.textContent.slice(0, 20)}`);
        }
        return bad;
    }"""
    with chromium(page_of("run"), "#open=2", scheme=scheme) as page:
        page.locator(".detail section").first.wait_for()
        assert page.evaluate(contrast) == []


def test_histogram_filter_arrow_keys_and_copy_buttons(shop, chromium):
    with chromium(page_of("run")) as page:
        page.get_by_label("Scores from 0.20 to 0.25: 1").click()
        assert page.locator(".count-line").inner_text() == "1 of 5 results"
        page.get_by_label("Scores from 0.20 to 0.25: 1").click()
        page.get_by_role("button", name="Case", exact=True).click()
        page.locator(".scroller").focus()
        page.keyboard.press("Home")
        page.keyboard.press("Enter")
        page.locator("#detail-title").get_by_text("breaks").wait_for()
        page.get_by_label("Next result").click()
        page.locator("#detail-title").get_by_text("fails").wait_for()
        page.get_by_role("button", name="Copy answer").click()
        page.get_by_role("button", name="Copied").wait_for()


def test_the_theme_is_remembered(shop, chromium):
    with chromium(page_of("run")) as page:
        ground = "getComputedStyle(document.body).backgroundColor"
        light = page.evaluate(ground)
        page.get_by_role("button", name="Theme: auto").click()
        page.get_by_role("button", name="Theme: light").click()
        assert page.evaluate(ground) != light
        page.reload()
        page.get_by_role("button", name="Theme: dark").wait_for()
        assert page.evaluate(ground) != light
