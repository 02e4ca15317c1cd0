"""Events recorded from the real agents, and the answers expected from them."""

import json
from pathlib import Path

import msgspec
import pytest

from agentv.extensions.agents.events import Event, NoAnswer, classify_failure
from agentv.model.response import Response, TargetFailure
from agentv.registry import TARGETS

DATA = Path(__file__).parent.parent / "data" / "agents"
FILES = sorted(DATA.glob("*.jsonl"))
AGENTS = ("claude-code", "codex", "copilot-cli", "gemini-cli", "opencode", "pi-coding-agent")
EVERY_MS = 10.0
"""Read recorded events; those without timestamps are spaced evenly."""


def events(text):
    return [Event(json.loads(line), number * EVERY_MS) for number, line in enumerate(text.splitlines())]


def read(provider, found):
    """Return the answer or the failure in events, as data."""
    try:
        response = TARGETS.find(provider).read_events(found)
    except TargetFailure as failure:
        return {"class": failure.error_class, "status": failure.status, "message": failure.message}
    data = json.loads(msgspec.json.encode(response))
    return {key: value for key, value in data.items() if value not in (None, False, 0)}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_recorded_events_give_the_expected_answer(file):
    expected = json.loads(file.with_suffix(".expect.json").read_text())
    assert read(file.name.partition(".")[0], events(file.read_text())) == expected


@pytest.mark.parametrize("provider", AGENTS)
def test_every_agent_has_recorded_events(provider):
    assert {file.name for file in FILES} >= {
        f"{provider}.{name}.jsonl" for name in ("answer", "failed-tool", "wrong-key")
    }


@pytest.mark.parametrize("provider", AGENTS)
def test_no_events_means_no_answer(provider):
    with pytest.raises(NoAnswer):
        TARGETS.find(provider).read_events([])


@pytest.mark.parametrize("file", [file for file in FILES if ".answer." in file.name], ids=lambda file: file.stem)
def test_a_truncated_stream_is_never_a_complete_answer(file):
    """Truncated at any point, the events give no answer. Only the report, which is a separate file, may be missing."""
    whole = [event for event in events(file.read_text()) if event.data["type"] != "report"]
    provider = file.name.partition(".")[0]
    for length in range(len(whole)):
        assert "class" in read(provider, whole[:length]), f"{provider} after {length} of {len(whole)} events"
    assert "class" not in read(provider, whole)


@pytest.mark.parametrize("odd", [7, -0.5, True, "word", ["x"], {"a": 1}], ids=str)
@pytest.mark.parametrize("file", [file for file in FILES if ".answer." in file.name], ids=lambda file: file.stem)
def test_malformed_metadata_is_dropped(file, odd):
    """Replace each value of each event in turn: the outcome is a failure, or an answer with valid fields."""
    whole = events(file.read_text())
    kind = TARGETS.find(file.name.partition(".")[0])
    for index, event in enumerate(whole):
        for changed in changes(event.data, odd):
            try:
                response = kind.read_events([*whole[:index], Event(changed, event.at_ms), *whole[index + 1 :]])
            except (TargetFailure, AttributeError, KeyError, TypeError, ValueError):
                continue  # which the responder converts to a failure of this call
            assert msgspec.convert(msgspec.to_builtins(response), Response).text == response.text
            assert response.cost_usd is None or response.cost_usd >= 0


def changes(data, odd):
    """Yield copies of the data with one value, at any depth, replaced."""
    for key, value in data.items() if isinstance(data, dict) else enumerate(data):
        for new in (odd, *(changes(value, odd) if isinstance(value, dict | list) else ())):
            copied = data.copy()
            copied[key] = new
            yield copied


def test_claude_code_content_may_be_a_string():
    printed = [
        {"type": "assistant", "message": {"id": "m", "content": "Paris"}},
        {"type": "result", "subtype": "success", "total_cost_usd": "0.5"},
    ]
    response = TARGETS.find("claude-code").read_events([Event(each, 0.0) for each in printed])
    assert (response.text, response.cost_usd) == ("Paris", None)


@pytest.mark.parametrize("provider", AGENTS)
@pytest.mark.parametrize("event", [{}, {"type": None}, {"type": "new.kind", "data": None}, {"type": "text"}], ids=str)
def test_unknown_events_are_ignored(provider, event):
    [file] = [file for file in FILES if file.name == f"{provider}.answer.jsonl"]
    known = events(file.read_text())
    more = [each for one in known for each in (Event(event, one.at_ms), one)]
    assert read(provider, more) == read(provider, known)


@pytest.mark.parametrize(
    ("message", "error_class", "status"),
    [
        ("unexpected status 401 Unauthorized: Missing bearer", "auth", 401),
        ("exceeded retry limit, last status: 429 Too Many Requests", "rate_limit", 429),
        ('API Error: 529 {"type":"error","error":{"type":"overloaded_error"}}', "server", 503),
        ("You've hit your usage limit. Try again later.", "rate_limit", None),
        ("Credit balance is too low", "auth", None),
        ("insufficient_quota: You exceeded your current quota, please check your billing details", "auth", None),
        ("API Error: Claude Code is unable to respond: this appears to violate our Usage Policy", "refused", None),
        ("API Error: 400 Output blocked by content filtering policy", "refused", None),
        ("You exceeded your current quota, please check your plan and billing details", "rate_limit", None),
        ("stream disconnected before completion: error sending request", "network", None),
        ("Tool produced 500 lines", "process", None),
    ],
)
def test_reported_errors_are_classified_like_api_errors(message, error_class, status):
    failed = classify_failure(message)
    assert (failed.error_class, failed.status) == (error_class, status)
