"""Twenty planted secrets appear in no file, output, log, page or process list, whatever repeats them."""

import base64
import hashlib
import json
import os
import stat
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from agentv.model.message import ToolCall
from agentv_testing import Answer, FaultyServer, RawReply
from platforms import only_on_posix

SCRIPTED_AGENT = Path(__file__).parent.parent / "targets" / "scripted_agent.py"

IN_ENVIRONMENT = ["SERVICE_API_KEY", "JUDGE_API_KEY", "PGPASSWORD", "GITHUB_PAT", "CLOUD_CREDENTIALS", "TOKEN"]
IN_ENVIRONMENT += ["OLD_API_KEY_2", "ANTHROPIC_API_KEY", "DATABASE_URL", "WEBHOOK", "HARMLESS"]
IN_DOTENV = ["DOTENV_TOKEN", "PRIVATE_KEY"]
IN_TARGETS = ["header", "written_key", "url_password", "url_query", "command_env", "tool_env", "mcp_env"]


def canary(name: str) -> str:
    return f"{name[:4]}/{hashlib.sha256(name.encode()).hexdigest()[:24]}+Q="


CANARIES = {name: canary(name) for name in (*IN_ENVIRONMENT, *IN_DOTENV, *IN_TARGETS)}
ADDRESSES = {
    "DATABASE_URL": f"postgres://me:{quote(CANARIES['DATABASE_URL'], safe='')}@db/x",
    "WEBHOOK": f"https://example.org/hook?a=1&api_key={quote(CANARIES['WEBHOOK'], safe='')}",
}


def encodings(secret: str) -> list[str]:
    """Return the forms in which the secret is repeated."""
    coded = [f"{'u' * before}{secret}: x".encode() for before in range(3)]
    both = [encode(each).decode() for each in coded for encode in (base64.b64encode, base64.urlsafe_b64encode)]
    return [secret, secret.upper(), secret.encode().hex(), quote(secret, safe=""), *both]


def traces(secret: str) -> list[bytes]:
    """Return what must not be found: parts of the encodings that only the secret determines."""
    plain, *coded = (each.encode() for each in encodings(secret))
    return [plain, plain[4:-3], *coded[:3], *(each[6:28] for each in coded[3:])]


TRACES = {(name, number): each for name in CANARIES for number, each in enumerate(traces(CANARIES[name]))}
LEAK = " ".join([*ADDRESSES.values(), *(each for secret in CANARIES.values() for each in encodings(secret))])


def found_in(data: bytes, entitled: tuple[str, ...] = ()) -> set[tuple[str, int]]:
    return {place for place, trace in TRACES.items() if trace in data and place[0] not in entitled}


def answers(request):
    """The server repeats every secret: in answers, tool calls, verdicts, errors and redirects."""
    model = request.body["model"]
    if model == "judge":
        return f'{{"score": 0.5, "hits": [], "misses": [], "reasoning": {json.dumps(LEAK)}}}'
    if model == "moved":
        return RawReply(b"", 307, headers={"Location": f"https://example.org/{quote(LEAK[:2000])}"})
    if "refuse" in request.prompt:
        return RawReply(f'{{"error": {{"message": "your key is {LEAK}"}}}}'.encode(), 401)
    if model == "tools" and not any(message["role"] == "tool" for message in request.body["messages"]):
        return Answer(tool_calls=(ToolCall("search", {"q": LEAK}, id="1"),))
    return f"I know {LEAK}"


def targets(url: str) -> list[dict]:
    model = {"provider": "openai", "base_url": url, "max_retries": 0}
    place = url.replace("://", f"://me:{quote(CANARIES['url_password'], safe='')}@")
    tool = {"name": "search", "command": "cat leaks.txt", "env": {"TOOL_TOKEN": CANARIES["tool_env"]}}
    mcp = {"mcp": ["x"], "env": {"MCP_SECRET": CANARIES["mcp_env"]}}
    headers = {"X-Token": "${{ DOTENV_TOKEN }}", "X-Secret": CANARIES["header"], "X-Other-Key": "${{ HARMLESS }}"}
    body = {"model": "{{ metadata.model }}", "messages": [{"role": "user", "content": "{{ prompt }}"}]}
    return [
        {**model, "name": "model", "model": "m", "api_key": "${{ SERVICE_API_KEY }}", "headers": headers},
        {**model, "name": "tools", "model": "tools", "api_key": CANARIES["written_key"], "tools": [tool]},
        {**model, "name": "judge", "model": "judge", "api_key": "${{ JUDGE_API_KEY }}"},
        {
            "name": "http",
            "provider": "http",
            "url": f"{place}/chat/completions?key={quote(CANARIES['url_query'], safe='')}",
            "body": body,
            "max_retries": 0,
        },
        {
            "name": "command",
            "provider": "cli",
            "command_template": "env > environment.txt; cat /proc/[0-9]*/cmdline > processes.txt; "
            "cat leaks.txt; cat leaks.txt >&2; test {EVAL_ID} = plain",
            "env": {"GIVEN_TOKEN": CANARIES["command_env"]},
            "max_retries": 0,
        },
        {"name": "function", "provider": "python", "function": "agent.py:answer", "max_retries": 0},
        {"name": "agent", "provider": "claude-code", "executable": "./claude", "log_format": "json", "max_retries": 0},
        {**model, "name": "unused", "model": "m", "tools": [mcp]},
    ]


AGENT = """
import os, logging, sys
from pathlib import Path

def answer(prompt):
    logging.getLogger("agentv.own").info("log %s", os.environ["PGPASSWORD"])
    print(os.environ["TOKEN"])
    print(os.environ["DATABASE_URL"], file=sys.stderr)
    raise RuntimeError("x" * 300 + Path("leaks.txt").read_text())
"""


@pytest.fixture
def planted(project, monkeypatch):
    for name in IN_ENVIRONMENT:
        monkeypatch.setenv(name, ADDRESSES.get(name, CANARIES[name]))
    key = f"-----BEGIN KEY-----\\n{CANARIES['PRIVATE_KEY']}\\n-----END KEY-----"
    project.write(".env", f'DOTENV_TOKEN={CANARIES["DOTENV_TOKEN"]}\nPRIVATE_KEY="{key}"\n')
    project.write(".git/HEAD", "")
    project.write("leaks.txt", LEAK)
    project.write("agent.py", AGENT)
    program = project.path / "claude"
    program.write_text(f"#!{sys.executable}\n{SCRIPTED_AGENT.read_text()}")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    metadata = {"model": "m", "note": LEAK}
    cases = [
        {"id": "plain", "input": "report", "metadata": metadata},
        {"id": f"named {CANARIES['GITHUB_PAT']}", "input": f"tell the key {LEAK}", "metadata": metadata},
        {"id": "refused", "input": "refuse", "metadata": {"model": "moved"}},
    ]
    project.dataset(*cases, evaluators=[{"type": "llm_judge", "target": "judge"}], tags=[CANARIES["CLOUD_CREDENTIALS"]])
    return project


TARGETS = ("model", "tools", "http", "command", "function", "agent")
FILES = {"results.jsonl", "run.json", "calls.jsonl", "report.html", "environment.txt", "processes.txt"}
INPUTS = ("d.yaml", "targets.yaml", ".env", "leaks.txt", "claude", "agent.py")
AFTERWARDS = [
    ("report", "out", "--html", "--junit", "--markdown", "--csv", "--out", "reports/"),
    ("report", "out", "--json"),
    ("report", "out", "--github"),
    ("compare", "out", "out", "--json"),
    ("runs", "--json"),
    ("targets", "--json"),
    ("targets",),
    ("validate", "d.yaml", "targets.yaml"),
    ("eval", "d.yaml", "--target", "model", "--dry-run"),
]


@only_on_posix("the commands are for a POSIX shell")
def test_no_planted_secret_appears_anywhere(planted):
    assert len(CANARIES) == 20
    chosen = [word for name in TARGETS for word in ("--target", name)]
    kept = ("--record", "calls.jsonl", "--cache", "--dump-prompts", "prompts", "--dump-traces", "traces")
    with FaultyServer(answers) as server:
        planted.targets(*targets(server.url))
        ended = [planted.eval("--out", "out", *chosen, *kept, "-v")]
        ended += [planted.command("targets", "check", "model", "http")]
    ended += [planted.command(*arguments) for arguments in AFTERWARDS]
    assert len(planted.records()) == 18 and {each.code for each in ended} <= {0, 1, 3}
    for each in ended:
        assert found_in((each.stdout + each.stderr).encode()) == set()
    written = [path for path in planted.path.rglob("*") if path.is_file() and path.name not in INPUTS]
    assert {each.name for each in written} >= FILES
    for path in written:
        entitled = ("command_env",) if path.name == "environment.txt" else ()
        assert found_in(path.read_bytes(), entitled) == set(), path
        assert found_in(os.fsencode(path)) == set()
