"""Each provider declares the hosts, variables and programs that it uses: a stranger's target cannot hide them."""

import json

import pytest
from stranger import Stranger

from agentv.registry import TARGETS
from agentv.targets.mock import Mock
from agentv.targets.target import HostedApi, ModelApi, Target
from agentv.targets.target_uses import declared_uses

USES_NOTHING = {"mock", "replay"}
HOSTS = {
    "openai": "api.openai.com",
    "anthropic": "api.anthropic.com",
    "gemini": "generativelanguage.googleapis.com",
    "azure": "any host",
    "mistral": "api.mistral.ai",
    "ollama": "localhost:11434",
    "cohere": "api.cohere.com",
    "huggingface": "router.huggingface.co",
    "bedrock": "bedrock-runtime.${{ AWS_REGION }}.amazonaws.com",
    "sentence-transformers": "huggingface.co",
    "claude-code": "api.anthropic.com",
}
KEYS = {"openai": "OPENAI_API_KEY", "cohere": "CO_API_KEY", "huggingface": "HF_TOKEN", "gemini": "GOOGLE_API_KEY"}
KEYS |= {"bedrock": "AWS_SECRET_ACCESS_KEY", "azure": "AZURE_OPENAI_AD_TOKEN", "xai": "XAI_API_KEY"}
KEYS |= {"pi-coding-agent": "GEMINI_API_KEY", "opencode": "OPENCODE_API_KEY", "codex": "CODEX_API_KEY"}


def uses_of(kind, **settings):
    return {(each, value) for each, value in declared_uses(kind, {"provider": "toy", **settings})}


def registered(name, **settings):
    return {(each, value) for each, value in declared_uses(TARGETS.find(name), {"provider": name, **settings})}


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    made = Stranger(tmp_path)
    monkeypatch.chdir(made.mine)
    row = {"id": "a", "input": "x", "expected_outcome": "y", "evaluators": [{"type": "contains", "value": "j"}]}
    made.write(made.mine, "evals.yaml", {"evalcases": [row]})
    return made


@pytest.mark.parametrize("provider", sorted(set(TARGETS.names()) - USES_NOTHING))
def test_a_strangers_target_of_any_provider_is_refused(stranger, command, provider):
    entry = {"name": "c", "provider": provider, "model": "m"}
    if provider in ("cli", "http", "javascript", "python"):
        entry |= {
            "command_template": "true",
            "url": "http://127.0.0.1:1",
            "function": "agent.py:answer",
            "file": "a.js",
        }
    theirs = stranger.write(stranger.theirs, ".agentv/targets.yaml", {"targets": [entry]})
    ended = command("eval", "evals.yaml", "--targets", str(theirs), "--target", "c", "--max-retries", "0")
    assert (ended.code, "is outside your project" in ended.stderr) == (2, True), ended.stderr


@pytest.mark.parametrize("name", TARGETS.names())
def test_an_api_names_its_hosts_and_other_providers_their_programs(name):
    kinds = {kind for kind, _ in registered(name)}
    if TARGETS.find(name).is_api:
        assert "host" in kinds
    settings = {"command_template": "true", "function": "agent.py:answer", "executable": "agent", "file": "a.js"}
    assert bool(registered(name, **settings)) == (name not in USES_NOTHING)


@pytest.mark.parametrize("name", HOSTS)
def test_a_provider_names_the_host_of_its_vendor(name):
    assert ("host", HOSTS[name]) in registered(name)


@pytest.mark.parametrize("name", KEYS)
def test_a_provider_names_the_variables_with_its_key(name):
    assert ("variable", KEYS[name]) in registered(name)


def test_another_address_replaces_the_host_of_the_vendor_and_gets_no_key():
    for name in ("openai", "cohere", "mistral", "gemini"):
        assert registered(name, base_url="https://llm.example:8443/v1") == {("host", "llm.example:8443")}


def test_an_azure_resource_is_listed_as_its_host():
    assert ("host", "mine.openai.azure.com") in registered("azure", endpoint="mine")
    assert ("host", "llm.example") in registered("azure", endpoint="https://llm.example/openai")


def test_a_model_of_pydantic_ai_lists_what_the_package_may_use():
    assert registered("pydantic_ai", model="zai:glm-4.6") == {
        ("host", "any host (pydantic-ai chooses the API of 'zai')"),
        ("variable", "any key that pydantic-ai reads for 'zai'"),
    }


def test_an_api_that_declares_nothing_is_listed_with_any_host():
    class Silent(ModelApi, frozen=True, kw_only=True):
        @classmethod
        def uses(cls, settings):
            return ()

    class Unaware(HostedApi, frozen=True, kw_only=True):
        pass

    class Plain(Target, frozen=True, kw_only=True):
        pass

    for kind in (Silent, Unaware, Plain):
        assert ("host", "any host") in uses_of(kind)


def test_a_kind_that_opens_connections_of_its_own_does_not_inherit_the_declaration():
    class Calling(Mock, frozen=True, kw_only=True):
        def open(self, home):
            raise NotImplementedError

    class Renamed(Mock, frozen=True, kw_only=True):
        note: str = ""

    assert uses_of(Calling) == {("host", "any host")}
    assert uses_of(Renamed) == set()


def test_validate_and_dry_run_list_the_host_and_the_key(stranger, command):
    stranger.write(
        stranger.mine, ".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mistral", "model": "m"}]}
    )
    for arguments in (("validate", "evals.yaml", "--json"), ("eval", "evals.yaml", "--dry-run", "--json")):
        listed = {(use["kind"], use["value"]) for use in json.loads(command(*arguments).stdout)["uses"]}
        assert {("host", "api.mistral.ai"), ("variable", "MISTRAL_API_KEY")} <= listed


def test_hosts_and_keys_of_a_sandbox_are_listed():
    sandbox = {"hosts": ["api.example.com"], "keys": {"api.example.com": {"variable": "EXAMPLE_API_KEY"}}}
    uses = registered("cli", command_template="./agent", sandbox=sandbox)
    assert {("host", "api.example.com"), ("variable", "EXAMPLE_API_KEY")} <= uses
