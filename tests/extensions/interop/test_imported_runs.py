"""Results of other tools as runs: hostile and huge files, the cache of imports, `runs import` and `runs export`."""

import json
import os
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from agentv.errors import AgentvError
from agentv.extensions.interop.imports import json_stream
from agentv.extensions.interop.imports.json_stream import JsonProblem, decode_json, json_parts
from agentv.extensions.interop.results import inspect_logs
from agentv.runs.store import RunStore
from agentv.support.json_keys import top_level

HEADER = {"version": 2, "status": "success", "eval": {"run_id": "R", "task": "t", "dataset": {}, "model": "m"}}


def sample(number=1, **known):
    output = {"completion": known.pop("answer", "x")}
    return {
        "id": number,
        "epoch": 1,
        "input": "q",
        "target": "x",
        "output": output,
        "scores": {"ok": {"value": "C"}},
        **known,
    }


def log(path, samples, header=HEADER, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("header.json", json.dumps(header))
        for name, content in samples.items():
            archive.writestr(name, content if isinstance(content, str | bytes) else json.dumps(content))
    return path


def refusal(path):
    with pytest.raises(AgentvError) as raised:
        list(RunStore.open(path).records())
    return str(raised.value)


def test_an_archive_that_unpacks_to_a_bomb_is_refused(tmp_path):
    path = log(tmp_path / "bomb.eval", {"samples/1_epoch_1.json": b" " * (40 * 2**20)})
    assert "unpacks to 40 MB, more than 300 times its size" in refusal(path)


def test_an_archive_with_too_many_members_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(inspect_logs, "MAX_MEMBERS", 3)
    path = log(tmp_path / "many.eval", {f"samples/{n}_epoch_1.json": sample(n) for n in range(4)})
    assert "has 5 members; at most 3 are read" in refusal(path)


def test_a_sample_that_is_too_large_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(inspect_logs, "MAX_VALUE_BYTES", 1000)
    path = log(tmp_path / "large.eval", {"samples/1_epoch_1.json": sample(answer="x" * 2000)})
    assert "samples/1_epoch_1.json is larger than" in refusal(path)


def test_paths_in_an_archive_write_nothing(tmp_path):
    members = {"../../outside.json": "{}", "/etc/x.json": "{}", "samples/../1_epoch_1.json": sample()}
    path = log(tmp_path / "in" / "paths.eval", members) if os.makedirs(tmp_path / "in") is None else None
    assert [record.eval_id for record in RunStore.open(path).records()] == ["1"]
    assert sorted(os.listdir(tmp_path)) == ["in"] and os.listdir(tmp_path / "in") == ["paths.eval"]


@pytest.mark.parametrize("damage", [b"\x00\x01", b'{"id": 1', b"\xff\xfe{}", b"[1]", b"null", b'{"id": {"a": ' * 3000])
def test_a_damaged_sample_is_named(tmp_path, damage):
    path = log(tmp_path / "damaged.eval", {"samples/1_epoch_1.json": sample(), "samples/2_epoch_1.json": damage})
    assert "samples/2_epoch_1.json" in refusal(path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 9\n", "It is a Git LFS pointer"),
        (b"", "The file is empty"),
        (b"PK\x03\x04 and no more", "damaged or was cut off"),
        (b'{"version": 2', "was cut off"),
    ],
)
def test_a_file_that_is_no_log_is_refused_with_the_reason(tmp_path, content, reason):
    (tmp_path / "log.eval").write_bytes(content)
    assert reason in refusal(tmp_path / "log.eval")


def test_a_changed_byte_in_an_archive_is_noticed(tmp_path):
    path = log(tmp_path / "flipped.eval", {"samples/1_epoch_1.json": sample(answer=os.urandom(3000).hex())})
    data = bytearray(path.read_bytes())
    data[600] ^= 0xFF
    path.write_bytes(data)
    assert "damaged" in refusal(path)


def test_a_sample_that_was_written_twice_counts_once(tmp_path):
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(tmp_path / "twice.eval", "w") as archive:
        archive.writestr("header.json", json.dumps(HEADER))
        for answer in ("first", "second"):
            archive.writestr("samples/1_epoch_1.json", json.dumps(sample(answer=answer)))
    assert [record.candidate_answer for record in RunStore.open(tmp_path / "twice.eval").records()] == ["second"]


def test_an_archive_compressed_with_zstandard_is_read(tmp_path):
    zstd = pytest.importorskip("backports.zstd.zipfile")
    with zstd.ZipFile(tmp_path / "log.eval", "w", zstd.ZIP_ZSTANDARD) as archive:
        archive.writestr("header.json", json.dumps(HEADER))
        archive.writestr("samples/1_epoch_1.json", json.dumps(sample()))
    assert [record.score for record in RunStore.open(tmp_path / "log.eval").records()] == [1.0]


def test_memory_does_not_grow_with_the_log(tmp_path):
    texts = {f"samples/{n}_epoch_1.json": sample(n, events=[os.urandom(200_000).hex()]) for n in range(40)}
    path = log(tmp_path / "long.eval", texts, compression=zipfile.ZIP_STORED)
    del texts
    tracemalloc.start()
    assert sum(1 for _ in RunStore.open(path).records()) == 40
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert path.stat().st_size > 15 * 2**20 > 2 * peak


@pytest.mark.parametrize("chunk", [1, 2, 7, 1000])
def test_a_document_is_read_in_pieces_of_any_size(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(json_stream, "_CHUNK", chunk)
    value = {"a": [{"x": '"\\]}{[ é'}, 1.5, [], "\\"], "b": {"c": {"d": [1, {"e": None}]}}, "f": True, "": "end\\\\"}
    path = tmp_path / "a.json"
    path.write_text("\ufeff \n" + json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    with path.open("rb") as stream:
        found = [(keys, decode_json(data)) for keys, data in json_parts(stream, {(), ("a",), ("b",)})]
    items = [(("a",), item) for item in value["a"]]
    assert found == [*items, (("b", "c"), value["b"]["c"]), (("f",), True), (("",), "end\\\\")]


@pytest.mark.parametrize(
    "text", ['{"a": [1, 2', '{"a" 1}', '{"a": 1,}', "{1: 2}", '{"a": 1} x', '{"a": [1 2]}', "", '{"a']
)
def test_invalid_documents_are_reported_with_a_position(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text)
    with path.open("rb") as stream, pytest.raises(JsonProblem, match="at byte"):
        list(json_parts(stream, {(), ("a",)}))


def test_a_value_above_the_limit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(json_stream, "MAX_VALUE_BYTES", 10_000)
    monkeypatch.setattr(json_stream, "_CHUNK", 1000)
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"a": ["x" * 50_000]}))
    with path.open("rb") as stream, pytest.raises(JsonProblem, match="one value of 'a' is larger than"):
        list(json_parts(stream, {(), ("a",)}))


def test_keys_are_found_in_the_start_of_a_document():
    found = top_level(
        b'\xef\xbb\xbf {"version": 2, "eval": {"version": "inner"}, "text": "\\"status\\": 1", "cut": [1, {"de'
    )
    assert list(found) == ["version", "eval", "text", "cut"] and found["version"].startswith(b"2")


def test_a_file_is_imported_once_and_again_after_a_change(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = log(tmp_path / "log.eval", {"samples/1_epoch_1.json": sample(answer="a")})
    folders = [RunStore.open(path).folder.path for _ in range(2)]
    assert folders[0] == folders[1] and oct(folders[0].stat().st_mode)[-3:] == "700"
    log(path, {"samples/1_epoch_1.json": sample(answer="b")})
    assert [record.candidate_answer for record in RunStore.open(path).records()] == ["b"]


def test_without_a_cache_a_temporary_folder_is_used(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    path = log(tmp_path / "log.eval", {"samples/1_epoch_1.json": sample()})
    assert [record.score for record in RunStore.open(path).records()] == [1.0]


def test_a_failed_import_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    refusal(log(tmp_path / "bad.eval", {"samples/1_epoch_1.json": sample(), "samples/2_epoch_1.json": b"{"}))
    assert os.listdir(tmp_path / "cache" / "agentv" / "imports") == []


def test_import_keeps_a_run_without_secrets(folder, command, monkeypatch):
    monkeypatch.setenv("SERVICE_API_KEY", "k3y-0123456789abcdef")
    os.makedirs(".agentv")
    log(Path("log.eval"), {"samples/1_epoch_1.json": sample(answer="use k3y-0123456789abcdef")})
    done = command("runs", "import", "log.eval")
    assert done.code == 0 and "an Inspect log, 1 case, 1 result" in done.stdout
    os.unlink("log.eval")
    (entry,) = command("runs", "--json").printed
    assert entry["done"] == 1 and command("report", "latest", "--quiet").code == 0
    texts = [file.read_text() for file in Path(entry["path"]).iterdir() if file.is_file()]
    assert not any("k3y-0123456789abcdef" in text for text in texts)


def test_import_refuses_files_that_are_runs_already(folder, command):
    folder.write("rows.jsonl", [{"test_id": "a", "score": 1}])
    done = command("runs", "import", "rows.jsonl")
    assert done.code == 2 and "need not be imported" in done.stderr


def test_runs_in_a_folder_lists_results_of_other_tools(folder, command):
    log(Path("b.eval"), {"samples/1_epoch_1.json": sample()})
    folder.write("package.json", {"name": "x"})
    (entry,) = command("runs", "--in", ".", "--json").printed
    assert (entry["path"], entry["state"], entry["done"]) == ("b.eval", "foreign", 1)


def test_an_exported_run_has_the_same_scores_and_errors(folder, command):
    error = {"message": "timed out"}
    members = {
        "samples/1_epoch_1.json": sample(1),
        "samples/2_epoch_1.json": sample(2, input="r", scores={"ok": {"value": 0.25}}),
        "samples/3_epoch_1.json": sample(3, input="s", scores={}, error=error),
        "samples/4_epoch_1.json": sample(4, input="t", scores={}),
    }
    log(Path("log.eval"), members)
    done = command("runs", "export", "log.eval", "--out", "shared")
    assert "1 unscored result of m not written" in done.stderr
    (totals,) = Path("shared").glob("*.json")
    first, second = (RunStore.open(path) for path in ("log.eval", totals))
    kept = [(record.eval_id, record.score, record.status) for record in first.records() if record.status != "unscored"]
    assert [(record.eval_id, record.score, record.status) for record in second.records()] == kept
    score = json.loads(totals.read_text())["evaluation_results"][0]
    assert score["score_details"]["score"] == 0.625 and score["score_details"]["details"]["errors"] == "1"
    assert command("runs", "export", "log.eval", "--out", "shared").code == 2


def deepeval_run(path, *outputs, expected="2"):
    """Write a test run of DeepEval, whose runs have no id."""
    metrics = [{"name": "Correct", "score": float(text == expected), "success": text == expected} for text in outputs]
    rows = [
        {"name": f"q{number}", "input": f"q {number}", "actualOutput": text, "metricsData": [metric]}
        for number, (text, metric) in enumerate(zip(outputs, metrics, strict=True))
    ]
    path.write_text(json.dumps({"testRunData": {"testCases": rows}}))


def promptfoo(path, *answers, template="{{text}}"):
    """Write results of promptfoo with variables in the prompt."""
    rows = [
        {
            "success": True,
            "score": 1,
            "vars": {"text": f"q {number}"},
            "testCase": {"vars": {"text": f"q {number}"}, "description": f"q{number}"},
            "prompt": {"raw": template.replace("{{text}}", f"q {number}"), "label": template},
            "provider": {"id": "m"},
            "response": {"output": text},
            "gradingResult": {"componentResults": [{"pass": True, "score": 1, "assertion": {"type": "equals"}}]},
        }
        for number, text in enumerate(answers)
    ]
    prompts = [{"raw": template, "label": template, "provider": "m"}]
    path.write_text(json.dumps({"evalId": "e", "results": {"prompts": prompts, "results": rows}, "config": {}}))


def test_other_answers_are_not_taken_for_the_same_because_a_tool_has_no_run_ids(folder, command):
    deepeval_run(Path("a.json"), "2", "?")
    deepeval_run(Path("b.json"), "?", "2")
    assert "same answers" not in command("compare", "a.json", "b.json").stdout
    for name in ("a", "b"):
        command("rescore", f"{name}.json", "-e", "{type: contains, value: '2'}", "--out", name)
    assert "same answers" not in command("compare", "a", "b").stdout
    assert "Both runs have the same answers" in command("compare", "a.json", "a").stdout


def test_variables_do_not_make_the_same_rendered_prompt_another_question(folder, command):
    promptfoo(Path("p.json"), "2", "?")
    deepeval_run(Path("d.json"), "2", "?")
    log(Path("i.eval"), {f"samples/{n}_epoch_1.json": sample(f"q{n}", input=f"q {n}", target="2") for n in (0, 1)})
    for other in ("d.json", "i.eval"):
        data = command("compare", "p.json", other, "--json").printed[0]
        assert (data["summary"]["matched"], data["other_inputs"]) == (2, [])


def test_the_same_variables_in_another_prompt_are_the_same_question(folder, command):
    promptfoo(Path("a.json"), "2", "?")
    promptfoo(Path("b.json"), "2", "?", template="Add: {{text}}")
    data = command("compare", "a.json", "b.json", "--json").printed[0]
    assert (data["summary"]["matched"], data["summary"]["measure_changed"]) == (2, False)


AGENTV_ROWS = [{"test_id": f"q{number}", "score": 0, "answer": "2", "target": "m"} for number in (0, 1)]


@pytest.mark.parametrize("other", ["p.json", "d.json", "ours"])
def test_results_of_different_tools_get_no_verdict(folder, command, other):
    promptfoo(Path("p.json"), "2", "?")
    deepeval_run(Path("d.json"), "2", "?")
    folder.write("rows.jsonl", AGENTV_ROWS)
    command("rescore", "p.json", "-e", "{type: contains, value: '2'}", "--out", "ours")
    for pair in (("rows.jsonl", other), (other, "rows.jsonl")):
        done = command("compare", *pair)
        assert done.code == 5 and done.stdout.startswith("The measure changed: A is ")
        assert "a results file of AgentV (TypeScript)" in done.stdout and "agentv rescore" in done.stdout


def test_two_results_of_agentv_typescript_are_compared(folder, command):
    folder.write("a.jsonl", AGENTV_ROWS)
    folder.write("b.jsonl", [{**row, "score": 1} for row in AGENTV_ROWS])
    assert not command("compare", "a.jsonl", "b.jsonl", "--json").printed[0]["summary"]["measure_changed"]


def test_answers_are_rescored_by_id_and_input_if_the_tool_stores_no_dataset_name(folder, command):
    deepeval_run(Path("d.json"), "2", "?", "2")
    checks = [{"type": "contains", "value": "2"}]
    tests = [{"id": f"q{number}", "input": f"q {number}", "assertions": checks} for number in (0, 1)]
    folder.write("mine.yaml", {"tests": [*tests, {"id": "q2", "input": "another", "assertions": checks}]})
    assert command("rescore", "d.json", "mine.yaml", "--out", "again").code == 0
    records = sorted(RunStore.open("again").records(), key=lambda record: record.eval_id)
    assert [(record.dataset, record.score) for record in records] == [("mine", 1.0), ("mine", 0.0), ("mine", None)]
    assert "input changed" in records[2].error.message


def test_a_hint_for_ids_that_another_tool_made_up(folder, command):
    deepeval_run(Path("d.json"), "2")
    folder.write("mine.yaml", {"tests": [{"id": "other", "input": "q 0", "expected_output": "2"}]})
    done = command("rescore", "d.json", "mine.yaml", "--out", "again")
    assert done.code == 2 and "agentv rescore d.json --evaluator TYPE" in done.stderr


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("empty.json", "The file is empty"),
        ("empty.eval", "The file is empty"),
        ("nowhere.json", "There is no such file"),
        ("folder", "It contains results: folder/d.json"),
    ],
)
def test_a_path_that_is_not_a_run_says_why(folder, command, name, message):
    for file in ("empty.json", "empty.eval"):
        folder.write(file, "")
    Path("folder").mkdir()
    deepeval_run(Path("folder/d.json"), "2")
    done = command("report", name)
    assert done.code == 2 and message in done.stderr


def test_answers_of_another_tool_are_rescored(folder, command):
    log(Path("log.eval"), {"samples/1_epoch_1.json": sample(answer="yes")})
    refused = command("rescore", "log.eval", "--out", "again")
    assert refused.code == 2 and "cannot run here" in refused.stderr and "--evaluator TYPE" in refused.stderr
    done = command("rescore", "log.eval", "-e", "{type: contains, value: no}", "--out", "again")
    assert done.code == 0 and [record.score for record in RunStore.open("again").records()] == [0.0]
    resumed = command("eval", "--resume", "--out", "again")
    assert resumed.code == 2
