"""`agentv cases`: output, messages and errors."""

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

import agentv
from agentv.cli import cli

ROW = '{"id": "%s", "expected_outcome": "x", "input": "%s", "tags": ["%s"]}\n'


def cases(*arguments):
    return CliRunner().invoke(cli, ["cases", *map(str, arguments)])


@pytest.fixture
def dataset(tmp_path):
    path = tmp_path / "d.jsonl"
    path.write_text("".join(ROW % (f"case-{n}", f"question {n}", "odd" if n % 2 else "even") for n in range(10)))
    return path


def ids(result):
    return [json.loads(line)["id"] for line in result.stdout.splitlines()]


def test_lines_are_utf8_with_plain_newlines_and_not_escaped(tmp_path):
    path = tmp_path / "d.jsonl"
    path.write_text(ROW % ("a", "é 日本 \\u2028", "t"), encoding="utf-8")
    command = [sys.executable, "-m", "agentv", "cases", str(path)]
    output = subprocess.run(
        command, capture_output=True, check=True, env=os.environ | {"PYTHONIOENCODING": "ascii"}
    ).stdout
    assert "é 日本 \u2028".encode() in output
    assert output.endswith(b"}\n")
    assert b"\r" not in output


def test_yaml_and_jsonl_of_the_same_cases_print_the_same_bytes(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "d.jsonl").write_text(ROW % ("1", "q", "t"))
    (tmp_path / "b" / "d.yaml").write_text("evalcases: [{id: 1, expected_outcome: x, input: q, tags: [t]}]\n")
    assert cases(tmp_path / "a" / "d.jsonl").stdout_bytes == cases(tmp_path / "b" / "d.yaml").stdout_bytes


def test_keys_come_in_the_documented_order(tmp_path):
    path = tmp_path / "d.yaml"
    (tmp_path / "w").mkdir()
    path.write_text(
        "evalcases:\n"
        "  - {tags: [t], metadata: {k: v}, description: d, workspace: {template: w}, user: {goal: g},"
        " turns: [{input: q}],"
        " evaluators: [{type: contains, value: a}], execution: {trials: 2}, context: [c], expected_output: r, input: q,"
        " expected_outcome: x, conversation_id: c, id: a}\n"
    )
    order = "id dataset conversation_id expected_outcome input expected_output context execution evaluators turns user"
    assert " ".join(json.loads(cases(path).stdout)) == order + " workspace description metadata tags"


def test_no_case_is_printed_after_an_error(dataset):
    with dataset.open("a") as file:
        file.write("{broken\n")
    result = cases(dataset)
    assert result.stdout == ""
    assert isinstance(result.exception, agentv.DatasetParseError)
    assert result.exception.line == 11


def test_an_error_beyond_the_limit_is_reported(dataset):
    with dataset.open("a") as file:
        file.write("{broken\n")
    result = cases(dataset, "--limit", "2")
    assert result.stdout == ""
    assert isinstance(result.exception, agentv.DatasetParseError)


def test_on_error_skip_skips_invalid_cases_with_a_warning(dataset):
    with dataset.open("a") as file:
        file.write("{broken\n" + ROW % ("last", "q", "t"))
    result = cases(dataset, "--on-error", "skip")
    assert ids(result)[-1] == "last"
    assert "Skipped a case at line 11" in result.stderr


def test_count_prints_only_the_number(dataset):
    assert cases(dataset, "--count", "-q").stdout == "10\n"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--filter", "case-[12]"], ["case-1", "case-2"]),
        (["--tag", "odd", "--limit", "2"], ["case-1", "case-3"]),
        (["-f", "tag=even", "-f", "case-[0-3]"], ["case-0", "case-2"]),
        (["--limit", "1"], ["case-0"]),
    ],
)
def test_options_select_cases(dataset, options, expected):
    assert ids(cases(dataset, "-q", *options)) == expected


def test_a_sample_is_reproducible_and_can_be_a_percentage(dataset):
    sample = ids(cases(dataset, "-q", "--sample", "3", "--seed", "7"))
    assert len(sample) == 3
    assert sample == ids(cases(dataset, "-q", "--sample", "30%", "--seed", "7"))
    assert sample == ids(cases(dataset, "-q", "--sample", "0.3", "--seed", "7"))


def test_shards_partition_the_cases(dataset):
    parts = [ids(cases(dataset, "-q", "--shard", f"{index}/3")) for index in (1, 2, 3)]
    assert sorted(id for part in parts for id in part) == sorted(ids(cases(dataset, "-q")))


@pytest.mark.parametrize("options", [["--sample", "many"], ["--sample", "0"], ["--shard", "3"], ["--shard", "4/3"]])
def test_invalid_options_are_refused(dataset, options):
    assert isinstance(cases(dataset, *options).exception, agentv.UsageError)


def test_quiet_hides_warnings(dataset):
    assert "Sidecar metadata file not found" in cases(dataset).stderr
    assert cases(dataset, "-q").stderr == ""


def test_resolve_includes_the_contents_of_files(tmp_path):
    (tmp_path / "note.md").write_text("hello\r\nthere\n", newline="")
    (tmp_path / "dot.png").write_bytes(b"\x89PNG")
    parts = '[{"type": "file", "value": "note.md"}, {"type": "image", "value": "dot.png"}]'
    path = tmp_path / "d.jsonl"
    path.write_text(f'{{"id": "a", "expected_outcome": "x", "input": [{{"role": "user", "content": {parts}}}]}}\n')
    assert json.loads(cases(path, "--resolve").stdout)["input"][0]["content"] == [
        {"type": "file", "value": "note.md", "text": "hello\nthere\n"},
        {"type": "image", "value": "dot.png", "data": "data:image/png;base64,iVBORw=="},
    ]


def test_a_terminal_gets_a_table(dataset):
    main, child = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "agentv", "cases", str(dataset)], stdout=child, stderr=subprocess.DEVNULL, close_fds=True
    )
    os.close(child)
    shown = b""
    while True:
        try:
            data = os.read(main, 4096)
        except OSError:
            break
        if not data:
            break
        shown += data
    os.close(main)
    assert process.wait(timeout=200) == 0
    assert b"case-3" in shown
    assert b"10 cases" in shown
    assert b"{" not in shown


def test_a_guess_shows_rows_without_an_input_as_such(folder, command):
    (folder.path / "g.csv").write_text("qid,question,answers\n1,What?,a\n2,,b\n")
    ended = command("cases", "g.csv", "--guess")
    assert ended.code == 0 and "(The record has no 'question', which is mapped to the input)" in ended.stdout


@pytest.mark.parametrize(
    ("table", "proposal"),
    [
        ("ticket_text,labels,answer_key\nq,a;b,c\n", "--map tags=labels,input=ticket_text,expected_output=answer_key"),
        ("text,labels\nI love it,positive\n", "--map input=text,expected_output=labels"),
        ("utterance,intent\nbook,reserve\n", "--map input=utterance,expected_output=intent"),
        ("prompt,response\nq,a\n", "--map input=prompt,expected_output=response"),
        ("question,expected_sources,ideal_answer\nq,s,a\n", "--map 'input=question,expected_output=ideal_answer,"),
        ("""question,answers\nq,"{""text"": [""a""]}"\n""", "--map 'input=question,expected_output=answers.text[0],"),
        ("question,must_contain,labels\nq,A,b\n", "--map input=question,contains_all=must_contain,tags=labels"),
        ("userMessage,mustContain\nq,A\n", "--map input=userMessage,contains_all=mustContain"),
        ("question,must_contain\nq,ten days\n", "--map input=question,icontains_all=must_contain"),
        ("premise,hypothesis,label\np,h,no\n", "--map input=premise+hypothesis,expected_output=label"),
        ("question,expect_any\nq,A|B\n", "--map input=question,contains_any=expect_any"),
        ("""question,expect\nq,"[""A""]"\n""", "--map input=question,contains_all=expect"),
        ("task,expect_regex\nWhat is 2 * 2?,(?i)four|4\n", "--map input=task,regex=expect_regex"),
        ("question,expect_tool\nq,find\n", "--map input=question,tools=expect_tool"),
        ("question,expectedAnswer\nq,a\n", "--map input=question,expected_output=expectedAnswer"),
        ("question,expected,gold_sql\nq,5 rows,SELECT 1\n", "--map 'input=question,expected_output=gold_sql,"),
        ("question,expected_output_contains\nq,A\n", "--map input=question,contains_all=expected_output_contains"),
        ("""question,assertions\nq,"[""Is kind""]"\n""", "--map input=question,rubrics=assertions"),
        ("question,answer,history\nq,a,\n", "--map 'input=question,expected_output=answer,metadata.*=*'"),
        ("pergunta,resposta_esperada\nq,a\n", "--map input=pergunta,expected_output=resposta_esperada"),
        ("message_id,question,answer\nm1,q,a\n", "--map id=message_id,input=question,expected_output=answer"),
    ],
)
def test_a_guess_proposes_a_complete_map(folder, command, table, proposal):
    folder.write("t.csv", table)
    assert f"Use it: agentv eval t.csv {proposal}" in command("cases", "t.csv", "--guess").stdout


@pytest.mark.parametrize(
    ("table", "missing"),
    [
        ("utterance,slot\nbook,reserve\n", "the expected answer.\nChoose among: utterance, slot"),
        ("question,response,score\nq,a,1\n", "the expected answer.\nChoose among: question, response, score"),
        ("question,options,key\nq,a;b,a\n", "the input and the expected answer."),
        ("intent,site\nBuy me two red shirts,a\n", "the expected answer.\nChoose among: intent, site"),
        ("question,response,is_accepted\nq,a,1\n", "the expected answer."),
        ("question,expect,forbid\nq,answer,x\n", "the expected answer.\nChoose among: question, expect, forbid"),
        ("input,c,o,d,e\nq,1,2,3,4\n", "the expected answer."),
        ("question,expectedSafety,expectedSkill\nq,none,get\n", "the expected answer."),
        ('question,expected_columns_any\nq,"[""a"", ""b""]"\n', "the expected answer."),
        ("question,answer,run_id,latency_seconds\nq,a,1,2.5\n", "the expected answer.\nChoose among: question, answer"),
        ("question,expected,intent\nq,5\\s*days,fact\nr,very\\s+high,fact\n", "the expected answer."),
        ("question,answer,history\nq,a,user: x\n", "the input.\nChoose among: question, answer, history"),
        ("stages,labels\nq,a\n", "the input and the expected answer."),
        (
            "scenario,eval_criteria\nA close game,Names the margin\n",
            "the input.\nChoose among: scenario, eval_criteria",
        ),
        ("a,b,answer\nx,y,z\n", "the input.\nChoose among: a, b, answer"),
        ("a,b\nx,y\n", "the input and the expected answer."),
    ],
)
def test_a_guess_names_the_field_that_is_missing(folder, command, table, missing):
    folder.write("t.csv", table)
    outcome = command("cases", "t.csv", "--guess")
    assert f"Not recognized: the field with {missing}" in outcome.stdout and "Use it" not in outcome.stdout


def test_a_guess_names_the_fields_that_look_like_checks_and_are_none(folder, command):
    record = '{"prompt": "p", "expected_behavior": ["a b"], "forbidden_behavior": ["c"], "check_id": 1, "expected": ""}'
    folder.write("t.jsonl", record)
    outcome = command("cases", "t.jsonl", "--guess")
    assert "Not checked, but kept as metadata: forbidden_behavior.\n\nUse it" in outcome.stdout
    assert "rubrics=expected_behavior" in outcome.stdout


def test_rubrics_with_points_have_weights_and_those_that_take_points_away_are_refused(folder, command):
    rubrics = [{"criterion": "Says hello", "points": 5}, {"text": "Is short"}, "Is kind"]
    folder.write("t.jsonl", json.dumps({"prompt": "p", "rubrics": rubrics}))
    mapping = ("--map", "input=prompt,rubrics=rubrics")
    (evaluator,) = json.loads(command("cases", "t.jsonl", *mapping).stdout)["evaluators"]
    assert evaluator["rubrics"] == [{"expected_outcome": "Says hello", "weight": 5}, "Is short", "Is kind"]
    folder.write("bad.jsonl", json.dumps({"prompt": "p", "rubrics": [{"criterion": "Is rude", "points": -8}]}))
    assert "'Is rude' takes points away" in command("cases", "bad.jsonl", *mapping).stderr
    folder.write("odd.jsonl", json.dumps({"prompt": "p", "rubrics": [{"points": 8}]}))
    assert "without a text" in command("cases", "odd.jsonl", *mapping).stderr


def test_an_object_of_checks_is_not_an_answer(folder, command):
    folder.write("t.jsonl", '{"query": "Where?", "expected": {"intent": "status", "tool": "get_order"}}')
    outcome = command("cases", "t.jsonl", "--guess")
    assert "Not checked, but kept as metadata: expected." in outcome.stdout
    assert "the field with the expected answer" in outcome.stdout


def test_a_guess_proposes_a_map_for_checks_that_a_known_format_does_not_read(folder, command):
    row = {"input": "q", "expected_tools": ["find"], "must_not_contain": ["x"], "expected_route": "a"}
    folder.write("t.jsonl", json.dumps(row))
    outcome = command("cases", "t.jsonl", "--guess").stdout
    assert outcome.startswith("t.jsonl is read as goldens of DeepEval, without expected_route, must_not_contain.")
    assert "--map 'input=input,not_icontains_any=must_not_contain,tools=expected_tools,metadata.*=*'" in outcome
    folder.write("t.jsonl", json.dumps({**row, "must_not_contain": [{"regex": "x"}]}))
    assert "No map is needed" in command("cases", "t.jsonl", "--guess").stdout


def test_an_answer_that_is_an_object_with_a_target_is_that_target(folder, command):
    folder.write("t.jsonl", '{"prompt": "q", "reward_model": {"ground_truth": {"target": "1 2"}, "style": "rule"}}')
    outcome = command("cases", "t.jsonl", "--guess").stdout
    assert "expected_output=reward_model.ground_truth.target" in outcome and "Not checked" not in outcome


def test_columns_and_lists_of_a_split_are_records(folder, command):
    folder.write("t.json", '{"train": {"prompt": ["p", "r"], "chosen": ["a", "b"], "rejected": ["c", "d"]}}')
    assert "read 2 cases as preference pairs" in command("cases", "t.json").stderr
    folder.write("t.json", '{"test": [{"question": "2+2?", "choices": ["3", "4"], "answer": 1}]}')
    assert "read 1 case as multiple-choice questions" in command("cases", "t.json").stderr
    folder.write("t.json", '{"cases": [{"messages": [{"role": "user", "content": "Hi"}], "expected": "Hello"}]}')
    assert "expected_output=expected" in command("cases", "t.json", "--guess").stdout


def test_an_expected_output_that_is_an_object_of_objects_is_guessed_as_it_is_read(folder, command):
    folder.write("t.json", '[{"input": "q", "expected_output": {"state": {"a": 1}, "mail": {"sent": true}}}]')
    assert "expected_output=expected_output" in command("cases", "t.json", "--guess").stdout
    assert '"content":{"state":{"a":1},"mail":{"sent":true}}' in command("cases", "t.json").stdout


def test_a_guess_names_empty_lists_of_tools(folder, command):
    folder.write("t.json", '[{"question": "q", "expected_tools": ["find"]}, {"question": "r", "expected_tools": []}]')
    outcome = command("cases", "t.json", "--guess")
    assert "Not checked: that no tool is called where expected_tools is an empty list.\n\nUse it" in outcome.stdout


@pytest.mark.parametrize(
    "records",
    [
        '[{"question": "q", "outputs": {"short": {"en": "a"}, "long": {"en": "b"}}}]',
        '[{"question": "q", "grading": {"summary": "a b"}}, {"question": "r", "grading": {"actor": "c"}}]',
    ],
)
def test_objects_and_answers_of_some_records_are_not_answers(folder, command, records):
    folder.write("t.json", records)
    assert "the field with the expected answer" in command("cases", "t.json", "--guess").stdout


def test_arguments_of_tools_in_a_map_are_objects_and_none_are_forbidden(folder, command):
    folder.write("t.json", '[{"q": "a", "t": [{"name": "x", "args": [1]}]}]')
    assert "must be an object" in command("cases", "t.json", "--map", "input=q,tools=t").stderr
    folder.write("t.json", '[{"q": "a", "t": [{"name": "x", "args": {"n": 1}}]}]')
    assert "'not_tools' needs names" in command("cases", "t.json", "--map", "input=q,not_tools=t").stderr


def test_a_record_with_other_names_leads_to_the_guess(folder, command):
    folder.write("t.jsonl", '{"id": "a", "input": "x", "gold": "y"}')
    assert "`agentv cases FILE --guess`" in command("cases", "t.jsonl").stderr
    folder.write("t.jsonl", '{"id": "a", "input": "x"}')
    assert "--guess" not in command("cases", "t.jsonl").stderr


@pytest.mark.parametrize("value", ["3", "true", '{"find": 1}', '[{"name": "find", "status": "ok"}]', '"None"'])
def test_a_guess_takes_only_names_for_tools(folder, command, value):
    folder.write("t.jsonl", f'{{"question": "Where?", "answer": "Here", "expected_tools": {value}}}')
    outcome = command("cases", "t.jsonl", "--guess")
    assert "Not checked, but kept as metadata: expected_tools.\n\nUse it" in outcome.stdout


def test_a_guess_does_not_take_patterns_for_texts(folder, command):
    folder.write("c.yaml", "cases:\n  - {question: Price?, must_include: ['99\\.99', 'no|none']}\n")
    outcome = command("cases", "c.yaml", "--guess")
    assert "Not recognized: the field with the expected answer" in outcome.stdout and "contains" not in outcome.stdout


def test_a_guess_for_a_file_that_cannot_be_read_says_why(folder, command):
    folder.write("c.jsonl", '// A comment\n{"question": "Why?"}\n')
    outcome = command("cases", "c.jsonl", "--guess")
    assert outcome.code == 2 and "Line 1: Invalid JSON - a comment is not JSON" in outcome.stderr


@pytest.mark.parametrize(
    ("record", "proposal"),
    [
        (
            '{"input": "q", "setup": {"facts": ["x"]}, "judge_criteria": "Says yes"}',
            "input=input,expected_outcome=judge_criteria,",
        ),
        (
            '{"id": 1, "ticket": {"subject": "s", "body": "b"}, "expected": "x"}',
            "input=ticket.subject+ticket.body,expected_output=expected",
        ),
        (
            '{"question": "q", "expected_tools": ["find"], "forbid_tools": ["rm"]}',
            "tools=expected_tools,not_tools=forbid_tools",
        ),
        (
            '{"query": "q", "expected_tools": [{"name": "find", "args": {"n": 1}}], "must_not_call": [{"name": "rm"}]}',
            '"expected":[{"tool":"find","args":{"n":1}}]},{"type":"tool_trajectory","mode":"any_order","negate":true',
        ),
        (
            '{"question": "q", "checks": {"must_include": ["A"], "expected_route": "x"}}',
            "Not checked, but kept as metadata: checks.expected_route.",
        ),
        (
            '{"question": "q", "expect": {"forbidden": ["A"], "claim": 7}}',
            "Not checked, but kept as metadata: expect.claim.",
        ),
        (
            '{"input": "q", "expectedSafety": "none", "requiredTerms": ["a"]}',
            "--map 'input=input,icontains_all=requiredTerms,",
        ),
        (
            '{"email_body": "q", "ground_truth": {"rubric": ["Is kind"]}}',
            "input=email_body,rubrics=ground_truth.rubric",
        ),
    ],
)
def test_a_guess_finds_fields_of_nested_objects(folder, command, record, proposal):
    folder.write("c.json", f"[{record}]")
    assert proposal in command("cases", "c.json", "--guess").stdout


def test_records_with_an_input_and_unknown_expectations_need_a_map(folder, command):
    folder.write("c.json", '[{"id": 1, "input": "Refund me", "expected_category": "billing"}]')
    outcome = command("cases", "c.json")
    assert outcome.code == 2 and "--map 'id=id,input=input,expected_output=expected_category'" in outcome.stderr
