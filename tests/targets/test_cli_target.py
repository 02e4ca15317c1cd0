"""The command target: placeholders, output, failures, and cleanup."""

import asyncio
import json
import os
import shlex
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

import agentv_testing
from agentv.model.environment import Environment
from agentv.model.message import FilePart, Message, TextPart
from agentv.model.origin import Origin, Place
from agentv.model.response import TargetFailure
from agentv.model.result import TokenUsage
from agentv.sandbox import subprocesses as processes
from agentv.settings.environment import Home
from agentv.targets import command_call as command_module
from agentv.targets.cli import Cli, CommandTemplate, Healthcheck, executed_placeholder
from platforms import only_on_posix
from virtual_time import skipped_ahead
from waiting import HANGS, let_others_run, wait_until, words_in

NASTY = 'it\'s "quoted" $(touch hacked) `touch hacked` $HOME \\ * ; | & \n second line é ✓'


def cli(template, **settings):
    return Cli(name="c", provider="cli", command_template=template, **settings)


def failure_of(ask, target, **fields):
    with pytest.raises(TargetFailure) as failed:
        ask(target, **fields)
    return failed.value


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """The folder for the commands' files, which must be empty when a test ends."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


QUOTING = {
    "plain": "printf %s {PROMPT}",
    "in double quotes": 'printf %s "{PROMPT}"',
    "in single quotes": "printf %s '{PROMPT}'",
    "in a substitution": 'printf %s "$(printf %s {PROMPT})"',
    "quoted in a substitution": 'printf %s "$(printf %s "{PROMPT}")"',
    "after other quotes": "echo \"it's\" '\"' \\' \\\" > /dev/null; printf %s {PROMPT}",
    "after a comment": "true # it's a comment\nprintf %s {PROMPT}",
    "in a subshell": "(printf %s {PROMPT})",
    "as a variable": 'x={PROMPT}; printf %s "$x"',
    "from a file": "cat {PROMPT_FILE}",
}


@only_on_posix("commands are for cmd.exe, not for a POSIX shell")
@pytest.mark.parametrize("template", QUOTING.values(), ids=QUOTING)
def test_the_prompt_arrives_unchanged(ask, tmp_path, template):
    assert ask(cli(template), text=NASTY, folder=tmp_path).text == NASTY
    assert not (tmp_path / "hacked").exists()


HOSTILE = {
    "in backquotes": "printf %s `printf %s {PROMPT}`",
    "in a heredoc": "cat <<END\n{PROMPT}\nEND",
    "where the quotes are hard to follow": 'printf %s "$(case x in x) printf %s {PROMPT};; esac)"',
}


@only_on_posix("commands are for cmd.exe, not for a POSIX shell")
@pytest.mark.parametrize("template", HOSTILE.values(), ids=HOSTILE)
def test_values_are_never_executed(ask, tmp_path, template):
    ask(cli(template), text=NASTY, folder=tmp_path)
    assert not (tmp_path / "hacked").exists()


PLACEHOLDERS = {
    "{EVAL_ID}": "a b/$(x)",
    "{ATTEMPT}": "2",
    "{GUIDELINES}": "",
    "{FILES}": "",
    "${HOME:+shell}": "shell",
    "{lower}": "{lower}",
}


@only_on_posix("commands are for cmd.exe, not for a POSIX shell")
@pytest.mark.parametrize(("placeholder", "value"), PLACEHOLDERS.items())
def test_placeholder_values(ask, placeholder, value):
    response = ask(cli(f"printf '<%s>' {placeholder}"), id="a b/$(x)", attempt=3)
    assert response.text == f"<{value}>"


@pytest.fixture
def with_files(tmp_path):
    """A case with two files, one of them twice, and a guideline."""
    for name in ("a b.txt", "it's.txt", "rules.instructions.md"):
        (tmp_path / name).write_text(f"contents of {name}")
    parts = [FilePart(name, "", str(tmp_path / name)) for name in ("a b.txt", "it's.txt", "rules.instructions.md")]
    return {
        "text": (Message("user", (TextPart("Read"), *parts, parts[0])),),
        "folder": tmp_path,
    }


FILES = {
    "paths": ("{path}", "<{0}/a b.txt><{0}/it's.txt><{0}/rules.instructions.md>"),
    "an option each": (
        "--file {path}",
        "<--file><{0}/a b.txt><--file><{0}/it's.txt><--file><{0}/rules.instructions.md>",
    ),
    "quoted by the user": ('-f"{path}"', "<-f{0}/a b.txt><-f{0}/it's.txt><-f{0}/rules.instructions.md>"),
    "names": (
        "{basename}={path}",
        "<a b.txt={0}/a b.txt><it's.txt={0}/it's.txt><rules.instructions.md={0}/rules.instructions.md>",
    ),
}


@pytest.mark.parametrize(("files_format", "expected"), FILES.values(), ids=FILES)
def test_files_are_formatted_with_files_format(ask, with_files, tmp_path, files_format, expected):
    response = ask(cli("printf '<%s>' {FILES}", files_format=files_format), **with_files)
    assert response.text == expected.format(tmp_path)


@only_on_posix("commands are for cmd.exe, not for a POSIX shell")
def test_the_prompt_references_files_and_guidelines_are_separate(new_request, with_files, tmp_path):
    request = new_request(**with_files)
    origin = Origin(base_dir=str(tmp_path), root=str(tmp_path), guideline_patterns=("*.instructions.md",))
    request.case = type(request.case)("one", input=with_files["text"], place=Place(origin, 1))

    async def answers():
        responder = cli("printf '%s\\n' {FILES}; echo ---; echo {GUIDELINES}; echo ---; echo {PROMPT}").open(
            str(tmp_path)
        )
        return (await responder.respond(request)).text.split("---")

    files, guidelines, prompt = asyncio.run(answers())
    assert files.split("\n")[:2] == [f"{tmp_path}/a b.txt", f"{tmp_path}/it's.txt"]
    assert "contents of rules" in guidelines
    assert f'<file: path="{tmp_path}/a b.txt">' in prompt
    assert "contents of a b" not in prompt


OUTPUTS = {
    "text": ("hello\nworld\n\n", "hello\nworld", None),
    "other JSON": ('{"answer": 42}', '{"answer": 42}', None),
    "incomplete JSON": ('{"text": ', '{"text": ', None),
    "a list": ("[1]", "[1]", None),
    "the text of an object": ('{"text": "hi", "token_usage": {"input": 1, "output": 2}}', "hi", TokenUsage(1, 2)),
    "data as text": ('{"text": {"a": 1}}', '{"a":1}', None),
    "messages": ('{"output_messages": [{"role": "assistant", "content": "hi"}], "text": "no"}', "hi", None),
    "no messages": ('{"output_messages": [], "text": "hi"}', "hi", None),
    "an empty text": ('{"text": ""}', "", None),
}


@pytest.mark.parametrize("way", ["cat {0}", "cat {0} > {{OUTPUT_FILE}}; echo noise"], ids=["stdout", "file"])
@pytest.mark.parametrize(("printed", "text", "usage"), OUTPUTS.values(), ids=OUTPUTS)
def test_command_output_becomes_the_answer(ask, tmp_path, printed, text, usage, way):
    (tmp_path / "printed").write_text(printed)
    response = ask(cli(way.format(shlex.quote(str(tmp_path / "printed")))))
    # A file keeps its line ends, as in AgentV (TypeScript); printed text loses them, as in a shell.
    expected = printed if text == printed.rstrip() and "OUTPUT_FILE" in way else text
    assert (response.text, response.usage) == (expected, usage)


def test_invalid_utf8_is_replaced(ask):
    assert ask(cli("printf 'a\\377b'")).text == "a�b"


def test_metrics_are_read(ask):
    response = ask(cli("""echo '{"text": "x", "cost_usd": 0.5, "duration_ms": 12}'"""))
    assert (response.cost_usd, response.duration_ms) == (0.5, 12.0)


FAILURES = {
    "an exit code": ("echo first; echo broken >&2; exit 3", "process", "ended with exit code 3: broken"),
    "nothing on stderr": ("echo on stdout; exit 1", "process", "ended with exit code 1: on stdout"),
    "a long stderr": ("seq 100000 >&2; exit 1", "process", "99999\n100000"),
    "a signal": ("kill -9 $$", "process", "was terminated by SIGKILL"),
    "no such program": ("no-such-program-here", "process", "ended with exit code 127"),
    "no file": ("echo said; : {OUTPUT_FILE}", "invalid_response", "did not write {OUTPUT_FILE}: said"),
    "invalid messages": (
        "echo '{\"output_messages\": [1]}'",
        "invalid_response",
        "'output_messages[0]' is not a message",
    ),
}


@only_on_posix("commands are for cmd.exe, not for a POSIX shell")
@pytest.mark.parametrize(("template", "error_class", "message"), FAILURES.values(), ids=FAILURES)
def test_command_failures_are_classified(ask, template, error_class, message):
    failure = failure_of(ask, cli(template))
    assert failure.error_class == error_class
    assert message in failure.message
    assert len(failure.message) < 2200


@only_on_posix("commands are for cmd.exe, not for a POSIX shell")
def test_program_not_found_names_the_folder(ask, tmp_path):
    (tmp_path / "there").mkdir()
    message = failure_of(ask, cli("./agent.sh {PROMPT}", cwd="there")).message
    assert f"ended with exit code 127 in {tmp_path}/there: " in message


def test_a_missing_folder_is_named(ask, tmp_path):
    assert f"{tmp_path}/nowhere': the folder does not exist" in failure_of(ask, cli("true", cwd="nowhere")).message


def test_a_prompt_too_long_for_a_command_line_gets_a_hint(ask):
    failure = failure_of(ask, cli("echo {PROMPT}"), text="x" * 200_000)
    assert (failure.error_class, "use {PROMPT_FILE}" in failure.message) == ("process", True)
    assert ask(cli("wc -c < {PROMPT_FILE}"), text="x" * 200_000).text.strip() == "200000"


def test_a_prompt_with_a_null_character_gets_a_hint(ask):
    assert "use {PROMPT_FILE}" in failure_of(ask, cli("echo {PROMPT}"), text="a\0b").message


def test_output_has_a_limit(ask, monkeypatch):
    failure = failure_of(ask, cli("yes"))
    assert failure.error_class == "process"
    assert "printed more than 16 MiB" in failure.message
    monkeypatch.setattr(command_module, "MAX_OUTPUT_BYTES", 10)
    assert "more than" in failure_of(ask, cli("echo 12345678901 > {OUTPUT_FILE}")).message


def test_excessive_stderr_is_harmless(ask):
    assert ask(cli("head -c 5000000 /dev/zero >&2; echo done")).text == "done"


def test_standard_input_is_empty(ask):
    assert ask(cli("cat; echo end")).text == "end"


WHERE = {
    "the dataset's folder": ({}, None, "data"),
    "a folder of the settings": ({"cwd": "sub"}, None, "data/sub"),
    "a folder above the dataset's": ({"cwd": "../home"}, None, "home"),
    "the workspace before both": ({"cwd": "sub"}, "work", "work"),
}


@pytest.mark.parametrize(("settings", "workspace", "expected"), WHERE.values(), ids=WHERE)
def test_working_folder(new_request, tmp_path, settings, workspace, expected):
    for name in ("data/sub", "home", "work"):
        (tmp_path / name).mkdir(parents=True)
    request = new_request(folder=tmp_path / "data")
    request.job_workspace = SimpleNamespace(path=str(tmp_path / workspace)) if workspace else None

    async def answer():
        return (await cli("pwd", **settings).open(str(tmp_path / "home")).respond(request)).text

    assert asyncio.run(answer()) == str(tmp_path / expected)


def test_the_health_check_runs_in_the_same_folder(new_request, tmp_path):
    (tmp_path / "data" / "sub").mkdir(parents=True)
    (tmp_path / "data" / "sub" / "ready").touch()
    target = cli("echo yes", cwd="sub", healthcheck=Healthcheck(command_template="test -f ready"))

    async def answer():
        return (await target.open(str(tmp_path)).respond(new_request(folder=tmp_path / "data"))).text

    assert asyncio.run(answer()) == "yes"


def test_messages_may_be_in_output_as_in_4x(ask):
    messages = '[{"role": "assistant", "content": "yes", "tool_calls": [{"tool": "search"}]}]'
    response = ask(cli(f"""echo '{{"output": {messages}, "cost_usd": 0.5}}'"""))
    assert (response.text, response.cost_usd) == ("yes", 0.5)
    assert response.messages[0].tool_calls[0].tool == "search"


@pytest.mark.parametrize(
    "data", ['{"output": "yes"}', '{"output": []}', '{"output": [1, 2]}', '{"output": [{"a": 1}]}']
)
def test_an_output_that_is_not_messages_is_the_answer(ask, data):
    assert ask(cli(f"echo '{data}'")).text == data


@pytest.mark.parametrize("template", ["true", "echo", "touch {OUTPUT_FILE}", "printf ' \\n' > {OUTPUT_FILE}"])
def test_a_command_without_output_is_an_error_not_an_empty_answer(ask, template):
    failure = failure_of(ask, cli(template))
    assert failure.error_class == "invalid_response"
    assert 'an empty answer is {"text": ""}' in failure.message
    assert ask(cli("""echo '{"text": ""}'""")).text == ""


def test_a_case_without_a_file_runs_in_the_home_folder(ask, tmp_path):
    assert ask(cli("pwd")).text == str(tmp_path)


def test_a_command_gets_the_environment_without_secrets(ask, tmp_path, monkeypatch):
    for name in ("A_KEY", "B_KEY", "MINE"):
        monkeypatch.setenv(name, f"secret-{name}")
    monkeypatch.setenv("PLAIN", "plain")
    home = Home(str(tmp_path), Environment({"C_KEY": "secret-in-file", "FILE": "file"}, None, frozenset({"MINE"})))
    target = cli("echo $A_KEY,$B_KEY,$MINE,$PLAIN,$C_KEY,$FILE,$SET", pass_env=("B_KEY", "C_KEY"), env={"SET": "set"})

    async def answer():
        from agentv.engine.job.request import CaseRequest
        from agentv.model.case import EvalCase

        return (await target.open(home).respond(CaseRequest(EvalCase("one", input="x")))).text

    assert asyncio.run(answer()) == ",secret-B_KEY,,,secret-in-file,,set"


def test_the_files_of_a_command_are_private(ask):
    target = cli("ls -ld $(dirname {OUTPUT_FILE}) > {OUTPUT_FILE}; cat {PROMPT_FILE} >> {OUTPUT_FILE}")
    text = ask(target, text="secret prompt").text
    assert text.startswith("drwx------")
    assert text.endswith("secret prompt")


def test_files_are_removed_after_a_failure_too(ask, temporary):
    failure_of(ask, cli("touch {OUTPUT_FILE}; exit 1"))
    assert list(temporary.iterdir()) == []


def test_files_of_a_killed_run_are_removed(tmp_path, temporary, pids_in):
    """By the watchdog, because no other process is left."""
    program = (
        "import asyncio, sys; from agentv.targets.cli import Cli; from agentv_testing import SampleRequest;"
        f"command = 'cat {{PROMPT_FILE}}; echo $$ >> pids; {HANGS}';"
        "target = Cli(name='t', provider='cli', command_template=command);"
        "asyncio.run(target.open(sys.argv[1]).respond(SampleRequest()))"
    )
    path = str(Path(agentv_testing.__file__).parents[1])
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": path}
    run = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], cwd=tmp_path, env=environment)
    pids_in(tmp_path / "pids", 1)
    assert list(temporary.iterdir())
    run.kill()
    run.wait()
    wait_until(lambda: not list(temporary.iterdir()))


def test_files_are_kept_on_request(ask, temporary):
    ask(cli("echo hi > {OUTPUT_FILE}", keep_temp_files=True))
    [kept] = temporary.iterdir()
    [file] = kept.iterdir()
    assert file.read_text() == "hi\n"
    file.unlink()
    kept.rmdir()


# A shell, a background child and a grandchild, none of which ends by itself.
FAMILY = f"sh -c '{HANGS} & echo $$ $! >> pids; wait' & echo $$ >> pids; wait"
STUBBORN = "trap '' TERM; " + FAMILY


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(processes, "GRACE_S", 0.05)


@pytest.mark.parametrize("template", [FAMILY, STUBBORN], ids=["willing", "stubborn"])
def test_a_timeout_ends_the_whole_group(ask, tmp_path, still_running, pids_in, quick, template):
    with skipped_ahead(lambda: len(words_in(tmp_path / "pids")) == 3):
        failure = failure_of(ask, cli(template + "; true"), folder=tmp_path, timeout_s=200)
    assert failure.error_class == "timeout"
    assert "did not finish within 200 s" in failure.message
    assert still_running(pids_in(tmp_path / "pids", 3)) == []


@only_on_posix("there are no process groups")
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="finds them in /proc")
def test_a_timeout_ends_processes_outside_the_group(ask, tmp_path, still_running, pids_in, quick):
    orphan = "(setsid sh -c 'echo $$ >> pids; tail -f /dev/null' > /dev/null 2>&1 &)"
    command = f"{orphan}; setsid sh -c 'echo $$ >> pids; {HANGS}'"
    with skipped_ahead(lambda: len(words_in(tmp_path / "pids")) == 2):
        failure = failure_of(ask, cli(command), folder=tmp_path, timeout_s=200)
    assert failure.error_class == "timeout"
    assert still_running(pids_in(tmp_path / "pids", 2)) == []


@pytest.mark.parametrize("template", [FAMILY, STUBBORN], ids=["willing", "stubborn"])
@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
def test_a_cancellation_ends_the_whole_group(new_request, tmp_path, still_running, pids_in, quick, template, times):
    async def cancelled():
        responder = cli(template).open(str(tmp_path))
        call = asyncio.ensure_future(responder.respond(new_request(folder=tmp_path)))
        pids = await asyncio.to_thread(pids_in, tmp_path / "pids", 3)
        for _ in range(times):
            call.cancel()
            await let_others_run()
        with pytest.raises(asyncio.CancelledError):
            await call
        await responder.aclose()
        return pids

    pids = asyncio.run(cancelled())
    assert still_running(pids) == []


@pytest.mark.parametrize("between", [None, 0, 1, 2])
def test_a_cancellation_at_the_start_leaves_no_process(new_request, tmp_path, still_running, quick, between):
    async def cancelled(steps):
        responder = cli(f"{HANGS} & echo $$ $! >> pids; wait").open(str(tmp_path))
        call = asyncio.ensure_future(responder.respond(new_request(folder=tmp_path)))
        await let_others_run(steps)
        call.cancel()
        if between is not None:
            await let_others_run(between)
            call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    for steps in range(8):
        asyncio.run(cancelled(steps))
    pids = (tmp_path / "pids").read_text().split() if (tmp_path / "pids").exists() else []
    assert still_running(pids) == []


@only_on_posix("there are no process groups")
def test_background_processes_end_with_the_command(ask, tmp_path, still_running, pids_in):
    response = ask(cli(f"{HANGS} & echo $! > pids; echo answer"), folder=tmp_path)
    assert response.text == "answer"
    assert still_running(pids_in(tmp_path / "pids", 1)) == []


@only_on_posix("there are no process groups")
def test_a_process_outside_the_group_does_not_delay_the_answer(ask, tmp_path, pids_in, monkeypatch):
    monkeypatch.setattr(processes, "_DRAIN_S", 0.05)
    leave = "import os, signal; os.setsid(); open('pids', 'w').write(str(os.getpid())); signal.pause()"
    script = tmp_path / "leave.py"
    script.write_text(leave)
    waiting = "while [ ! -s pids ]; do :; done"
    response = ask(cli(f"{shlex.quote(sys.executable)} leave.py & {waiting}; echo answer"), folder=tmp_path)
    os.kill(*pids_in(tmp_path / "pids", 1), 9)
    assert response.text == "answer"


def test_no_zombies_remain(ask):
    for _ in range(5):
        ask(cli("echo ok"))
    mine = f" {os.getpid()} "
    stats = [path.read_text() for path in Path("/proc").glob("[0-9]*/stat") if path.exists()]
    assert [stat for stat in stats if ") Z" in stat and mine in stat[:60]] == []


@only_on_posix("commands are for cmd.exe, not for a POSIX shell")
def test_a_health_check_runs_once_for_all_cases(new_request, tmp_path):
    async def answers():
        target = cli("echo ok", healthcheck=Healthcheck(command_template="echo checked {EVAL_ID} >> checks"))
        responder = target.open(str(tmp_path))
        await asyncio.gather(*(responder.respond(new_request(str(number))) for number in range(5)))
        await responder.aclose()

    asyncio.run(answers())
    assert (tmp_path / "checks").read_text() == "checked healthcheck\n"


def test_a_failed_health_check_fails_every_case(new_request, tmp_path):
    async def failures():
        responder = cli("echo ok", healthcheck=Healthcheck(command_template="echo down >&2; exit 1")).open(
            str(tmp_path)
        )
        return await asyncio.gather(*(responder.respond(new_request(str(n))) for n in range(3)), return_exceptions=True)

    found = asyncio.run(failures())
    assert {failure.error_class for failure in found} == {"process"}
    assert {failure.message for failure in found} == {
        "The health check failed: The command ended with exit code 1: down"
    }
    assert len({id(failure) for failure in found}) == 3


class Healthy(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/good" else 503)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def address():
    server = HTTPServer(("127.0.0.1", 0), Healthy)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_health_check_by_address(ask, address):
    assert ask(cli("echo ok", healthcheck=Healthcheck(url=f"{address}/good"))).text == "ok"
    failure = failure_of(ask, cli("echo ok", healthcheck=Healthcheck(url=f"{address}/bad")))
    assert "The health check failed" in failure.message
    assert "503" in failure.message


def test_a_cancelled_health_check_leaves_no_process(new_request, tmp_path, still_running, pids_in):
    async def closed():
        slow = Healthcheck(command_template=f"echo $$ > pids; {HANGS}")
        responder = cli("echo ok", healthcheck=slow).open(str(tmp_path))
        call = asyncio.ensure_future(responder.respond(new_request()))
        pids = await asyncio.to_thread(pids_in, tmp_path / "pids", 1)
        await responder.aclose()
        with pytest.raises(asyncio.CancelledError):
            await call
        return pids

    assert still_running(asyncio.run(closed())) == []


BATCH = """
import json, sys
answers = []
for line in open(sys.argv[1]):
    case = json.loads(line)
    answers.append({"id": case["id"], "text": case["prompt"].upper(), "cost_usd": 1})
exec(sys.argv[3])
open(sys.argv[2], "w").write("".join(a if isinstance(a, str) else json.dumps(a) + "\\n" for a in answers))
"""


@pytest.fixture
def in_batches(tmp_path, new_request):
    """Return the outcomes of three cases in one batch; `change` modifies the command's answers."""
    (tmp_path / "batch.py").write_text(BATCH)

    def run(change="pass", ids=("a", "b", "c")):
        python = shlex.quote(sys.executable)
        template = f"echo run >> runs; {python} batch.py {{PROMPT_FILE}} {{OUTPUT_FILE}} {shlex.quote(change)}"

        async def outcomes():
            responder = cli(template, provider_batching=True).open(str(tmp_path))
            return await responder.respond_many([new_request(id, f"text {id}", folder=tmp_path) for id in ids])

        return asyncio.run(outcomes())

    return run


@only_on_posix("commands are for cmd.exe, not for a POSIX shell")
def test_one_command_answers_many_cases(in_batches, tmp_path):
    outcomes = in_batches()
    assert {id: response.text for id, response in outcomes.items()} == {"a": "TEXT A", "b": "TEXT B", "c": "TEXT C"}
    assert all(response.cost_usd == 1 and response.duration_ms > 0 for response in outcomes.values())
    assert (tmp_path / "runs").read_text() == "run\n"


CHANGES = {
    "a missing line": ("del answers[1]", "The command's output has no line for 'b'"),
    "a line that is not JSON": ("answers[1] = 'oops\\n'", "no line for 'b' (line 2 of the output is not valid JSON)"),
    "a line without an id": ("answers[1] = {'text': 'x'}", "no line for 'b' (line 2 of the output has no 'id')"),
    "a line without an answer": (
        "answers[1] = {'id': 'b'}",
        "for 'b' has no 'output_messages', 'output' or 'text'",
    ),
    "an invalid line": ("answers[1]['cost_usd'] = -1", "'cost_usd' must be a non-negative number"),
    "two lines": ("answers.append(answers[1])", "The output has two lines for 'b'"),
}


@only_on_posix("commands are for cmd.exe, not for a POSIX shell")
@pytest.mark.parametrize(("change", "message"), CHANGES.values(), ids=CHANGES)
def test_a_missing_or_bad_line_fails_only_its_case(in_batches, change, message):
    outcomes = in_batches(change)
    assert (outcomes["a"].text, outcomes["c"].text) == ("TEXT A", "TEXT C")
    assert outcomes["b"].error_class == "invalid_response"
    assert message in outcomes["b"].message


def test_a_command_that_fails_fails_all_of_its_cases(in_batches):
    outcomes = in_batches("sys.exit('broken')")
    assert [failure.error_class for failure in outcomes.values()] == ["process"] * 3
    assert len({id(failure) for failure in outcomes.values()}) == 3


@only_on_posix("commands are for cmd.exe, not for a POSIX shell")
def test_a_single_case_is_a_batch_too(ask):
    echo = """printf '{"id": "one", "text": "%s"}' {EVAL_ID}"""
    assert ask(cli(echo, provider_batching=True)).text == "batch"
    assert failure_of(ask, cli("true", provider_batching=True)).error_class == "invalid_response"


@only_on_posix("commands are for cmd.exe, not for a POSIX shell")
def test_only_used_placeholders_become_variables():
    rendered, variables = CommandTemplate("run {EVAL_ID}").render({"EVAL_ID": "x", "PROMPT": "y"})
    assert rendered == 'run "${AGENTV_EVAL_ID}"'
    assert variables == {"AGENTV_EVAL_ID": "x"}


def test_batch_lines_contain_the_whole_request(new_request, tmp_path):
    async def lines():
        copy = f"cp {{PROMPT_FILE}} {shlex.quote(str(tmp_path / 'seen'))}"
        await cli(copy, provider_batching=True).open(str(tmp_path)).respond_many([new_request()])

    asyncio.run(lines())
    assert json.loads(Path(tmp_path / "seen").read_text()) == {
        "id": "one",
        "prompt": "Hello",
        "messages": [{"role": "user", "content": "Hello"}],
        "guidelines": "",
        "files": [],
    }


EXECUTED = {
    'bash -c "echo {PROMPT}"': ("bash", "{PROMPT}"),
    "sh -ec 'run {PROMPT}'": ("sh", "{PROMPT}"),
    "cd x && /bin/zsh -lc 'agent {GUIDELINES}'": ("zsh", "{GUIDELINES}"),
    "docker exec box sh -c 'agent {PROMPT}'": ("sh", "{PROMPT}"),
    "ssh host agent {PROMPT}": ("ssh", "{PROMPT}"),
    "ssh -p 22 host 'agent --id {EVAL_ID}'": ("ssh", "{EVAL_ID}"),
    'eval "agent {PROMPT}"': ("eval", "{PROMPT}"),
    "python3 -c 'print({PROMPT})'": ("python3", "{PROMPT}"),
    "bash -o pipefail -c 'agent {PROMPT}'": ("bash", "{PROMPT}"),
    "su me -c 'agent {PROMPT}'": ("su", "{PROMPT}"),
    "node -e 'console.log({PROMPT})'": ("node", "{PROMPT}"),
    "bash -c 'echo \"$1\"' _ {PROMPT}": ("", ""),
    "bash -c 'agent \"$AGENTV_PROMPT\"'": ("", ""),
    "bash run.sh {PROMPT}": ("", ""),
    "python3 agent.py -c {PROMPT}": ("", ""),
    "ssh host agent < {PROMPT_FILE}": ("", ""),
    "agent {PROMPT}": ("", ""),
    "agent 'it's {PROMPT}": ("", ""),
}


@pytest.mark.parametrize("template", EXECUTED)
def test_a_template_that_lets_a_second_shell_execute_the_prompt_is_recognized(template):
    assert executed_placeholder(template) == EXECUTED[template]


def test_the_warning_names_the_target_and_what_to_write(folder, command):
    target = {"name": "default", "provider": "cli", "command_template": 'bash -c "echo {PROMPT}"'}
    folder.write("targets.yaml", {"targets": [target]})
    folder.write("d.yaml", {"evaluators": [], "evalcases": [{"id": "a", "expected_outcome": "x", "input": "$(id)"}]})
    ended = command("eval", "d.yaml", "--dry-run")
    assert "Target 'default' passes {PROMPT} to `bash`, which executes commands in it" in ended.stderr
    assert "$AGENTV_PROMPT" in ended.stderr and "{PROMPT_FILE}" in ended.stderr


@pytest.mark.parametrize(
    ("template", "warns"),
    [("echo hi", True), ("echo {{prompt}}", True), ("cat {PROMPT_FILE}", False), ("x $AGENTV_PROMPT", False)],
)
def test_a_command_that_gets_nothing_of_the_case_is_a_warning(folder, command, template, warns):
    target = {"name": "default", "provider": "cli", "command_template": template}
    folder.write("targets.yaml", {"targets": [target]})
    folder.write("d.yaml", {"evaluators": [], "evalcases": [{"id": "a", "expected_outcome": "x", "input": "hi"}]})
    warning = "Target 'default' runs the same command for all cases: it has no {PROMPT} and no {PROMPT_FILE}"
    assert (warning in command("eval", "d.yaml", "--dry-run").stderr) is warns


@pytest.mark.parametrize(
    "template",
    [
        "bash -c 'printf %s \"$AGENTV_PROMPT\"'",
        'printf %s "$AGENTV_PROMPT"',
        "bash -c 'cat \"$AGENTV_PROMPT_FILE\"'",
        "sh -c 'cat' < {PROMPT_FILE}",
    ],
)
def test_a_second_shell_reads_the_prompt_from_a_variable_or_a_file(ask, template, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ask(cli(template), text=NASTY).text == NASTY
    assert not (tmp_path / "hacked").exists()
