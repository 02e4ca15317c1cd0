"""`agentv generate`: rubrics inserted into a file that is otherwise unchanged, and cases from rows."""

import json
import os
import signal
import subprocess
import sys

import pytest
import yaml

from agentv import load_cases
from agentv.datasets.formats.jsonl import JSONL
from agentv.datasets.formats.yaml_dataset import YAML
from waiting import wait_until

WRITER = """
import json, os, threading

def write(messages, case):
    with open("calls.log", "a") as log:
        log.write(case.id + "\\n")
    if os.path.exists("hold") and len(open("calls.log").readlines()) > 4:
        threading.Event().wait()
    prompt = messages[1]["content"]
    if "unwilling" in prompt:
        return "I would rather not."
    if "rubric" in messages[0]["content"][:40]:
        items = [{"id": "Says It!", "expected_outcome": "Says: it,\\n # clearly", "weight": 2, "required": True},
                 {"id": "says it", "expected_outcome": "Is short", "weight": 1, "required": False}]
        return "Here you are: " + json.dumps({"rubrics": items})
    row = json.loads(prompt)
    return json.dumps({"input": f"About {row['topic']}?", "expected_outcome": "Tells", "expected_output": None})
"""

ITEMS = [
    {"id": "says-it", "expected_outcome": "Says: it, # clearly", "weight": 2, "required": True},
    {"id": "says-it-2", "expected_outcome": "Is short", "required": False},
]


@pytest.fixture
def project(folder, command):
    folder.write("writer.py", WRITER)
    folder.write("targets.yaml", {"targets": [{"name": "judge", "provider": "python", "function": "writer.py:write"}]})
    folder.command = command
    return folder


def calls(project):
    log = project.path / "calls.log"
    return sorted(log.read_text().split()) if log.exists() else []


COMMENTED = """\
# What we check before a release
dataset: demo   # shown in reports
evalcases:
  # the easy one
  - id: a       # do not rename
    input: "Hi"
    expected_outcome: |   # two lines
      Greets
      back

    # for the dashboards
    tags: [x]

  - id: b
    expected_outcome: Says it
      on two lines
    rubrics:          # by hand
      - Says it
    input: q
  - &base
    id: c
    <<: {description: shared}
    expected_outcome: *text
    input: q
# the end
""".replace("*text", "'it''s quoted'  # why")


def git(project, *arguments):
    return subprocess.run(["git", *arguments], cwd=project.path, capture_output=True, check=True).stdout.decode()


def test_git_shows_added_lines_and_nothing_else(project):
    project.write("d.yaml", COMMENTED)
    git(project, "init", "-q")
    git(project, "add", "-A")
    ended = project.command("generate", "rubrics", "d.yaml")
    assert ended.code == 0, ended
    assert calls(project) == ["judge:a", "judge:c"]
    counts = git(project, "diff", "--numstat", "d.yaml").split()
    assert counts[:2] == ["16", "0"]
    cases = {case.id: case for case in load_cases("d.yaml")}
    assert [dict(item) for item in cases["a"].rubrics] == [dict(item) for item in cases["c"].rubrics] == ITEMS
    assert cases["b"].rubrics != cases["a"].rubrics
    assert cases["a"].expected_outcome == "Greets\nback\n"


def test_a_second_run_makes_no_calls_and_changes_nothing(project):
    project.write("d.yaml", COMMENTED)
    project.command("generate", "rubrics", "d.yaml")
    before = (project.path / "d.yaml").read_bytes()
    (project.path / "calls.log").unlink()
    ended = project.command("generate", "rubrics", "d.yaml")
    assert ended.code == 0 and "3 cases checked, none needs rubrics" in ended.stderr
    assert calls(project) == [] and (project.path / "d.yaml").read_bytes() == before


LAYOUTS = {
    "two blanks": b"evalcases:\n  - id: a\n    expected_outcome: x\n    input: q\n",
    "no indentation": b"evalcases:\n- id: a\n  expected_outcome: x\n  input: q\n",
    "four blanks": b"evalcases:\n    -   id: a\n        expected_outcome: x\n        input: q\n",
    "dash on its own line": b"evalcases:\n  -\n    id: a\n    expected_outcome: x\n    input: q\n",
    "windows": b"evalcases:\r\n  - id: a\r\n    expected_outcome: x\r\n    input: q\r\n",
    "byte order mark": b"\xef\xbb\xbfevalcases:\n  - id: a\n    expected_outcome: x\n    input: q\n",
    "outcome last": b"evalcases:\n  - id: a\n    input: q\n    expected_outcome: x\n",
    "no last newline": b"evalcases:\n  - id: a\n    input: q\n    expected_outcome: x",
    "outcome first": b"evalcases:\n  - expected_outcome: x\n    id: a\n    input: q\n",
    "another host name": b"cases:\n  - id: a\n    criteria: x\n    input: q\n",
    "literal": b"evalcases:\n  - id: a\n    expected_outcome: |\n      x\n       y\n\n\n    input: q\n",
    "literal, kept": b"evalcases:\n  - id: a\n    expected_outcome: |+\n      x\n\n    input: q\n",
    "literal, stripped, last": b"evalcases:\n  - id: a\n    input: q\n    expected_outcome: |-\n      x\n\n# end\n",
    "folded": b"evalcases:\n  - id: a\n    expected_outcome: >-\n      x\n      y\n    input: q\n",
    "quoted over lines": b'evalcases:\n  - id: a\n    expected_outcome: "x\n      y"  # c\n    input: q\n',
    "plain over lines": b"evalcases:\n  - id: a\n    expected_outcome: x\n      y # c\n    input: q\n",
    "comment after": b"evalcases:\n  - id: a # 1\n    expected_outcome: x # 2: [\n    # 3\n    input: q\n",
    "question marks": b"evalcases:\n  - ? id\n    : a\n    ? expected_outcome\n    : x\n    input: q\n",
    "anchor": b"evalcases:\n  - id: a\n    expected_outcome: &t x\n    input: q\n",
    "alias": b"description: &t x\nevalcases:\n  - id: a\n    expected_outcome: *t\n    input: q\n",
    "merged": b"metadata: &m {k: 1}\ntests:\n  - id: a\n    metadata: {<<: *m}\n    outcome: x\n    input: q\n",
    "beyond the plane": "evalcases:\n  - id: a\n    input: '😀 é'\n    expected_outcome: '😀'\n".encode(),
    "separators in text": 'evalcases:\n  - id: a\n    input: "x\u2028y\u0085z"\n    expected_outcome: x\n'.encode(),
    "document marks": b"%YAML 1.2\n---\nevalcases:\n  - id: a\n    expected_outcome: x\n    input: q\n...\n",
    "a mapping as input": b"evalcases:\n  - id: a\n    input:\n      userMessage: q\n    expected_outcome: x\n",
    "keys after the list": b"evalcases:\n  - id: a\n    expected_outcome: x\n    input: q\ntags: [z]\n",
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_lines_are_added_whatever_the_layout(name):
    data = LAYOUTS[name]
    new = YAML.insert(data, "rubrics", {"a": ITEMS})
    old_lines, new_lines = data.splitlines(keepends=True), new.splitlines(keepends=True)
    if name == "no last newline":
        old_lines[-1] += b"\n"
    rest = iter(new_lines)
    assert all(line in rest for line in old_lines), new
    assert len(new_lines) == len(old_lines) + 8
    text = new.decode("utf-8-sig").translate({0x2028: " ", 0x85: " "})
    (case,) = next(value for value in yaml.safe_load(text).values() if isinstance(value, list) and len(value[0]) > 1)
    assert case["rubrics"] == ITEMS
    assert YAML.insert(new, "rubrics", {"a": [{"other": 1}]}) == new


def test_a_case_in_flow_style_gets_rubrics_inside_its_braces():
    data = b"evalcases: [{id: a, expected_outcome: x, input: q}, # c\n  {id: b, input: q, expected_outcome: y}]\n"
    new = YAML.insert(data, "rubrics", {"b": ITEMS})
    assert new.splitlines()[0] == data.splitlines()[0]
    assert yaml.safe_load(new)["evalcases"][1] == {"id": "b", "input": "q", "expected_outcome": "y", "rubrics": ITEMS}


def test_a_layout_that_cannot_be_edited_is_refused():
    data = b"x: &x a\nevalcases:\n  - input: &y\n      - z\n    id: *x\n"
    with pytest.raises(ValueError, match="no plain key"):
        YAML.insert(data, "rubrics", {"a": ITEMS})
    with pytest.raises(ValueError, match="UTF-8"):
        YAML.insert(b"evalcases: \xff", "rubrics", {"a": ITEMS})


ROWS = [
    (b'{"id": "a", "x": 1}\n', b'{"id": "a", "x": 1, "rubrics": [1]}\n'),
    (b'{"id":"a","x":1}\r\n', b'{"id":"a","x":1,"rubrics":[1]}\r\n'),
    (b'\xef\xbb\xbf{"id": "a" }  ', b'\xef\xbb\xbf{"id": "a", "rubrics": [1]}  '),
    (b'{"id": "b"}\n', b'{"id": "b"}\n'),
    (b'{"id": "a", "rubrics": null}\n', b'{"id": "a", "rubrics": null}\n'),
    (b"\n \n", b"\n \n"),
    ('{"id": "a", "x": "\u2028}"}\n'.encode(), '{"id": "a", "x": "\u2028}", "rubrics": [1]}\n'.encode()),
]


@pytest.mark.parametrize(("line", "expected"), ROWS)
def test_only_json_lines_that_get_rubrics_change(line, expected):
    assert JSONL.insert(line, "rubrics", {"a": [1]}) == expected


def test_json_lines_get_rubrics_too(project):
    rows = [
        {"id": "a", "expected_outcome": "x", "input": "q"},
        {"id": "b", "expected_outcome": "x", "input": "unwilling"},
    ]
    project.write("d.jsonl", rows)
    ended = project.command("generate", "rubrics", "d.jsonl", "-q")
    assert ended.code == 1
    assert "b: The model 'judge' gave no usable rubric in two attempts" in ended.stderr
    first, second = (project.path / "d.jsonl").read_text().splitlines()
    assert json.loads(first)["rubrics"] == ITEMS
    assert json.loads(second) == rows[1]


def test_a_dry_run_makes_no_calls_and_writes_nothing(project):
    path = project.write("d.yaml", COMMENTED)
    ended = project.command("generate", "rubrics", path, "--dry-run", "--case", "a")
    assert (ended.code, ended.stdout) == (0, "a\n")
    assert calls(project) == [] and (project.path / path).read_text() == COMMENTED


def test_permissions_and_links_of_the_file_are_kept(project):
    project.write("real.yaml", COMMENTED)
    os.chmod(project.path / "real.yaml", 0o640)
    os.symlink("real.yaml", project.path / "d.yaml")
    assert project.command("generate", "rubrics", "d.yaml").code == 0
    assert (project.path / "d.yaml").is_symlink()
    assert (project.path / "real.yaml").stat().st_mode & 0o777 == 0o640
    assert "says-it" in (project.path / "real.yaml").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.yaml"], "none.yaml"),
        (["d.yaml", "--target", "nobody"], "nobody"),
        (["d.yaml", "--case", "zzz"], "No case in d.yaml matches zzz"),
        (["d.jsonl.gz"], "compressed"),
    ],
)
def test_usage_errors_are_reported_before_any_call(project, arguments, message):
    import gzip

    project.write("d.yaml", COMMENTED)
    (project.path / "d.jsonl.gz").write_bytes(gzip.compress(b'{"id": "a", "expected_outcome": "x", "input": "q"}\n'))
    ended = project.command("generate", "rubrics", *arguments)
    assert ended.code == 2 and message in ended.stderr
    assert calls(project) == []


def test_without_a_judge_the_known_targets_are_listed(project):
    project.write("targets.yaml", {"targets": [{"name": "gpt", "provider": "mock"}]})
    project.write("d.yaml", COMMENTED)
    ended = project.command("generate", "rubrics", "d.yaml")
    assert ended.code == 2 and "Known targets: gpt" in ended.stderr


@pytest.mark.timeout(500)
def test_ctrl_c_saves_finished_work_and_the_command_can_continue(project):
    rows = [{"id": f"c{n}", "expected_outcome": "x", "input": "q"} for n in range(30)]
    project.write("d.jsonl", rows)
    command = [sys.executable, "-m", "agentv", "generate", "rubrics", "d.jsonl", "--workers", "1", "-q"]
    project.write("hold", "")
    with subprocess.Popen(command, cwd=project.path, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until(lambda: len(calls(project)) > 4, process, within_s=200)
            process.send_signal(signal.SIGINT)
            told = process.communicate(timeout=200)[1]
        finally:
            process.kill()  # or a failed wait would wait for its end until the worker is killed
    assert process.returncode == 130, told
    done = [json.loads(line) for line in (project.path / "d.jsonl").read_text().splitlines()]
    first = sum("rubrics" in row for row in done)
    assert first == 4
    (project.path / "hold").unlink()
    (project.path / "calls.log").unlink()
    assert project.command("generate", "rubrics", "d.jsonl", "-q").code == 0
    assert len(calls(project)) == 30 - first
    assert all(case.rubrics for case in load_cases("d.jsonl"))


def test_a_concurrent_edit_is_not_lost(project):
    from agentv.datasets.loader import case_source
    from agentv.extensions.generate.generator import RubricFile

    path = project.write("d.yaml", COMMENTED)
    source = case_source(path, warn=print, note=print).sources[0]
    file = RubricFile(source)
    (project.path / path).write_text(COMMENTED.replace("# the end", "# a new end"))
    file.write({"a": ITEMS})
    text = (project.path / path).read_text()
    assert "# a new end" in text and text.count("says-it-2") == 1


TABLE = 'topic,answer,id\nrain,"wet, mostly",r1\n"sun\nlight",warm,\n\nsnow,cold,r1\n'
TEMPLATES = [
    "--input",
    "What is {{ topic }}?",
    "--expected-outcome",
    "Says {{ answer }}",
    "--expected-output",
    "{{ answer }}",
]


def cases_in(project, name="out.jsonl"):
    return [json.loads(line) for line in (project.path / name).read_text().splitlines()]


def test_templates_make_cases_from_rows_without_a_model(project):
    project.write("rows.csv", TABLE)
    ended = project.command("generate", "evals", "rows.csv", "--out", "sub/out.jsonl", *TEMPLATES)
    assert ended.code == 0, ended
    found = cases_in(project, "sub/out.jsonl")
    assert found[0] == {
        "id": "r1",
        "input": "What is rain?",
        "expected_outcome": "Says wet, mostly",
        "expected_output": "wet, mostly",
        "metadata": {"source": "rows.csv", "row": 1},
    }
    assert [case["id"] for case in found] == ["r1", "row-2", "r1-2"]
    assert found[1]["input"] == "What is sun\nlight?"
    assert calls(project) == []
    assert len(load_cases("sub/out.jsonl")) == 3


def test_a_field_map_fills_fields_from_any_kind_of_rows(project):
    rain = {"q": {"text": "Rain?"}, "a": ["wet"], "must": "wet|cold", "n": 1}
    rows = [rain, {"q": {"text": "Sun?"}, "a": [], "n": 2}]
    (project.path / "rows.json").write_text(json.dumps(rows))
    fields = "input=q.text,expected_output=a[0],contains_all=must,metadata.*=*"
    arguments = ["--map", fields, "--expected-outcome", "Says {{ a | join }}"]
    ended = project.command("generate", "evals", "rows.json", "--out", "out.jsonl", *arguments)
    assert ended.code == 0, ended
    first, second = cases_in(project)
    assert (first["input"], first["expected_output"], first["expected_outcome"]) == ("Rain?", "wet", "Says wet")
    assert first["assertions"] == [{"type": "contains_all", "value": ["wet", "cold"]}] and "assertions" not in second
    assert first["metadata"] == {"n": 1, "source": "rows.json", "row": 1}
    assert calls(project) == [] and len(load_cases("out.jsonl")) == 2


def test_a_model_writes_fields_without_a_template(project):
    project.write("rows.jsonl", [{"topic": "rain", "id": 7}, {"topic": "snow"}])
    ended = project.command("generate", "evals", "rows.jsonl", "--out", "out.jsonl", "--expected-outcome", "Is right")
    assert ended.code == 0, ended
    assert [(case["id"], case["input"], case["expected_outcome"]) for case in cases_in(project)] == [
        ("7", "About rain?", "Is right"),
        ("row-2", "About snow?", "Is right"),
    ]


def test_failed_rows_are_counted_and_retried(project):
    rows = [{"topic": "rain"}, {"topic": "unwilling"}, {"topic": "snow"}]
    project.write("rows.jsonl", rows)
    ended = project.command("generate", "evals", "rows.jsonl", "--out", "out.jsonl")
    assert ended.code == 1
    assert "Row 2: " in ended.stderr and "Wrote 2 cases from 3 rows to out.jsonl" in ended.stderr
    assert "Incomplete: 1 failed. To retry, run the same command with --resume." in ended.stderr
    assert project.command("generate", "evals", "rows.jsonl", "--out", "out.jsonl").code == 2
    project.write("rows.jsonl", [rows[0], {"topic": "hail"}, rows[2]])
    (project.path / "calls.log").unlink()
    ended = project.command("generate", "evals", "rows.jsonl", "--out", "out.jsonl", "--resume")
    assert ended.code == 0, ended
    assert calls(project) == ["judge:row-2"]
    assert sorted(case["metadata"]["row"] for case in cases_in(project)) == [1, 2, 3]


@pytest.mark.parametrize(
    ("name", "content", "arguments", "message"),
    [
        ("rows.csv", "a,b\n1,2,3\n", [], "The row has 3 cells, and the first line 2"),
        ("rows.csv", "a,b\n1\n", ["--input", "{{ b }}"], "there is no column 'b'"),
        ("rows.csv", "a,a\n1,2\n", [], "The column 'a' occurs twice"),
        ("rows.csv", "a\n", [], "has no rows"),
        ("rows.csv", 'a\n"x\n', [], "rows.csv, line"),
        ("rows.jsonl", "[1]\n", [], "line 1: expected an object, got integer"),
        ("rows.jsonl", '{"a": 1}\n{', [], "line 2"),
        ("rows.txt", "x", [], "Rows can be in .csv, .tsv, .jsonl"),
        ("rows.csv", "a\n1\n", ["--input", "{{ b }}"], "--input: there is no column 'b'. The row has: a"),
        ("rows.csv", "name,a\n1,2\n", ["--input", "{{ nmae }}"], "no column 'nmae'. Did you mean 'name'?"),
        ("rows.csv", "a\n1\n", ["--input", "{{ a"], "--input: "),
    ],
)
def test_invalid_rows_and_templates_are_reported_with_their_location(project, name, content, arguments, message):
    project.write(name, content)
    ended = project.command("generate", "evals", name, "--out", "out.jsonl", *arguments)
    assert ended.code == 2 and message in ended.stderr, ended
    assert not (project.path / "out.jsonl").exists()


def test_a_row_that_makes_an_invalid_case_is_reported(project):
    project.write("rows.csv", "question,answer\nrain,wet\nsun,dry\n,none\n")
    templates = ("--input", "{{ question }}", "--expected-outcome", "Says {{ answer }}")
    ended = project.command("generate", "evals", "rows.csv", "--out", "out.jsonl", *templates)
    assert ended.code == 1
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("Row ")]
    assert line.startswith("Row 3: ") and "input" in line, line
    assert "position" not in ended.stderr and "of those given" not in ended.stderr


def test_a_dry_run_only_counts_rows(project):
    project.write("rows.csv", TABLE)
    ended = project.command("generate", "evals", "rows.csv", "--out", "out.jsonl", "--dry-run", "--limit", "2")
    assert ended.code == 0 and "Would write 2 cases" in ended.stderr
    assert not (project.path / "out.jsonl").exists()
