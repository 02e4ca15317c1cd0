"""The contract of every report format in the registry."""

import io
import json
from pathlib import Path

import pytest

from agentv.errors import UsageError
from agentv.registry import REPORTS
from agentv.report.formats import ReportFormat, format_of, report_format, write_report
from agentv.runs.store import RunStore

NAMES = REPORTS.names()
ROWS = Path(__file__).parents[1] / "data/results/agentv_rows.jsonl"


@pytest.fixture
def results(folder):
    """Records in another tool's format, with various kinds of text."""
    lines = map(json.loads, ROWS.read_text(encoding="utf-8").splitlines())
    folder.write("index.jsonl", [data["row"] for data in lines if "refused" not in data])
    return RunStore.open("index.jsonl")


@pytest.mark.parametrize("name", NAMES)
def test_a_format_declares_its_properties(name):
    found = report_format(name)
    assert isinstance(found, ReportFormat)
    assert found.help.endswith(".")
    assert all(extension.startswith(".") and extension == extension.lower() for extension in found.extensions)
    assert format_of(found.file_name) == name


def test_an_extension_belongs_to_one_format():
    extensions = [extension for name in NAMES for extension in report_format(name).extensions]
    assert len(set(extensions)) == len(extensions)


@pytest.mark.parametrize("name", NAMES)
def test_the_stream_stays_open_and_the_bytes_are_the_same_each_time(name, results):
    figures = results.figures()
    streams = [io.BytesIO(), io.BytesIO()]
    for stream in streams:
        report_format(name).write(results, figures, stream)
    first, second = (stream.getvalue() for stream in streams)
    assert first
    assert first == second
    if report_format(name).is_text:
        assert first.decode("utf-8").endswith("\n")


@pytest.mark.parametrize("name", NAMES)
def test_the_command_has_an_option_for_it_and_knows_its_extension(name, results, command):
    extension = report_format(name).extensions[-1]
    assert command("report", "index.jsonl", f"--{name}", "--out", "by-option.bin").code == 0
    assert command("report", "index.jsonl", f"by-extension{extension.upper()}").code == 0
    assert Path("by-option.bin").read_bytes() == Path(f"by-extension{extension.upper()}").read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_a_run_without_results_is_reported_too(name, folder):
    folder.write("empty.jsonl", "")
    run = RunStore.open("empty.jsonl")
    write_report(name, run, run.figures(), "report")
    assert Path("report").stat().st_size


def test_an_unknown_extension_lists_the_known_ones():
    with pytest.raises(UsageError, match=r"Cannot write a report to report\.pdf") as caught:
        format_of("report.pdf")
    assert ".parquet" in caught.value.hint
