"""Answers with files in a run: a judge reads the text that preprocessors print."""

import json
import sys

import pytest

from agentv_testing import FaultyServer

UPPER = "import json, pathlib, sys; file = json.load(sys.stdin); print(pathlib.Path(file['path']).read_text().upper())"
ANSWER = [{"type": "file", "path": "report.csv", "media_type": "text/csv"}]
PRINTS = f"import json; print(json.dumps({{'output': [{{'role': 'assistant', 'content': {ANSWER!r}}}]}}))"


@pytest.mark.parametrize(
    ("entry", "verdict"),
    [
        ({"type": "llm_judge"}, {"score": 1}),
        ({"type": "rubric", "rubrics": ["Has B"]}, {"checks": [{"id": "rubric-1", "satisfied": True}]}),
    ],
)
@pytest.mark.parametrize(("code", "status"), [(UPPER, "ok"), ("raise SystemExit('broken')", "error")])
def test_a_judge_reads_files_that_a_command_answers_with(project, entry, verdict, code, status):
    project.write("report.csv", "a,b")
    project.write("answer.py", PRINTS)
    project.write("convert.py", code)
    command = {"name": "default", "provider": "cli", "command_template": f"{sys.executable} answer.py"}
    with FaultyServer(json.dumps(verdict)) as server:
        judge = {"name": "judge", "provider": "openai", "model": "m", "base_url": server.url, "max_retries": 0}
        project.targets(command, judge)
        preprocessors = [{"type": "csv", "command": [sys.executable, "convert.py"]}]
        project.dataset("x", evaluators=[{**entry, "preprocessors": preprocessors}])
        project.eval("--out", "out")
    record = project.by_id()["c0"]
    assert record["status"] == status, record
    if status == "ok":
        assert "A,B" in server.requests[0].prompt
    else:
        assert "broken" in record["error"]["message"] and not server.requests
    assert record["output_messages"][0]["content"] == [
        {"type": "file", "value": "report.csv", "media_type": "text/csv"}
    ]
