"""`agentv report`: formats by option and by extension, to files and to stdout."""

import json
from pathlib import Path

import pytest


@pytest.fixture
def run(folder, command):
    folder.write(".agentv/targets.yaml", {"targets": [{"name": "echo", "provider": "mock"}]})
    inputs = {"good": "an a", "bad": "other"}
    cases = [{"id": name, "expected_outcome": "x", "input": text} for name, text in inputs.items()]
    folder.write("cases.yaml", {"evaluators": [{"type": "contains", "value": "a"}], "evalcases": cases})
    assert command("eval", "cases.yaml", "--out", "run", "--quiet").code == 0
    return folder


def test_report_without_a_format_prints_the_summary(run, command):
    ended = command("report", "run")
    assert ended.code == 0
    assert "echo    0.500" in ended.stdout and "Results: run" in ended.stdout


def test_failures_are_grouped_in_every_report_for_people(run, command):
    shown = "Failure groups: 1 of 2 results did not pass\n  1  contains, wording like “does not contain 'a'”: bad"
    assert shown in command("report", "run").stdout
    (group,) = json.loads(command("report", "run", "--json").stdout)["failures"]["groups"]
    assert (group["cause"], group["count"], group["examples"]) == ("contains", 1, ["bad"])


@pytest.mark.parametrize(
    ("option", "start"), [("--junit", "<?xml"), ("--markdown", "## Run"), ("--csv", "run_id,timestamp")]
)
def test_one_text_format_goes_to_stdout(run, command, option, start):
    ended = command("report", "run", option)
    assert ended.stdout.startswith(start)
    assert ended.stderr == ""


def test_html_is_written_to_the_run_folder(run, command):
    ended = command("report", "run", "--html")
    assert (ended.stdout, ended.stderr) == ("", "Wrote run/report.html\n")
    assert Path("run/report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_several_formats_are_written_to_files(run, command):
    command("report", "run", "--html", "--junit", "--quiet")
    assert Path("run/report.html").is_file() and Path("run/junit.xml").is_file()


def test_files_are_written_in_the_format_of_their_extension(run, command):
    ended = command("report", "run", "page.html", "tests.xml", "table.csv")
    assert ended.code == 0
    assert Path("tests.xml").read_text().startswith("<?xml")
    assert ended.stderr.count("Wrote ") == 3


def test_a_format_option_can_be_followed_by_its_file(run, command):
    assert command("report", "run", "--html", "a.html", "--junit", "b.xml").code == 0
    assert Path("a.html").is_file() and Path("b.xml").is_file()


def test_out_is_a_file_or_a_folder(run, command):
    assert command("report", "run", "--junit", "--out", "results.txt").code == 0
    assert Path("results.txt").read_text().startswith("<?xml")
    assert command("report", "run", "--markdown", "--csv", "--out", "reports").code == 0
    assert sorted(path.name for path in Path("reports").iterdir()) == ["report.md", "results.csv"]


def test_a_dash_is_stdout(run, command):
    assert command("report", "run", "--html", "--out", "-").stdout.startswith("<!doctype html>")
    assert not Path("-").exists()


def test_two_files_of_one_format_are_both_written(run, command):
    assert command("report", "run", "a.md", "b.md").code == 0
    assert Path("a.md").read_text() == Path("b.md").read_text()


def test_a_run_is_found_by_its_id(run, command):
    command("eval", "cases.yaml", "--quiet")
    [folder] = Path(".agentv/results").iterdir()
    assert command("report", folder.name, "--markdown").stdout.startswith(f"## Run `{folder.name}`")


def test_json_has_the_figures(run, command):
    [data] = command("report", "run", "--json").printed
    assert data["summary"]["targets"]["echo"]["mean"] == 0.5
    assert data["details"]["echo"]["passed"] == 1


def test_github_writes_the_step_summary(run, command, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "step.md")
    ended = command("report", "run", "--github")
    assert ended.stdout.startswith("::error file=cases.yaml,line=1,title=bad (echo)::score 0.000")
    assert Path("step.md").read_text().startswith("## Run ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing", "--html"), "No such run: nothing"),
        (("run", "report.pdf"), "Cannot write a report to report.pdf"),
        (("run", "no/where.html"), "Folder no does not exist"),
        ((), "Missing argument 'RUN'"),
    ],
)
def test_usage_errors_exit_with_2(run, command, arguments, message):
    ended = command("report", *arguments)
    assert ended.code == 2
    assert message in ended.stderr


def test_a_run_without_results_is_reported(run, command):
    Path("run/results.jsonl").write_text("")
    assert command("report", "run", "--html", "--junit", "--markdown", "--csv").code == 0
    assert json.loads(command("report", "run", "--json").stdout)["done"] == 0


def test_control_characters_are_escaped_on_a_terminal(run, command):
    row = json.loads(Path("run/results.jsonl").read_text().splitlines()[0])
    nasty = "\x1b[2J\x1b]0;owned\x07 \u202egnp \ud83d".encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    row |= {"eval_id": nasty, "target": nasty, "verdict": "fail", "score": 0.0, "misses": [nasty], "run_id": nasty}
    Path("nasty.jsonl").write_text(json.dumps(row) + "\n")
    for arguments in (
        ("report", "nasty.jsonl"),
        ("report", "nasty.jsonl", "--markdown"),
        ("report", "nasty.jsonl", "--github"),
    ):
        ended = command(*arguments)
        assert ended.code == 0
        assert "\x1b" not in ended.stdout + ended.stderr and "\u202e" not in ended.stdout
        assert "\\x1b[2J" in ended.stdout
