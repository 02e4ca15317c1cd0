"""Coding agents as processes: their input, environment, failures and cleanup."""

import asyncio
import base64
import itertools
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from agentv.extensions.agents.agent import Call
from agentv.extensions.agents.events import EventStream, summary_of
from agentv.extensions.agents.vendor_agents import ClaudeCode
from agentv.model.environment import Environment
from agentv.model.response import TargetFailure
from agentv.registry import TARGETS
from agentv.settings.environment import Home
from agentv.targets.workspace_target import skill_name
from agentv_testing import SampleRequest
from platforms import only_on_posix
from virtual_time import skipped_ahead
from waiting import still_running, wait_until, wait_until_async, words_in

SCRIPT = Path(__file__).parent / "scripted_agent.py"
AGENTS = ("claude-code", "codex", "copilot-cli", "gemini-cli", "opencode", "pi-coding-agent")
pytestmark = [
    only_on_posix("coding agents are not supported"),
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks for processes in /proc"),
]


@pytest.fixture
def place(tmp_path):
    """A folder with the scripted agent as Claude Code's program."""
    program = tmp_path / "claude"
    program.write_text(f"#!{sys.executable}\n{SCRIPT.read_text()}")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return tmp_path


def ask(place, prompt, *, timeout_s=200.0, **settings):
    """Run the scripted agent and return its answer or failure."""
    request = SampleRequest(prompt, timeout_s=timeout_s)
    env = {"CHILDREN": str(place / "children"), **settings.pop("env", {})}
    target = ClaudeCode(name="t", provider="claude-code", executable="./claude", env=env, **settings)

    async def answer():
        responder = target.open(Home(str(place), Environment()))
        try:
            return await responder.respond(request)
        finally:
            await responder.aclose()

    return asyncio.run(answer())


def reported_environment(place, **settings):
    """Return the environment that the agent reported."""
    return json.loads(base64.b64decode(ask(place, "report", **settings).text))


def is_running(pid):
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return fields[0] not in "ZX"


def surviving_children(place):
    """Return the agent's children that still run. A killed process may take a moment to end."""
    pids = [int(line) for line in (place / "children").read_text().split()]
    assert pids
    return still_running(pids)


def test_events_become_the_answer(place):
    response = ask(place, "answer")
    assert response.text == "yes, done: "
    assert [call.tool for message in response.messages for call in message.tool_calls] == ["Bash"]
    assert (response.usage.input, response.usage.output, response.cost_usd) == (7, 3, 0.5)
    assert response.duration_ms > 0


def test_a_hanging_agent_times_out_and_its_children_are_ended(place):
    with pytest.raises(TargetFailure) as raised, skipped_ahead(lambda: len(words_in(place / "children")) == 3):
        ask(place, "children, then hang", timeout_s=200)
    assert raised.value.error_class == "timeout"
    assert surviving_children(place) == []


def test_no_child_outlives_the_agent(place):
    assert ask(place, "children, then answer").text.startswith("yes")
    assert surviving_children(place) == []


@pytest.mark.parametrize("prompt", ["flood", "flood in one line", "children, then flood"])
def test_excessive_output_ends_the_agent(place, prompt):
    with pytest.raises(TargetFailure, match="printed more than 64 MiB and was stopped") as raised:
        ask(place, prompt)
    assert raised.value.error_class == "process"
    if "children" in prompt:
        assert surviving_children(place) == []


def test_a_cancelled_call_leaves_no_process(place):
    target = ClaudeCode(
        name="t", provider="claude-code", executable="./claude", env={"CHILDREN": str(place / "children")}
    )

    async def cancelled():
        call = asyncio.ensure_future(target.open(str(place)).respond(SampleRequest("children, then hang")))
        await wait_until_async(lambda: len(words_in(place / "children")) >= 3)
        call.cancel()
        await asyncio.wait([call])

    asyncio.run(cancelled())
    assert surviving_children(place) == []


@pytest.mark.parametrize(
    ("prompt", "error_class", "message"),
    [
        ("crash", "process", "ended with exit code 7: out of order"),
        ("no key", "auth", "No API key found.*set ANTHROPIC_API_KEY or"),
        ("silent", "invalid_response", "ended without a result"),
        ("nonsense", "invalid_response", "Cannot read the events"),
    ],
)
def test_other_failures_are_classified(place, prompt, error_class, message):
    with pytest.raises(TargetFailure, match=message) as raised:
        ask(place, prompt)
    assert raised.value.error_class == error_class


@pytest.mark.parametrize("provider", AGENTS)
def test_a_missing_program_gets_an_install_hint(tmp_path, provider):
    kind = TARGETS.find(provider)
    target = kind(name="t", provider=provider, executable="no-such-agent")
    with pytest.raises(TargetFailure, match=f"not found on the PATH; run `npm install -g {kind.package}`"):
        asyncio.run(target.open(str(tmp_path)).respond(SampleRequest()))


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (lambda path: path.mkdir(), "The agent './agent' is a folder, not a program"),
        (lambda path: path.write_text("no program"), "The agent './agent' is not executable; run `chmod +x"),
        (lambda path: script(path, "#!/no/such/interpreter\n"), "The agent './agent' cannot be started: "),
        (lambda path: script(path, "neither\0nor"), "The agent './agent' cannot be started: "),
    ],
    ids=["folder", "not executable", "interpreter gone", "no program"],
)
def test_a_program_that_cannot_run_is_explained(tmp_path, program, message):
    program(tmp_path / "agent")
    target = ClaudeCode(name="t", provider="claude-code", executable="./agent")
    with pytest.raises(TargetFailure) as raised:
        asyncio.run(target.open(Home(str(tmp_path), Environment())).respond(SampleRequest()))
    assert raised.value.error_class == "process"
    assert message in raised.value.message
    assert raised.value.message.count("The agent") == 1


def script(path, text):
    path.write_text(text)
    path.chmod(0o755)


def test_the_agent_gets_its_own_temporary_home(place, monkeypatch):
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "/somewhere/of/the/user")
    given = reported_environment(place)
    home = given["env"]["HOME"]
    assert given["home"] == [".gitconfig"]
    assert home != os.environ.get("HOME")
    assert given["env"]["CLAUDE_CONFIG_DIR"] == f"{home}/.claude"
    assert not os.path.exists(home)


def test_the_agent_gets_the_users_home_if_configured(place, monkeypatch):
    monkeypatch.setenv("HOME", str(place))
    given = reported_environment(place, user_settings=True)
    assert given["env"]["HOME"] == str(place)
    assert "CLAUDE_CONFIG_DIR" not in given["env"]


def test_the_home_can_be_copied_from_a_template(place):
    (place / "settings" / ".claude").mkdir(parents=True)
    (place / "settings" / ".claude" / "settings.json").write_text("{}")
    assert reported_environment(place, home_template="settings")["home"] == [".claude/settings.json", ".gitconfig"]


def test_the_agent_gets_only_its_vendors_keys(place, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-the-vendor")
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-another")
    monkeypatch.setenv("DATABASE_PASSWORD", "a-password-of-ours")
    monkeypatch.setenv("PASSED_TOKEN", "a-token-that-it-needs")
    monkeypatch.setenv("CLAUDECODE", "1")
    env = reported_environment(place, pass_env=("PASSED_TOKEN",), env={"MORE": "1"})["env"]
    assert env["ANTHROPIC_API_KEY"] == "key-of-the-vendor"
    assert (env["PASSED_TOKEN"], env["MORE"]) == ("a-token-that-it-needs", "1")
    assert not env.keys() & {"OPENAI_API_KEY", "DATABASE_PASSWORD", "CLAUDECODE"}


def test_each_call_gets_a_new_folder(place):
    one, two = reported_environment(place), reported_environment(place)
    assert one["cwd"] != two["cwd"]
    assert one["cwd"] == one["env"]["PWD"]
    assert not os.path.exists(one["cwd"])


def test_the_working_folder_can_be_configured(place):
    (place / "here").mkdir()
    assert reported_environment(place, cwd="here")["cwd"] == str(place / "here")
    assert (place / "here" / "new.txt").exists()


def test_paths_are_relative_to_the_working_folder(place):
    response = ask(place, "name paths")
    assert response.text == "See src/a.py in ."
    assert response.messages[0].tool_calls[0].input == {"in": "src/a.py", "at": "."}
    (place / "here").mkdir()
    assert ask(place, "name paths", cwd="here").text == f"See {place}/here/src/a.py in {place}/here"


def test_settings_become_arguments(place):
    argv = reported_environment(place, model="opus", system_prompt="Be brief", args=("--max-turns", "3"))["argv"]
    assert argv[-2:] == ["--max-turns", "3"]
    assert argv[argv.index("--model") + 1] == "opus"
    assert argv[argv.index("--append-system-prompt") + 1] == "Be brief"


def test_limits_and_effort_become_arguments(place):
    argv = reported_environment(place, max_turns=3, max_budget_usd=0.5, model_reasoning_effort="low")["argv"]
    given = dict(itertools.pairwise(argv))
    assert (given["--max-turns"], given["--max-budget-usd"], given["--effort"]) == ("3", "0.5", "low")
    codex = TARGETS.find("codex")(name="t", provider="codex", model_reasoning_effort="xhigh")
    made = codex.invocation(Call(prompt="Do it", home="/home", scratch="/scratch", environment={}))
    assert 'model_reasoning_effort="xhigh"' in made.arguments


@pytest.mark.parametrize("provider", AGENTS)
def test_every_agent_gets_model_prompt_and_system_prompt(provider):
    target = TARGETS.find(provider)(name="t", provider=provider, model="m/odel", system_prompt="Be brief")
    for home in ("/home", None):
        made = target.invocation(Call(prompt="Do it", home=home, scratch="/scratch", environment={}))
        everything = json.dumps([made.arguments, made.stdin, made.env, made.files])
        assert "m/odel" in made.arguments
        assert "Do it" in made.stdin
        assert "Be brief" in everything
        assert all(not path.startswith("/") for path in made.files)


@pytest.mark.parametrize(("address", "variable"), [("https://x.test", "BASE_URL"), ("mine", "RESOURCE_NAME")])
def test_pi_gets_its_own_names_of_azure_openai(address, variable):
    settings = {"pi_provider": "azure", "api_key": "secret", "base_url": address}
    target = TARGETS.find("pi-coding-agent")(name="t", provider="pi-coding-agent", **settings)
    made = target.invocation(Call(prompt="Do it", home=None, scratch="/scratch", environment={}))
    assert dict(itertools.pairwise(made.arguments))["--provider"] == "azure-openai-responses"
    assert made.env.items() >= {"AZURE_OPENAI_API_KEY": "secret", f"AZURE_OPENAI_{variable}": address}.items()


def test_a_system_prompt_for_codex_is_valid_toml():
    import tomllib

    text = 'He said "no"\\ \n\x7f ünï \t'
    made = TARGETS.find("codex")(name="t", provider="codex", system_prompt=text).invocation(
        Call(prompt="", home=None, scratch="/scratch", environment={})
    )
    [setting] = [each for each in made.arguments if each.startswith("developer_instructions")]
    assert tomllib.loads(setting) == {"developer_instructions": text}


def test_lines_with_ignored_prefixes_are_dropped():
    stream = EventStream((b'{"type":"update"',), None, summary=False)
    big = b'{"type":"update","text":"' + b"x" * 1_000_000 + b'"}\n'
    assert all(stream.take(big) for _ in range(100))
    assert stream.take(b'{"type":"end"}')
    assert [event.data for event in stream.events()] == [{"type": "end"}]


def test_a_summary_has_the_most_informative_texts():
    item = {"type": "command_execution", "command": "make\n  all", "exit_code": 0}
    line = json.dumps({"type": "item.completed", "item": item}).encode()
    assert summary_of(line, 1500.0) == "    1.50 s  item.completed · command_execution · make all"
    assert summary_of(b"no JSON", 0.0).endswith("no JSON")
    assert len(summary_of(b"x" * 10_000, 0.0)) < 400


class TestRuns:
    """A project whose target is the scripted agent."""

    def project(self, place, folder, **settings):
        env = {"CHILDREN": str(place / "children")}
        entry = {"name": "agent", "provider": "claude-code", "executable": str(place / "claude"), "max_retries": 0}
        folder.write("targets.yaml", {"targets": [{**entry, "env": env, **settings}]})

    def test_failing_cases_do_not_affect_others(self, place, folder, command):
        self.project(place, folder, workers=1)
        prompts = ["children, then hang", "answer", "flood", "answer", "crash", "answer"]
        cases = [
            {"id": f"c{number}", "expected_outcome": "x", "input": prompt} for number, prompt in enumerate(prompts)
        ]
        cases[0]["execution"] = {"timeout_seconds": 60}
        folder.write("d.yaml", {"evaluators": [{"type": "contains", "value": "yes"}], "evalcases": cases})
        with skipped_ahead(lambda: len(words_in(place / "children")) == 3):
            command("eval", "d.yaml", "--out", "out", "--quiet")
        records = [json.loads(line) for line in (folder.path / "out" / "results.jsonl").read_text().splitlines()]
        found = {record["eval_id"]: record.get("error", {}).get("class") or record["score"] for record in records}
        assert found == {"c0": "timeout", "c1": 1.0, "c2": "process", "c3": 1.0, "c4": "process", "c5": 1.0}
        assert surviving_children(place) == []

    @pytest.mark.parametrize(("log_format", "extension"), [("json", "jsonl"), ("raw", "jsonl"), ("summary", "log")])
    def test_agent_output_is_logged_without_secrets(self, place, folder, command, monkeypatch, log_format, extension):
        monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-the-vendor")
        self.project(place, folder, log_format=log_format)
        case = {"id": "a/b", "expected_outcome": "x", "input": "tell the key"}
        folder.write("d.yaml", {"evaluators": [{"type": "contains", "value": "key"}], "evalcases": [case]})
        assert command("eval", "d.yaml", "--out", "out", "--quiet").code == 0
        [log] = (folder.path / "out" / "logs").iterdir()
        text = log.read_text()
        assert log.suffix == f".{extension}"
        assert "result" in text
        assert "key-of-the-vendor" not in text
        assert "key-of-the-vendor" not in (folder.path / "out" / "results.jsonl").read_text()

    @pytest.mark.parametrize("executable", ["./nowhere", "no-such-agent"])
    def test_a_missing_program_is_found_before_the_run(self, place, folder, command, executable):
        self.project(place, folder, executable=executable)
        case = {"id": "a", "expected_outcome": "x", "input": "answer"}
        folder.write("d.yaml", {"evaluators": [{"type": "contains", "value": "yes"}], "evalcases": [case]})
        ended = command("eval", "d.yaml", "--out", "out")
        assert ended.code == 2
        assert f"Target 'agent' cannot be called\n  The agent '{executable}' was not found" in ended.stderr
        assert not (folder.path / "out").exists()
        assert command("eval", "d.yaml", "--dry-run").code == 0

    @pytest.mark.parametrize(
        ("settings", "key", "advised"),
        [({}, "", True), ({"user_settings": True}, "", False), ({}, "key-of-the-vendor", False)],
    )
    def test_a_login_without_a_key_gets_a_hint(self, place, folder, command, monkeypatch, settings, key, advised):
        monkeypatch.setenv("HOME", str(place))
        monkeypatch.setenv("ANTHROPIC_API_KEY", key)
        (place / ".claude.json").write_text("{}")
        self.project(place, folder, **settings)
        case = {"id": "a", "expected_outcome": "x", "input": "answer"}
        folder.write("d.yaml", {"evaluators": [{"type": "contains", "value": "yes"}], "evalcases": [case]})
        ended = command("eval", "d.yaml", "--out", "out")
        assert ended.code == 0
        assert ("Target 'agent' does not use your own login: set ANTHROPIC_API_KEY" in ended.stderr) is advised

    def test_no_log_is_written_if_it_is_turned_off(self, place, folder, command):
        self.project(place, folder, stream_log=False)
        case = {"id": "a", "expected_outcome": "x", "input": "answer"}
        folder.write("d.yaml", {"evaluators": [{"type": "contains", "value": "yes"}], "evalcases": [case]})
        assert command("eval", "d.yaml", "--out", "out", "--quiet").code == 0
        assert not (folder.path / "out" / "logs").exists()

    def test_a_killed_run_leaves_no_process(self, place, folder):
        self.project(place, folder)
        case = {"id": "one", "expected_outcome": "x", "input": "children, then hang"}
        folder.write("d.yaml", {"evaluators": [{"type": "contains", "value": "x"}], "evalcases": [case]})
        command = [sys.executable, "-m", "agentv", "eval", "d.yaml", "--out", "out", "--quiet"]
        temporary = folder.path / "temporary"
        temporary.mkdir()
        env = {**os.environ, "TMPDIR": str(temporary)}
        with subprocess.Popen(command, cwd=folder.path, env=env, stderr=subprocess.DEVNULL) as run:
            children = place / "children"
            wait_until(lambda: len(words_in(children)) >= 3, run)
            run.send_signal(signal.SIGKILL)
        assert surviving_children(place) == []
        wait_until(lambda: not list(temporary.iterdir()))


@pytest.mark.parametrize(
    ("address", "is_passed"),
    [
        ("https://evil.example", False),
        ("http:evil.example", False),
        ("https:/evil.example", False),
        ("//evil.example", False),
        ("http://evil.example\\@127.0.0.1:9/", False),
        ("http://evil.example\t\\@localhost/", False),
        ("http://127.0.0.1:9", True),
        ("http://[::1]:9/v1", True),
    ],
)
def test_the_key_of_a_vendor_is_not_sent_to_another_host(place, monkeypatch, address, is_passed):
    """Node takes `http:name` for an address, and what follows a backslash for a path."""
    env = {"ANTHROPIC_BASE_URL": address}
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-the-vendor")
    assert ("ANTHROPIC_API_KEY" in reported_environment(place, env=env)["env"]) is is_passed
    named = reported_environment(place, env=env, pass_env=("ANTHROPIC_API_KEY",))["env"]
    assert named["ANTHROPIC_API_KEY"] == "key-of-the-vendor"


@pytest.fixture
def skill(place):
    folder = place / "my-skill"
    (folder / "evals").mkdir(parents=True)
    (folder / "scripts").mkdir()
    (folder / "SKILL.md").write_text("---\ndescription: x\nname: 'greet'  # the name\n---\nname: no\n")
    (folder / "scripts" / "run.sh").write_text("true")
    (folder / "evals" / "evals.json").write_text("the answers")
    (folder / ".env").write_text("KEY=secret")
    return folder


def test_skills_are_installed_in_the_agents_home_without_evals_and_secrets(place, skill):
    seen = reported_environment(place, skills=("my-skill",))
    assert [file for file in seen["home"] if "skills" in file] == [
        ".claude/skills/greet/SKILL.md",
        ".claude/skills/greet/scripts/run.sh",
    ]


def test_with_the_users_home_skills_are_added_to_the_workspace(place, skill):
    target = ClaudeCode(name="t", provider="claude-code", user_settings=True, skills=("my-skill",))
    added = {file.path: file.file for file in target.added_files(str(place))}
    assert added == {f".claude/skills/greet/{name}": str(skill / name) for name in ("SKILL.md", "scripts")}


@pytest.mark.parametrize("where", ["home", "work", "parent"])
def test_an_agent_that_would_see_a_hidden_skill_is_not_started(place, skill, where):
    root = {"home": place / "template", "work": place / "work", "parent": place}[where]
    (root / ".claude" / "skills").mkdir(parents=True)
    (place / "work").mkdir(exist_ok=True)
    (root / ".claude" / "skills" / "other-folder").symlink_to(skill)
    settings = {"home_template": "template"} if where == "home" else {"cwd": "work"}
    with pytest.raises(TargetFailure, match=r"The agent would see the skill 'greet' in .*other-folder"):
        ask(place, "answer", hidden_skills=("greet",), **settings)
    assert ask(place, "answer", hidden_skills=("greets",), **settings).text.startswith("yes")


def test_an_installed_skill_is_not_hidden(place, skill):
    seen = reported_environment(place, skills=("my-skill",), hidden_skills=("greet",))
    assert ".claude/skills/greet/SKILL.md" in seen["home"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (b"---\nname: a-b\n---\n", "a-b"),
        (b"\xef\xbb\xbf---\r\nname: a-b\r\ndescription: x\r\n---\r\n", "a-b"),
        (b'---\ndescription: |\n  x\nname: "a_b.c"\n---\n', "a_b.c"),
        (b"---\nname: ../out\n---\n", "folder"),
        (b"name: a-b\n", "folder"),
        (b"---\nno end\nname: a-b", "folder"),
        (b"\xff\xfe", "folder"),
        (None, "folder"),
    ],
)
def test_a_skill_has_the_name_of_its_front_matter_or_its_folder(tmp_path, text, name):
    (tmp_path / "folder").mkdir()
    if text is not None:
        (tmp_path / "folder" / "SKILL.md").write_bytes(text)
    assert skill_name(str(tmp_path / "folder")) == name
