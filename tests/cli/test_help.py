"""The help of the command line, its streams and exit codes."""

import json
import os
import shutil
import signal
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from agentv.cli import COMMANDS, cli
from agentv.engine.gates.gate_options import Gates
from agentv.engine.run_options import EvalOptions, RescoreOptions
from agentv.settings.command_option import declared_options


def agentv(*arguments, **options):
    command = [sys.executable, "-m", "agentv", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False, **options)


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_commands_work_with_any_stream_encoding_and_keep_minus_signs(tmp_path, encoding):
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    (tmp_path / "targets.yaml").write_text("targets: [{name: default, provider: mock}]")

    def output_of(*arguments):
        ended = agentv(*arguments, cwd=tmp_path, env=environment, errors="replace", timeout=200)
        assert (ended.returncode, "Traceback" in ended.stderr) == (0, False), ended.stderr
        return ended.stdout

    for run, value in (("before", "日本"), ("after", "elsewhere")):
        check = {"type": "contains", "value": value}
        cases = [{"id": f"日−{n}", "expected_outcome": "x", "input": "→ 日本"} for n in range(7)]
        (tmp_path / "d.yaml").write_text(json.dumps({"evalcases": cases, "evaluators": [check]}), encoding="utf-8")
        output_of("eval", "d.yaml", "--out", run, "--verbose")
    compared = output_of("compare", "before", "after", "--fail-on", "never")
    assert "(1.000 -> 0.000)" in compared and "  -1.000  " in compared
    assert "Compared with before" in output_of("rescore", "before", "--out", "again")


def test_help_lists_every_command():
    for row in COMMANDS.names():
        *group, name = row.split()
        output = CliRunner().invoke(cli, [*group, "--help"]).output
        assert f"  {name} " in output
        assert COMMANDS.summary(row) in output


@pytest.mark.parametrize("name", COMMANDS.names())
def test_every_command_has_help_with_an_example(name):
    result = CliRunner().invoke(cli, [*name.split(), "--help"])
    assert result.exit_code == 0
    assert f"agentv {name}" in result.output
    if " " in name:
        return
    command = cli.get_command(None, name)
    assert (
        (command.help or "")
        .split("\n")[0]
        .rstrip(":")
        .startswith(COMMANDS.summary(name).rstrip(".").split(" (")[0][:20])
    )


@pytest.mark.parametrize("name", ["eval", "rescore"])
def test_options_are_listed_under_headings(name):
    command = cli.get_command(None, name)
    sections = command.sections(click.Context(command))
    assert list(sections) == ["Selection", "Targets", "Scoring", "Limits", "Output", "Resume"]
    assert sections["Output"].pop().opts[-1] == "--help"
    listed = [option.name for options in sections.values() for option in options]
    assert sorted(listed) == sorted(param.name for param in command.params if isinstance(param, click.Option))


def test_every_option_of_a_run_is_an_option_of_a_command():
    parameters = {param.name for name in ("eval", "rescore") for param in cli.get_command(None, name).params}
    assert {*declared_options(EvalOptions), *declared_options(RescoreOptions), *declared_options(Gates)} <= parameters


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workers", "0"], "must be a whole number of at least 1, got '0'"),
        (["--timeout", "0"], "must be a number above 0, got '0'"),
        (["--max-outage", "-1"], "must be a number of at least 0, got '-1'"),
        (["--trials", "10001"], "must be a whole number from 1 to 10000, got '10001'"),
        (["--threshold", "80%"], "must be a number from 0 to 1, got '80%'; write 0.8 for 80%"),
        (["--gate-on", "mean"], "'mean' is not one of 'point', 'interval'"),
        (["--shard", "9"], "--shard takes I/N, for example 2/8, got '9'"),
    ],
)
def test_the_type_of_a_field_checks_its_option(command, arguments, message):
    ended = command("eval", "d.yaml", *arguments)
    assert ended.code == 2 and message in ended.stderr


def test_examples_are_printed_one_per_line():
    output = CliRunner().invoke(cli, ["eval", "--help"]).output
    assert "\n    agentv eval evals\n    agentv eval evals/dataset.yaml --target gpt --trials 3\n" in output


def test_an_example_of_a_long_value_is_not_broken():
    for name in ("eval", "validate", "cases", "convert"):
        assert "input=question,expected_output=answer" in CliRunner().invoke(cli, [name, "--help"]).output


def test_an_unknown_command_gets_a_suggestion_and_exit_code_2():
    result = agentv("valdate")
    assert result.returncode == 2
    assert "No such command 'valdate'. Did you mean 'validate'?" in result.stderr


def test_an_unknown_command_of_a_group_gets_its_commands(command):
    assert "No such command 'latest'. Commands: check, " in command("runs", "latest").stderr
    assert "No such command 'prunne'. Did you mean 'prune'?" in command("runs", "prunne").stderr


@pytest.mark.parametrize("group", ["runs", "generate", "judge", "targets"])
def test_descriptions_of_commands_are_not_cut(group):
    assert "...\n" not in CliRunner().invoke(cli, [group, "--help"]).output.partition("\nCommands:")[2]


def test_a_missing_argument_is_a_usage_error():
    assert agentv("cases").returncode == 2


def test_an_error_has_no_traceback(tmp_path):
    result = agentv("cases", tmp_path / "nothing.yaml")
    assert result.returncode == 2
    assert result.stderr.startswith("Error: No such file: ")
    assert "Traceback" not in result.stderr


def test_a_closed_pipe_is_not_a_failure(tmp_path):
    lines = (f'{{"id": "{n}", "expected_outcome": "x", "input": "{"long " * 50}"}}\n' for n in range(5000))
    (tmp_path / "many.jsonl").write_text("".join(lines), encoding="utf-8")
    command = f'"{sys.executable}" -m agentv cases many.jsonl -q | head -n 1'
    result = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=tmp_path, capture_output=True, check=False)
    assert result.returncode == 0
    assert result.stderr == b""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A project whose one case fails, and a run of it."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "targets.yaml").write_text("targets: [{name: default, provider: mock}]")
    cases = [{"id": "a", "expected_outcome": "x", "input": "no"}]
    checks = [{"type": "contains", "value": "yes"}]
    (folder / "d.yaml").write_text(json.dumps({"evalcases": cases, "evaluators": checks}))
    assert agentv("eval", "d.yaml", "--out", "before", "-q", cwd=folder).returncode == 0
    return folder


@pytest.fixture
def small(ran, tmp_path):
    return shutil.copytree(ran, tmp_path / "small")


def in_shell(folder, line):
    command = ["bash", "-o", "pipefail", "-c", f'"{sys.executable}" -m agentv {line}']
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=200)


CLOSED = (
    "--help",
    "cases d.yaml",
    "eval d.yaml --out run --json",
)
PRINTING = (
    *CLOSED,
    "validate d.yaml --json",
    "runs --in .",
    "report before --csv",
    "compare before before",
    "schema line",
    "eval d.yaml --out run",
)
FULL_DISK, CLOSED_STREAM = (">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux")
@pytest.mark.parametrize(
    ("line", "where", "why"),
    [(line, *FULL_DISK) for line in PRINTING] + [(line, *CLOSED_STREAM) for line in CLOSED],
)
def test_output_that_cannot_be_written_exits_with_2(small, line, where, why):
    ended = in_shell(small, f"{line} {where}")
    assert ended.returncode == 2
    assert ended.stderr.endswith(f"Error: Cannot write to stdout: {why}\n") and "Traceback" not in ended.stderr
    if line.startswith("eval"):
        assert "Results: run\n" in ended.stderr
        assert len((small / "run" / "results.jsonl").read_bytes().splitlines()) == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux")
@pytest.mark.parametrize("where", ["--verbose 2>/dev/full", "--verbose 2>&-", "<&-", "-q <&- >&- 2>&-"])
def test_messages_that_cannot_be_written_do_not_end_a_run(small, where):
    assert in_shell(small, f"eval d.yaml --out run {where}").returncode == 0
    assert len((small / "run" / "results.jsonl").read_bytes().splitlines()) == 1


def test_a_closed_pipe_does_not_hide_a_missed_gate(small):
    assert in_shell(small, "eval d.yaml --threshold 0.5 | true").returncode == 1


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_ctrl_c_ends_a_command_with_130_and_no_traceback(tmp_path):
    os.mkfifo(tmp_path / "ids")
    (tmp_path / "d.jsonl").write_text('{"id": "a", "input": "x", "expected_outcome": "y"}', encoding="utf-8")
    command = [sys.executable, "-m", "agentv", "cases", "d.jsonl", "--cases-from", "ids"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    # Opening our end blocks until the command has opened its own: from then on it waits for lines.
    with (tmp_path / "ids").open("wb"):
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=200)
        except subprocess.TimeoutExpired:  # it came just before the command began to read
            process.send_signal(signal.SIGINT)
            process.wait(timeout=200)
    assert process.returncode == 130
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()


def test_colour_is_only_for_terminals(tmp_path):
    (tmp_path / "bad.jsonl").write_text("{", encoding="utf-8")
    assert "\x1b[" not in agentv("cases", tmp_path / "bad.jsonl").stderr


@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")
@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_no_color_turns_colour_off_on_a_terminal(small, no_color, coloured):
    reader, writer = os.openpty()
    environment = {**os.environ, "NO_COLOR": no_color, "TERM": "xterm"}
    with subprocess.Popen(
        [sys.executable, "-m", "agentv", "cases", "d.yaml"], cwd=small, stdout=writer, stderr=writer, env=environment
    ) as process:
        process.wait(timeout=200)
    os.close(writer)
    shown = os.read(reader, 65536).decode()
    os.close(reader)
    assert "1 case" in shown and ("\x1b[" in shown) == coloured


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_the_command(shell):
    result = CliRunner().invoke(cli, ["completion", shell])
    assert result.exit_code == 0
    assert "_AGENTV_COMPLETE" in result.output


@pytest.mark.parametrize(
    ("words", "expected"),
    [("agentv val", "validate"), ("agentv schema ", "sidecar"), ("agentv cases --on-", "--on-error")],
)
def test_the_shell_completes_commands_values_and_options(words, expected):
    environment = os.environ | {
        "_AGENTV_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    code = "from agentv.cli import cli; cli.main(prog_name='agentv')"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert expected in result.stdout


@pytest.mark.parametrize(
    ("command_line", "option"),
    [
        ("eval evals --treshold 0.5", "--threshold"),
        ("compare a b --treshold 1", "--threshold"),
        ("cases --fliter x", "--filter"),
        ("runs --jsno", "--json"),
    ],
)
def test_a_misspelled_option_has_one_suggestion(command, command_line, option):
    ended = command(*command_line.split())
    assert ended.code == 2 and f"Did you mean '{option}'?" in ended.stderr
