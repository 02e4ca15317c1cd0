"""The targets file: valid entries, and the message for each mistake."""

import pytest

from agentv.support.yaml.yaml_parser import locate, parse_yaml
from agentv.targets.targets_file import as_targets_file, check_targets, named_entries


def entry(provider, **settings):
    return {"targets": [{"name": "main", "provider": provider, **settings}]}


def messages(data, severity="error"):
    return [problem.message for problem in check_targets(data) if problem.severity == severity]


ACCEPTED = {
    "a model at a compatible endpoint": ("openai", {"base_url": "http://localhost:8000/v1", "model": "m"}),
    "the responses API": ("openai", {"model": "m", "api": "responses", "maxTokens": 100, "seed": 1}),
    "a deployment as in 2.x": (
        "azure",
        {"endpoint": "${{ AZURE_ENDPOINT }}", "api_key": "${{ KEY }}", "deploymentName": "gpt", "apiVersion": "v1"},
    ),
    "a resource instead of an address": ("azure-openai", {"resource": "mine", "model": "gpt"}),
    "thinking": ("anthropic", {"variant": "opus", "api_key": "k", "thinking_budget": 1024}),
    "a default model": ("google", {"api_key": "k"}),
    "a region": ("bedrock", {"model": "m", "aws_region": "eu-west-1"}),
    "a command as in 2.x": ("cli", {"commandTemplate": "agent {PROMPT} {FILES} > {OUTPUT_FILE}"}),
    "a command as in 4.x": (
        "cli",
        {"command": "agent --file {PROMPT_FILE}", "healthcheck": {"command": "agent -v"}},
    ),
    "shell variables": ("cli", {"command_template": "cd ${HOME} && run ${{ TOOL }} {EVAL_ID} {ATTEMPT}"}),
    "a health check by address": (
        "cli",
        {"command_template": "x", "healthcheck": {"type": "http", "url": "http://x/health", "timeout_seconds": 5}},
    ),
    "the environment of a command": ("cli", {"command_template": "x", "env": {"A": "1"}, "pass_env": ["B_TOKEN"]}),
    "many cases with one command": ("cli", {"command_template": "x {OUTPUT_FILE}", "provider_batching": True}),
    "an agent": ("claude-code", {"model": "opus", "args": ["--verbose"], "cwd": "."}),
    "an agent as in 2.x": ("codex", {"binary": "codex", "arguments": ["${{ FLAG }}"], "log_format": "json"}),
    "an agent with several APIs": ("pi", {"llm_provider": "openai", "pi_model": "m", "thinking": "low"}),
    "an agent by 4.x's name": ("claude-cli", {}),
    "logs as in 4.x": ("claude", {"stream_log": "raw", "log_dir": "${{ LOGS }}", "max_turns": 50, "max_budget_usd": 5}),
    "no logs as in 4.x": ("copilot-sdk", {"stream_log": False, "cli_path": "copilot"}),
    "the effort of an agent": ("codex", {"model_reasoning_effort": "high"}),
    "the effort of a model": ("openai", {"model": "m", "model_reasoning_effort": "low"}),
    "delegation by a variable": ("mock", {"use_target": "${{ T }}"}),
    "a function in a file": ("python", {"function": "agents/echo.py:answer"}),
    "a function in a module": ("python", {"function": "my.agents:answer"}),
    "an address": ("http", {"url": "https://x/answer", "headers": {"A": "b"}, "body": {"q": "{{ prompt }}"}}),
    "an earlier run": ("replay", {"from": ".agentv/results/r1"}),
    "mock answers": ("mock", {"responses": {"greet-*": "Hello"}, "delay_ms": [10, 20], "fault_rate": 0.5}),
    "mock tool calls": (
        "mock",
        {"tool_calls": [{"tool": "Read", "input": {"path": "a"}}], "token_usage": {"input": 3, "output": 4}},
    ),
    "common settings": (
        "mock",
        {
            "workers": 4,
            "timeout-seconds": 10,
            "maxRetries": 0,
            "retry_status_codes": [429],
            "transform": {"strip": ["fences"]},
        },
    ),
    "variables for numbers": (
        "openai",
        {"model": "${{ M }}", "temperature": "${{ T }}", "workers": "${{ W }}", "api": "${{ API }}"},
    ),
    "nested variables": (
        "mock",
        {"delay_ms": ["${{ LOW }}", 5], "token_usage": {"input": "${{ N }}", "output": 1}},
    ),
    "null as absent": ("mock", {"response": None, "workers": None}),
    "a user's class": ("my_targets.py:Echo", {"anything": True}),
    "a provider from a variable": ("${{ PROVIDER }}", {"model": "m"}),
}


@pytest.mark.parametrize(("provider", "settings"), ACCEPTED.values(), ids=ACCEPTED)
def test_a_target_is_accepted(provider, settings):
    assert check_targets(entry(provider, **settings)) == []


REFUSED = {
    "an unknown provider": ("opanai", {}, ("provider",), "Unknown provider 'opanai'"),
    "a mistyped key": (
        "openai",
        {"model": "m", "temprature": 1},
        ("temprature",),
        "Unknown field 'targets[0].temprature'",
    ),
    "a mistyped key with a variable": (
        "mock",
        {"respones": "${{ A }}"},
        ("respones",),
        "Unknown field 'targets[0].respones'",
    ),
    "a mistyped nested key": (
        "cli",
        {"command": "x", "healthcheck": {"urll": "${{ URL }}"}},
        ("healthcheck", "urll"),
        "Unknown field 'targets[0].healthcheck.urll'",
    ),
    "delegation to an unknown target": (
        "mock",
        {"use_target": "mian"},
        ("use_target",),
        "Field 'targets[0].use_target' refers to target 'mian', which is not in this file",
    ),
    "delegation to itself": ("mock", {"use_target": "main"}, ("use_target",), "leads back to the same target: main"),
    "an unknown fallback": (
        "mock",
        {"fallback_targets": ["mian"]},
        ("fallback_targets", 0),
        "refers to target 'mian', which is not in this file",
    ),
    "turns of a program": ("cli", {"command": "x", "max_turns": 3}, ("max_turns",), "is not supported"),
    "an editor": ("vscode", {"workspace_template": "w"}, ("provider",), "Unknown provider 'vscode'"),
    "a retired service": ("github-models", {"model": "m"}, ("provider",), "Unknown provider 'github-models'"),
    "batching without cli": (
        "openai",
        {"model": "m", "providerBatching": True},
        ("providerBatching",),
        "is not supported",
    ),
    "no model": ("openai", {}, (), "Target 'main': Provider 'openai' needs 'model'"),
    "no endpoint": ("azure", {"model": "m"}, (), "Target 'main': Provider 'azure' needs 'endpoint'"),
    "a file as an address": ("openai", {"model": "m", "base_url": "localhost:8000"}, (), "must be an address"),
    "an unknown API": ("openai", {"model": "m", "api": "chats"}, ("api",), "has an unknown value 'chats'"),
    "no command": ("cli", {}, ("command_template",), "Missing required field: 'targets[0].command_template'"),
    "a blank command": ("cli", {"command": " "}, (), "'command_template' is blank"),
    "an unknown placeholder": (
        "cli",
        {"command": "x {PROMTP}"},
        (),
        "unknown placeholder {PROMTP}. Did you mean 'PROMPT'?",
    ),
    "an empty health check": (
        "cli",
        {"command": "x", "healthcheck": {}},
        (),
        "needs 'url' or 'command_template'",
    ),
    "a health check of another type": (
        "cli",
        {"command": "x", "healthcheck": {"type": "http", "url": "http://x", "command": "y"}},
        (),
        "of type http does not accept 'command_template'",
    ),
    "an unknown type of health check": (
        "cli",
        {"command": "x", "healthcheck": {"type": "ping"}},
        ("healthcheck", "type"),
        "has an unknown value 'ping'",
    ),
    "a placeholder in a health check": (
        "cli",
        {"command": "x", "healthcheck": {"command": "y {FOO}"}},
        (),
        "'healthcheck.command_template' has an unknown placeholder {FOO}",
    ),
    "a function without a module": ("python", {"function": "answer"}, (), "must have the form 'module:name'"),
    "no address": ("http", {}, ("url",), "Missing required field: 'targets[0].url'"),
    "an unknown method": ("http", {"url": "http://x", "method": "get"}, ("method",), "has an unknown value 'get'"),
    "a body for GET": (
        "http",
        {"url": "http://x", "method": "GET", "body": "x"},
        (),
        "cannot have a 'body'",
    ),
    "nothing to replay": ("replay", {}, ("from",), "Missing required field: 'targets[0].from'"),
    "a fault rate above 1": ("mock", {"fault_rate": 1.5}, ("fault_rate",), "must be a number of at most 1"),
    "a reversed range of delays": (
        "mock",
        {"delay_ms": [5, 1]},
        (),
        "must be a number, or a range [minimum, maximum]",
    ),
    "no workers": ("mock", {"workers": 0}, ("workers",), "must be an integer of at least 1"),
    "an unknown transform": ("mock", {"transform": {"jq": "."}}, ("transform", "jq"), "Unknown field"),
    "a variable without a name": ("mock", {"response": "a ${{ }} b"}, ("response",), "has a malformed variable"),
    "a variable of another tool": (
        "openai",
        {"model": "m", "api_key": "${OPENAI_API_KEY}"},
        ("api_key",),
        "has a malformed variable",
    ),
    "a variable as in a shell": ("groq", {"model": "m", "api_key": "$KEY"}, ("api_key",), "has a malformed variable"),
    "a variable as in a template": (
        "openai",
        {"model": "m", "headers": {"Authorization": "{{ env.KEY }}"}},
        ("headers", "Authorization"),
        "has a malformed variable",
    ),
    "an address without a host": (
        "openai",
        {"model": "m", "base_url": "http:///v1"},
        (),
        "must be an address with a host",
    ),
    "an invalid resource": ("azure", {"model": "m", "endpoint": "my res"}, (), "'endpoint' must be an address or"),
    "an invalid port": ("gemini", {"base_url": "http://h:port/v1"}, (), "must be an address with a host"),
    "a variable as in early versions of AgentV": (
        "azure",
        {"model": "m", "endpoint": "AZURE_OPENAI_ENDPOINT"},
        ("endpoint",),
        "has the name of a variable: 'AZURE_OPENAI_ENDPOINT'",
    ),
    "an address for an API of pi that has one": (
        "pi",
        {"pi_provider": "openai", "base_url": "https://x.test"},
        (),
        "'base_url' needs `pi_provider: azure`",
    ),
    "an unterminated variable": ("mock", {"response": "${{ A }"}, ("response",), "has a malformed variable"),
}


@pytest.mark.parametrize(("provider", "settings", "place", "message"), REFUSED.values(), ids=REFUSED)
def test_an_invalid_target_is_rejected_at_its_path(provider, settings, place, message):
    [problem] = check_targets(entry(provider, **settings)).errors
    assert problem.path == ("targets", 0, *place)
    assert message in problem.message


@pytest.mark.parametrize(
    ("provider", "settings", "hint"),
    [
        ("opanai", {}, "Did you mean 'openai'?"),
        ("openai", {"model": "m", "temprature": 1}, "Did you mean 'temperature'?"),
        ("openai", {"model": "m", "api": "chats"}, "Did you mean 'chat'?"),
        ("http", {"url": "http://x", "method": "FETCH"}, "Known values: GET, POST, PUT, PATCH, DELETE"),
        ("mock", {"use_target": "mian"}, "Did you mean 'main'?"),
        ("vscode", {}, "An editor cannot be evaluated here; use `copilot-cli`, which runs the same agent"),
        ("github", {}, "GitHub retired GitHub Models on 30 July 2026; use `openai`, `openrouter` or `azure`"),
    ],
)
def test_mistakes_get_a_hint(provider, settings, hint):
    assert check_targets(entry(provider, **settings)).errors[0].hint == hint


@pytest.mark.parametrize("key", ["judge_target", "grader_target"])
def test_an_unknown_judge_is_a_warning_because_it_may_not_be_needed(key):
    problems = check_targets(entry("mock", **{key: "mian"}))
    [problem] = problems
    assert problems.errors == [] and problem.path == ("targets", 0, key)
    assert "refers to target 'mian', which is not in this file" in problem.message
    assert problem.hint == "Did you mean 'main'?"


ROOTS = [
    (None, "A targets file must be an object with a list 'targets', got null"),
    ([], "A targets file must be an object with a list 'targets', got array"),
    ({}, "Missing required field: 'targets'"),
    ({"targets": {}}, "Field 'targets' must be an array, got object"),
    ({"targets": ["x"]}, "Field 'targets[0]' must be an object, got string"),
    ({"targets": [{"provider": "mock"}]}, "Missing required field: 'targets[0].name'"),
    ({"targets": [{"name": "a"}]}, "Missing required field: 'targets[0].provider'"),
    ({"targets": [{"name": " ", "provider": "mock"}]}, "Field 'targets[0].name' is blank"),
    ({"targets": [{"name": 1, "provider": "mock"}]}, "Field 'targets[0].name' must be a string, got integer"),
    ({"targets": [{"name": "a", "provider": ""}]}, "Field 'targets[0].provider' is blank"),
]


@pytest.mark.parametrize(("data", "message"), ROOTS)
def test_a_file_with_another_shape_is_rejected(data, message):
    assert messages(data) == [message]


def test_a_misspelled_list_key_is_suggested():
    assert check_targets({"target": []}).errors[0].hint == "Did you mean 'targets' instead of 'target'?"


def test_a_duplicate_name_is_an_error_with_both_places():
    data = {
        "targets": [
            {"name": "a", "provider": "mock"},
            {"name": "b", "provider": "mock"},
            {"name": "a", "provider": "mock"},
        ]
    }
    [problem] = check_targets(data)
    assert problem.path == ("targets", 2, "name")
    assert problem.message == "Target name 'a' is used twice: at targets[0] and targets[2]"


def test_a_judge_may_be_declared_after_the_target_it_judges():
    data = {
        "targets": [
            {"name": "a", "provider": "mock", "judge_target": "judge"},
            {"name": "judge", "provider": "mock"},
            {"name": "b", "provider": "mock", "judge_target": "${{ JUDGE }}"},
        ]
    }
    assert check_targets(data) == []


def test_unknown_top_level_keys_are_warnings():
    data = {"$schema": "agentv-targets-v2.2", "version": 1, "description": "x", "targets": [], "target": []}
    assert messages(data) == []
    assert messages(data, "warning") == ["Unknown field 'target'", "Field 'targets' has no entries"]


def test_settings_of_early_versions_of_agentv_are_those_of_the_target():
    text = b"targets:\n  - name: a\n    provider: mock\n    settings:\n      response: x\n      colour: 1\n"
    data = as_targets_file(parse_yaml(text), "targets.yaml")
    assert data["targets"] == [{"name": "a", "provider": "mock", "response": "x", "colour": 1}]
    [problem] = check_targets(data)
    assert (problem.message, locate(data, problem.path).line) == ("Unknown field 'targets[0].colour'", 6)


def test_a_setting_wins_over_its_alias():
    data = entry("azure", deployment="old", model="new", endpoint="e")
    assert messages(data) == []
    assert messages(data, "warning") == ["Field 'targets[0].deployment' is ignored because 'targets[0].model' is set"]


@pytest.mark.parametrize("key", ["subagent_mode_allowed", "stream_log", "logDir", "keep_temp_files"])
def test_settings_for_the_logs_of_agentv_typescript_are_ignored_with_a_warning(key):
    assert messages(entry("openai", model="m", **{key: False})) == []
    [warning] = messages(entry("openai", model="m", **{key: False}), "warning")
    assert warning == f"Field 'targets[0].{key}' is ignored: it has no effect here"


def test_settings_next_to_use_target_are_checked_against_the_provider_it_leads_to():
    data = {"targets": [{"name": "a", "use_target": "b", "respnse": "x"}, {"name": "b", "provider": "mock"}]}
    [problem] = check_targets(data)
    assert (problem.path, problem.hint) == (("targets", 0, "respnse"), "Did you mean 'response'?")


def test_all_mistakes_in_a_file_are_reported_together():
    data = {"targets": [{"name": "a", "provider": "cli"}, {"name": "b", "provider": "mock", "workers": -1, "x": 1}, 3]}
    assert len(messages(data)) == 4


def test_target_names():
    assert list(named_entries({"targets": [{"name": "a"}, {"name": ""}, 3, {"name": "b"}]})) == ["a", "b"]
    assert named_entries({"targets": "x"}) == {}
    assert named_entries(None) == {}
