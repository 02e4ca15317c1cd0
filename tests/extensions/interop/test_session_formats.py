"""Recorded sessions as they occur: what is read of each, and what is counted as left out."""

import json
import sqlite3
from pathlib import Path
from random import Random

import pytest
import yaml

from agentv.registry import SESSION_FORMATS
from agentv.sessions.session import ReadLog
from agentv.sessions.session_file import SessionFile, format_of, read_sessions, session_files
from agentv.support.json_values import json_or

DATA = Path(__file__).parents[2] / "data" / "sessions"
FORMATS = {path.stem: yaml.load(path.read_text("utf-8"), yaml.CSafeLoader) for path in sorted(DATA.glob("*.yaml"))}
EXAMPLES = [
    pytest.param(name, example, id=f"{name}-{number}")
    for name, examples in FORMATS.items()
    for number, example in enumerate(examples)
]


def written(folder, example):
    for name, content in example.get("files", {example["file"]: example.get("content")}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, "utf-8")
    return folder / example["file"]


def shape(session, wanted):
    """Return what is known about a session, for the wanted keys."""
    calls = [call for message in session.messages for call in message.tool_calls]
    found = {
        "requests": [each.text for each in session.exchanges],
        "answers": [each.answer for each in session.exchanges],
        "attachments": [each.has_attachments for each in session.exchanges],
        "tools": [each.tools for each in session.exchanges],
        "inputs": [call.input for call in calls],
        "outputs": [call.output for call in calls],
        "durations": [call.duration_ms for call in calls],
        "usage": None if session.usage is None else [session.usage.input, session.usage.output],
    }
    return {key: found[key] if key in found else getattr(session, key) for key in wanted}


def test_every_format_has_at_least_three_examples():
    assert set(FORMATS) == set(SESSION_FORMATS.names())
    assert all(len(examples) >= 3 for examples in FORMATS.values())


@pytest.mark.parametrize(("name", "example"), EXAMPLES)
def test_a_recording_becomes_the_expected_sessions(tmp_path, name, example):
    path, log = written(tmp_path, example), ReadLog()
    sessions = list(read_sessions([str(path)], log))
    assert [shape(*each) for each in zip(sessions, example["sessions"], strict=True)] == example["sessions"]
    skipped = list(log.skipped.elements())
    assert len(skipped) == len(example.get("skipped", ()))
    assert all(any(part in why for why in skipped) for part in example.get("skipped", ()))
    assert list(log.unknown) == example.get("unknown", [])
    assert sum(log.broken.values()) == example.get("broken", 0)


@pytest.mark.parametrize(("name", "example"), EXAMPLES)
def test_only_its_own_format_recognizes_a_file(tmp_path, name, example):
    path = written(tmp_path, example)
    for file in map(SessionFile, session_files(str(path))):
        fitting = [
            kind
            for kind in SESSION_FORMATS.names()
            if any(mark in file.head for mark in SESSION_FORMATS.find(kind).marks)
            and SESSION_FORMATS.find(kind).fits(file)
        ]
        assert fitting == [name]


@pytest.mark.parametrize(("name", "example"), EXAMPLES)
def test_a_file_cut_anywhere_is_read_or_counted(tmp_path, name, example):
    content = example.get("content") or next(iter(example["files"].values()))
    path = tmp_path / Path(example["file"]).with_suffix(Path(example["file"]).suffix or ".json")
    for end in range(0, len(content), max(1, len(content) // 12)):
        path.write_text(content[:end], "utf-8")
        log = ReadLog()
        sessions = list(read_sessions([str(path)], log))
        assert sessions or log.skipped or log.broken


@pytest.mark.parametrize("path", sorted((DATA / "recorded").iterdir()), ids=lambda path: path.stem)
def test_sessions_that_the_real_agents_recorded(path):
    log = ReadLog()
    [session] = read_sessions([str(path)], log)
    [exchange] = session.exchanges
    assert (session.agent, exchange.text.strip('"'), exchange.answer) == (
        path.stem,
        "Make a file and say the answer",
        "The answer is 42.",
    )
    [call] = [call for message in session.messages for call in message.tool_calls]
    assert "echo made > made.txt && ls" in call.input.values()
    assert "made.txt" in call.output
    assert call.duration_ms > 0
    assert (session.usage.input, session.usage.output, session.usage.cached) == (200, 40, 60)
    [figures] = session.figures
    assert (figures.usage, figures.cost_usd) == (session.usage, session.cost_usd)
    assert 0 < figures.duration_ms <= session.duration_ms
    assert session.started.startswith("2026-11-16T08:1")
    assert session.cwd in ("/home/ann/project", None if session.agent == "gemini-cli" else "")
    assert list(log.lines()) == []


def codex_session():
    def line(second, kind, **payload):
        return {"timestamp": f"2026-03-01T10:00:{second:02}.000Z", "type": kind, "payload": payload}

    def message(second, role, text):
        content = [{"type": "input_text" if role == "user" else "output_text", "text": text}]
        return line(second, "response_item", type="message", role=role, content=content)

    def total(second, input, output):
        counts = {"input_tokens": input, "output_tokens": output}
        return line(second, "event_msg", type="token_count", info={"total_token_usage": counts})

    first = [line(0, "session_meta", id="c"), message(1, "user", "One?"), total(2, 5, 1), message(3, "assistant", "1.")]
    first.append(total(3, 10, 2))
    second = [line(40, "turn_context", model="m"), message(41, "user", "Two?"), message(45, "assistant", "2.")]
    return "".join(json.dumps(each) + "\n" for each in (*first, *second, total(45, 40, 3)))


def otlp_session():
    def span(id, times, counts, messages):
        *sent, received = [{"role": role, "parts": [{"type": "text", "content": text}]} for role, text in messages]
        values = {"gen_ai.operation.name": "chat", "gen_ai.conversation.id": "c"}
        values |= {"gen_ai.usage.input_tokens": counts[0], "gen_ai.usage.output_tokens": counts[1]}
        values |= {"gen_ai.input.messages": json.dumps(sent), "gen_ai.output.messages": json.dumps([received])}
        listed = [
            {"key": key, "value": {"intValue": value} if isinstance(value, int) else {"stringValue": value}}
            for key, value in values.items()
        ]
        start, end = (f"17723592{second:02}000000000" for second in times)
        about = {"traceId": f"t{id}", "spanId": id, "name": "chat", "attributes": listed}
        return {**about, "startTimeUnixNano": start, "endTimeUnixNano": end}

    first = [("system", "Be brief"), ("user", "One?"), ("assistant", "1.")]
    second = [*first, ("user", "Two?"), ("assistant", "2.")]
    spans = [span("b", (41, 45), (30, 1), second), span("a", (1, 3), (10, 2), first)]
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})


@pytest.mark.parametrize(("name", "content"), [("c.jsonl", codex_session()), ("t.json", otlp_session())])
def test_each_request_has_its_own_tokens_and_time(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    [session] = read_sessions([str(tmp_path / name)], ReadLog())
    found = [(each.figures.usage.input, each.figures.usage.output) for each in session.exchanges]
    assert found == [(10, 2), (30, 1)]
    assert [each.figures.duration_ms for each in session.exchanges] == [2000, 4000]
    assert (session.usage.input, session.usage.output) == (40, 3)
    whole = session.response()
    assert (whole.usage, whole.duration_ms) == (session.usage, session.duration_ms)
    assert whole.text == "2."


@pytest.mark.parametrize(("name", "example"), EXAMPLES)
def test_the_figures_of_requests_are_not_more_than_those_of_the_session(tmp_path, name, example):
    for session in read_sessions([str(written(tmp_path, example))], ReadLog()):
        assert len(session.figures) == len(session.exchanges)
        known = [each.usage.output for each in session.figures if each.usage is not None]
        assert sum(known) <= (0 if session.usage is None else session.usage.output)
        assert sum(each.duration_ms or 0 for each in session.figures) <= (session.duration_ms or 0)
        assert sum(each.tool_errors for each in session.figures) <= session.tool_errors


def test_the_database_of_opencode_is_read(tmp_path):
    exported = json.loads((DATA / "recorded" / "opencode.json").read_text())
    about = exported["info"]
    path = tmp_path / "opencode.db"
    with sqlite3.connect(path) as database:
        database.executescript(
            "CREATE TABLE session (id TEXT, parent_id TEXT, directory TEXT, time_created INTEGER);"
            "CREATE TABLE message (id TEXT, session_id TEXT, time_created INTEGER, data TEXT);"
            "CREATE TABLE part (id TEXT, message_id TEXT, session_id TEXT, data TEXT);"
        )
        created = about["time"]["created"]
        database.execute("INSERT INTO session VALUES (?, NULL, ?, ?)", (about["id"], about["directory"], created))
        database.execute("INSERT INTO session VALUES ('ses_sub', ?, '', ?)", (about["id"], created))
        for message in exported["messages"]:
            info = message["info"]
            row = (info["id"], about["id"], info["time"]["created"], json.dumps(info))
            database.execute("INSERT INTO message VALUES (?, ?, ?, ?)", row)
            for part in message["parts"]:
                row = (part["id"], info["id"], about["id"], json.dumps(part))
                database.execute("INSERT INTO part VALUES (?, ?, ?, ?)", row)
    database.close()
    log = ReadLog()
    [session] = read_sessions([str(path)], log)
    [again] = read_sessions([str(DATA / "recorded" / "opencode.json")], ReadLog())
    assert session.messages == again.messages
    assert (session.id, session.usage, session.cost_usd) == (again.id, again.usage, again.cost_usd)
    assert list(log.skipped) == ["the work of a sub-agent, which is part of another session"]


def test_a_newer_database_of_opencode_is_read_with_the_sessions_of_older_tables(tmp_path):
    path = tmp_path / "opencode.db"
    call = {"type": "tool", "id": "c1", "name": "bash"}
    failed = {"status": "error", "input": '{"command": "make"}', "error": {"type": "unknown", "message": "no make"}}
    done = {"status": "completed", "input": {"command": "ls"}, "content": [{"type": "text", "text": "a.py"}]}
    answer = {
        "model": {"id": "m", "providerID": "p"},
        "tokens": {"input": 5, "output": 2, "reasoning": 0, "cache": {"read": 0, "write": 0}},
        "cost": 0.5,
        "time": {"created": 2000, "completed": 3000},
        "content": [{**call, "state": failed}, {**call, "id": "c2", "state": done}, {"type": "text", "text": "Done"}],
    }
    rows = [
        ("user", {"text": "Build it", "time": {"created": 1000}}),
        ("idle", {}),
        ("assistant", answer),
        ("strange", {}),
        ("user", {"text": "Taken back"}),
    ]
    with sqlite3.connect(path) as database:
        database.executescript(
            "CREATE TABLE session_v2 (id TEXT, parent_id TEXT, directory TEXT, time_created INTEGER, revert TEXT);"
            "CREATE TABLE session_message (id TEXT, session_id TEXT, type TEXT, seq INTEGER, data TEXT);"
            "CREATE TABLE session (id TEXT, parent_id TEXT, directory TEXT, time_created INTEGER);"
            "CREATE TABLE message (id TEXT, session_id TEXT, time_created INTEGER, data TEXT);"
            "CREATE TABLE part (id TEXT, message_id TEXT, session_id TEXT, data TEXT);"
            """INSERT INTO session_v2 VALUES ('ses_2', NULL, '/app', 1000, '{"messageID": "msg_4"}');"""
            "INSERT INTO session VALUES ('ses_2', NULL, '/app', 1000);"
            "INSERT INTO session VALUES ('ses_1', NULL, '/app', 500);"
            """INSERT INTO message VALUES ('m1', 'ses_1', 1, '{"role": "user"}'), ('m2', 'ses_1', 2, '{}');"""
            """INSERT INTO part VALUES ('p1', 'm1', 'ses_1', '{"type": "text", "text": "Hi"}');"""
            """INSERT INTO part VALUES ('p2', 'm2', 'ses_1', '{"type": "text", "text": "Hello"}');"""
        )
        for seq, (kind, data) in enumerate(rows):
            row = (f"msg_{seq}", "ses_2", kind, seq, json.dumps(data))
            database.execute("INSERT INTO session_message VALUES (?, ?, ?, ?, ?)", row)
    database.close()
    log = ReadLog()
    newer, older = read_sessions([str(path)], log)
    keys = ("id", "model", "requests", "answers", "tools", "outputs", "usage", "cost_usd", "tool_errors")
    assert shape(newer, keys) == {
        **{"id": "ses_2", "model": "m", "requests": ["Build it"], "answers": ["Done"], "tools": [["bash", "bash"]]},
        **{"outputs": ["no make", "a.py"], "usage": [5, 2], "cost_usd": 0.5, "tool_errors": 1},
    }
    assert shape(older, ("id", "requests", "answers")) == {"id": "ses_1", "requests": ["Hi"], "answers": ["Hello"]}
    assert list(log.unknown) == ["opencode 'strange'"]


def test_other_files_are_not_sessions(tmp_path):
    for name, content in {
        "a.jsonl": '{"id": "1", "input": "x"}\n',
        "b.json": '{"messages": [{"role": "user", "content": "x"}]}',
        "c.json": "[1, 2]",
        "d.db": "SQLite format 3\x00 but cut",
        "e.jsonl": "",
        "f.json": "not JSON",
    }.items():
        (tmp_path / name).write_text(content)
        assert format_of(SessionFile(str(tmp_path / name))) is None
    log = ReadLog()
    assert list(read_sessions([str(tmp_path)], log)) == []
    assert sum(log.skipped.values()) == log.files == 6


WRONG = (None, 1, "x", [], {}, [1], {"a": 1}, True, -1.5, [[]], {"type": None})


def damaged(value, random):
    """Return data in which some values have another type, and some keys are missing."""
    if random.random() < 0.04:
        return random.choice(WRONG)
    if isinstance(value, dict):
        return {key: damaged(item, random) for key, item in value.items() if random.random() > 0.02}
    return [damaged(item, random) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", FORMATS)
def test_values_of_the_wrong_type_do_not_stop_the_reading(tmp_path, name):
    random = Random(7)
    for example in (each for each in FORMATS[name] if "content" in each):
        path, lines = tmp_path / example["file"], path_lines(example)
        for _ in range(8):
            path.write_text("\n".join(json.dumps(damaged(line, random)) for line in lines))
            log = ReadLog()
            sessions = list(read_sessions([str(path)], log))
            assert sessions or log.skipped or log.broken


def path_lines(example):
    """Return the JSON values in a file: one per line, or one document."""
    if example["file"].endswith(".json"):
        return [json.loads(example["content"])]
    return [data for line in example["content"].splitlines() if (data := json_or(line, None)) is not None]


ORDER = "CREATE TABLE message (id, session_id, time_created, data); CREATE TABLE part (id, message_id, data);"
ROW = "INSERT INTO session (id, time_created) VALUES ('ses_1', 1);"
DATABASES = {
    "a value of 900 MB in a row of a few bytes": (
        "CREATE TABLE session (id, parent_id, time_created, directory AS (hex(zeroblob(450000000))));" + ROW
    ),
    "a text that is not UTF-8": (
        "CREATE TABLE session (id, parent_id, directory, time_created);"
        "INSERT INTO session VALUES ('ses_1', NULL, CAST(x'ff' AS TEXT), 1);"
    ),
    "no column for the parent": "CREATE TABLE session (id, time_created);" + ROW,
}


@pytest.mark.parametrize("name", DATABASES)
def test_a_hostile_database_is_left_out(tmp_path, name):
    with sqlite3.connect(tmp_path / "opencode.db") as database:
        database.executescript(ORDER + DATABASES[name])
    database.close()
    log = ReadLog()
    assert list(read_sessions([str(tmp_path / "opencode.db")], log)) == []
    assert log.skipped


def test_the_name_of_a_database_does_not_lead_to_another_one(tmp_path):
    (tmp_path / "a").mkdir()
    for name in ("a/%2e%2e%2fb.db", "b.db"):
        with sqlite3.connect(tmp_path / name) as database:
            columns = ORDER if name == "b.db" else ""
            database.executescript("CREATE TABLE session (id, parent_id, directory, time_created);" + columns)
        database.close()
    assert format_of(SessionFile(str(tmp_path / "a/%2e%2e%2fb.db"))) is None


@pytest.mark.parametrize(
    "text",
    [
        "<command-name>" * 100_000,
        "<command-name>" + " " * 100_000,
        "<system-reminder>" * 100_000,
        "<" + "a" * 100_000,
    ],
)
@pytest.mark.parametrize("name", ["claude-code", "codex"])
def test_marks_without_an_end_take_little_time(tmp_path, name, text):
    records = {
        "claude-code": {"type": "user", "uuid": "1", "sessionId": "s", "message": {"role": "user", "content": text}},
        "codex": {"type": "event_msg", "payload": {"type": "user_message", "message": text}},
    }
    path = tmp_path / "session.jsonl"
    path.write_text(json.dumps(records[name]) + "\n")
    assert format_of(SessionFile(str(path))).agent == name
    list(read_sessions([str(path)], ReadLog()))


@pytest.mark.parametrize("id", ["{}/others", "../../../others", "msg_1"])
def test_the_parts_of_a_session_of_opencode_are_in_its_storage(tmp_path, id):
    other = {"others/1.json": {"type": "text", "text": "private"}}
    files = {
        "storage/session/p/ses_1.json": {"id": "ses_1", "time": {"created": 1}},
        "storage/message/ses_1/msg_1.json": {"id": id.format(tmp_path), "role": "user"},
        "storage/part/msg_1/1.json": {"type": "text", "text": "Hi"},
        "storage/message/ses_1/msg_2.json": {"id": "msg_2", "role": "assistant"},
        "storage/part/msg_2/1.json": {"type": "text", "text": "Hello"},
    }
    for name, content in {**files, **other}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(json.dumps(content))
    sessions = read_sessions([str(tmp_path / "storage/session/p/ses_1.json")], ReadLog())
    assert [each.text for session in sessions for each in session.exchanges] == (["Hi"] if id == "msg_1" else [])


@pytest.mark.parametrize("time", [10**400, 10**300, "x", []])
def test_a_time_out_of_range_leaves_out_a_session_at_most(tmp_path, time):
    content = {"info": {"id": "ses_1", "time": {"created": time}}, "messages": []}
    (tmp_path / "ses_1.json").write_text(json.dumps(content))
    log = ReadLog()
    assert list(read_sessions([str(tmp_path / "ses_1.json")], log)) == []
    assert log.skipped
