"""`--dump-traces` and `--include-trace`: all messages, in one file per job or in the record; `--executor`."""

import json

import pytest

CALL = {"tool": "search", "input": {"query": "cats"}, "output": "none", "duration_ms": 4.0}


def traces(project, folder="out/traces"):
    files = sorted((project.path / folder).iterdir())
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def test_each_job_has_a_trace_with_messages_and_scores(project):
    project.targets({"name": "default", "provider": "mock", "response": "yes", "tool_calls": [CALL]})
    project.dataset("question", execution={"trials": 2})
    assert project.eval("--out", "out", "--quiet", "--dump-traces").code == 0
    first, second = traces(project)
    assert {first["trial"], second["trial"]} == {1, 2}
    assert first["input_messages"] == [{"role": "user", "content": "question"}]
    [shown] = first["output_messages"]
    assert shown["content"] == "yes" and shown["tool_calls"][0]["tool"] == "search"
    assert first["trace_summary"]["tool_calls_by_name"] == {"search": 1}
    assert (first["status"], first["score"]) == ("ok", 1.0)
    assert first["evaluator_results"][0]["type"] == "contains"


def test_a_failed_job_has_a_trace(project):
    project.targets({"name": "default", "provider": "mock", "fault_rate": 1.0, "max_retries": 0})
    project.dataset("question")
    assert project.eval("--out", "out", "--quiet", "--dump-traces", "elsewhere").code == 3
    [trace] = traces(project, "elsewhere")
    assert trace["status"] == "error" and trace["error"]["class"] == "server"
    assert trace["input_messages"] and "output_messages" not in trace


def test_traces_have_no_secrets(project, monkeypatch):
    monkeypatch.setenv("AGENT_TOKEN", "a-planted-secret")
    project.dataset("say a-planted-secret")
    assert project.eval("--out", "out", "--quiet", "--dump-traces").code == 0
    assert "planted" not in json.dumps(traces(project)) and "[redacted]" in json.dumps(traces(project))


@pytest.mark.parametrize("option", ["--dump-traces", "--dump-prompts"])
def test_a_folder_that_is_not_empty_is_refused(project, option):
    project.dataset("yes")
    project.write("there/file", "x")
    ended = project.eval("--quiet", option, "there")
    assert ended.code == 2 and f"The folder for {option} is not empty" in ended.stderr


@pytest.mark.parametrize(("options", "kept"), [((), False), (("--include-trace",), True)])
def test_include_trace_records_the_messages_of_a_single_text(project, options, kept):
    project.dataset("yes")
    assert project.eval("--out", "out", "--quiet", *options).code == 0
    [record] = project.records()
    assert record.get("output_messages") == ([{"role": "assistant", "content": "yes"}] if kept else None)


def test_an_unknown_executor_is_an_error_before_anything_runs(project):
    project.dataset("yes")
    ended = project.eval("--out", "out", "--executor", "clowd")
    assert ended.code == 2 and "Unknown executor 'clowd'" in ended.stderr and "Known executors: local" in ended.stderr
    assert not (project.path / "out").exists()
