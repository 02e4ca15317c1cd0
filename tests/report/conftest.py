"""Runs to report: a small real one, and one with hostile texts."""

import json
import os
import shutil
from contextlib import contextmanager

import pytest

INSTALL = "install it with `apt-get install -y chromium`, or name it in CHROMIUM"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

HOSTILE = {
    "script": '</script><script>window.pwned = 1</script><img src=x onerror="window.pwned = 1">',
    "comment": "<!-- ]]> --><![CDATA[ x ]]>&amp;&lt;",
    "ansi": "\x1b[31mred\x1b[0m\x1b]0;title\x07\x9b2J bell\x07 nul\x00 backspace\x08",
    "right-to-left": "\u202egnp.exe\u202c \u2066hidden\u2069 שלום עולם مرحبا",
    "formula": '=HYPERLINK("http://example.com","click")',
    "markdown": "| a | b |\n|---|---|\n# head\n```\n[x](javascript:alert(1)) @someone #1 ![i](http://e)",
    "separators": "one\u2028two\u2029three\u0085four\r\nfive\rsix",
    "not-xml": "\ufffe\uffff\x0b\x0c\x7f",
    "long": "x" * 1_000_000,
    "half-a-pair": "cut \\ud83d here",  # written into the file as the escape itself, as JavaScript does
}


def record_of(eval_id, **values):
    known = {
        "schema_version": 1,
        "timestamp": "2026-11-15T10:00:00.000Z",
        "run_id": "hostile",
        "eval_id": eval_id,
        "dataset": "texts",
        "dataset_path": "evals/texts.jsonl",
        "target": "model",
        "trial": 1,
        "status": "ok",
        "score": 0.0,
        "verdict": "fail",
    }
    return {**known, **values}


@pytest.fixture
def record():
    """Makes records, one as it is written to a line."""
    return record_of


@pytest.fixture
def hostile(tmp_path):
    """A run folder in which every text that a model or a user wrote is hostile."""
    folder = tmp_path / "hostile"
    folder.mkdir()
    cases, results = [], []
    for number, (name, text) in enumerate(HOSTILE.items(), 1):
        short = text[:300]
        found = [
            {
                "name": short[:40] or "e",
                "type": "contains",
                "score": 0.0,
                "weight": 1.0,
                "verdict": "fail",
                "misses": [text],
            }
        ]
        results.append(
            record_of(
                f"{name} {short}",
                target=f"model {short[:80]}",
                tags=[short[:50]],
                misses=[text],
                candidate_answer=text,
                output_messages=[
                    {"role": "assistant", "content": text, "tool_calls": [{"tool": short, "input": {short: text}}]}
                ],
                evaluator_results=found,
                execution_metrics={"duration_ms": 1234.5},
            )
        )
        error = {"class": "process", "message": text, "stage": "target"}
        results.append(record_of(f"{name} error", status="error", score=None, verdict=None, error=error))
        cases.append(
            {
                "id": f"{name} {short}",
                "dataset": "texts",
                "dataset_path": "evals/texts.jsonl",
                "line": number,
                "expected_outcome": text,
                "input": [{"role": "user", "content": text}],
                "expected_output": [{"role": "assistant", "content": short}],
            }
        )
    lines = [json.dumps(row).replace("\\\\ud83d", "\\ud83d") for row in results]
    (folder / "results.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    lines = [json.dumps(row).replace("\\\\ud83d", "\\ufffd") for row in cases]
    (folder / "cases.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    manifest = {"schema_version": 1, "run_id": "hostile </title><script>", "started_at": "2026-11-15T10:00:00.000Z"}
    (folder / "run.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder


@pytest.fixture
def shop(folder):
    """A run of five cases: a pass, a borderline, a failure, an error, and one that nothing scores; in `run`."""
    import agentv

    cases = [
        {"id": "passes", "input": "a", "expected_output": "yes", "tags": ["first"]},
        {"id": "nearly", "input": "b", "expected_output": "yes"},
        {"id": "fails", "input": "c", "expected_output": "yes"},
        {"id": "breaks", "input": "d", "expected_output": "yes"},
        {"id": "unscored", "input": "e", "expected_outcome": "Says something", "evaluators": []},
    ]
    folder.write("evals/shop.jsonl", [{"expected_outcome": "Says yes", **case} for case in cases])
    folder.write("evals/shop.yaml", {"evaluators": [{"type": "python", "function": "score.py:score"}]})
    folder.write(
        "evals/score.py", "def score(context):\n    return {'yes': 1, 'yess': 0.7}.get(context.candidate_answer, 0.2)\n"
    )
    answers = {"a": "yes", "b": "yess", "c": "no", "e": "anything"}

    def shop(prompt):
        return answers[prompt]

    agentv.evaluate("evals/shop.jsonl", shop, out="run", max_retries=0)
    return folder


@pytest.fixture(scope="module")
def browser():
    """A real Chromium, started once per module; skip the tests if it is not installed."""
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is not installed: pip install 'agentv[dev]'"
    )
    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"Chromium is not installed: {INSTALL}")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def chromium(browser):
    """Open files in the browser, each in a profile of its own."""

    @contextmanager
    def opened(file, fragment="", *, width=1440, height=900, scheme="light"):
        """A page that shows the file. Anything it fetches or complains about is a failure."""
        problems = []
        size = {"width": width, "height": height}
        with browser.new_context(viewport=size, color_scheme=scheme, offline=True) as context:
            page = context.new_page()
            page.set_default_timeout(30_000)
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
            page.on("request", lambda sent: problems.append(sent.url) if not _is_own(sent.url) else None)
            page.goto(f"{file.as_uri()}{fragment}", wait_until="commit")
            page.wait_for_selector("html[data-ready]")
            yield page
        assert problems == []

    return opened


def _is_own(url):
    return url.startswith(("file:", "data:", "blob:"))
