"""Commands on Windows: values of placeholders reach a program as they are, and cmd.exe never executes them."""

import asyncio
import json
import os
import signal
import sys

import pytest

from agentv.extensions.windows.plain_process import plain_command, run_plainly

NASTY = 'it\'s "quoted" & calc | %PATH% ^ $HOME \\ \n second line é ✓'
PRINTER = "import json, sys; print(json.dumps(sys.argv[1:], ensure_ascii=False))"
TEXT, FILE = '"\0AGENTV_PROMPT\0"', '"\0AGENTV_PROMPT_FILE\0"'
ENV = {"AGENTV_PROMPT": NASTY, "AGENTV_PROMPT_FILE": "C:\\Temp folder\\prompt.txt"}


@pytest.fixture
def programs(tmp_path):
    for name in ("agent.exe", "agent.cmd"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    "command, expected",
    [
        (f"agent.exe {TEXT}", [NASTY]),
        (f"agent.exe --text={TEXT} last", [f"--text={NASTY}", "last"]),
        ('agent.exe "a \0AGENTV_PROMPT\0 b"', [f"a {NASTY} b"]),
        (f"agent.exe C:\\data\\x.txt {FILE}", ["C:\\data\\x.txt", ENV["AGENTV_PROMPT_FILE"]]),
    ],
)
def test_a_program_gets_each_placeholder_as_one_argument(programs, command, expected):
    arguments = plain_command(command, str(programs), {**ENV, "PATH": str(programs)})
    assert arguments == [str(programs / "agent.exe"), *expected]


@pytest.mark.parametrize("command", ["agent.cmd {}", "echo-of-cmd {}", "agent.exe {} | more", "agent.exe {} > out.txt"])
def test_cmd_gets_paths_but_never_text_of_a_dataset(programs, command):
    variables = {**ENV, "PATH": str(programs)}
    assert plain_command(command.format(FILE), str(programs), variables) == command.format(
        f'"{ENV["AGENTV_PROMPT_FILE"]}"'
    )
    with pytest.raises(ValueError, match="only a program"):
        plain_command(command.format(TEXT), str(programs), variables)


@pytest.mark.parametrize("command", ["agent.exe {}; ls", "agent.exe $HOME {}", "agent.exe `ls` {}"])
def test_syntax_of_a_posix_shell_is_an_error(programs, command):
    with pytest.raises(ValueError, match="no POSIX shell"):
        plain_command(command.format(TEXT), str(programs), {**ENV, "PATH": str(programs)})


def test_a_command_without_placeholders_is_run_by_the_shell(programs):
    assert plain_command("agent.exe 'a b' | more", str(programs), {}) == "agent.exe 'a b' | more"


def test_a_program_in_a_folder_is_looked_up_where_it_runs(programs):
    assert plain_command(f"./agent.exe {FILE}", str(programs), ENV)[0] == f"{programs}/./agent.exe"


def test_values_arrive_unchanged(tmp_path):
    (tmp_path / "printer.py").write_text(PRINTER)
    command = f'"{sys.executable}" printer.py {TEXT} {FILE}'
    output = asyncio.run(run_plainly(command, str(tmp_path), ENV, None, (60, 1000)))
    assert json.loads(output.stdout) == list(ENV.values())


def test_a_program_that_prints_without_end_is_stopped():
    command = [sys.executable, "-c", "while True: print('x' * 1000)"]
    output = asyncio.run(run_plainly(command, ".", {}, None, (60, 5000)))
    assert output.stdout.startswith(b"xxx") and len(output.stdout) > 5000


def test_input_and_errors_of_any_size_do_not_block():
    code = "import sys; sys.stderr.write('e' * 500_000); print(len(sys.stdin.read()))"
    output = asyncio.run(run_plainly([sys.executable, "-c", code], ".", {}, b"i" * 500_000, (60, 1000)))
    assert (output.stdout.split(), len(output.stderr), output.code) == ([b"500000"], 500_000, 0)


def test_many_programs_run_at_the_same_time(tmp_path):
    code = (
        "import pathlib, sys; pathlib.Path(sys.argv[1]).touch()\nwhile len(list(pathlib.Path().iterdir())) < 24: pass"
    )

    async def run_all():
        commands = ([sys.executable, "-c", code, str(number)] for number in range(24))
        return await asyncio.gather(*(run_plainly(each, str(tmp_path), {}, None, (200, 1000)) for each in commands))

    assert {output.code for output in asyncio.run(run_all())} == {0}


def test_a_program_that_leaves_another_one_behind_has_ended():
    code = "import subprocess; print(subprocess.Popen(['tail', '-f', '/dev/null']).pid)"
    output = asyncio.run(run_plainly([sys.executable, "-c", code], ".", {"PATH": os.environ["PATH"]}, None, (60, 1000)))
    os.kill(int(output.stdout), signal.SIGTERM)
    assert output.code == 0
