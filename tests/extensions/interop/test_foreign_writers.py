"""`convert --to`: what is written for other tools, what is reported as not written, and what their own loaders read."""

import json
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

import agentv
from agentv.datasets.dataset import Options
from agentv.datasets.discovery import GivenFormat, find_datasets
from agentv.datasets.foreign.case_parts import first_input, text_in
from agentv.datasets.loader import case_source
from agentv.errors import LossWarning, UsageError
from agentv.extensions.convert.conversion import Conversion
from agentv.model.case import case_to_data
from test_golden import foreign_examples, write_example

DATA = Path(__file__).parents[2] / "data"
WRITTEN = DATA / "peers" / "written"
RECORDS = [json.loads(line) for line in (DATA / "peers" / "written.jsonl").read_text("utf-8").splitlines()]
NOT_WRITTEN = ("variables", "workspace", "depends_on", "on_dependency_failure")
EXAMPLES = [example for examples in foreign_examples().values() for example in examples]
FILES = {record["tool"]: record["file"] for record in RECORDS}

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
WEATHER = {"name": "weather", "input_parameters": {"city": "Oslo"}}
CHAT = [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Weather?"}]
TURNS = [{"role": "user", "content": "A table please"}, {"role": "user", "content": "For two"}]
LOST = ("the evaluator `tool_trajectory`", "the evaluator `contains`", "the later turns of a conversation")
RECORDS_OF = {
    "inspect": (
        [
            {"id": "a", "input": "Hello?", "target": "Hi"},
            {"id": "b", "input": CHAT, "target": "names the weather"},
            {"id": "c", "input": "A table please", "target": "a table is booked"},
        ],
        LOST,
    ),
    "deepeval": (
        [
            {"input": "Hello?", "expected_output": "Hi", "comments": "polite", "name": "a", "context": ["Greetings"]},
            {
                **{"input": "system: Be brief\nuser: Weather?", "expected_tools": [WEATHER]},
                **{"comments": "names the weather", "name": "b"},
            },
            {"input": "A table please", "comments": "a table is booked", "name": "c"},
        ],
        (*LOST[1:], "the mode and the arguments of a tool trajectory: the settings of ToolCorrectnessMetric decide"),
    ),
    "openai-evals": (
        [
            {"input": [{"role": "user", "content": "Hello?"}], "ideal": "Hi", "criteria": "polite"},
            {"input": CHAT, "criteria": "names the weather"},
            {"input": [TURNS[0]], "criteria": "a table is booked"},
        ],
        (
            *LOST,
            "an ideal answer: classes that compare with `ideal` end with an error, and a model grades by `criteria`",
        ),
    ),
    "agent-skills": (
        [
            {"id": "a", "prompt": "Hello?", "expected_output": "polite\n\nReference answer: Hi"},
            {
                **{"id": "b", "prompt": "system: Be brief\nuser: Weather?", "expected_output": "names the weather"},
                "assertions": ["The agent calls these tools: weather", "The answer contains: sun"],
            },
            {"id": "c", "prompt": "A table please", "expected_output": "a table is booked"},
        ],
        (
            "that `tool_trajectory` needs no judge: a model grades it as a sentence",
            "that `contains` needs no judge: a model grades it as a sentence",
            "the later turns of a conversation",
        ),
    ),
}


def content(text):
    return {"user_content": {"role": "user", "parts": [{"text": text}]}}


def rubric(text):
    item = {"rubric_id": "rubric-1", "type": "FINAL_RESPONSE_QUALITY", "rubric_content": {"text_property": text}}
    return {"rubrics": [item]}


NO_CRITERION = (
    "rubrics without a criterion: add `rubric_based_final_response_quality_v1` to the test_config.json of ADK"
)


ANSWER = {"final_response": {"role": "model", "parts": [{"text": "Hi"}]}}
CALLS = {"tool_uses": [{"name": "weather", "args": {"city": "Oslo"}}]}
NO_CALLS = {"intermediate_data": {"tool_uses": []}}
RECORDS_OF["adk"] = (
    [
        {"eval_id": "a", **rubric("polite"), "conversation": [{**content("Hello?"), **ANSWER, **NO_CALLS}]},
        {"eval_id": "b", "conversation": [{**content("Weather?"), "intermediate_data": CALLS}]},
        {
            **{"eval_id": "c", **rubric("a table is booked")},
            "conversation": [{**content(turn["content"]), **NO_CALLS} for turn in TURNS],
        },
    ],
    (
        "the evaluator `contains`",
        "messages of the role system",
        "`mode: superset` of a tool trajectory: the criteria of ADK decide, and the default is an exact match",
        "an expected output: `response_match_score`, a default criterion of ADK, is 0 without one",
        NO_CRITERION,
    ),
)


@pytest.fixture
def dataset(folder):
    folder.write("d.yaml", {"evalcases": CASES})
    return folder


def convert(source, target, kind, options=Options()):
    """Write a file in the format of another tool. Returns its losses."""
    origin = find_datasets(str(source), ignore, ignore, given_format=GivenFormat("", options.fields))[0]
    with Conversion(origin, str(target), options, overwrite=True, kind=kind) as conversion:
        losses = [str(warning) for warning in conversion.write() if isinstance(warning, LossWarning)]
        conversion.keep()
    return {loss.split("not written: ")[1].rpartition(" (")[0] for loss in losses if "not written: " in loss}


def records_in(path):
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    document = json.loads(path.read_text("utf-8"))
    return document if isinstance(document, list) else document.get("evals", document.get("eval_cases"))


@pytest.mark.parametrize("kind", RECORDS_OF)
def test_cases_are_written_with_the_fields_of_the_tool_and_a_list_of_losses(dataset, kind):
    records, losses = RECORDS_OF[kind]
    path = dataset.path / FILES[kind]
    assert convert("d.yaml", path, kind) == set(losses)
    extra = ("metadata", "additional_metadata")
    assert [{key: value for key, value in record.items() if key not in extra} for record in records_in(path)] == records


def data_of(case):
    """Return a case without the defaults that a file may write out."""
    data = {key: value for key, value in case_to_data(case).items() if key not in (*NOT_WRITTEN, "dataset")}
    defaults = {"tool_trajectory": {"args_match": "superset"}, "composite": {"gate": True}}
    entries = [{**defaults.get(entry["type"], {}), **entry} for entry in data["evaluators"]]
    return json.loads(json.dumps({**data, "evaluators": entries}, default=list))


@pytest.mark.parametrize("kind", RECORDS_OF)
def test_the_cases_of_a_written_file_are_read_back_as_the_same_cases(dataset, kind):
    convert("d.yaml", FILES[kind], kind)
    assert list(map(data_of, agentv.load_cases(FILES[kind]))) == list(map(data_of, agentv.load_cases("d.yaml")))


def ignore(_):
    pass


def has_files(case):
    return any(message.parts for message in (*case.input, *case.expected_output))


@pytest.mark.every(4)
@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_golden_examples_survive_a_conversion_and_the_way_back(tmp_path, monkeypatch, number):
    example = EXAMPLES[number]
    kind = list(RECORDS_OF)[number % len(RECORDS_OF)]
    path = write_example(tmp_path, example)
    monkeypatch.chdir(path.parent)
    fields = Options(fields=example.get("map", ""))
    source = case_source(path.name, warn=ignore, note=ignore, options=fields)
    cases = [case for case in source.load() if case.case_error is None]
    target = f"written-{FILES[kind]}"
    if not cases or any(case.prompts or not text_in(first_input(case), ignore).strip() for case in cases):
        with suppress(UsageError):
            convert(path.name, target, kind, fields)
        return
    convert(path.name, target, kind, fields)
    copies = case_source(target, warn=ignore, note=ignore).load()
    pairs = [pair for pair in zip(cases, copies, strict=True) if not has_files(pair[0])]
    assert [data_of(copy) for _, copy in pairs] == [data_of(case) for case, _ in pairs]


def test_a_case_that_was_edited_in_the_other_tool_is_read_as_that_tool_does(dataset, command):
    convert("d.yaml", "s.jsonl", "inspect")
    path = dataset.path / "s.jsonl"
    path.write_text(path.read_text().replace('"target":"names the weather"', '"target":"Sun"'))
    case = agentv.load_cases("s.jsonl")[1]
    assert case.expected_output[0].content == "Sun" and [spec.type for spec in case.evaluators] == ["llm_judge"]
    assert not case.metadata
    assert "the case was edited since" in command("validate", "s.jsonl").stdout


@pytest.mark.parametrize(("kind", "name"), [("agent-skills", "evals.json"), ("promptfoo", "p.yaml")])
def test_a_rubric_that_is_one_text_is_one_check(folder, command, kind, name):
    rubric = {"type": "rubrics", "criteria": "Names the capital"}
    folder.write("s.yaml", {"tests": [{"id": "a", "input": "Capital?", "assertions": [rubric]}]})
    assert command("convert", "s.yaml", name, "--to", kind).code == 0
    (folder.path / "s.yaml").unlink()
    (case,) = agentv.load_cases(name)
    texts = [item for check in case.evaluators for item in check.settings.get("rubrics", ())]
    assert "".join(map(str, texts)) == "Names the capital" and len(case.evaluators) == 1


def test_a_conversation_becomes_a_scenario_of_deepeval(dataset):
    dataset.write("c.yaml", {"evalcases": CASES[2:]})
    convert("c.yaml", "g.json", "deepeval")
    golden = json.loads((dataset.path / "g.json").read_text())[0]
    fields = {"scenario": "A table please", "expected_outcome": "a table is booked", "turns": TURNS, "name": "c"}
    assert {key: golden[key] for key in fields} == fields


def test_a_simulated_user_becomes_a_scenario_of_adk(dataset):
    user = {"goal": "Book a table", "persona": "in a hurry"}
    dataset.write("u.yaml", {"evalcases": [{"id": "u", "expected_outcome": "booked", "input": "Hi", "user": user}]})
    assert convert("u.yaml", "u.json", "adk") == {NO_CRITERION}
    scenario = {"starting_prompt": "Hi", "conversation_plan": "Book a table\n\nYou are: in a hurry"}
    assert records_in(dataset.path / "u.json")[0]["conversation_scenario"] == scenario
    assert agentv.load_cases("u.json")[0].user == agentv.load_cases("u.yaml")[0].user


USER = {"user": {"goal": "Book a table", "max_turns": 4, "stop": "BYE", "target": "ann"}}
GREETED = {"input": [{"role": "system", "content": "Be kind"}, {"role": "assistant", "content": "Hi"}], **USER}
PLAYED = {"on_turn_failure": "stop", "window_size": 2, "aggregation": "min", "turns": [{"input": "For two"}]}
CALLED = {"evaluators": [{"type": "tool_trajectory", "mode": "exact", "expected": [{"tool": "weather", "args": {}}]}]}


@pytest.mark.parametrize(
    ("kind", "case", "losses"),
    [
        *((kind, PLAYED, ["stops at a turn", "`window_size`", "`aggregation`"]) for kind in FILES),
        ("deepeval", USER, ["`max_turns` of", "`stop` of", "`target` of"]),
        ("adk", USER, ["`max_turns` of", "`target` of"]),
        ("deepeval", GREETED, ["messages of the role system"]),
        ("adk", GREETED, ["messages of the role system", "messages of the role assistant"]),
        ("deepeval", CALLED, ["the mode and the arguments of a tool trajectory"]),
    ],
)
def test_settings_of_a_conversation_that_a_tool_does_not_have_are_losses(folder, kind, case, losses):
    folder.write("u.yaml", {"evalcases": [{"id": "u", "expected_outcome": "booked", "input": "Hello", **case}]})
    written = convert("u.yaml", FILES[kind], kind)
    assert [text for text in losses if not any(text in loss for loss in written)] == []
    if kind != "promptfoo":
        assert [data_of(case) for case in agentv.load_cases(FILES[kind])] == [data_of(*agentv.load_cases("u.yaml"))]
    if kind == "deepeval":
        roles = [turn["role"] for turn in records_in(folder.path / FILES[kind])[0].get("turns", ())]
        assert set(roles) <= {"user", "assistant"}  # DeepEval refuses a file with others


@pytest.mark.parametrize(
    ("case", "kind", "loss"),
    [
        ({"assertions": [{"type": "is_json"}]}, "inspect", "a target"),
        ({"assertions": [{"type": "is_json"}]}, "agent-skills", "every check of a case"),
        ({"assertions": [{"type": "is_json"}]}, "openai-evals", "an ideal answer"),
        ({"assertions": [{"type": "token_usage", "max_total": 9}]}, "promptfoo", "every check of a case"),
    ],
)
def test_a_case_that_loses_all_checks_is_written_with_one_that_fails(dataset, case, kind, loss):
    dataset.write("t.yaml", {"tests": [{"id": "t", "input": "Hi", **case}]})
    name = FILES[kind]
    assert any(loss in text for text in convert("t.yaml", name, kind))
    assert "No check of this case could be written" in (dataset.path / name).read_text("utf-8")


@pytest.mark.parametrize(
    ("header", "case", "message"),
    [
        ({}, {"input": " "}, "The input of the case 't' is blank"),
        (
            {"prompts": [{"id": "x", "prompt": "A {{q}}"}, {"id": "y", "prompt": "B {{q}}"}]},
            {"vars": {"q": "z"}},
            "several prompts",
        ),
    ],
)
def test_a_case_without_one_text_is_refused(dataset, header, case, message):
    dataset.write("t.yaml", {**header, "tests": [{"id": "t", "criteria": "ok", **case}]})
    with pytest.raises(UsageError, match=message):
        convert("t.yaml", "t.json", "agent-skills")


@pytest.mark.parametrize(("kind", "name"), FILES.items())
def test_every_tool_has_loaded_the_files_that_are_written_now(tmp_path, kind, name):
    shutil.copytree(WRITTEN, tmp_path, dirs_exist_ok=True)
    convert(tmp_path / "cases.yaml", tmp_path / name, kind)
    assert (tmp_path / name).read_bytes() == (WRITTEN / name).read_bytes()
    loaded = [record["case"] for record in RECORDS if record["tool"] == kind]
    assert loaded == [case.id for case in agentv.load_cases(WRITTEN / "cases.yaml")]


def test_a_failing_case_passes_in_another_tool_only_with_a_named_loss(tmp_path, monkeypatch, command):
    shutil.copytree(WRITTEN, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    command("eval", "cases.yaml", "--out", "run")
    results = [json.loads(line) for line in (tmp_path / "run" / "results.jsonl").read_text("utf-8").splitlines()]
    failures = {result["eval_id"] for result in results if result["verdict"] == "fail"}
    rows = {row["id"]: row for row in yaml.safe_load((tmp_path / "cases.yaml").read_text("utf-8"))["evalcases"]}
    passes = [record for record in RECORDS if record["passed"] and record["case"] in failures]
    assert len(failures) == 12 and len(passes) == 5
    for record in passes:
        (tmp_path / "one.yaml").write_text(yaml.safe_dump({"evalcases": [rows[record["case"]]]}), "utf-8")
        losses = convert("one.yaml", record["file"], record["tool"]) - {
            "the targets: replace `echo` with your providers"
        }
        assert losses, record


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
