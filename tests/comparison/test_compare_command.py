"""`agentv compare`: text, JSON and exit codes."""

import contextlib
import json
import os
import re
import subprocess
from types import SimpleNamespace

import pytest
from compared_runs import judged, record, used, write_run, write_scores
from markdown_it import MarkdownIt

HOSTILE = {
    "a script": "<script>alert(1)</script></details><img src=x onerror=alert(1)>",
    "escapes": "\x1b[2J\x1b]0;owned\x07\x9b31m done",
    "right to left": "\u202eevil\u202c שלום \u2067x",
    "broken pair": "half \\ud83d",
    "a megabyte": "x" * 1_000_000,
    "markdown": "# title\n```\n| a | b |\n@everyone [x](http://example.org)\n````",
    "lines": "\r\n".join(f"line {number}" for number in range(1_000)),
}


@pytest.fixture
def agentv(command):
    """`agentv compare` in this process."""

    def compare(*arguments):
        ended = command("compare", *map(str, arguments))
        return SimpleNamespace(returncode=ended.code, stdout=ended.stdout, stderr=ended.stderr)

    return compare


@pytest.fixture
def runs(tmp_path):
    before = [
        record(
            n,
            n % 5 / 5,
            candidate_answer=f"old {n}",
            tags=("t",),
            execution_metrics=used(0.01, 10.0),
            evaluator_results=judged(x=0.5),
        )
        for n in range(30)
    ]
    after = [
        record(
            n,
            min(1.0, n % 5 / 5 + n % 3 / 5),
            candidate_answer=f"new {n}",
            evaluator_results=judged(x=0.6),
            execution_metrics=used(0.02, 9.0),
        )
        for n in range(31)
    ]
    return write_run(tmp_path / "a.jsonl", *before), write_run(tmp_path / "b.jsonl", *after)


def test_the_conclusion_comes_first_and_the_details_follow(agentv, runs):
    found = agentv(*runs)
    assert (found.returncode, found.stderr) == (0, "")
    first, *rest = found.stdout.splitlines()
    assert first.startswith("B is better by 0.1")
    assert "30 shared cases)." in first
    text = "\n".join(rest)
    for part in [
        "B wins 20, loses 0, ties 10 of 30",
        "Only in B: 1 case (30)",
        "30 of 31",
        "Evaluators",
        "Tags",
        "cost",
        "time",
        "old ",
        "new ",
    ]:
        assert part in text


def test_a_narrow_terminal_truncates_tables_but_not_sentences(runs, program):
    reader, writer = os.openpty()
    command = [program, "compare", *map(str, runs)]
    environment = {**os.environ, "COLUMNS": "60", "TERM": "xterm"}
    with subprocess.Popen(command, stdout=writer, stdin=subprocess.DEVNULL, env=environment) as process:
        os.close(writer)
        printed = b""
        with contextlib.suppress(OSError):  # raised at the end of a pseudo-terminal
            while part := os.read(reader, 65536):
                printed += part
        process.wait()
    os.close(reader)
    text = re.sub(r"\x1b\[[0-9;]*m", "", printed.decode())
    assert "could be missed with 30 cases" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 60


def test_errors_are_reported_by_class(agentv, tmp_path):
    before = write_run(tmp_path / "a.jsonl", record("x", 1.0), record("y", None), record("z", 0.0))
    found = agentv(before, before)
    assert "Errors in A (not scored): 1 of 3 results (timeout 1)" in found.stdout
    assert "In both runs but not scored in B: 1 case" in found.stdout


def test_json_without_a_pair_has_the_documented_names_too(agentv, tmp_path):
    paths = [write_scores(tmp_path / f"{name}.jsonl", [score]) for name, score in (("a", 1.0), ("b", None))]
    summary = json.loads(agentv(*paths, "--json").stdout)["summary"]
    assert (summary["total"], summary["matched"], summary["n"]) == (1, 0, 0)
    for name in ("mean_delta", "ci95", "p_value", "minimum_detectable_difference", "answer"):
        assert summary[name] is None


@pytest.mark.parametrize("style", [(), ("--json",), ("--markdown",)])
def test_no_case_scored_in_both_runs_decides_nothing(agentv, tmp_path, style):
    before = write_run(tmp_path / "a.jsonl", record("x", 1.0, tags=("t",)), record("y", 0.0))
    after = write_run(tmp_path / "b.jsonl", record("x", None), record("y", None))
    found = agentv(before, after, *style)
    assert (found.returncode, found.stderr) == (5, "")
    if style == ("--json",):
        assert json.loads(found.stdout)["summary"]["mean_delta"] is None
    else:
        assert "Can't tell: no case was scored in both A and B" in found.stdout
        assert "Errors in B (not scored): 2 of 2 results (timeout 2)" in found.stdout.replace("&#58;", ":")
    assert agentv(before, after, "--fail-on", "never").returncode == 0


def test_json_has_the_documented_names(agentv, runs):
    data = json.loads(agentv(*runs, "--json").stdout)
    assert data["matched"][1] == {
        "dataset": "d", "eval_id": "1", "score1": 0.2, "score2": 0.4, "delta": 0.2, "outcome": "win",
        "normalized_gain": 0.25,
    }  # fmt: skip
    assert data["unmatched"] == {"file1": 0, "file2": 1}
    summary = data["summary"]
    assert [summary[name] for name in ("total", "matched", "wins", "losses", "ties")] == [31, 30, 20, 0, 10]
    gains = [pair["normalized_gain"] for pair in data["matched"] if pair["normalized_gain"] is not None]
    assert summary["mean_normalized_gain"] == pytest.approx(sum(gains) / len(gains))
    assert summary["ci95"][0] < summary["mean_delta"] < summary["ci95"][1]
    assert 0 < summary["p_value"] < 0.05
    assert summary["minimum_detectable_difference"] > 0
    assert (summary["answer"], summary["exit_code"], summary["seed"]) == ("better", 0, 0)
    assert [side["targets"] for side in data["runs"]] == [["t"], ["t"]]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ((), 1),
        (("--fail-on", "regression"), 1),
        (("--fail-on", "worse"), 1),
        (("--fail-on", "any-loss"), 1),
        (("--fail-on", "inconclusive"), 1),
        (("--fail-on", "never"), 0),
        (("--margin", "0.5"), 0),
        (("--margin", "0.01"), 1),
    ],
)
def test_exit_codes_when_b_is_worse(agentv, runs, options, code):
    assert agentv(*reversed(runs), *options).returncode == code


def test_three_runs_give_a_matrix_and_a_ranking(agentv, tmp_path):
    paths = [write_scores(tmp_path / f"{n}.jsonl", [float(case % 10 < n) for case in range(200)]) for n in (4, 6, 9)]
    found = agentv(*paths, "--all-pairs")
    assert found.returncode == 0
    assert found.stdout.startswith(
        "C has the highest mean of 3 runs, 0.900, and is significantly better than every other run\n"
    )
    assert "Ranking by mean" in found.stdout
    data = json.loads(agentv(*paths, "--json", "--all-pairs").stdout)
    assert [(entry["run"], entry["places"]) for entry in data["ranking"]] == [(2, [1, 1]), (1, [2, 2]), (0, [3, 3])]
    assert [(entry["run1"], entry["run2"]) for entry in data["differences"]] == [(0, 1), (0, 2), (1, 2)]
    assert agentv(*reversed(paths)).returncode == 1
    assert agentv(*reversed(paths), "--fail-on", "never").returncode == 0
    assert "### C has the highest mean" in agentv(*paths, "--markdown", "--all-pairs").stdout


def test_three_runs_are_compared_with_the_first_and_p_is_adjusted_for_that(agentv, tmp_path):
    shares = (4, 6, 9, 2, 4)
    paths = [
        write_scores(tmp_path / f"{n}.jsonl", [float(case % 10 < share) for case in range(200)])
        for n, share in enumerate(shares)
    ]
    found = agentv(*paths)
    assert found.stdout.startswith("B and C are better than A; D is worse than A; can't tell E from A\n")
    assert "Holm-adjusted over the comparisons with A; --all-pairs tests the others" in found.stdout
    tested = {
        (entry["run1"], entry["p_adjusted"] is not None)
        for entry in json.loads(agentv(*paths, "--json").stdout)["differences"]
    }
    assert tested == {(0, True), (1, False), (2, False), (3, False)}
    assert agentv(paths[0], paths[4], paths[4]).stdout.startswith("Can't tell B, C from A\n")


def test_the_ranking_agrees_with_the_means_and_the_differences(agentv, tmp_path):
    """A scores a little more than B on most cases, and far less on the others. C is like B."""
    often, rarely = [0.55, 0.5, 0.5], [0.0, 1.0, 1.0]
    runs = [[(rarely if case % 5 == 0 else often)[side] for case in range(200)] for side in range(3)]
    paths = [write_scores(tmp_path / f"{name}.jsonl", run) for name, run in zip("abc", runs, strict=True)]
    data = json.loads(agentv(*paths, "--json").stdout)
    assert [(entry["run"], entry["places"]) for entry in data["ranking"]] == [(1, [1, 2]), (2, [1, 2]), (0, [3, 3])]
    assert [entry["mean"] for entry in data["ranking"]] == [0.6, 0.6, 0.44]
    assert "1 to 2  B" in agentv(*paths).stdout


def test_targets_of_one_run_are_compared(agentv, tmp_path):
    records = [record(n, score, target=target) for n in range(20) for target, score in (("old", 0.0), ("new", 1.0))]
    path = write_run(tmp_path / "a.jsonl", *records)
    assert agentv(path).stdout.startswith("B is better by 1.000")
    assert agentv(f"{path}:new", f"{path}:old").returncode == 1


def test_a_target_may_have_colons_in_its_name(agentv, tmp_path):
    names = ("ollama:llama3:8b", "ollama:llama3:70b")
    records = [record(n, float(number), target=name) for n in range(20) for number, name in enumerate(names)]
    path = write_run(tmp_path / "a.jsonl", *records)
    assert agentv(*(f"{path}:{name}" for name in names)).stdout.startswith("B is better by 1.000")


def test_the_first_target_is_the_baseline_even_if_it_is_slower(folder, command):
    folder.write(
        "agents.py", "import time\n\ndef slow(p):\n    time.sleep(0.3)\n    return p\n\ndef quick(p):\n    return p\n"
    )
    entries = [{"name": name, "provider": "python", "function": f"agents.py:{name}"} for name in ("quick", "slow")]
    folder.write("targets.yaml", {"targets": entries})
    case = {"id": "a", "expected_outcome": "x", "input": "yes"}
    folder.write("d.yaml", {"evaluators": [{"type": "contains", "value": "yes"}], "evalcases": [case]})
    command("eval", "d.yaml", "--target", "slow", "--target", "quick", "--out", "run", "--quiet")
    sides = command("compare", "run", "--json").printed[0]["runs"]
    assert [side["label"] for side in sides] == ["run:slow", "run:quick"]


def test_prompts_of_one_run_are_compared(agentv, tmp_path):
    records = [record(n, score, prompt=prompt) for n in range(20) for prompt, score in (("old", 0.0), ("new", 1.0))]
    path = write_run(tmp_path / "a.jsonl", *records)
    assert agentv(path).stdout.startswith("B is better by 1.000")
    assert agentv(f"{path}:new", f"{path}:old").returncode == 1
    unknown = agentv(f"{path}:nwe", f"{path}:old")
    assert unknown.returncode == 2 and "No results for target or prompt 'nwe'" in unknown.stderr
    assert "Targets: t; prompts: new, old" in unknown.stderr


def test_a_name_that_is_a_target_and_a_prompt_is_the_target(agentv, tmp_path):
    records = [
        record(n, float(target == "x"), target=target, prompt=prompt)
        for n in range(9)
        for target in "xy"
        for prompt in "xz"
    ]
    path = write_run(tmp_path / "a.jsonl", *records)
    assert agentv(f"{path}:y", f"{path}:x").stdout.startswith("B is better by 1.000")


def test_a_target_with_only_errors_is_named(agentv, tmp_path):
    scores = (("good", 1.0), ("other", 0.5), ("dead", None))
    path = write_run(tmp_path / "a.jsonl", *(record(n, score, target=t) for n in range(3) for t, score in scores))
    found = agentv(path)
    assert found.returncode == 2 and f"{path}:dead has no scored case" in found.stderr
    assert "3 of its 3 results are errors: timeout 3" in found.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a.jsonl",), "compare needs two runs"),
        (("a.jsonl",), "agentv report a.jsonl"),
        (("a.jsonl", "nowhere"), "No such run: nowhere"),
        (("a.jsonl", "a.jsonl:u"), "No results for target 'u'"),
        (("a.jsonl", "a.jsonl", "a.jsonl", "--margin", "0.1"), "need exactly two runs"),
        (("a.jsonl", "a.jsonl", "--json", "--markdown"), "cannot be combined"),
        (("a.jsonl", "c.txt"), "Not a run: c.txt"),
    ],
)
def test_mistakes_are_explained(agentv, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "a.jsonl", record("x", 1.0))
    (tmp_path / "c.txt").write_text("no run")
    found = agentv(*arguments)
    assert (found.returncode, found.stdout) == (2, "")
    assert message in found.stderr
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_model_output_is_shown_as_plain_text(agentv, tmp_path, text):
    known = {
        "candidate_answer": text,
        "reasoning": text,
        "tags": (text[:50],),
        "evaluator_results": judged(**{text[:50]: 1.0}),
    }
    before = write_run(tmp_path / "a.jsonl", *(record(f"{n}{text[:50]}", 1.0, **known) for n in range(3)))
    after = write_run(tmp_path / "b.jsonl", *(record(f"{n}{text[:50]}", 0.0, **known) for n in range(3)))
    if "\\ud83d" in text:
        for path in (before, after):
            path.write_bytes(path.read_bytes().replace(b"\\\\ud83d", b"\\ud83d"))
    plain = agentv(before, after).stdout
    assert len(plain) < 30_000
    assert not {"\x1b", "\x07", "\x9b", "\u202e", "\u2067", "\r"} & set(plain)
    source = agentv(before, after, "--markdown").stdout
    assert len(source) < 60_000
    assert not {"\x1b", "\x07", "\x9b", "\u202e", "\u2067"} & set(source)
    kinds = {"html_inline", "html_block", "image", "link_open"}
    markup = [
        part.content
        for token in MarkdownIt("commonmark").enable("table").parse(source)
        for part in [token, *(token.children or [])]
        if part.type in kinds
    ]
    ours = ("<details>", "</details>", "<summary>", "</summary>", "<sub>", "</sub>")
    assert [each for each in markup if not each.strip().startswith(ours)] == []
    assert json.loads(agentv(before, after, "--json").stdout)["changes"][0]["answer1"]


@pytest.mark.parametrize(("limit", "code"), [("2", 0), ("1", 1), ("20%", 0), ("10%", 1)])
def test_the_error_gate_counts_the_errors_of_the_second_run(agentv, tmp_path, limit, code):
    before = write_scores(tmp_path / "a.jsonl", [1.0] * 10)
    after = write_scores(tmp_path / "b.jsonl", [1.0] * 8 + [None] * 2)
    found = agentv(before, after, "--max-errors", limit)
    assert found.returncode == code
    assert ("has 2 errors in 10 results; --max-errors is" in found.stderr) == (code == 1)
