"""`agentv generate from-openai`: hosted evals as datasets, with the answers of their runs, from a server with pages."""

import json

import pytest

from agentv import load_cases
from agentv_testing import FaultyServer, HostedEvals

KEY = "sk-a-secret-key-of-openai"
CHECK = {"type": "string_check", "name": "label", "operation": "eq", "input": "{{sample.output_text}}"}
EVALS = [
    {"id": "eval_1", "name": "Tickets: level 1", "testing_criteria": [{**CHECK, "reference": "{{item.label}}"}]},
    {"id": "eval_2", "name": "Logs only", "testing_criteria": []},
    {"id": "eval_3", "name": "Uploaded", "testing_criteria": [{"type": "python", "source": "…"}]},
]
TEMPLATE = {"type": "template", "template": [{"role": "user", "content": "Ticket: {{item.text}}"}]}


def source(**source):
    return {"data_source": {"type": "completions", "input_messages": TEMPLATE, "source": source}}


RUNS = {
    "eval_1": [
        {"id": "run_1", "eval_id": "eval_1", "status": "completed", **source(type="file_content", content=[])},
        {"id": "run_2", "eval_id": "eval_1", "status": "in_progress", **source(type="file_content", content=[])},
    ],
    "eval_3": [{"id": "run_3", "eval_id": "eval_3", "status": "completed", **source(type="file_id", id="file_1")}],
}
ITEMS = {
    "run_1": [
        {"id": f"out_{n}", "datasource_item": {"text": f"Screen {n}", "label": "Hardware"}, "sample": {"output": []}}
        for n in range(5)
    ],
    "run_2": [{"id": "out_9", "datasource_item": {"text": "Screen 1", "label": "Hardware"}}],
}
FILES = {"file_1": b'{"item": {"text": "Uploaded text", "label": "x"}}\n'}


@pytest.fixture
def server():
    with FaultyServer(formats=[HostedEvals(EVALS, RUNS, ITEMS, FILES, page=2, refused=1)]) as running:
        yield running


@pytest.fixture
def download(folder, command, server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    def run(*arguments):
        return command("generate", "from-openai", *arguments, "--out", "evals", "--base-url", server.url)

    return run


@pytest.mark.filterwarnings("ignore::agentv.DatasetWarning")
def test_evals_become_datasets_and_runs_become_files(folder, download):
    ended = download()
    assert ended.code == 0, ended
    assert "Wrote evals/Tickets-level-1-eval_1.json: 5 items, 2 runs, 1 new" in ended.stderr
    assert "Logs only: it has no items" in ended.stderr
    cases = load_cases("evals/Tickets-level-1-eval_1.json")
    assert [case.input[0].content for case in cases] == [f"Ticket: Screen {n}" for n in range(5)]
    assert [(spec.type, spec.settings["value"]) for spec in cases[0].evaluators] == [("equals", "Hardware")]
    assert load_cases("evals/Uploaded-eval_3.json")[0].input[0].content == "Ticket: Uploaded text"
    answers = (folder.path / "evals/Tickets-level-1-eval_1.run_1.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in answers] == [f"out_{n}" for n in range(5)]


@pytest.mark.filterwarnings("ignore::agentv.DatasetWarning")
def test_the_folder_is_used_as_datasets_and_runs(folder, command, download):
    download()
    assert len(load_cases("evals")) == 6
    ended = command("report", "evals/Tickets-level-1-eval_1.run_1.jsonl")
    assert ended.code == 0 and "5 of 5 unscored" in ended.stdout, ended


def test_the_same_command_reads_only_what_is_new(download, server):
    download()
    before = len(server.requests)
    assert "5 items, 2 runs, 0 new" in download().stderr
    paths = [request.path for request in list(server.requests)[before:]]
    assert not any("run_1/output_items" in path for path in paths)
    assert any("run_2/output_items" in path for path in paths)  # it was still running


def test_one_eval_can_be_named(folder, download):
    assert download("eval_3").code == 0
    assert sorted(path.name for path in (folder.path / "evals").glob("*.json")) == ["Uploaded-eval_3.json"]


def test_the_key_is_in_no_file(folder, download):
    download()
    assert all(KEY not in path.read_text() for path in (folder.path / "evals").iterdir())


@pytest.mark.parametrize(
    ("key", "arguments", "message"),
    [("", [], "OPENAI_API_KEY is not set"), (KEY, ["eval_9"], "Cannot download evals/eval_9")],
)
def test_what_cannot_be_downloaded_is_an_error(download, monkeypatch, key, arguments, message):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    ended = download(*arguments)
    assert ended.code == 2 and message in ended.stderr
