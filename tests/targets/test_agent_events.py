"""Events that the real agents printed, read as answers. Each file has beside it what it must give."""

import json
from pathlib import Path

import msgspec
import pytest

from agentv.model.response import Response, TargetFailure
from agentv.registry import TARGETS
from agentv.targets.agents.events import Event, NoAnswer, classify_failure

DATA = Path(__file__).parent.parent / "data" / "agents"
FILES = sorted(DATA.glob("*.jsonl"))
AGENTS = ("claude-code", "codex", "copilot-cli", "gemini-cli", "opencode", "pi-coding-agent")
EVERY_MS = 10.0
"""Events that have no times of their own are taken to come one after the other, so far apart."""


def events(text):
    return [Event(json.loads(line), number * EVERY_MS) for number, line in enumerate(text.splitlines())]


def read(provider, found):
    """What comes of events: an answer or a failure, as data."""
    try:
        response = TARGETS.find(provider).read_events(found)
    except TargetFailure as failure:
        return {"class": failure.error_class, "status": failure.status, "message": failure.message}
    data = json.loads(msgspec.json.encode(response))
    return {key: value for key, value in data.items() if value not in (None, False, 0)}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_recorded_events_give_what_stands_beside_them(file):
    expected = json.loads(file.with_suffix(".expect.json").read_text())
    assert read(file.name.partition(".")[0], events(file.read_text())) == expected


@pytest.mark.parametrize("provider", AGENTS)
def test_every_agent_has_recorded_events(provider):
    assert {file.name for file in FILES} >= {
        f"{provider}.{name}.jsonl" for name in ("answer", "failed-tool", "wrong-key")
    }


@pytest.mark.parametrize("provider", AGENTS)
def test_no_events_are_no_answer(provider):
    with pytest.raises(NoAnswer):
        TARGETS.find(provider).read_events([])


@pytest.mark.parametrize("file", [file for file in FILES if ".answer." in file.name], ids=lambda file: file.stem)
def test_a_stream_that_breaks_off_is_never_taken_for_the_whole_answer(file):
    """Cut anywhere, the events give no answer, however much was said by then. A report comes besides, and may lack."""
    whole = [event for event in events(file.read_text()) if event.data["type"] != "report"]
    provider = file.name.partition(".")[0]
    for length in range(len(whole)):
        assert "class" in read(provider, whole[:length]), f"{provider} after {length} of {len(whole)} events"
    assert "class" not in read(provider, whole)


@pytest.mark.parametrize("odd", [7, -0.5, True, "word", ["x"], {"a": 1}], ids=str)
@pytest.mark.parametrize("file", [file for file in FILES if ".answer." in file.name], ids=lambda file: file.stem)
def test_what_an_agent_says_in_another_form_is_never_handed_on(file, odd):
    """Each value of each event in turn: what comes of it is a failure, or an answer whose fields are what they are."""
    whole = events(file.read_text())
    kind = TARGETS.find(file.name.partition(".")[0])
    for index, event in enumerate(whole):
        for changed in changes(event.data, odd):
            try:
                response = kind.read_events([*whole[:index], Event(changed, event.at_ms), *whole[index + 1 :]])
            except (TargetFailure, AttributeError, KeyError, TypeError, ValueError):
                continue  # which the responder makes an error of this one case
            assert msgspec.convert(msgspec.to_builtins(response), Response).text == response.text
            assert response.cost_usd is None or response.cost_usd >= 0


def changes(data, odd):
    """The data with one value, at any depth, in the place of which stands another."""
    for key, value in data.items() if isinstance(data, dict) else enumerate(data):
        for new in (odd, *(changes(value, odd) if isinstance(value, dict | list) else ())):
            copied = data.copy()
            copied[key] = new
            yield copied


def test_claude_code_may_say_something_without_a_list():
    said = [
        {"type": "assistant", "message": {"id": "m", "content": "Paris"}},
        {"type": "result", "subtype": "success", "total_cost_usd": "0.5"},
    ]
    response = TARGETS.find("claude-code").read_events([Event(each, 0.0) for each in said])
    assert (response.text, response.cost_usd) == ("Paris", None)


@pytest.mark.parametrize("provider", AGENTS)
@pytest.mark.parametrize("event", [{}, {"type": None}, {"type": "new.kind", "data": None}, {"type": "text"}], ids=str)
def test_events_that_nobody_knows_are_passed_over(provider, event):
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
def test_what_an_agent_reports_has_the_class_that_an_api_would_have(message, error_class, status):
    failed = classify_failure(message)
    assert (failed.error_class, failed.status) == (error_class, status)
