"""Prompts of AgentMark are rendered as its own engine renders them; the records are from its package."""

import json
from itertools import groupby
from pathlib import Path

import pytest

from agentv.errors import DatasetError

pytestmark = pytest.mark.ci

PEERS = Path(__file__).parents[2] / "data" / "peers"
PROMPTS = json.loads((PEERS / "agentmark/prompts.json").read_text("utf-8"))
TEXTS = {prompt["case"]: prompt["prompt"] for prompt in PROMPTS["prompts"]}
RECORDS = [json.loads(line) for line in (PEERS / "agentmark.jsonl").read_text("utf-8").splitlines()]
CASES = {name: list(records) for name, records in groupby(RECORDS, key=lambda record: record["case"])}
OPTIONAL = {"type": "object", "properties": {"missing": {}, "x": {}}}


@pytest.fixture
def render(folder):
    for name, text in PROMPTS["files"].items():
        folder.write(name, text)

    def messages(text):
        folder.write("p.prompt.mdx", f"---\ninput_schema: {json.dumps(OPTIONAL)}\n---\n\n{text}\n")
        case = folder.rows({"input": PROMPTS["props"]}, sidecar={"prompt": "p.prompt.mdx"}).cases[0]
        return [(message.role, message.content) for message in case.input]

    return messages


def test_every_prompt_is_recorded():
    assert CASES.keys() == TEXTS.keys() and len(CASES) > 300


@pytest.mark.parametrize("group", ["body", "line", "mixed", "own", "other"])
def test_messages_equal_those_of_agentmark(group, render):
    differences = {}
    for name in (name for name in CASES if group == (name.partition("-")[0] if name[-1].isdigit() else "other")):
        expected = [(record["evaluator"], record["answer"]) for record in CASES[name] if "error" not in record]
        try:
            ours = render(TEXTS[name])
        except DatasetError:
            ours = []
        if ours != expected:
            differences[name] = (ours, expected)
    assert differences == {}
