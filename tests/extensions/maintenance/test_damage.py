"""Damaged run folders: no command crashes, `runs check` finds the damage, and `runs repair` keeps what is whole."""

import json
import os
import random
import re
import shutil

import pytest
from run_project import jobs_of

from agentv.registry import EXTENSIONS
from agentv.runs.folder import RunFolder

FILES = ("run.json", "cases.jsonl", "results.jsonl", "summary.json")
SEEDS = int(os.environ.get("AGENTV_DAMAGE_SEEDS", "2"))
COMMANDS = (
    ("report", "hurt", "r.html"),
    ("report", "hurt", "r.csv"),
    ("compare", "out", "hurt"),
    ("compare", "hurt", "out"),
    ("rescore", "hurt", "--out", "again", "--quiet"),
    ("rescore", "hurt", "--stored-cases", "--out", "stored", "--quiet"),
    ("runs", "--in", "."),
    ("runs", "trend", "--in", "."),
    ("eval", "--resume", "--out", "hurt", "--quiet"),
    ("eval", "d.yaml", "--changed-since", "hurt", "--out", "changed", "--quiet"),
    *([("judge", "label", "hurt", "--dry-run")] if "judge" in EXTENSIONS else ()),
)
CODES = {"report": (0, 2), "compare": (0, 2, 5), "rescore": (0, 2), "runs": (0, 2), "eval": (0, 2), "judge": (0, 2)}
"""Damage is found (2) or does not matter; a comparison may also refuse a verdict (5)."""


def flip(data, chance):
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]


def truncate(data, chance):
    return data[: chance.randrange(len(data))]


def insert(data, chance):
    at = chance.randrange(len(data))
    return data[:at] + chance.choice((b"\n", b"\0" * 40, b"garbage\n", b"\xff\xfe", b'{"a": 1}\n', b"[]\n")) + data[at:]


def zero(data, chance):
    at = chance.randrange(len(data))
    return data[:at] + bytes(len(data[at : at + 64])) + data[at + 64 :]


def delete_line(data, chance):
    lines = data.splitlines(keepends=True)
    del lines[chance.randrange(len(lines))]
    return b"".join(lines)


def repeat_line(data, chance):
    lines = data.splitlines(keepends=True)
    lines.insert(chance.randrange(len(lines)), chance.choice(lines))
    return b"".join(lines)


DAMAGES = (flip, truncate, insert, zero, delete_line, repeat_line)


@pytest.fixture
def intact(project):
    """A project with a finished run of 12 jobs in `out`."""
    project.write("facts.md", "yes, facts")
    project.write("reply.py", "def reply(prompt):\n    return prompt\n")
    project.targets({"name": "default", "provider": "python", "function": "reply.py:reply"})
    files = [{"role": "user", "content": [{"type": "file", "value": "facts.md"}]}]
    project.dataset(
        "yes", "no", "yes é", {"input": files}, "yes", {"input": "yes", "tags": ["a"]}, execution={"trials": 2}
    )
    assert project.eval("--out", "out", "--quiet").code == 0
    return project


def same_content(before, after):
    """Whether two files mean the same: damage to the white space of a JSON document does not matter."""
    try:
        return json.loads(before) == json.loads(after)
    except ValueError:
        return before == after


@pytest.mark.every(5)
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_no_command_crashes_on_a_damaged_run_and_check_finds_it(intact, name, damage, seed):
    project = intact
    chance = random.Random(f"{name} {damage.__name__} {seed}")
    shutil.copytree(project.path / "out", project.path / "hurt")
    path = project.path / "hurt" / name
    before = path.read_bytes()
    path.write_bytes(damage(before, chance))
    is_found = project.command("runs", "check", "hurt").code in (1, 2)
    assert is_found or same_content(before, path.read_bytes())
    for arguments in COMMANDS if seed >= 2 else chance.sample(COMMANDS, 3):
        shutil.rmtree(project.path / "copy", ignore_errors=True)
        shutil.copytree(project.path / "hurt", project.path / "copy")
        ended = project.command(*("copy" if each == "hurt" else each for each in arguments))
        assert ended.code in CODES[arguments[0]], (arguments, ended)
        assert "Traceback" not in ended.stderr and (ended.code == 0 or ended.stderr or ended.stdout), (arguments, ended)
        for made in ("again", "stored", "changed"):
            shutil.rmtree(project.path / made, ignore_errors=True)
    repaired = project.command("runs", "repair", "hurt")
    assert repaired.code == bool(re.search("incomplete|cannot be resumed", repaired.stderr)), repaired
    if project.command("runs", "check", "hurt").code:
        assert project.command("eval", "--resume", "--out", "hurt", "--quiet").code == 0
        assert project.command("runs", "check", "hurt").code == 0


@pytest.fixture
def hurt(intact):
    """Damage one file of the run, and return the project."""

    def made(name, change):
        path = intact.path / "out" / name
        path.write_bytes(change(path.read_bytes()))
        return intact

    return made


def changed_line(number, change):
    def changed(data):
        lines = data.splitlines(keepends=True)
        lines[number - 1] = change(lines[number - 1])
        return b"".join(lines)

    return changed


LINES = {
    "a blank line": (changed_line(2, lambda line: b"\n" + line), "2  The line is blank", 0),
    "garbage": (changed_line(2, lambda line: b"garbage\n" + line), "2  The line cannot be read: JSON is malformed", 0),
    "a flipped byte": (changed_line(3, lambda line: line.replace(b'":', b'"?', 1)), "3  The line cannot be read", 1),
    "a second line": (changed_line(3, lambda line: line + line), "4  Line 3 is another ", 0),
    "a lost line": (changed_line(4, lambda line: b""), "missing", 1),
    "a truncated file": (lambda data: data[: len(data) // 2], "The line cannot be read", 1),
}


@pytest.mark.parametrize("name", ["cases.jsonl", "results.jsonl"])
@pytest.mark.parametrize(("change", "message", "code"), LINES.values(), ids=LINES)
def test_a_repaired_run_is_complete_after_a_resume(intact, hurt, name, change, message, code):
    jobs, summary = jobs_of(intact.records()), intact.summary()
    project = hurt(name, change)
    damaged = (project.path / "out" / name).read_bytes().splitlines()
    found = project.command("runs", "check", "out")
    assert found.code == 1 and message in found.stdout and name in found.stdout
    repaired = project.command("runs", "repair", "out")
    assert repaired.code == code and ("agentv eval --resume --out out" in repaired.stderr) == bool(code)
    if code:
        assert project.command("eval", "--resume", "--out", "out", "--quiet").code == 0
    checked = project.command("runs", "check", "out")
    assert (checked.code, checked.stdout) == (0, "out: no damage (6 readable cases, 12 readable records)\n")
    assert jobs_of(project.records()) == jobs
    assert project.summary() | {"duration_ms": 0} == summary | {"duration_ms": 0}
    aside = project.path / "out" / f"{name}.damaged"
    kept = (project.path / "out" / name).read_bytes() + (aside.read_bytes() if aside.exists() else b"")
    assert all(line in kept for line in damaged)


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        (b'"exit_code": 0', b'"exit_code": ?', ""),
        (b'"versions": {', b'"versions": [', ""),
        (b'"options": {', b'"options": [', "options"),
    ],
)
def test_a_damaged_manifest_is_restored_field_by_field(hurt, before, after, lost):
    project = hurt("run.json", lambda data: data.replace(before, after, 1))
    report = project.command("report", "out", "r.html")
    assert report.code == 2 and "agentv runs repair out" in report.stderr
    project.command("runs", "repair", "out")
    assert project.command("report", "out", "r.html").code == 0
    assert after in (project.path / "out" / "run.json.damaged").read_bytes()
    resumed = project.command("eval", "--resume", "--out", "out", "--quiet")
    assert resumed.code == (2 if lost else 0) and lost in resumed.stderr


@pytest.mark.parametrize("change", [lambda data: b"", lambda data: data[: len(data) // 2], lambda data: b"\0" * 99])
def test_a_run_with_a_lost_manifest_can_be_reported_but_not_resumed(hurt, change):
    project = hurt("run.json", change)
    assert project.command("runs", "repair", "out").code == 1
    assert project.command("compare", "out", "out").code == 0
    assert project.command("report", "out", "r.html").code == 0
    resumed = project.command("eval", "--resume", "--out", "out")
    assert resumed.code == 2 and "run.json was damaged" in resumed.stderr


def test_a_summary_is_computed_again_and_missing_files_are_found(intact):
    before = intact.summary()
    (intact.path / "out" / "summary.json").write_bytes(b"{")
    assert "summary.json  Input data was truncated" in intact.command("runs", "check", "out").stdout
    assert intact.command("runs", "repair", "out").code == 0
    assert intact.summary() == before
    (intact.path / "out" / "cases.jsonl").unlink()
    assert "cases.jsonl  The file is missing" in intact.command("runs", "check", "out").stdout
    assert intact.command("runs", "repair", "out").code == 1
    assert intact.command("eval", "--resume", "--out", "out", "--quiet").code == 0
    assert intact.command("runs", "check", "out").code == 0


@pytest.mark.parametrize("replace", [os.mkfifo, lambda path: path.symlink_to("/dev/null")])
def test_a_pipe_or_device_instead_of_a_summary_is_not_read(intact, replace):
    summary = intact.path / "out" / "summary.json"
    summary.unlink()
    replace(summary)
    shown = intact.command("report", "out")
    assert shown.code == 0 and "summary.json  It is not a regular file" in shown.stderr
    assert intact.command("runs", "--in", ".").code == 0


def test_a_changed_value_is_found_by_its_checksum(hurt):
    project = hurt("results.jsonl", lambda data: data.replace(b'"score":1.0', b'"score":0.5', 1))
    found = json.loads(project.command("runs", "check", "out", "--json").stdout)
    assert [(each["file"], each["kind"]) for each in found["problems"]] == [("results.jsonl", "changed")]
    assert project.command("runs", "repair", "out").code == 0
    assert project.command("runs", "check", "out").code == 0


READING = (
    ("report", "out", "r.html"),
    ("compare", "out", "good"),
    ("compare", "good", "out"),
    ("rescore", "out", "--out", "again"),
    *([("judge", "label", "out")] if "judge" in EXTENSIONS else ()),
    ("plan", "out"),
    ("eval", "--resume", "--out", "out"),
    ("eval", "d.yaml", "--changed-since", "out", "--out", "changed"),
    ("eval", "d.yaml", "--only", "failed", "--from", "out", "--out", "changed"),
    ("eval", "d.yaml", "--replay", "out", "--out", "changed"),
    ("runs", "merge", "out", "--out", "merged"),
)
DAMAGED = {
    "garbage in run.json": ("run.json", lambda data: data[: len(data) // 2]),
    "garbage in cases.jsonl": ("cases.jsonl", LINES["garbage"][0]),
    "a flipped byte in results.jsonl": ("results.jsonl", LINES["a flipped byte"][0]),
    "a second record of a job": ("results.jsonl", LINES["a second line"][0]),
}


@pytest.mark.parametrize(("name", "change"), DAMAGED.values(), ids=DAMAGED)
def test_every_command_refuses_a_damaged_run_with_the_same_sentence(intact, hurt, name, change):
    shutil.copytree(intact.path / "out", intact.path / "good")
    project = hurt(name, change)
    commands = READING if os.environ.get("AGENTV_DAMAGE_SEEDS") else random.Random(name).sample(READING, 4)
    for arguments in commands:
        ended = project.command(*arguments)
        assert (ended.code, "The run out is damaged" in ended.stderr) == (2, True), (arguments, ended)
        assert name in ended.stderr and "agentv runs check out" in ended.stderr, (arguments, ended)
        assert "agentv runs repair out" in ended.stderr, (arguments, ended)


INCOMPLETE = {
    "a changed score": ("results.jsonl", lambda data: data.replace(b'"score":1.0', b'"score":0.5', 1)),
    "a changed manifest": ("run.json", lambda data: data.replace(b'"exit_code": 0', b'"exit_code": 1', 1)),
    "a damaged summary": ("summary.json", lambda data: data[:9]),
    "a truncated cases.jsonl": ("cases.jsonl", lambda data: data[: len(data) // 2]),
    "a lost case": ("cases.jsonl", LINES["a lost line"][0]),
    "a lost record": ("results.jsonl", LINES["a lost line"][0]),
}


@pytest.mark.parametrize(("name", "change"), INCOMPLETE.values(), ids=INCOMPLETE)
def test_every_command_warns_of_a_run_that_is_readable_but_not_whole(intact, hurt, name, change):
    shutil.copytree(intact.path / "out", intact.path / "good")
    project = hurt(name, change)
    quiet = [each for each in READING if each[0] != "judge"]  # labels are read from a terminal
    for arguments in quiet if os.environ.get("AGENTV_DAMAGE_SEEDS") else random.Random(name).sample(quiet, 2):
        shutil.rmtree(project.path / "changed", ignore_errors=True)
        ended = project.command(*arguments)
        assert "The run out is damaged" in ended.stderr and name in ended.stderr, (arguments, ended)
        assert "agentv runs check out" in ended.stderr and "agentv runs repair out" in ended.stderr
        if arguments[:2] == ("eval", "--resume"):
            return  # the run is whole again


def test_a_killed_run_is_not_damaged(hurt):
    project = hurt("results.jsonl", lambda data: data[:-20])
    manifest = project.manifest()
    for name in ("finished_at", "digests", "checksum"):
        del manifest[name]
    project.write("out/run.json", json.dumps(manifest))
    found = project.command("runs", "check", "out")
    assert found.code == 0 and "results.jsonl:12  The last line is incomplete; --resume removes it" in found.stderr
    assert project.command("runs", "repair", "out").stdout == "out: nothing to repair\n"


def test_a_run_of_a_newer_version_is_not_touched(hurt):
    project = hurt("run.json", lambda data: b'{"schema_version": 99, "run_id": "r", "started_at": ""}')
    before = (project.path / "out" / "run.json").read_bytes()
    for command in ("check", "repair"):
        ended = project.command("runs", command, "out")
        assert ended.code == 2 and "Update agentv" in ended.stderr
    assert (project.path / "out" / "run.json").read_bytes() == before


def test_a_run_that_is_being_written_is_not_repaired(hurt):
    project = hurt("results.jsonl", lambda data: b"garbage\n" + data)
    with RunFolder(project.path / "out").lock():
        ended = project.command("runs", "repair", "out")
    assert ended.code == 2 and "in use" in ended.stderr


def test_a_run_without_its_manifest_is_repaired_not_resumed(hurt):
    project = hurt("run.json", lambda data: data)
    (project.path / "out" / "run.json").unlink()
    assert "agentv runs repair out" in project.command("runs", "check", "out").stderr


def test_a_run_that_was_killed_before_it_started_can_be_started_again(intact):
    folder = intact.path / "new"
    folder.mkdir()
    (folder / ".lock").write_text("12345")
    (folder / ".run.json.12345.tmp").write_text("{")
    for arguments in (
        ("runs", "check", "new"),
        ("runs", "repair", "new"),
        ("report", "new", "r.html"),
        ("compare", "out", "new"),
        ("rescore", "new"),
        ("eval", "--resume", "--out", "new"),
    ):
        ended = intact.command(*arguments)
        assert ended.code == 2 and "new has no records yet" in ended.stderr, (arguments, ended)
        assert "agentv eval DATASET --out" in ended.stderr, (arguments, ended)
    assert "new" not in intact.command("runs", "--in", ".").stdout
    assert intact.eval("--out", "new", "--quiet").code == 0
    assert len(intact.records("new")) == 12
