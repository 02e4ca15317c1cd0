"""The user's policy: read from the user's own folder, with the place of every mistake."""

import pytest

from agentv.errors import AgentvError, UsageError
from agentv.trust.policy import Policy, load_policy, policy_path


def test_without_a_file_programs_of_other_folders_are_asked_about():
    assert load_policy() == Policy(programs="ask", sandbox=None, hosts=None)


def test_a_file_sets_programs_sandbox_and_hosts(policy):
    policy("programs: deny\nsandbox: required\nhosts: [api.openai.com]\n")
    assert load_policy() == Policy(programs="deny", sandbox="required", hosts=("api.openai.com",))


def test_an_empty_file_is_the_default(policy):
    policy("# nothing yet\n")
    assert load_policy() == Policy()


@pytest.mark.parametrize(
    ("text", "found", "hint"),
    [
        ("program: deny", "Unknown field 'program'", "Did you mean 'programs'?"),
        ("programs: denied", "unknown value 'denied'", "Known values: deny, ask, allow"),
        ("\nsandbox: optional", "line 2", ""),
        ("hosts: api.openai.com", "must be an array", "List the hosts"),
        ("- deny", "A policy must be an object, got array", ""),
        ("programs: [", "policy.yaml", ""),
    ],
)
def test_an_invalid_policy_stops_everything(policy, text, found, hint):
    policy(text)
    with pytest.raises(AgentvError) as error:
        load_policy()
    assert found in str(error.value)
    assert hint in str(error.value)


def test_a_relative_xdg_folder_is_ignored(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert policy_path() == str(tmp_path / ".config" / "agentv" / "policy.yaml")


@pytest.mark.parametrize(
    ("allowed", "address", "is_allowed"),
    [
        (None, "https://anything.example", True),
        ((), "https://api.openai.com/v1", False),
        (("api.openai.com",), "https://API.openai.com/v1", True),
        (("api.openai.com",), "https://api.openai.com.evil.example/v1", False),
        (("api.openai.com",), "https://api.openai.com@evil.example/v1", False),
        (("*.example.com",), "https://eu.example.com", True),
        (("*.example.com",), "https://example.com", False),
        (("localhost:8080",), "http://localhost:8080/v1", True),
        (("localhost:8080",), "http://localhost:9090/v1", False),
        (("example.com:443",), "https://example.com", True),
        (("example.com",), "not an address", False),
        (("*.example.com",), "evil.example/.example.com", False),
        (("*.example.com",), "https://evil.example\uff0f.example.com", False),
        (("example.com",), "https://evil.example\\@example.com/", False),
        (("*.example.com",), "https://evil.example\\.example.com/", False),
        (("example.com",), "https://evil.example\t@example.com/", False),
        (("example.com",), "https://example.com/a path\\with?q=a b", True),
        (("*",), "https://anything.example", True),
    ],
)
def test_only_the_listed_hosts_may_be_called(allowed, address, is_allowed):
    assert Policy(hosts=allowed).allows_host(address) is is_allowed


def test_a_refused_host_is_named_with_the_file_to_change():
    with pytest.raises(UsageError, match="Calls to 'evil") as error:
        Policy(hosts=("api.openai.com",)).check_host("https://evil.example/v1?key=1")
    assert policy_path() in str(error.value)
    assert "api.openai.com" in str(error.value)
