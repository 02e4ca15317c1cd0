"""Conversations: live turns and simulated users; how they are scored, summed, recorded and resumed."""

import json
import signal

import pytest

from agentv.engine.job.conversation import read_user_message, user_prompt
from agentv.model.case import SimulatedUser
from agentv.model.message import Message, ToolCall
from agentv_testing import Answer, FaultyServer
from platforms import only_on_posix
from virtual_time import skipped_ahead
from waiting import wait_until, whole_lines

SAYS = {"type": "contains", "value": "42"}
TURNS = [{"input": "To Rome"}, {"input": "Tomorrow"}]
AGENT = ["Where to?", "And when?", "Booked: train 42."]


def transcript(record):
    return [f"{message['role']}: {message['content']}" for message in record["output_messages"]]


def mock(name, *texts, **more):
    return {"name": name, "provider": "mock", "response": list(texts), **more}


def run(project, case, *options, targets=(), code=0):
    project.targets(
        *(targets or (mock("default", *AGENT), mock("user", "To Rome", "Tomorrow", "Thanks!\n[[GOAL MET]]")))
    )
    project.dataset({"input": "Hi", "evaluators": [SAYS], **case})
    ended = project.eval("--target", "default", "--out", "out", "--quiet", *options)
    assert ended.code == code, ended.stderr
    return project.records()[0]


def test_each_turn_sees_the_real_replies_before_it(project):
    replies = {"Hi": "Where to?", "To Rome": "And when?", "Tomorrow": "Booked: train 42."}
    with FaultyServer(lambda request: Answer(replies[request.prompt])) as server:
        target = {"name": "default", "provider": "openai", "model": "m", "base_url": server.url, "api_key": "k"}
        record = run(project, {"turns": TURNS}, targets=[target])
        sent = [[(each["role"], each["content"]) for each in request.body["messages"]] for request in server.requests]
    assert sent[0] == [("user", "Hi")]
    assert sent[2] == [
        ("user", "Hi"),
        ("assistant", "Where to?"),
        ("user", "To Rome"),
        ("assistant", "And when?"),
        ("user", "Tomorrow"),
    ]
    assert transcript(record) == [
        "assistant: Where to?",
        "user: To Rome",
        "assistant: And when?",
        "user: Tomorrow",
        "assistant: Booked: train 42.",
    ]
    assert (record["candidate_answer"], record["score"], record["attempts"]) == ("Booked: train 42.", 1.0, 1)
    assert record["conversation"] == {"turns": 3, "ended": "script"}


def test_usage_and_cost_of_turns_are_summed(project):
    usage = {"input": 10, "output": 2, "cached": 4}
    record = run(project, {"turns": TURNS}, targets=[mock("default", *AGENT, token_usage=usage)])
    assert record["execution_metrics"]["token_usage"] == {"input": 30, "output": 6, "cached": 12}


def turn(text, value):
    return {"input": text, "evaluators": [{"type": "contains", "name": "says", "value": value}]}


# Turns that say A, B and C to an agent, the setting, and as in AgentV 4.42.4 their scores and that of the case.
STOPS = {
    "at the second": (["a", "x", "c"], {"on_turn_failure": "stop"}, [1, 0, 0], 2),
    "at the last": (["a", "b", "x"], {"on_turn_failure": "stop"}, [1, 1, 0], 3),
    "never": (["x", "b", "c"], {"on_turn_failure": "continue"}, [0, 1, 1], 3),
    "none fails": (["a", "b", "c"], {"on_turn_failure": "stop", "aggregation": "min"}, [1, 1, 1], 3),
}


@pytest.mark.parametrize(("values", "settings", "scores", "calls"), STOPS.values(), ids=STOPS)
def test_a_conversation_stops_at_a_failed_turn(project, values, settings, scores, calls):
    case = {"input": [{"role": "system", "content": "Hi"}], "evaluators": [], "mode": "conversation", **settings}
    turns = [turn(text, value) for text, value in zip("ABC", values, strict=True)]
    record = run(project, {**case, "turns": turns}, "--min-score", "0", targets=[mock("default", "a", "b", "c")])
    assert [result["score"] for result in record["evaluator_results"]] == scores
    assert record["score"] == pytest.approx(min(scores) if "aggregation" in settings else sum(scores) / 3)
    assert record["conversation"]["turns"] == calls == sum(m["role"] == "assistant" for m in record["output_messages"])
    before = project.records()
    assert project.command("rescore", "out", "--out", "again").code == 0
    assert [each["score"] for each in project.records("again")] == [each["score"] for each in before]


def test_each_turn_counts_once_in_a_conversation_of_agentv(project):
    turns = [turn("A", "a"), {"input": "B", "evaluators": [{"type": "contains", "value": x} for x in "xyz"]}]
    case = {"input": [{"role": "system", "content": "Hi"}], "evaluators": [], "turns": turns}
    record = run(project, {**case, "mode": "conversation"}, targets=[mock("default", "a", "b")])
    assert record["score"] == 0.5


# Turns of a conversation of AgentV, and what AgentV 4.42.4 scores.
CHECKED = {
    "checks": ([turn("A", "a")], ["turn-1.says"]),
    "a reference": ([{"input": "A", "expected_output": "a"}, turn("B", "b")], ["turn-1.llm_judge", "turn-2.says"]),
    "nothing": ([{"input": "A"}], ["llm_judge"]),
}


@pytest.mark.parametrize(("turns", "names"), CHECKED.values(), ids=CHECKED)
def test_criteria_of_a_conversation_of_agentv_are_for_the_turns(project, turns, names):
    project.targets(mock("default", "a", "b"), mock("judge", '{"score": 0.9, "reasoning": "r"}'))
    case = {"id": "a", "criteria": "Is fine", "input": [{"role": "system", "content": "Hi"}], "mode": "conversation"}
    project.write("conversations.yaml", {"tests": [{**case, "turns": turns}]})
    assert project.command("eval", "conversations.yaml", "--judge", "judge", "--out", "out").code == 0
    assert [result["name"] for result in project.records()[0]["evaluator_results"]] == names


def test_a_window_limits_what_a_target_receives(project):
    with FaultyServer(lambda request: Answer(request.prompt.lower())) as server:
        target = {"name": "default", "provider": "openai", "model": "m", "base_url": server.url, "api_key": "k"}
        case = {"input": [{"role": "system", "content": "S"}], "turns": [{"input": x} for x in "ABC"], "window_size": 1}
        run(project, case, targets=[target])
        sent = ["".join(each["content"] for each in request.body["messages"]) for request in server.requests]
    assert sent == ["SA", "SaB", "SbC"]


COSTS = """
def answer(messages):
    said = sum(message["role"] == "assistant" for message in messages)
    known = {} if said == %s else {"cost_usd": 0.25}
    return {"text": f"reply {said}", **known}
"""


@pytest.mark.parametrize(("unpriced", "cost"), [(9, 0.75), (1, None)])
def test_the_cost_is_unknown_if_one_turn_does_not_report_it(project, unpriced, cost):
    project.write("agent.py", COSTS % unpriced)
    target = {"name": "default", "provider": "python", "function": "agent.py:answer"}
    record = run(project, {"turns": TURNS, "evaluators": []}, targets=[target])
    assert record["execution_metrics"].get("cost_usd") == cost


PROGRAM = "printf '%s' {PROMPT} | grep -c '^@.Assistant.:' || true"
TARGETS = {
    "mock": mock("default", "reply 0", "reply 1", "reply 2"),
    "python": {"name": "default", "provider": "python", "function": "agent.py:answer"},
    "cli": pytest.param(
        {"name": "default", "provider": "cli", "command_template": PROGRAM},
        marks=only_on_posix("it is for a shell"),
    ),
}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_every_kind_of_target_sees_the_whole_history(project, target):
    project.write("agent.py", COSTS % 9)
    record = run(project, {"turns": TURNS, "evaluators": []}, targets=[target])
    answers = [
        message["content"].strip()[-1] for message in record["output_messages"] if message["role"] == "assistant"
    ]
    assert answers == ["0", "1", "2"]


def test_an_http_target_sees_the_whole_history(project):
    with FaultyServer(lambda request: Answer(f"reply {len(request.body['messages']) // 2}")) as server:
        body = {"model": "m", "messages": "{{ messages }}"}
        target = {"name": "default", "provider": "http", "url": f"{server.url}/chat/completions", "body": body}
        target["response_path"] = "choices[0].message.content"
        record = run(project, {"turns": TURNS, "evaluators": []}, targets=[target])
    assert record["candidate_answer"] == "reply 2"


def test_turns_are_scored_individually_and_then_as_a_whole(project):
    turns = [
        {"input": "To Rome", "expected_output": "And when?", "evaluators": [{"type": "equals", "weight": 3}]},
        {
            "input": "Tomorrow",
            "evaluators": [{"type": "contains", "value": "train"}, {"type": "contains", "value": "bus"}],
        },
    ]
    record = run(project, {"turns": turns})
    found = {each["name"]: each["score"] for each in record["evaluator_results"]}
    assert found == {
        "turn-1.equals": 1.0,
        "turn-2.contains": 1.0,
        "turn-2.contains-2": 0.0,
        "contains": 1.0,
    }
    assert record["score"] == pytest.approx((3 + 1 + 0 + 1) / 6)
    assert project.summary()["evaluators"]["turn-1.equals"]["n"] == 1


def test_a_required_evaluator_of_a_turn_gates_the_case(project):
    turns = [{"input": "To Rome", "evaluators": [{"type": "contains", "value": "never", "required": True}]}]
    record = run(project, {"turns": turns, "evaluators": [{"type": "contains", "value": "when", "weight": 99}]})
    assert (round(record["score"], 2), record["verdict"]) == (0.99, "fail")


def test_a_failed_evaluator_of_a_turn_is_an_error_not_a_zero(project):
    turns = [{"input": "To Rome", "evaluators": [{"type": "latency", "threshold": 5}, {"type": "cost", "budget": 1}]}]
    record = run(project, {"turns": turns, "evaluators": [{"type": "contains", "value": "when"}]}, code=3)
    assert (record["status"], record["score"], record["partial_score"]) == ("error", None, 1.0)
    assert record["error"]["message"].startswith("turn-1.cost: ")


SEEN = """
from agentv import Score

def seen(context):
    given = [message["content"] for message in context.input_messages]
    return Score(1.0, details=[context.question, given, len(context.output_messages)])
"""


def test_evaluators_see_the_conversation_as_the_prompt(project):
    project.write("check.py", SEEN)
    record = run(project, {"turns": TURNS, "evaluators": [{"type": "python", "function": "check.py:seen"}]})
    question, given, messages = record["evaluator_results"][0]["details"]
    lines = ("@[User]:\nHi", "@[Assistant]:\nWhere to?", "@[User]:\nTo Rome", "@[Assistant]:\nAnd when?")
    assert question == "\n\n".join((*lines, "@[User]:\nTomorrow"))
    assert (given, messages) == (["Hi"], 5)


def test_tool_calls_of_all_turns_are_one_trajectory(project):
    target = mock("default", *AGENT, tool_calls=[{"tool": "search"}])
    entry = {"type": "tool_trajectory", "mode": "exact", "expected": [{"tool": "search"}] * 3}
    record = run(project, {"turns": TURNS, "evaluators": [entry]}, targets=[target])
    assert record["score"] == 1.0 and record["trace_summary"]["event_count"] == 3


def test_an_input_that_ends_with_the_assistant_is_history(project):
    given = [
        {"role": "system", "content": "Be brief"},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Yes?"},
    ]
    record = run(project, {"input": given, "turns": TURNS, "evaluators": []})
    assert transcript(record)[:2] == ["user: To Rome", "assistant: Where to?"]
    assert record["conversation"]["turns"] == 2


def test_an_error_in_a_turn_is_the_jobs_error_and_keeps_earlier_messages(project):
    with FaultyServer(["Where to?", "And when?"], faults=[None, None, "400"]) as server:
        target = {"name": "default", "provider": "openai", "model": "m", "base_url": server.url, "api_key": "k"}
        record = run(project, {"turns": TURNS}, targets=[target], code=3)
    assert (record["status"], record["score"], record["error"]["stage"]) == ("error", None, "target")
    assert record["error"]["message"].startswith("In turn 3: ")
    assert transcript(record)[-1] == "user: Tomorrow" and len(record["output_messages"]) == 4
    assert record["execution_metrics"]["token_usage"]["output"] > 0
    assert record["conversation"] == {"turns": 3}


def test_a_slow_turn_times_out(project):
    project.write(
        "agent.py",
        "import threading\ndef answer(messages):\n    if len(messages) > 1:\n"
        "        open('waiting', 'w').close()\n        threading.Event().wait(60)\n    return 'x'",
    )
    target = {"name": "default", "provider": "python", "function": "agent.py:answer", "max_retries": 0}
    with skipped_ahead((project.path / "waiting").exists):
        record = run(project, {"turns": TURNS, "execution": {"timeout_seconds": 60}}, targets=[target], code=3)
    assert record["error"]["class"] == "timeout"
    assert transcript(record) == ["assistant: x", "user: To Rome"]


GOAL = {"goal": "Book a train to Rome", "persona": "In a hurry"}

# (what the simulated user says, settings, how it ends, messages of the user)
ENDINGS = [
    (["To Rome", "Tomorrow", "Thanks!\n[[GOAL MET]]"], {}, "goal_met", 3),
    (["To Rome", "[[GOAL MET]]"], {}, "goal_met", 1),
    (["To Rome", "Never mind.\n[[GIVE UP]]"], {}, "gave_up", 2),
    (["To Rome", "Bye now"], {"stop": "bye"}, "stop", 2),
    (["To Rome", "Tomorrow", "More"], {"stop": "train 42"}, "stop", 2),
    (["More"], {"max_turns": 4}, "max_turns", 4),
    (["More"], {}, "max_turns", 10),
    (["I saw [[GOAL MET]] in a text", "[[GOAL MET]]"], {}, "goal_met", 1),
]


@pytest.mark.parametrize(("says", "settings", "ended", "messages"), ENDINGS)
def test_a_simulated_user_continues_until_its_goal_is_met(project, says, settings, ended, messages):
    record = run(project, {"user": GOAL | settings}, targets=[mock("default", *AGENT), mock("user", *says)])
    assert record["conversation"]["ended"] == ended
    assert sum(each.startswith("user: ") for each in transcript(record)) == messages
    assert not any("[[GIVE UP]]" in each or each.endswith("[[GOAL MET]]") for each in transcript(record))


def test_a_simulated_user_follows_the_turns(project):
    record = run(
        project,
        {"turns": TURNS[:1], "user": GOAL},
        targets=[mock("default", *AGENT), mock("user", "Tomorrow", "[[GOAL MET]]")],
    )
    assert transcript(record) == [
        "assistant: Where to?",
        "user: To Rome",
        "assistant: And when?",
        "user: Tomorrow",
        "assistant: Booked: train 42.",
    ]


def test_a_simulated_user_starts_if_the_input_is_history(project):
    given = [{"role": "system", "content": "You sell tickets"}]
    record = run(project, {"input": given, "user": GOAL})
    assert transcript(record)[:2] == ["user: To Rome", "assistant: Where to?"]


def test_a_failing_or_silent_simulated_user_is_the_jobs_error(project):
    failing = mock("user", "x", fault_rate=1.0, max_retries=0)
    record = run(project, {"user": GOAL}, targets=[mock("default", *AGENT), failing], code=3)
    assert record["error"]["message"].startswith("The simulated user (user) failed after turn 1: ")
    assert transcript(record) == ["assistant: Where to?"]
    (project.path / "out").rename(project.path / "first")
    record = run(project, {"user": GOAL}, targets=[mock("default", *AGENT), mock("user", " ")], code=3)
    assert "empty message" in record["error"]["message"]


def test_usage_of_the_simulated_user_is_separate_from_the_targets(project):
    project.write(
        "agent.py",
        "def paid(prompt): return {'text': 'More', 'cost_usd': 0.5, 'token_usage': {'input': 5, 'output': 1}}",
    )
    user = {"name": "user", "provider": "python", "function": "agent.py:paid"}
    record = run(project, {"user": GOAL | {"max_turns": 3}}, targets=[mock("default", *AGENT), user])
    metrics = record["conversation"]["user_metrics"]
    assert (metrics["cost_usd"], metrics["token_usage"]) == (1.5, {"input": 15, "output": 3})
    assert "cost_usd" not in record["execution_metrics"]
    assert project.summary()["judge_cost_usd"] == 1.5


PAID = """
def paid(prompt):
    return {"text": "More", "cost_usd": 0.5}

def free(prompt):
    return {"text": "x", "cost_usd": 0.0}
"""


def test_a_budget_counts_simulated_users(project):
    project.write("agent.py", PAID)
    project.targets(
        *(
            {"name": name, "provider": "python", "function": f"agent.py:{function}", "workers": 1}
            for name, function in (("default", "free"), ("user", "paid"))
        )
    )
    project.dataset(
        *({"input": f"q{number}", "user": GOAL | {"max_turns": 2}, "evaluators": []} for number in range(5))
    )
    assert (
        project.eval("--target", "default", "--out", "out", "--quiet", "--budget-usd", "2", "--workers", "1").code == 4
    )
    assert len(project.records()) == 2


REFUSED = [
    ({"user": GOAL}, [mock("default", "x"), mock("other", "x")], "No target is configured for the simulated user"),
    ({"user": GOAL | {"target": "usr"}}, [mock("default", "x"), mock("user", "x")], "Did you mean 'user'?"),
    ({"turns": [{"input": "a", "evaluators": [{"type": "own.py:None"}]}]}, [mock("default", "x")], "own.py"),
    (
        {"turns": [{"input": [{"role": "assistant", "content": "a"}]}]},
        [mock("default", "x")],
        "must end with a user or tool message",
    ),
]


@pytest.mark.parametrize(("case", "targets", "message"), REFUSED)
def test_an_invalid_conversation_is_refused_before_any_call(project, case, targets, message):
    project.targets(*targets)
    project.dataset({"input": "Hi", **case})
    ended = project.eval("--target", "default", "--out", "out", "--quiet")
    assert ended.code == 2
    assert message in ended.stderr
    assert not (project.path / "out").exists()


def test_the_cache_answers_every_turn_of_target_and_user(project):
    replies = {"Hi": "Where to?", "To Rome": "Booked: train 42."}

    def script(request):
        if "You play a person" in request.body["messages"][0]["content"]:
            return Answer("To Rome" if "train 42" not in request.prompt else "[[GOAL MET]]")
        return Answer(replies[request.prompt])

    with FaultyServer(script) as server:
        targets = [
            {"name": name, "provider": "openai", "model": name, "base_url": server.url, "api_key": "k"}
            for name in ("default", "user")
        ]
        first = run(project, {"user": GOAL}, "--cache", targets=targets)
        count = server.counts.requests
        assert count == 4
        again = run(project, {"user": GOAL}, "--cache", "--out", "again", targets=targets)
        again = project.records("again")[0]
        assert server.counts.requests == count
    assert again["cached"] is True
    assert again["output_messages"] == first["output_messages"]


def test_prompts_of_every_turn_are_dumped(project):
    run(project, {"turns": TURNS}, "--dump-prompts", "prompts")
    files = sorted((project.path / "prompts").iterdir(), key=lambda path: len(json.loads(path.read_text())["messages"]))
    assert [len(json.loads(path.read_text())["messages"]) for path in files] == [1, 3, 5]
    assert [path.name.split(".")[-2] for path in files][1:] == ["turn-2", "turn-3"]


def test_a_dry_run_counts_the_calls_that_are_known(project):
    project.targets(mock("default", "x"), mock("user", "x"))
    project.dataset({"input": "Hi", "turns": TURNS}, {"input": "Hi", "user": GOAL | {"max_turns": 5}})
    ended = project.eval("--target", "default", "--dry-run")
    assert "default: 2 jobs (mock), at most 9 calls, about" in ended.stdout
    assert "responses and simulated users add to these prompt tokens" in ended.stdout


TALKER = """
import itertools, os, threading

LOG = os.open("calls.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
calls = itertools.count()

def answer(messages, case):
    while next(calls) > 130 and os.path.exists("hold"):  # no process finishes the run
        threading.Event().wait(0.01)
    said = sum(message["role"] == "assistant" for message in messages)
    os.write(LOG, f"{case.id} {said}\\n".encode())
    return f"reply {said}"

def ask(prompt):
    return f"question {prompt.count('@[You]')}"
"""


@pytest.fixture
def talkers(project):
    project.write("agent.py", TALKER)
    project.targets(
        {"name": "default", "provider": "python", "function": "agent.py:answer", "workers": 2},
        {"name": "user", "provider": "python", "function": "agent.py:ask", "workers": 2},
    )
    case = {"user": GOAL | {"max_turns": 30}, "evaluators": [{"type": "contains", "value": "reply 30"}]}
    project.dataset(*({"input": f"Hi {number}", **case} for number in range(12)))
    return project


def test_a_killed_run_of_long_conversations_resumes_without_repeating_finished_ones(talkers):
    results = talkers.path / "out" / "results.jsonl"
    kills, hold = 0, talkers.path / "hold"
    hold.touch()
    for wanted in (2, 5, 8):
        process = talkers.spawn("d.yaml", "--target", "default", "--resume", "--out", "out", "--quiet")
        wait_until(lambda most=wanted: whole_lines(results) >= most, process)
        process.kill()
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
    done = {record["eval_id"] for record in map(json.loads, results.read_bytes().splitlines()[:-1])}
    before = (talkers.path / "calls.log").read_text().splitlines()
    assert kills == 3 and done
    hold.unlink()
    assert talkers.run("--resume", "--out", "out", "--quiet") == (0, "", "")
    records = talkers.records()
    assert sorted(record["eval_id"] for record in records) == sorted(f"c{number}" for number in range(12))
    for record in records:
        assert record["conversation"]["turns"] == 31 and len(record["output_messages"]) == 61
        assert record["score"] == 1.0
    after = (talkers.path / "calls.log").read_text().splitlines()[len(before) :]
    assert not {line.split()[0] for line in after} & done


def test_the_prompt_of_the_simulated_user_has_its_role_and_the_conversation():
    user = SimulatedUser(goal="Book {{ a }} train", persona="In a hurry", stop="It is booked")
    talk = (
        Message("system", "Secret instructions"),
        Message("user", "Hi"),
        Message("assistant", None, (ToolCall("search"),)),
        Message("assistant", "Where to?"),
    )
    part, so_far = user_prompt(user, talk)
    assert part.role == "system" and "Book {{ a }} train" in part.content
    assert "In a hurry" in part.content and "It is booked" in part.content
    assert so_far.content == "The conversation so far:\n\n@[You]:\nHi\n\n@[Assistant]:\nWhere to?\n\nYour next message:"
    alone, opening = user_prompt(SimulatedUser(goal="x"), ())
    assert "Who you are" not in alone.content and "ends when" not in alone.content
    assert opening.content.startswith("Nothing has been said yet")


@pytest.mark.parametrize(
    ("text", "stop", "message", "ending"),
    [
        ("Hello", None, "Hello", None),
        ("Hello\n[[GOAL MET]]", None, "Hello", "goal_met"),
        ("Hello\n [[ give up ]] \n", None, "Hello", "gave_up"),
        ("[[GOAL MET]]\n[[GIVE UP]]", None, "", "gave_up"),
        ("I read [[GOAL MET]] here", None, "I read [[GOAL MET]] here", None),
        ("Goodbye!", "goodbye", "Goodbye!", "stop"),
        ("Goodbye!", None, "Goodbye!", None),
    ],
)
def test_user_messages_are_read_without_their_marks(text, stop, message, ending):
    assert read_user_message(text, stop) == (message, ending)


FIRST = {"input": "To Rome", "evaluators": [{"type": "contains", "value": "when"}, {"type": "contains", "value": "no"}]}
SECOND = {"input": "Tomorrow", "evaluators": [SAYS]}


@pytest.mark.parametrize(
    ("aggregation", "score"),
    [({}, 3 / 4), ({"aggregation": "mean"}, 2.5 / 3), ({"aggregation": "min"}, 0.5), ({"aggregation": "max"}, 1.0)],
)
def test_aggregation_combines_the_scores_of_turns_and_case(project, aggregation, score):
    record = run(project, {"turns": [FIRST, SECOND], **aggregation})
    assert record["score"] == pytest.approx(score)
    assert [found["score"] for found in record["evaluator_results"]] == [1, 0, 1, 1]


def test_a_turn_without_evaluators_does_not_count_in_an_aggregation(project):
    assert run(project, {"turns": [{"input": "To Rome"}, SECOND], "aggregation": "mean"})["score"] == 1


def test_a_failed_required_evaluator_fails_the_case_whatever_the_aggregation(project):
    gate = {"input": "To Rome", "evaluators": [{"type": "contains", "value": "no", "required": True}]}
    record = run(project, {"turns": [gate, SECOND], "aggregation": "max"})
    assert (record["score"], record["verdict"]) == (1.0, "fail")


def test_an_evaluator_that_fails_in_one_turn_leaves_no_score(project):
    broken = {"input": "To Rome", "evaluators": [{"type": "code_judge", "script": ["false"]}]}
    record = run(project, {"turns": [broken, SECOND], "aggregation": "max"}, code=3)
    assert record.get("score") is None


def test_rescoring_applies_the_aggregation_too(project):
    run(project, {"turns": [FIRST, SECOND], "aggregation": "min"})
    assert project.command("rescore", "out", "--out", "again").code == 0
    assert project.records("again")[0]["score"] == 0.5


@pytest.mark.parametrize(
    "evaluator",
    [
        {"type": "starts_with", "value": "system: Hi\n\nuser: A\n\nassistant: a\n\nuser: B"},
        {"type": "contains", "value": "a"},
    ],
)
@pytest.mark.parametrize(("settings", "score"), [({}, 0), ({"mode": "conversation"}, 1)])
def test_evaluators_of_a_conversation_of_agentv_score_its_transcript(project, evaluator, settings, score):
    case = {
        "input": [{"role": "system", "content": "Hi"}],
        "evaluators": [evaluator],
        "turns": [{"input": "A"}, {"input": "B"}],
    }
    record = run(project, {**case, **settings}, "--min-score", "0", targets=[mock("default", "a", "b")])
    assert (record["score"], record["candidate_answer"]) == (score, "b")
