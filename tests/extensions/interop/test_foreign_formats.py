"""Files of other tools, as they occur: what each becomes, and what is reported as not kept."""

from pathlib import Path

import pytest
import yaml

import agentv
from agentv.datasets.dataset import Options
from agentv.datasets.detection import detect
from agentv.datasets.loader import case_source
from agentv.errors import LossWarning, MappedNote
from agentv.extensions.interop.datasets.keyed_records import PARTS, READERS
from agentv.extensions.interop.datasets.record_formats import RECORD_FORMATS
from agentv.registry import FOREIGN_FOLDERS, FOREIGN_FORMATS
from late import Late
from spreadsheet_files import write_sheet

pyarrow, parquet = Late("pyarrow"), Late("pyarrow.parquet")

DATA = Path(__file__).parents[2] / "data" / "foreign"
SECOND = yaml.safe_load((DATA / "second-group.yaml").read_text("utf-8"))
FIRST = {
    path.stem: yaml.load(path.read_text("utf-8"), yaml.CSafeLoader)
    for path in DATA.glob("*.yaml")
    if path.stem not in "second-group"
}
EXAMPLES = [
    pytest.param(kind, example, id=f"{kind}-{number}")
    for kind, examples in {**FIRST, **SECOND}.items()
    for number, example in enumerate(examples)
]


def test_every_row_of_the_table_is_a_format():
    assert set(RECORD_FORMATS) <= set(FOREIGN_FORMATS.names())


@pytest.mark.parametrize("name", RECORD_FORMATS)
def test_a_row_of_the_table_names_parts_of_cases_and_readers_that_exist(name):
    parts = RECORD_FORMATS[name]["case"]
    assert {part for part in parts if not part.startswith("metadata.")} <= PARTS
    readers = {place.partition(":")[0] for places in parts.values() for place in places.split(" | ") if ":" in place}
    assert readers <= READERS


def text(messages):
    return "" if not messages else messages[-1].content if isinstance(messages[-1].content, str) else None


def shape(case, wanted):
    """Return what is known about a case, for the wanted keys."""
    found = {
        "id": case.id,
        "input": text(case.input),
        "messages": [message.role for message in case.input],
        "expected_output": text(case.expected_output),
        "expected_outcome": case.expected_outcome,
        "evaluators": [spec.type for spec in case.evaluators],
        "settings": [spec.to_data() for spec in case.evaluators],
        "rubrics": [item if isinstance(item, str) else dict(item) for item in case.rubrics],
        "tags": list(case.tags),
        "context": list(case.context),
        "turns": len(case.turns),
        "turn_references": [text(turn.expected_output) for turn in case.turns],
        "turn_evaluators": [[spec.type for spec in turn.evaluators] for turn in case.turns],
        "goal": case.user.goal if case.user else None,
        "user": {key: getattr(case.user, key) for key in wanted.get("user", {})},
        "lines": case.line,
        "workspace_files": [file.path for file in case.workspace.files] if case.workspace else [],
    }
    found["refused"] = (
        wanted.get("refused") if wanted.get("refused", "") in (case.case_error or "") else case.case_error
    )
    found["metadata"] = {key: case.metadata.get(key) for key in wanted.get("metadata", {})}
    return {key: found[key] for key in wanted}


def written(folder, example):
    path = folder / example["file"]
    path.parent.mkdir(parents=True, exist_ok=True)
    for name, content in example.get("files", {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, "utf-8")
    if "content" in example:
        path.write_bytes(example["content"].encode())
    if "sidecar" in example:
        path.with_suffix(".yaml").write_text(example["sidecar"], "utf-8")
    return path


@pytest.mark.parametrize(("kind", "example"), EXAMPLES)
def test_a_file_becomes_the_expected_cases(tmp_path, monkeypatch, kind, example):
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, example).relative_to(tmp_path)
    warnings = []
    source = case_source(str(path), warn=warnings.append, note=print, options=Options(fields=example.get("map", "")))
    cases = source.load()
    if "map" not in example:
        assert detect(str(path)) == kind
    assert [shape(case, wanted) for case, wanted in zip(cases, example["cases"], strict=True)] == example["cases"]
    assert {case.dataset for case in cases} == {example.get("dataset", cases[0].dataset)}
    losses = [str(each) for each in warnings if isinstance(each, LossWarning)]
    assert len(losses) == len(example.get("losses", ())), losses
    assert all(any(part in loss for loss in losses) for part in example.get("losses", ()))
    assert len([each for each in warnings if isinstance(each, MappedNote)]) == 1


def test_every_format_has_enough_examples():
    few = {kind: f"{len(found)} of 5 in {kind}.yaml" for kind, found in FIRST.items() if len(found) < 5}
    few |= {kind: f"{len(found)} of 3 in second-group.yaml" for kind, found in SECOND.items() if len(found) < 3}
    assert not few
    assert {*FOREIGN_FORMATS.names(), *FOREIGN_FOLDERS.names()} == {*FIRST, *SECOND}


@pytest.mark.every(3)
@pytest.mark.parametrize(("kind", "example"), EXAMPLES)
@pytest.mark.parametrize("target", ["out.yaml", "out.jsonl"])
def test_a_file_converts_to_our_formats(tmp_path, command, kind, example, target):
    path = written(tmp_path, example)
    fields = ["--map", example["map"]] if "map" in example else []
    ended = command("convert", str(path), str(path.parent / target), *fields)
    assert ended.code == 0, ended.stderr
    assert len(agentv.load_cases(path.parent / target)) == len(example["cases"])


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("pairs.jsonl", '{"chosen": "b", "rejected": "c"}', "no prompt that both answers reply to"),
        ("rollouts.jsonl", '{"responses_create_params": {}, "response": {}, "reward": 1}', "rollouts of NeMo Gym"),
        ("predictions.jsonl", '{"instance_id": "a", "model_patch": "b", "text": "c"}', "predictions of SWE-bench"),
        ("answers.jsonl", '{"question_id": 1, "model_id": "m", "text": "c"}', "answers of MT-bench"),
        ("x.prompt.md", "---\nmode: agent\n---\nDo it\n", "a prompt of VS Code, which has no cases"),
        ("p.prompt.yml", "model: m\nmessages: [{role: user, content: '{{input}}'}]\n", "has no testData"),
        (
            "totals.json",
            '{"schema_version": "0.2", "evaluation_id": "e", "evaluation_results": [{"evaluation_name": "a"}]}',
            "results in the format of Every Eval Ever",
        ),
        (
            "report.json",
            '{"resolved_instances": 1, "submitted_instances": 1, "submitted_ids": ["a"]}',
            "To see its results, use `agentv report`",
        ),
        (
            "eval.json",
            '{"name": "t", "testing_criteria": [{"type": "string_check", "input": "{{ sample.output_text }}"}]}',
            "criteria and no items",
        ),
        ("settings.json", '{"v": 1, "checks": [{"input": "{{x}}", "type": "a"}]}', "Cannot tell which fields"),
        ("dataset.toml", '[dataset]\nname = "o/d"\n[[tasks]]\nname = "o/t"\n', "in the registry of Harbor"),
        (
            "sums.yaml",
            "s.v0: {class: 'evals.elsuite.basic.match:Match', args: {samples_jsonl: sums/samples.jsonl}}\n",
            "sums/samples.jsonl",
        ),
        (
            "own.yaml",
            "own.v0: {class: 'own.eval:Own', args: {test_jsonl: a.jsonl}}\n",
            "A class of its own reads the samples: own.eval:Own",
        ),
        ("answers.jsonl", '{"id": "a", "ground_truth": [{"f": {"x": [1]}}]}', "possible answers of BFCL"),
        ("samples.jsonl", '{"input1": "a", "input2": "b"}', "Each sample has several inputs"),
        ("meta.jsonl", '{"input": "a", "completion": "b", "choice": "Yes"}', "a completion with a label"),
        (
            "talks.jsonl",
            '{"id": "a", "scenario": "shop", "question": [[{"role": "user"}]]}',
            "Cannot tell which fields",
        ),
        ("rows.csv", "version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "Git LFS pointer"),
        ("rows.csv", b"a,input\n1,\x00\n", "binary data"),
        ("rows.csv", "input\na,b,c\n", "3 cells"),
        ("a.jsonl", '{"instruction": "", "output": "ok", "text": "all"}', "'instruction' is blank"),
        ("rows.json", "[" * 5000, "nested too deeply"),
        ("rows.json", '[{"input": NaN}]', "NaN is not allowed"),
        ("rows.json", '[{"input": "a"} {"input": "b"}]', "expected ',' or ']'"),
        ("task.yaml", "task: !function utils.x\ndataset_path: json\ndoc_to_text: a\n", "!function"),
        ("group.yaml", "group: g\ntask: [a, b]\n", "A group has no cases"),
        ("task.yaml", "task: a\ninclude: task.yaml\n", "include each other"),
        ("task.yaml", "task: a\ninclude: ../../x\n", "outside the project"),
        ("task.yaml", "task: a\ndataset_path: hub/data\ndoc_to_text: a\n", "on Hugging Face"),
        (
            "task.yaml",
            "task: a\ndataset_path: json\ndataset_kwargs: {data_files: ../../x.jsonl}\n",
            "outside the project",
        ),
        (
            "task.yaml",
            "task: a\ndataset_path: json\ndataset_kwargs: {data_files: {test: 'https://a.example/x.jsonl'}}\n",
            "on the web",
        ),
    ],
)
def test_a_file_without_usable_cases_is_refused_with_the_reason(folder, file, content, reason):
    assert reason in str(folder.error(folder.write(file, content)))


@pytest.mark.parametrize(
    ("file", "content", "proposal"),
    [
        (
            "cases.yaml",
            "cases:\n- {id: a, question: Why?, expect: {answer_contains: [So]}}\n",
            "id=id,input=question,contains_all=expect.answer_contains",
        ),
        (
            "c.yaml",
            "- {utterance: Hi, must_include_any: [A]}\n",
            "input=utterance,contains_any=must_include_any",
        ),
        ("d.jsonl", '{"id": "a", "doc": "a.txt", "notes": "A long note"}\n', "input=FIELD,id=id,metadata.*=*"),
        (
            "e.yaml",
            "- {query: Hi, expected_tools: [a], expected_files: [b]}\n",
            "input=query,tools=expected_tools,metadata.*=*",
        ),
        ("f.yaml", "- {query: And Rome?, history: [{role: user, content: Hi}]}\n", "input=FIELD'"),
        ("g.yaml", "- {id: a, conversation: [{from_me: true, text: Hi}]}\n", "input=FIELD,id=id,metadata.*=*"),
        ("h.yaml", "- {question: Hi, pass_criteria: [Is kind]}\n", "input=question,rubrics=pass_criteria"),
        (
            "j.json",
            '[{"q": "Why?", "answer": {"value": "So", "aliases": ["so"]}}]',
            "input=q,expected_output=answer.value",
        ),
        (
            "k.yaml",
            "items:\n- {body: {query: Hi, user: u}, expected: {contains: [X]}}\n",
            "input=body.query,contains_all=expected.contains",
        ),
        (
            "m.yaml",
            "- {question: Hi, expected_not_contains: [B]}\n",
            "input=question,not_contains_any=expected_not_contains",
        ),
        ("p.yaml", "- {question: Hi, success_criteria: [Is kind]}\n", "input=question,rubrics=success_criteria"),
        ("o.yaml", "- {question: Hi, check: refused}\n", "input=question,metadata.*=*"),
        ("n.yaml", "- {question: Hi, expected_min_count: 2}\n", "input=question,metadata.*=*"),
        ("i.jsonl", '{"prompt": "Hi", "completion": "Go", "label": false}', "input=prompt,metadata.*=*"),
        (
            "squad.jsonl",
            '{"context": "Oslo is in Norway", "question": "Where?", "answers": {"text": ["Norway"], "start": [11]}}',
            "input=context+question,expected_output=answers.text[0]",
        ),
        (
            "boolq.jsonl",
            '{"question": "is it?", "passage": "It is.", "answer": true}',
            "input=passage+question,expected_output=answer",
        ),
        ("rag.jsonl", '{"query": "Who?", "passages": "Ana", "answer": "Ben"}', "input=query,expected_output=answer"),
        ("o.json", '[{"instruction": "Hi", "output": "Yo", "generator": "gpt"}]', "input=instruction,metadata.*=*"),
        (
            "home.json",
            '{"test_cases": [{"id": "v", "input": "Go", "expected_output": {"contains": ["A"], "calls": []}}]}',
            "id=id,input=input,contains_all=expected_output.contains",
        ),
        (
            "story.jsonl",
            '{"story": "The cat sat", "question": "Who?", "answer": "The cat"}\n{"story": "Up", "question": "Why?"}',
            "input=story+question,expected_output=answer",
        ),
        ("mt.csv", "src,tgt\nGuten Tag,Good day\n", "input=src,expected_output=tgt"),
        ("sql.csv", "question,query\nHow many?,SELECT count(*) FROM t\n", "input=question,expected_output=query"),
        ("wmt.jsonl", '{"translation": {"de": "Danke", "en": "Thanks"}}', "input=FIELD'"),
        ("tickets.csv", "Ticket ID,Description\nT1,I forgot it\n", "input=FIELD'"),
        ("people.csv", "user,answer\nana,yes\n", "input=FIELD,expected_output=answer"),
        ("chosen.csv", "question,answer,true_answer,reference\na b,c,d,e\n", "input=question,expected_output=ref"),
        ("suite.json", '{"v": 1, "items": [{"prompt": "Hi", "answer": "Yo"}]}', "input=prompt,expected_output=answer"),
        (
            "game.json",
            '[{"id": 1, "scenario": "A close game", "final": "9-8", "must_not_contain": ["X"]}]',
            "input=FIELD,",
        ),
        ("goldens.json", '{"goldens": [{"query": "Hi", "answer": "Yo"}]}', "input=query,expected_output=answer"),
        (
            "own.json",
            '{"cases": [{"id": 1, "inputs": "Hi", "answer": "Yo"}]}',
            "id=id,input=inputs,expected_output=ans",
        ),
        ("set.json", '{"v": 1, "cases": [{"inputs": "Hi", "expected_output": "Yo"}]}', "input=inputs,expected_output="),
    ],
)
def test_home_made_cases_are_refused_with_a_proposed_field_map(folder, file, content, proposal):
    assert f"--map '{proposal}" in str(folder.error(folder.write(file, content)))


def test_texts_of_several_fields_are_joined(folder):
    folder.write("q.csv", "context,question,answer,note\nOslo is in Norway,Where?,Norway,x\n")
    fields = Options(fields="input=context+question,expected_output=answer,metadata.*=*")
    (case,) = case_source("q.csv", warn=print, note=print, options=fields).load()
    assert text(case.input) == "Oslo is in Norway\n\nWhere?" and case.metadata == {"note": "x"}


def test_every_field_that_is_joined_must_exist(folder, command):
    folder.write("q.csv", "context,question\nOslo is in Norway,Where?\n")
    assert "has no field 'questoin'" in command("cases", "q.csv", "--map", "input=context+questoin").stderr


def test_a_guess_for_a_known_format_says_that_no_map_is_needed(folder, command):
    folder.write("q.jsonl", [{"question": "2+2?", "choices": ["3", "4"], "answer": 1}])
    assert "No map is needed: q.jsonl is read as multiple-choice" in command("cases", "q.jsonl", "--guess").stdout


def test_records_with_our_names_are_validated(folder, command):
    folder.write("rows.json", '[{"input": "Hi", "expected_output": "Hello"}]')
    assert "1 readable case: 0 errors" in command("validate", "rows.json").stderr


def test_the_kind_of_a_field_map_is_checked(folder, command):
    folder.write("q.csv", "question,answer\nWhy?,So\n")
    assert "Did you mean 'question'" in command("cases", "q.csv", "--map", "input=questoin").stderr
    assert "unknown key 'inptu'" in command("cases", "q.csv", "--map", "inptu=question").stderr
    assert "--map 'input=question,expected_output=answer'" in command("cases", "q.csv").stderr
    folder.write("evals/d.jsonl", [{"id": "a", "expected_outcome": "x", "input": "y"}])
    assert "needs files, and evals is a folder" in command("cases", "evals", "--map", "input=x").stderr


def test_a_spreadsheet_and_a_parquet_file_are_read(tmp_path, made_tables):
    for path in made_tables(tmp_path):
        cases = agentv.load_cases(path)
        assert [(case.id, text(case.input), text(case.expected_output)) for case in cases] == [
            ("1", "Hi", "Hello"),
            ("2", "=1+1", "2"),
        ]


@pytest.fixture
def made_tables():
    """Write the same records as a spreadsheet and as a Parquet file."""

    def write(folder):
        rows = [["id", "input", "expected_output"], [1, "Hi", "Hello"], [2, "=1+1", "2"]]
        write_sheet(folder / "cases.xlsx", rows)
        columns = {name: [str(row[index]) for row in rows[1:]] for index, name in enumerate(rows[0])}
        parquet.write_table(pyarrow.table(columns), folder / "cases.parquet")
        return folder / "cases.xlsx", folder / "cases.parquet"

    return write
