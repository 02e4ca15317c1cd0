"""Text from data cannot control a terminal or run workflow commands of a build server, whatever prints it."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from agentv.cli.output import _text, echo_json, echo_json_parts
from agentv.report.figures import safe_json, safe_text

EVIL = "x\n::error::pwned\r\x1b[2J\x1b]0;title\x07\u202egnp\x9b31m\n  ::set-env name=PATH::y ##[error]z ##vso[task]"
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028]")
COMMANDS = re.compile(r"(?m)^\s*::|##\[|##vso\[")

EVALUATOR = {"type": "equals", "value": EVIL, "name": EVIL}
CASE = {"id": EVIL, "expected_outcome": "x", "input": EVIL, "evaluators": [EVALUATOR]}
PROJECT = {
    "good.jsonl": [CASE],
    "good.yaml": {"dataset": EVIL, "tags": [EVIL], "metadata": {EVIL: EVIL}},
    "bad.jsonl": [{**CASE, EVIL: 1, "evaluators": [{"type": EVIL}], "input": [{"role": EVIL, EVIL: EVIL}]}],
    "bad.yaml": {EVIL: EVIL, "execution": {"target": EVIL, EVIL: 1}},
    "broken.yaml": f"evalcases:\n- {json.dumps(EVIL)}: 1\n  {json.dumps(EVIL)}: 2\n",
    ".agentv/targets.yaml": {
        "targets": [
            {"name": EVIL, "provider": "mock", "response": EVIL},
            {"name": "fails", "provider": "cli", "command_template": "printf '%s' \"$EVIL\" >&2; exit 3"},
            {"name": "unknown", "provider": EVIL, EVIL: EVIL},
            {"name": "unset", "provider": "openai", "model": EVIL, "api_key": "${{ NOT_SET }}"},
        ]
    },
}
ALL = {
    "validate": ("validate", "good.jsonl", "bad.jsonl", "broken.yaml"),
    "validate as JSON": ("validate", "--json", "bad.jsonl"),
    "cases": ("cases", "good.jsonl"),
    "cases that are invalid": ("cases", "bad.jsonl"),
    "a broken document": ("cases", "broken.yaml"),
    "targets": ("targets",),
    "targets as JSON": ("targets", "--json"),
    "targets check": ("targets", "check", EVIL, "fails"),
    "dry run": ("eval", "good.jsonl", "--target", EVIL, "--dry-run"),
    "eval": ("eval", "good.jsonl", "--target", EVIL, "--target", "fails", "-v", "--max-retries", "0", "--out", "other"),
    "why": ("eval", "good.jsonl", "--target", EVIL, "--changed-since", "run", "--why", "--out", "third"),
    "eval as JSON": ("eval", "good.jsonl", "--target", EVIL, "--json", "--out", "fourth"),
    "unknown target": ("eval", "good.jsonl", "--target", f"{EVIL}?"),
    "unknown path": ("eval", EVIL),
    "unknown option": ("eval", f"--{EVIL}"),
    "unknown command": (EVIL,),
    "invalid option": ("eval", "good.jsonl", "--workers", EVIL),
    "filter": ("cases", "good.jsonl", "--filter", EVIL),
    "convert": ("convert", "good.jsonl", f"{EVIL}.yaml"),
    "report": ("report", "run"),
    "report as JSON": ("report", "run", "--json"),
    "report as Markdown": ("report", "run", "--markdown", "--out", "-"),
    "report as CSV": ("report", "run", "--csv", "--out", "-"),
    "report as JUnit": ("report", "run", "--junit", "--out", "-"),
    "compare": ("compare", "run", "run2"),
    "compare as Markdown": ("compare", "run", "run2", "--markdown"),
    "runs": ("runs",),
    "rescore": ("rescore", "run", "--out", "rescored"),
    "plan": ("plan", "run"),
}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    place = tmp_path_factory.mktemp("hostile")
    for name, content in PROJECT.items():
        path = place / name
        path.parent.mkdir(exist_ok=True)
        rows = content if isinstance(content, list) else [content]
        path.write_text(content if isinstance(content, str) else "".join(f"{json.dumps(row)}\n" for row in rows))
    assert agentv(place, *ALL["eval"][:-1], "run").returncode == 0
    shutil.copytree(place / "run", place / "run2")
    return place


def agentv(place, *arguments):
    command = [sys.executable, "-m", "agentv", *arguments]
    return subprocess.run(command, cwd=place, env={**os.environ, "EVIL": EVIL}, capture_output=True, timeout=200)


@pytest.mark.parametrize("name", ALL)
def test_no_command_prints_control_characters_or_workflow_commands(project, command, monkeypatch, name):
    monkeypatch.chdir(project)
    monkeypatch.setenv("EVIL", EVIL)
    ended = command(*ALL[name])
    for text in (ended.stdout, ended.stderr):
        assert "Traceback" not in text
        text = text.replace("\r\n", "\n") if "CSV" in name else text
        assert not RAW.search(text), RAW.search(text)
        assert not COMMANDS.search(text)
    assert "pwned" in ended.stdout + ended.stderr or name in ("runs", "plan")


def test_annotations_are_the_only_workflow_commands(project):
    printed = agentv(project, "validate", "--format", "github", "bad.jsonl").stdout.decode()
    assert not RAW.search(printed)
    assert all(re.match(r"::(error|warning) file=[^:]*::", line) for line in printed.splitlines())


@pytest.mark.parametrize("name", ["validate", "cases", "why", "report"])
def test_a_terminal_gets_only_our_own_styles(project, name):
    terminal, child = os.openpty()
    command = [sys.executable, "-m", "agentv", *ALL[name]]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200", "EVIL": EVIL}
    process = subprocess.Popen(command, cwd=project, env=environment, stdout=child, stderr=child, stdin=child)
    os.close(child)
    shown = b""
    while True:
        try:
            shown += os.read(terminal, 65536)
        except OSError:
            break
    process.wait()
    os.close(terminal)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\r", "", shown.decode())
    assert "\x1b[2J" not in shown.decode() and not RAW.search(text)


def test_json_has_the_same_values(project):
    case = json.loads(agentv(project, "cases", "good.jsonl").stdout)
    assert (case["id"], case["input"][0]["content"]) == (EVIL, EVIL)
    data = json.dumps({"é": ["##[", "\u202e", "\x9b"]}, ensure_ascii=False).encode()
    assert json.loads(safe_json(data)) == json.loads(data)
    assert "é".encode() in safe_json(data) and b"##" not in safe_json(data)


@pytest.mark.parametrize("pieces", [["::error::x"], [":", ":error::x"], ["a\n ", "::x"], ["a\n", ":", ":x"], ["##[x]"]])
def test_prints_of_user_code_are_no_workflow_commands(tmp_path, pieces):
    with open(tmp_path / "printed", "wb", buffering=0) as raw:
        stream = _text(raw, "utf-8", lines=True)
        for piece in pieces:
            assert stream.write(piece) == len(piece)
        stream.write("\nend :: of\n")
    printed = (tmp_path / "printed").read_text()
    assert not COMMANDS.search(printed) and printed.replace("\\", "") == "".join(pieces) + "\nend :: of\n"


def test_ordinary_text_is_unchanged():
    text = "std::string, ## Heading, a :: b\n\ttab — é 日本 👩‍👩‍👧"
    assert safe_text(text) == text


def test_json_printed_in_parts_is_the_same_and_as_safe(capfdbinary):
    values = {EVIL: [EVIL, {"a": [1.5, None]}], "none": [], "one": [1], "text": EVIL}
    echo_json(values)
    whole = capfdbinary.readouterr().out
    echo_json_parts({key: iter(value) if isinstance(value, list) else value for key, value in values.items()})
    assert capfdbinary.readouterr().out == whole
