"""Files made to exhaust memory, read other files or run code are refused, and nothing is executed."""

import gzip
import io
import os
import zipfile

import pytest

import agentv
from late import Late
from spreadsheet_files import cell_of, write_ods, write_xlsx

pyarrow, parquet, zstd = Late("pyarrow"), Late("pyarrow.parquet"), Late("backports.zstd")
LENGTH = 70_000_000


def blank(head=b""):
    return head.ljust(LENGTH)


def sheet_bomb():
    """Return a spreadsheet of a few kilobytes that unpacks to 70 MB."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", blank(b"<c>"))
    return stream.getvalue()


def far_cell(write, rows):
    """Return a spreadsheet of 1 KB whose rows reach the last cell of the sheet."""
    stream = io.BytesIO()
    write(stream, rows)
    return stream.getvalue()


FAR_XLSX = f"<row>{cell_of('input')}</row><row>{cell_of('x', 'XFD1048576')}</row>"
ODS_CELL = '<table:table-cell office:value-type="string"{}><text:p>input</text:p></table:table-cell>'
FAR_ODS = f"<table:table-row>{ODS_CELL.format('')}</table:table-row>"
FAR_ODS += '<table:table-row table:number-rows-repeated="1048575">'
FAR_ODS += ODS_CELL.format(' table:number-columns-repeated="16384"') + "</table:table-row>"


def parquet_bomb(text, rows):
    """Return a Parquet file in which a long text is stored once and occurs in every row."""
    stream = io.BytesIO()
    column = pyarrow.DictionaryArray.from_arrays([0] * rows, [text])
    parquet.write_table(pyarrow.table({"input": column}), stream, compression="zstd", store_schema=False)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("bomb.xlsx", sheet_bomb, "unpacks to"),
        ("far.xlsx", lambda: far_cell(write_xlsx, FAR_XLSX), "needs more than 2048 MiB of memory"),
        ("far.ods", lambda: far_cell(write_ods, FAR_ODS), "Cannot read far.ods"),
        ("bomb.parquet", lambda: parquet_bomb("x" * 20_000_000, 1), "unpacks to"),
        ("rows.parquet", lambda: parquet_bomb("x" * 4_000_000, 70), "Rows are too large"),
        ("bomb.jsonl.gz", lambda: gzip.compress(blank(), 1), "the line is longer than"),
        ("bomb.jsonl.zst", lambda: zstd.compress(blank()), "the line is longer than"),
        ("bomb.csv.gz", lambda: gzip.compress(blank(b"input\n"), 1), "too long"),
        ("archive.jsonl", lambda: b"PK\x03\x04" + b"\0" * 60, "ZIP archive"),
        ("task.yaml", lambda: b"task: t\ndoc_to_text: !function os.system\ndataset_path: json\n", "!function"),
        ("object.yaml", lambda: b"evalcases: !!python/object/apply:os.system ['touch executed']\n", "tag"),
        ("cycle.yaml", lambda: b"evalcases: &a [*a]\n", ""),
    ],
)
def test_a_hostile_file_is_refused(folder, file, content, reason):
    assert reason in str(folder.error(folder.write(file, content())))
    assert os.listdir(folder.path) == [file]


OUTSIDE = "../outside/secret.txt"


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("evals.json", f'{{"skill_name": "x", "evals": [{{"id": 1, "prompt": "p", "files": ["{OUTSIDE}"]}}]}}'),
        ("eval.yaml", f"stimuli: [{{name: a, prompt: p, environment: {{files: [{{src: {OUTSIDE}, dest: a}}]}}}}]"),
        ("eval.yaml", "stimuli: [{name: a, prompt: p, environment: {files: [{src: link.txt, dest: a}]}}]"),
        ("task.yaml", f"task: t\ndataset_path: json\ndataset_kwargs: {{data_files: {OUTSIDE}}}\n"),
        ("eval.yaml", "skill: x\ntasks: [../outside/*.txt]\n"),
        ("cases.yaml", f"evalcases: [{{id: a, expected_outcome: b, input: [{{type: file, value: {OUTSIDE}}}]}}]"),
    ],
)
def test_a_path_out_of_the_project_is_refused(folder, monkeypatch, file, content):
    folder.write("outside/secret.txt", "prompt: top secret\n")
    folder.write("project/.git/HEAD", "")
    (folder.path / "project/link.txt").symlink_to(folder.path / "outside/secret.txt")
    folder.write(f"project/{file}", content)
    monkeypatch.chdir(folder.path / "project")
    with pytest.raises(agentv.AgentvError) as refused:
        agentv.load_cases(file)
    assert "top secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("registry/data/x/samples.jsonl", '{"input": "a", "ideal": "b"}', "few-shot examples"),
        ("task/task.toml", '[[steps]]\nname = "../../../outside"\n', "is outside the folder of the task"),
        ("linked/task.toml", "version = '1.0'\n", "is outside the folder of the task"),
    ],
)
def test_a_file_that_another_tool_would_read_is_not_read_out_of_the_project(folder, monkeypatch, file, content, reason):
    folder.write("outside/instruction.md", '{"sample": [{"role": "user", "content": "top secret"}]}\n')
    folder.write("project/.git/HEAD", "")
    settings = {
        "samples_jsonl": "x/samples.jsonl",
        "num_few_shot": 1,
        "few_shot_jsonl": "../../../outside/instruction.md",
    }
    entry = {"x.dev.v0": {"class": "evals.elsuite.basic.match:Match", "args": settings}}
    folder.write("project/registry/evals/x.yaml", entry)
    folder.write("project/task/instruction.md", "Do it\n")
    folder.write(f"project/{file}", content)
    if file == "linked/task.toml":
        (folder.path / "project/linked/instruction.md").symlink_to(folder.path / "outside/instruction.md")
    monkeypatch.chdir(folder.path / "project")
    with pytest.raises(agentv.AgentvError) as refused:
        agentv.load_cases(file)
    assert reason in str(refused.value) and "top secret" not in str(refused.value)


def test_a_formula_is_text(folder):
    folder.write("rows.csv", "input,expected_output\n=HYPERLINK(1),\"=cmd|' /C calc'!A0\"\n")
    (case,) = agentv.load_cases(folder.path / "rows.csv")
    assert (case.input[0].content, case.expected_output[0].content) == ("=HYPERLINK(1)", "=cmd|' /C calc'!A0")
