"""The contract of code judges, with real programs."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from agentv.errors import UsageError
from agentv.model.case import CaseDetails
from agentv.model.environment import Environment
from agentv.model.evaluator import Score
from agentv.model.message import FilePart, ImagePart, Message, TextPart, ToolCall
from agentv.model.result import ExecutionMetrics, TokenUsage, TraceSummary
from platforms import only_on_posix
from virtual_time import skipped_ahead
from waiting import HANGS, let_others_run, still_running, wait_until_async, whole_lines, words_in

KEYS = [
    *("question", "expected_outcome", "expected_messages", "reference_answer", "candidate_answer", "output_messages"),
    *("guideline_files", "input_files", "input_messages", "context", "trace_summary", "execution_metrics"),
    *("workspace_path", "file_changes", "metadata", "config", "criteria", "input", "output", "answer"),
    *("expected_output", "messages", "tool_calls", "trace", "token_usage", "cost_usd", "duration_ms"),
    *("start_time", "end_time"),
]


def python(code):
    """A Python program that reads its input first."""
    return [sys.executable, "-Sc", f"import json, os, signal, sys, time; p = json.load(sys.stdin)\n{code}"]


def prints(value):
    return ["/bin/echo", value if isinstance(value, str) else json.dumps(value)]


# (output, score)
PRINTED = [
    ({"score": 0.5}, Score(0.5)),
    ({"score": 1}, Score(1.0)),
    ({"score": 0}, Score(0.0)),
    ({"score": 1.0000000000000002}, Score(1.0)),
    (
        {"score": 0.5, "hits": ["a"], "misses": ["b"], "reasoning": "why", "details": {"n": 1}},
        Score(0.5, ("a",), ("b",), "why", {"n": 1}),
    ),
    ({"score": 1, "hits": None, "misses": [], "reasoning": None}, Score(1.0)),
    ({"score": 1, "hits": "one", "unheard": 1}, Score(1.0, ("one",))),
    (
        {"score": 0.3, "assertions": [{"text": "a", "passed": True}, {"text": "b", "passed": False, "evidence": "e"}]},
        Score(0.3, ("a",), ("b (e)",)),
    ),
    ({"assertions": [{"text": "a", "passed": True}, {"text": "b", "passed": False}]}, Score(0.5, ("a",), ("b",))),
    (
        {"checks": [{"id": "c", "text": "a", "pass": True, "score": 1}, {"text": "b", "pass": False, "reason": "r"}]},
        Score(0.5, ("a",), ("b (r)",)),
    ),
    (
        {"score": 0.4, "label": "mixed", "reason": "short", "passed": False},
        Score(0.4, reasoning="short", details={"label": "mixed"}, verdict="fail"),
    ),
    ({"passed": True, "score": None}, Score(1.0, verdict="pass")),
    ({"pass": False, "details": {"n": 1}, "label": 2}, Score(0.0, details={"label": 2, "n": 1}, verdict="fail")),
    ("  {\n\"score\": 1\n}\n", Score(1.0)),
]  # fmt: skip


@pytest.mark.parametrize(("printed", "score"), PRINTED)
def test_what_a_program_prints_is_the_score(scoring, printed, score):
    assert scoring.score("code_judge", {"script": prints(printed)}) == score


EXIT_1 = "exit code 1 (to score a program by its exit code, use `type: command`)"

# (program, settings, error message)
BROKEN = {
    "not JSON": (prints("fine"), {}, "must print a JSON object with a score, but printed 'fine'"),
    "nothing": (["/bin/true"], {}, "must print a JSON object with a score, but printed nothing"),
    "two scores": (prints('{"score": 0, "reason": "", "score": 1}'), {}, "printed the key 'score' twice in one object"),
    "a list": (prints("[1]"), {}, "must print a JSON object with a score, but printed '[1]'"),
    "two objects": (prints('{"score": 1} {"score": 0}'), {}, "must print a JSON object"),
    "no score": (prints({"hits": ["a"]}), {}, "printed no 'score'"),
    "a score that is null": (prints({"score": None}), {}, "printed no 'score'"),
    "a score in words": (prints({"score": "high"}), {}, "gave a score that is not a number"),
    "a score that is true": (prints({"score": True}), {}, "gave a score that is not a number"),
    "not a number": (prints('{"score": NaN}'), {}, "must print a JSON object"),
    "too much": (prints({"score": 1.1}), {}, "gave 1.1 as its score; a score is a number from 0 to 1"),
    "too little": (prints({"score": -1}), {}, "gave -1 as its score"),
    "invalid hits": (prints({"score": 1, "hits": 5}), {}, "'hits' of the program must be a list of strings"),
    "invalid assertions": (prints({"score": 1, "assertions": ["a"]}), {}, "must be a list of {text, passed}"),
    "an assertion without text": (prints({"assertions": [{"passed": True}]}), {}, "must be a list of {text, passed}"),
    "an assertion in words": (
        prints({"assertions": [{"text": "a", "passed": "no"}]}),
        {},
        "{text, passed}, with passed true or false",
    ),
    "an invalid verdict": (prints({"score": 1, "passed": "yes"}), {}, "'passed' of the program must be true or false"),
    "an exit code": (python("sys.exit('it broke')"), {}, f"The program ended with {EXIT_1}: it broke"),
    "a score and an exit code": (python("print('{\"score\": 1}'); sys.exit(3)"), {}, "ended with exit code 3"),
    "a signal": (python("os.kill(os.getpid(), 9)"), {}, "was terminated by SIGKILL"),
    "no such program": (["no-such-program"], {}, "The program 'no-such-program' was not found"),
    "no such folder": (["/bin/true"], {"cwd": "nowhere"}, "the folder does not exist"),
    "no permission": (["/etc/passwd"], {}, "The program '/etc/passwd' cannot be started: Permission denied"),
    "a null byte": (["/bin/echo", "\0"], {}, "cannot be started"),
    "no end of output": (["/bin/sh", "-c", "yes"], {}, "The program printed more than 4 MiB and was stopped"),
}  # fmt: skip


@pytest.mark.parametrize(("script", "more", "message"), BROKEN.values(), ids=BROKEN)
def test_anything_but_a_valid_score_is_an_error(scoring, script, more, message):
    assert message in scoring.failure("code_judge", {"script": script} | more)


def test_a_program_that_does_not_end_is_stopped(scoring, tmp_path):
    entry = {"script": f"echo x >&2; touch started; exec {HANGS}", "timeout_seconds": 60}
    with skipped_ahead((tmp_path / "started").exists):
        failure = scoring.failure("code_judge", entry, workdir=str(tmp_path))
    assert "The program did not finish within 60 s and was stopped: x" in failure


def test_the_end_of_stderr_is_kept(scoring):
    message = scoring.failure("code_judge", {"script": python("sys.exit('é' * 5000 + 'the end')")})
    tail = message.removeprefix(f"The program ended with {EXIT_1}: ")
    assert len(tail) == 2000
    assert tail.startswith("…é")
    assert tail.endswith("the end")


def test_an_error_starts_with_the_last_line_of_the_traceback(scoring):
    message = scoring.failure("code_judge", {"script": python("p['nothing']")})
    assert message.startswith(
        f"The program ended with {EXIT_1}: KeyError: 'nothing'\nTraceback (most recent call last):"
    )


def test_a_program_receives_all_documented_fields(scoring, tmp_path):
    judgement = scoring.judgement(
        "The answer ✓",
        expected={"riskLevel": "High", "Nested": [{"camelCase": None}]},
        details=CaseDetails(context=("a passage",)),
        messages=[
            Message("assistant", "", (ToolCall("lookUp", {"queryText": "x"}, duration_ms=5.0),)),
            Message("assistant", "The answer ✓"),
        ],
        workdir=str(tmp_path),
        trace_summary=TraceSummary(1, ("lookUp",), {"lookUp": 1}),
        execution_metrics=ExecutionMetrics(TokenUsage(3, 4), 0.01, 12.5, {"lookUp": [5.0]}),
    )
    evaluator = scoring.evaluator(
        "code_judge", script=python("print(json.dumps({'score': 1, 'details': p}))"), config={"a": 1}, maxWords=[5]
    )
    payload = scoring.run(evaluator, judgement).details
    assert list(payload) == KEYS
    assert payload["question"] == "What is asked?"
    assert payload["candidate_answer"] == payload["output"] == "The answer ✓"
    assert payload["expected_outcome"] == payload["criteria"] == "It works"
    assert payload["input_messages"] == payload["input"] == [{"role": "user", "content": "What is asked?"}]
    assert payload["expected_messages"] == payload["expected_output"]
    assert payload["expected_messages"][0]["content"] == {"riskLevel": "High", "Nested": [{"camelCase": None}]}
    assert json.loads(payload["reference_answer"]) == payload["expected_messages"][0]["content"]
    assert payload["output_messages"][0]["tool_calls"] == [
        {"tool": "lookUp", "input": {"queryText": "x"}, "duration_ms": 5.0}
    ]
    assert payload["context"] == ["a passage"]
    figures = {"token_usage": {"input": 3, "output": 4}, "cost_usd": 0.01, "duration_ms": 12.5}
    assert {name: payload[name] for name in figures} == figures
    summary = {
        **{"event_count": 1, "tool_names": ["lookUp"], "tool_calls_by_name": {"lookUp": 1}, "error_count": 0},
        **{"tool_calls": {"lookUp": 1}, "llm_call_count": 2, "tool_durations": {"lookUp": [5.0]}},
    }
    assert payload["trace_summary"] == summary | figures
    events = payload["trace"].pop("events")
    assert payload["trace"] == summary | figures | {"messages": payload["messages"]}
    assert [event["type"] for event in events] == ["message", "tool_call", "message"]
    assert payload["messages"] == payload["output_messages"]
    assert payload["tool_calls"] == payload["output_messages"][0]["tool_calls"]
    assert payload["execution_metrics"]["token_usage"] == {"input": 3, "output": 4}
    assert payload["config"] == {"a": 1, "maxWords": [5]}
    assert payload["workspace_path"] is None
    assert payload["guideline_files"] == payload["input_files"] == []


def test_what_is_unknown_is_null_or_missing_as_in_agentv(scoring):
    script = python("print(json.dumps({'score': 1, 'details': p}))")
    payload = scoring.score("code_judge", {"script": script}, expected=[1, "two"]).details
    null = [name for name, value in payload.items() if value is None]
    assert null == [
        *("trace_summary", "execution_metrics", "workspace_path", "file_changes", "metadata", "config", "trace"),
        *("token_usage", "cost_usd", "duration_ms", "start_time", "end_time"),
    ]
    # The content of a message is a text, an object or a list of objects in 4.x.
    assert payload["expected_output"] == [{"role": "assistant", "content": '[1,"two"]'}]
    assert payload["expected_messages"] == [{"role": "assistant", "content": [1, "two"]}]


def test_explicit_config_overrides_a_key_of_the_entry(scoring):
    script = python("print(json.dumps({'score': 1, 'details': p['config']}))")
    assert scoring.score("code_judge", {"script": script, "n": 1, "config": {"n": 2}}).details == {"n": 2}


def test_a_string_runs_in_the_shell(scoring, tmp_path):
    (tmp_path / "score.txt").write_text('{"score": 0.25}')
    entry = {"command": "cat score.txt | tail -1"}
    assert scoring.score("code_judge", entry, workdir=str(tmp_path)).score == 0.25


def test_a_program_runs_in_the_datasets_folder_or_in_one_below_it(scoring, tmp_path):
    (tmp_path / "judges").mkdir()
    (tmp_path / "judges" / "judge.py").write_text("print('{\"score\": 0.5}')")
    entry = {"script": [sys.executable, "judges/judge.py"]}
    assert scoring.score("code_judge", entry, workdir=str(tmp_path)).score == 0.5
    entry = {"script": [sys.executable, "judge.py"], "cwd": "judges"}
    assert scoring.score("code_judge", entry, workdir=str(tmp_path)).score == 0.5


def test_secrets_are_not_inherited(scoring, monkeypatch):
    for name in ("OPENAI_API_KEY", "HF_TOKEN", "db_password", "MY_SECRET", "SHORT_KEY"):
        monkeypatch.setenv(name, "x" if name == "SHORT_KEY" else f"planted-{name}")
    monkeypatch.setenv("COPY_OF_IT", "planted-HF_TOKEN")
    monkeypatch.setenv("MONKEY", "kept")
    script = python("print(json.dumps({'score': 1, 'details': dict(os.environ)}))")
    inherited = scoring.score("code_judge", {"script": script}).details
    assert "planted" not in json.dumps(inherited)
    assert "SHORT_KEY" not in inherited
    assert "MONKEY" not in inherited
    assert inherited["PATH"] == os.environ["PATH"]


def test_secrets_of_the_project_are_not_inherited_either(scoring):
    """Secrets from `.env`, and variables referenced by a key in the targets file."""
    environment = Environment({"FROM_FILE_KEY": "planted-key", "MINE": "planted-by-use", "PLAIN": "kept"})
    judgement = scoring.judgement(environment=environment.with_secret_names(["MINE"]))
    script = python("print(json.dumps({'score': 1, 'details': dict(os.environ)}))")
    inherited = scoring.run(scoring.evaluator("code_judge", script=script), judgement).details
    assert "planted" not in json.dumps(inherited)
    assert "PLAIN" not in inherited


def test_a_large_answer_reaches_a_program_that_prints_before_it_reads(scoring):
    answer = "é" * 1_000_000
    code = "print(json.dumps({'score': 1, 'details': len(json.load(sys.stdin)['output'])}))"
    script = [sys.executable, "-Sc", f"import json, sys; print(' ' * 100_000, file=sys.stderr); {code}"]
    assert scoring.score("code_judge", {"script": script}, answer).details == len(answer)


def test_a_large_answer_may_stay_unread(scoring):
    assert scoring.score("code_judge", {"script": prints({"score": 1})}, "x" * 5_000_000).score == 1


def is_running(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def ends(pid):
    """Return whether a process ends soon; the system may take a moment."""
    return still_running([pid]) == []


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks processes up in /proc")


@only_on_posix("there are no process groups")
@needs_proc
@pytest.mark.parametrize("then", [HANGS, 'echo "{\\"score\\": 1}"'], ids=["it hangs", "it ends"])
def test_child_processes_end_with_the_program(scoring, tmp_path, then):
    script = f"{HANGS} & echo $! > child; {then}"
    entry = {"script": script, "timeout_seconds": 60}
    if then == HANGS:
        with skipped_ahead(lambda: whole_lines(tmp_path / "child") == 1):
            assert "did not finish within 60 s" in scoring.failure("code_judge", entry, workdir=str(tmp_path))
    else:
        assert scoring.score("code_judge", entry, workdir=str(tmp_path)).score == 1
    assert ends(int((tmp_path / "child").read_text()))


@needs_proc
def test_cancelling_ends_the_program(scoring, tmp_path):
    evaluator = scoring.evaluator("code_judge", script=f"echo $$ > pid; {HANGS}; true")

    async def cancelled():
        task = asyncio.create_task(evaluator.evaluate(scoring.judgement(workdir=str(tmp_path))))
        await wait_until_async(lambda: words_in(tmp_path / "pid"))
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert ends(int((tmp_path / "pid").read_text()))


@needs_proc
@pytest.mark.parametrize("between", [None, 0, 1, 2])
def test_a_cancellation_at_the_very_start_leaves_nothing(scoring, tmp_path, between):
    """Cancel once or twice, after any number of event loop steps."""
    evaluator = scoring.evaluator("code_judge", script=f"{HANGS} & echo $$ $! >> pids; wait")

    async def cancelled(steps):
        task = asyncio.create_task(evaluator.evaluate(scoring.judgement(workdir=str(tmp_path))))
        await let_others_run(steps)
        task.cancel()
        if between is not None:
            await let_others_run(between)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    for steps in range(8):
        asyncio.run(cancelled(steps))
    pids = (tmp_path / "pids").read_text().split() if (tmp_path / "pids").exists() else []
    assert [pid for pid in pids if not ends(pid)] == []


def test_several_programs_run_concurrently(scoring):
    evaluator = scoring.evaluator("code_judge", script=python("print(json.dumps({'score': float(p['output'])}))"))

    async def all_of_them():
        return await asyncio.gather(*(evaluator.evaluate(scoring.judgement(f"0.{n}")) for n in range(8)))

    assert [score.score for score in asyncio.run(all_of_them())] == [n / 10 for n in range(8)]


def test_a_blank_program_is_refused(scoring):
    with pytest.raises(UsageError, match="'script' is blank"):
        scoring.evaluator("code_judge", script=" ")


DUMP = python("print(json.dumps({'score': 1, 'details': p}))")
GRADER_KEYS = [
    *("criteria", "expected_output", "output", "messages", "input_files", "input", "metadata", "trace"),
    *("trace_summary", "token_usage", "cost_usd", "duration_ms", "start_time", "end_time", "file_changes"),
    *("workspace_path", "config"),
]


def grader(command, **more):
    return {"command": command, "grader_protocol": "agentv-4", **more}


def test_a_grader_of_4x_gets_the_names_of_4x_only(scoring):
    payload = scoring.score("code_judge", grader(DUMP, strict=True), "Hello!", expected="Hi").details
    assert list(payload) == GRADER_KEYS
    assert payload["output"] == "Hello!"
    assert payload["criteria"] == "It works"
    assert payload["expected_output"] == [{"role": "assistant", "content": "Hi"}]
    assert payload["config"] == {"strict": True}


@pytest.mark.parametrize(
    ("reference", "content"),
    [
        (["a", "b"], [[{"type": "text", "value": "a"}, {"type": "text", "value": "b"}]]),
        (["", {"k": 1}, 2], [[{"k": 1}]]),
        ({"k": [1]}, [{"k": [1]}]),
        (5, []),
    ],
)
def test_a_grader_of_4x_gets_references_that_are_data_as_agentv_reads_them(scoring, reference, content):
    payload = scoring.score("code_judge", grader(DUMP), "x", expected=reference).details
    assert [message["content"] for message in payload["expected_output"]] == content


def test_a_grader_of_4x_gets_a_trace_without_tool_calls(scoring):
    payload = scoring.score("code_judge", grader(DUMP), "Hello!").details
    messages = [{"role": "user", "content": "What is asked?"}, {"role": "assistant", "content": "Hello!"}]
    summary = {"event_count": 0, "tool_calls": {}, "error_count": 0, "llm_call_count": 1}
    assert payload["messages"] == payload["trace"]["messages"] == messages
    assert payload["trace_summary"] == summary
    assert {key: payload["trace"][key] for key in summary} == summary
    assert [(event["ordinal"], event["event_id"], event["type"]) for event in payload["trace"]["events"]] == [
        (0, "message-0", "message"),
        (1, "message-1", "message"),
        (2, "final-response", "final_response"),
    ]


def test_a_grader_of_4x_gets_tool_calls_and_figures(scoring):
    judgement = scoring.judgement(
        "Done",
        messages=[
            Message("assistant", "", (ToolCall("lookUp", {"queryText": "x"}, "found", duration_ms=5.0),)),
            Message("assistant", "Done"),
        ],
        execution_metrics=ExecutionMetrics(TokenUsage(3, 4), 0.01, 12.5),
    )
    payload = scoring.run(scoring.evaluator("code_judge", **grader(DUMP)), judgement).details
    figures = {"token_usage": {"input": 3, "output": 4}, "cost_usd": 0.01, "duration_ms": 12.5}
    assert {name: payload[name] for name in figures} == figures
    assert {name: payload["trace"][name] for name in figures} == figures
    # AgentV (TypeScript) converts every key to snake case, that of a tool and of its input too.
    assert payload["trace_summary"]["tool_calls"] == {"look_up": 1}
    assert payload["trace_summary"]["tool_durations"] == {"look_up": [5.0]}
    assert payload["trace_summary"]["llm_call_count"] == 2
    call, result = (event for event in payload["trace"]["events"] if event["type"].startswith("tool"))
    assert call["tool"] == {"name": "lookUp", "status": "ok", "output": "found", "input": {"query_text": "x"}}
    assert result["parent_event_id"] == call["event_id"] == "message-1-tool-0"


def test_a_grader_of_4x_gets_parts_in_the_form_of_4x(scoring, tmp_path):
    (tmp_path / "notes.txt").write_text("a note")
    (tmp_path / "cat.png").write_bytes(b"cat")
    png, question = "data:image/png;base64,dGVzdA==", (TextPart("Compare"),)
    files = (FilePart("notes.txt", path=str(tmp_path / "notes.txt")), ImagePart("cat.png", path=f"{tmp_path}/cat.png"))
    parts = (TextPart("See:"), ImagePart(png), ImagePart("https://x.test/b.jpg"), FilePart("c.csv", media_type="x/y"))
    judgement = scoring.judgement(
        "See:", input=(Message("user", question + files),), messages=[Message("assistant", parts)]
    )
    code = "image = open(p['messages'][-1]['content'][1]['path']).read()\n"
    code += "print(json.dumps({'score': 1, 'details': [p, image]}))"
    payload, content = scoring.run(scoring.evaluator("code_judge", **grader(python(code))), judgement).details
    text, file, image = payload["input"][0]["content"]
    assert (text, file) == (
        {"type": "text", "value": "Compare"},
        {
            **{"type": "file", "value": "notes.txt", "path": "notes.txt", "text": "a note"},
            "resolved_path": str(tmp_path / "notes.txt"),
        },
    )
    assert image == {"type": "image", "media_type": "image/png", "path": f"{tmp_path}/cat.png"}
    text, image, address, file = payload["trace"]["messages"][-1]["content"]
    assert text == {"type": "text", "text": "See:"}
    assert address == {"type": "image", "media_type": "image/jpeg", "path": "https://x.test/b.jpg"}
    assert file == {"type": "file", "media_type": "x/y", "path": "c.csv"}
    assert (image["type"], image["media_type"], content) == ("image", "image/png", "test")
    assert os.path.basename(image["path"]) == "img-0.png"
    assert not os.path.exists(image["path"])


@pytest.mark.parametrize(("media_type", "name"), [("image/jpeg", "img-0.jpg"), ("image/../../x", "img-0.bin")])
def test_the_media_type_of_an_answers_image_is_not_a_path(scoring, media_type, name):
    parts = (ImagePart(f"data:{media_type};base64,dGVzdA=="),)
    judgement = scoring.judgement("", messages=[Message("assistant", parts)])
    code = python("print(json.dumps({'score': 1, 'details': p['messages'][-1]['content'][0]['path']}))")
    path = scoring.run(scoring.evaluator("code_judge", **grader(code)), judgement).details
    assert os.path.basename(path) == name


# (shell command, score), as AgentV (TypeScript) 4.42 scores them
EXITS = {
    "exit 0": ("echo fine", 1.0),
    "exit 0 without output": ("true", 1.0),
    "exit 1": ("echo bad; exit 1", 0.0),
    "exit 2": ("echo bad; exit 2", 0.0),
    "exit 3 without output": ("exit 3", 0.0),
    "a warning on stderr": ("echo warning >&2; echo fine", 1.0),
    "a line that starts with a bracket": ("echo '[ok] 3 tests'", 1.0),
    "JSON": ("echo '{\"score\": 0.25}'", 0.25),
    "a verdict next to assertions": (
        'echo \'{"passed": true, "assertions": [{"text": "a", "passed": false}]}\'',
        0.0,
    ),
}


@pytest.mark.parametrize(("command", "score"), EXITS.values(), ids=EXITS)
def test_a_grader_of_4x_without_json_is_scored_by_its_exit_code(scoring, command, score):
    assert scoring.score("code_judge", grader(command)).score == score


def test_the_score_of_a_grader_of_4x_decides_against_its_passed(scoring):
    assert scoring.score("code_judge", grader('echo \'{"score": 0.3, "passed": true}\'')).verdict is None
    assert scoring.score("code_judge", grader('echo \'{"score": 1, "passed": false}\'')).verdict == "fail"


def test_the_text_of_a_grader_of_4x_is_its_reason(scoring):
    assert scoring.score("code_judge", grader("echo 2 tests failed; exit 1")).misses == ("2 tests failed",)
    assert scoring.score("code_judge", grader("true")).hits == ("ended with exit code 0",)


BROKEN_GRADERS = {
    "a traceback": (python("p['nothing']"), "KeyError: 'nothing'"),
    "output on stderr": ("echo no disk >&2; exit 1", "The grader ended with exit code 1: no disk"),
    "JSON and an exit code": ("echo '{\"score\": 1}'; exit 1", "The grader ended with exit code 1"),
    "a signal": ("kill -9 $$", "was terminated by SIGKILL"),
    "a signal in the shell": ("sh -c 'kill -9 $$'; exit $?", "The grader ended with exit code 137"),
    "no such program": (["no-such-program"], "The program 'no-such-program' was not found"),
    "a number": ("echo 0.3", "must print a JSON object with a score, but printed '0.3'"),
    "JSON that is cut off": ("echo '{\"score\": 0.2'", "must print a JSON object with a score"),
    "JSON after a log line": ("echo loading; echo '{\"score\": 0.2}'", "must print a JSON object with a score"),
    "JSON without a score": ("echo '{\"ok\": true}'", "printed no 'score' and no 'assertions'"),
    "a verdict without a score": ("echo '{\"passed\": true}'", "printed no 'score' and no 'assertions'"),
    "checks": ('echo \'{"checks": [{"text": "a", "pass": true}]}\'', "printed no 'score' and no 'assertions'"),
    "an assertion with pass": (
        'echo \'{"assertions": [{"text": "a", "pass": true}]}\'',
        "must be a list of {text, passed}",
    ),
    "one assertion": ('echo \'{"assertions": {"text": "a", "passed": true}}\'', "must be a list of {text, passed}"),
    "a score of 2": ("echo '{\"score\": 2}'", "a score is a number from 0 to 1"),
}


@pytest.mark.parametrize(("command", "message"), BROKEN_GRADERS.values(), ids=BROKEN_GRADERS)
def test_a_grader_of_4x_that_broke_is_an_error(scoring, command, message):
    assert message in scoring.failure("code_judge", grader(command))
