"""Runs to report: a small real one, and one with hostile texts."""

import json
import shutil

import pytest

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


@pytest.fixture(scope="session")
def shop_files(tmp_path_factory):
    """Where the first test leaves a copy of its shop for the others."""
    return tmp_path_factory.mktemp("shop") / "files"


@pytest.fixture
def shop(folder, shop_files):
    """A run of five cases: a pass, a borderline, a failure, an error, and one that nothing scores; in `run`."""
    import agentv

    if shop_files.exists():
        shutil.copytree(shop_files, folder.path, dirs_exist_ok=True)
        return folder
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
    shutil.copytree(folder.path, shop_files)
    return folder
