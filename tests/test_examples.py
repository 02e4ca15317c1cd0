"""The examples: projects that load, and in which `agentv validate` finds nothing."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from agentv import FilePart, ImagePart, load_cases, stream_cases
from agentv.cli import cli
from agentv.engine.checks.validation import validate

REPOSITORY = Path(__file__).resolve().parent.parent
EXAMPLES = sorted(path for path in (REPOSITORY / "examples").iterdir() if path.is_dir())
SCHEMA_LINE = re.compile(r"# yaml-language-server: \$schema=(?P<path>\S+)\n")

pytestmark = pytest.mark.filterwarnings("ignore::agentv.DatasetWarning")


@pytest.fixture(params=EXAMPLES, ids=lambda path: path.name)
def example(request):
    return request.param


def by_id(name):
    return {case.id: case for case in load_cases(REPOSITORY / "examples" / name)}


def test_validate_finds_nothing(example):
    report = validate([str(example)])
    assert report.findings == []
    assert report.cases > 0


def test_its_cases_load_and_stream_alike(example):
    assert load_cases(example) == list(stream_cases(example))


def test_its_cases_can_be_printed_with_the_contents_of_their_files(example):
    done = CliRunner().invoke(cli, ["cases", str(example), "--resolve", "--quiet"])
    assert done.exit_code == 0, done.output
    assert len(done.stdout.splitlines()) == len(load_cases(example))


def test_its_readme_names_every_file(example):
    readme = (example / "README.md").read_text(encoding="utf-8")
    others = [path for path in example.rglob("*") if path.is_file() and path.name != "README.md"]
    others = [path for path in others if not {"__pycache__", "results", "cache"} & set(path.parts)]
    assert [path.name for path in others if f"({path.relative_to(example).as_posix()})" not in readme] == []


def test_the_schemas_that_its_files_name_are_there(example):
    for path in example.rglob("*.yaml"):
        for line in SCHEMA_LINE.finditer(path.read_text(encoding="utf-8")):
            assert (path.parent / line["path"]).is_file(), f"{path} names {line['path']}"


def test_the_files_example_has_every_kind_of_part():
    parts = [part for case in by_id("files").values() for message in case.input for part in message.parts]
    assert {type(part) for part in parts} >= {FilePart, ImagePart}
    assert all(part.digest for part in parts if isinstance(part, FilePart | ImagePart))


def test_the_agentmark_example_scores_rows_with_a_reference_only():
    scored = {bool(case.expected_output): bool(case.evaluators) for case in by_id("agentmark").values()}
    assert scored == {True: True, False: False}


def test_the_4x_example_reads_its_words_as_ours():
    cases = by_id("agentv-4x")
    assert cases["says-hello"].expected_outcome == "Greets the user back"
    assert [spec.type for spec in cases["says-hello"].evaluators] == ["llm_judge", "rubric", "icontains"]
    assert [spec.type for spec in cases["knows-the-capital"].evaluators] == ["llm_judge"]
    assert cases["answers-in-json"].evaluators[1].required is True
