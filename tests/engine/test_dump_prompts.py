"""`--dump-prompts`: one file per job with the exact request, written before the call and without secrets."""

import json
from pathlib import Path

import pytest

from agentv_testing import FaultyServer

KEY = "sk-very-secret-1"
CASE = {"id": "one", "expected_outcome": "Answers", "input": "Hello"}


class Project:
    def __init__(self, folder, command):
        self.folder, self.command = folder, command
        folder.write("cases.yaml", {"evaluators": []})
        self.cases(CASE)
        self.target(provider="mock")

    def cases(self, *rows):
        self.folder.write("cases.jsonl", list(rows))

    def target(self, **settings):
        self.folder.write("targets.yaml", {"targets": [{"name": "default", **settings}]})

    def run(self, *options, expect=0):
        done = self.command("eval", "cases.jsonl", "--json", "-q", *options)
        assert done.code == expect, done.stderr
        return Path(done.printed[0]["run"])

    def dumped(self, *options, expect=0):
        """The prompts in the folder of a run."""
        return read(self.run("--dump-prompts", *options, expect=expect) / "prompts")


def read(folder):
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.iterdir())]


@pytest.fixture
def project(folder, command):
    return Project(folder, command)


def test_prompts_of_judges_are_stored_next_to_those_of_targets(project):
    judge = {"name": "judge", "provider": "mock", "response": "no verdict"}
    project.folder.write("targets.yaml", {"targets": [{"name": "default", "provider": "mock"}, judge]})
    project.folder.write("cases.yaml", {"evaluators": [{"type": "llm_judge", "votes": 2}]})
    prompts = project.dumped(expect=3)
    assert [prompt.get("evaluator") for prompt in prompts] == [None] + ["llm_judge"] * 4
    assert all("Hello" in prompt["messages"][1]["content"] for prompt in prompts[1:])
    assert ["cannot be used" in prompt["text"] for prompt in prompts[1:]].count(True) == 2


def test_each_job_has_a_file(project):
    project.cases(CASE, {**CASE, "id": "two/../x y"})
    prompts = project.dumped("--trials", "2")
    assert sorted((prompt["eval_id"], prompt["trial"]) for prompt in prompts) == [
        ("one", 1),
        ("one", 2),
        ("two/../x y", 1),
        ("two/../x y", 2),
    ]


def test_a_prompt_file_has_the_text_and_the_messages(project, folder):
    folder.write("note.txt", "inside")
    parts = [{"type": "text", "value": "Sum up."}, {"type": "file", "value": "note.txt"}]
    project.cases({**CASE, "input": [{"role": "system", "content": "Brief."}, {"role": "user", "content": parts}]})
    [prompt] = project.dumped()
    text = 'Sum up.\n<file path="note.txt">\ninside\n</file>'
    assert prompt["text"] == f"@[System]:\nBrief.\n\n@[User]:\n{text}"
    assert prompt["messages"] == [{"role": "system", "content": "Brief."}, {"role": "user", "content": text}]


def test_a_prompt_file_has_the_request_body_of_a_model(project):
    with FaultyServer(answers="hi") as server:
        project.target(
            provider="openai", base_url=server.url, model="m", api_key=KEY, system_prompt="Be brief.", temperature=0.5
        )
        [prompt] = project.dumped("--trials", "1")
        [sent_request] = server.requests
    assert prompt["sent"] == sent_request.body
    assert prompt["sent"]["messages"][0] == {"role": "system", "content": "Be brief."}


def test_a_prompt_file_has_the_arguments_of_commands_and_functions(project, folder):
    project.target(provider="cli", command_template="echo {PROMPT}")
    [prompt] = project.dumped()
    assert prompt["sent"]["command_template"] == "echo {PROMPT}"
    assert prompt["sent"]["prompt"] == "Hello"
    folder.write("agent.py", "def answer(messages, trial):\n    return 'hi'\n")
    project.target(provider="python", function="agent.py:answer")
    [prompt] = project.dumped()
    assert prompt["sent"] == {"messages": [{"role": "user", "content": "Hello"}], "trial": 1}


def test_a_prompt_file_has_no_password_of_an_endpoint(project):
    with FaultyServer() as server:
        url = server.origin.replace("http://", "http://user:pw@") + "/x?id={{ id }}"
        project.target(provider="http", url=url, body={"q": "{{ prompt }}"}, max_retries=0)
        [prompt] = project.dumped(expect=3)
    assert prompt["sent"] == {
        "method": "POST",
        "url": f"{server.origin}/x?id=one",
        "headers": {},
        "body": '{"q":"Hello"}',
    }


def test_prompt_files_have_no_secrets(project, monkeypatch):
    monkeypatch.setenv("SOME_TOKEN", "hush-hush-hush")
    project.cases({**CASE, "input": "The word is hush-hush-hush"})
    [prompt] = project.dumped()
    assert prompt["text"] == "The word is [redacted]"
    assert "hush-hush-hush" not in json.dumps(prompt)


def test_a_prompt_is_stored_even_if_the_call_fails(project):
    project.target(provider="mock", fault_rate=1.0, max_retries=0)
    assert len(project.dumped(expect=3)) == 1


def test_another_folder_can_be_named(project, folder):
    run = project.run("--dump-prompts", "shown")
    assert len(read(folder.path / "shown")) == 1
    assert not (run / "prompts").exists()


def test_prompts_are_not_stored_by_default(project):
    assert not (project.run() / "prompts").exists()


@pytest.mark.parametrize(
    ("content", "message"), [("a folder", "The folder for --dump-prompts is not empty"), ("a file", "Not a folder")]
)
def test_a_dataset_after_the_option_is_not_used_as_a_folder(project, folder, content, message):
    place = folder.write("evals/more.jsonl" if content == "a folder" else "evals", [CASE])
    done = project.command("eval", "cases.jsonl", "--dump-prompts", place.split("/")[0])
    assert done.code == 2
    assert message in done.stderr


def test_a_dry_run_stores_prompts_without_calls(project, folder):
    with FaultyServer(answers="hi") as server:
        project.target(provider="openai", base_url=server.url, model="m", api_key=KEY)
        done = project.command("eval", "cases.jsonl", "--dry-run", "--dump-prompts", "shown", "-q")
        assert (done.code, server.counts.requests) == (0, 0)
    [prompt] = read(folder.path / "shown")
    assert prompt["sent"] == {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
    assert not (folder.path / ".agentv").exists()


def test_a_dry_run_needs_a_folder_for_prompts(project):
    done = project.command("eval", "cases.jsonl", "--dry-run", "-q", "--dump-prompts")
    assert done.code == 2
    assert "--dump-prompts DIR" in done.stderr
