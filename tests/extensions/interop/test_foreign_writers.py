"""`convert --to`: what is written for other tools, what is reported as not written, and what their own loaders read."""

import json

import pytest
import yaml

import agentv

CASES = yaml.safe_load("""
- {id: a, expected_outcome: polite, input: "Hello?", expected_output: Hi, tags: [x], context: [Greetings]}
- id: b
  expected_outcome: names the weather
  input: [{role: system, content: Be brief}, {role: user, content: "Weather?"}]
  evaluators:
    - {type: tool_trajectory, mode: superset, expected: [{tool: weather, args: {city: Oslo}}]}
    - {type: contains, value: sun}
- {id: c, expected_outcome: a table is booked, input: A table please, turns: [{input: For two}]}
""")
SAMPLES = [
    {
        "id": "a",
        "input": "Hello?",
        "target": "Hi",
        "metadata": {"tags": ["x"], "expected_outcome": "polite", "context": ["Greetings"]},
    },
    {
        "id": "b",
        "input": [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Weather?"}],
        "target": "names the weather",
    },
    {"id": "c", "input": "A table please", "target": "a table is booked"},
]
WEATHER = {"name": "weather", "input_parameters": {"city": "Oslo"}}
GOLDENS = [
    {
        **{"input": "Hello?", "expected_output": "Hi", "comments": "polite", "name": "a"},
        **{"context": ["Greetings"], "additional_metadata": {"tags": ["x"]}},
    },
    {
        **{"input": "system: Be brief\nuser: Weather?", "expected_tools": [WEATHER]},
        **{"comments": "names the weather", "name": "b"},
    },
    {"input": "A table please", "comments": "a table is booked", "name": "c"},
]
TURNS = [{"role": "user", "content": "A table please"}, {"role": "user", "content": "For two"}]
CONVERSATION = {"scenario": "A table please", "expected_outcome": "a table is booked", "turns": TURNS, "name": "c"}


@pytest.fixture
def dataset(folder):
    folder.write("d.yaml", {"evalcases": CASES})
    return folder


def lost(ended):
    return {line.split("not written: ")[1] for line in ended.stderr.splitlines() if "not written: " in line}


def test_samples_of_inspect_are_written_with_a_list_of_losses(dataset, command):
    ended = command("convert", "d.yaml", "s.jsonl", "--to", "inspect")
    assert [json.loads(line) for line in (dataset.path / "s.jsonl").read_text().splitlines()] == SAMPLES
    trajectory, contains = "the evaluator `tool_trajectory` (1 time)", "the evaluator `contains` (1 time)"
    assert lost(ended) == {trajectory, contains, "the later turns of a conversation (1 time)"}
    assert "Wrote s.jsonl: 3 cases" in ended.stderr + ended.stdout
    assert [case.id for case in agentv.load_cases("s.jsonl")] == ["a", "b", "c"]


def test_goldens_of_deepeval_keep_the_expected_tool_calls(dataset, command):
    ended = command("convert", "d.yaml", "g.json", "--to", "deepeval")
    assert json.loads((dataset.path / "g.json").read_text()) == GOLDENS
    assert lost(ended) == {"the evaluator `contains` (1 time)", "the later turns of a conversation (1 time)"}


def test_a_conversation_becomes_a_scenario_of_deepeval(dataset, command):
    dataset.write("c.yaml", {"evalcases": CASES[2:]})
    command("convert", "c.yaml", "g.json", "--to", "deepeval")
    assert json.loads((dataset.path / "g.json").read_text()) == [CONVERSATION]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["s.jsonl", "--to", "inspct"], "Did you mean 'inspect'?"),
        (["s.txt", "--to", "inspect"], "s.txt must end with .jsonl or .json"),
        (["s.jsonl", "--to", "ragas"], "cannot write 'ragas'"),
        (["s.jsonl", "--to", "inspect", "--strict"], "Part of the dataset would be lost"),
    ],
)
def test_what_cannot_be_written_leaves_no_file(dataset, command, arguments, message):
    ended = command("convert", "d.yaml", *arguments)
    assert ended.code == 2 and message in ended.stderr
    assert sorted(path.name for path in dataset.path.iterdir() if path.is_file()) == ["d.yaml"]


@pytest.mark.peers
def test_inspect_loads_the_samples(dataset, command):
    json_dataset = pytest.importorskip("inspect_ai.dataset").json_dataset
    command("convert", "d.yaml", "s.jsonl", "--to", "inspect")
    loaded = list(json_dataset("s.jsonl"))
    assert [(sample.id, sample.target) for sample in loaded] == [(each["id"], each["target"]) for each in SAMPLES]
    assert [message.role for message in loaded[1].input] == ["system", "user"]


@pytest.mark.peers
def test_deepeval_loads_the_goldens(dataset, command, monkeypatch):
    monkeypatch.setenv("DEEPEVAL_TELEMETRY_OPT_OUT", "YES")
    evaluation_dataset = pytest.importorskip("deepeval.dataset").EvaluationDataset
    command("convert", "d.yaml", "g.json", "--to", "deepeval")
    loaded = evaluation_dataset()
    loaded.add_goldens_from_json_file("g.json")
    assert [(golden.name, golden.input) for golden in loaded.goldens] == [
        (each["name"], each["input"]) for each in GOLDENS
    ]
    assert loaded.goldens[1].expected_tools[0].input_parameters == {"city": "Oslo"}
