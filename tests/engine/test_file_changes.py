"""Diffs of a folder: git can apply them, whatever the files contain."""

import os
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentv.engine.job import file_changes
from agentv.engine.job.file_changes import changes, hunks, snapshot
from agentv.support.temporary_folders import remove_folder

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git applies the diffs")


def fill(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def tree(folder):
    """Everything in a folder: contents, links and what can be run."""
    return {
        name: (os.readlink(folder / name), "link")
        if (folder / name).is_symlink()
        else ((folder / name).read_bytes(), os.access(folder / name, os.X_OK))
        for name in snapshot(str(folder))
    }


def apply(folder, diff):
    """The folder with a diff applied by git."""
    subprocess.run(["git", "apply", "--unsafe-paths", "-"], input=diff.encode(), cwd=folder, check=True)


@pytest.fixture
def folders(tmp_path):
    """A template, and a copy of it to be worked in."""
    template, work = tmp_path / "template", tmp_path / "work"
    fill(
        template,
        {
            "same.txt": "one\n",
            "edit.py": "".join(f"line {number}\n" for number in range(40)),
            "no-end.txt": "a\nb",
            "gone/away.txt": "bye\n",
            "ünï cödé.txt": "x\n",
            "run.sh": "echo\n",
            "dos.txt": "a\r\nb\r\n",
            "ends.txt": "one\x0b\x0ctwo\rthree\u2028four\n",
        },
    )
    shutil.copytree(template, work)
    return template, work


def test_nothing_changed_is_an_empty_diff(folders):
    template, work = folders
    before = snapshot(str(work))
    assert changes(before, str(template), str(work)) == ""
    (work / "same.txt").touch()
    assert changes(before, str(template), str(work)) == ""


@needs_git
def test_git_can_apply_the_diff(folders):
    template, work = folders
    before = snapshot(str(work))
    text = (work / "edit.py").read_text()
    (work / "edit.py").write_text(text.replace("line 3\n", "line three\nand more\n").replace("line 30\n", ""))
    (work / "no-end.txt").write_text("a\nc")
    shutil.rmtree(work / "gone")
    (work / "ünï cödé.txt").write_text("y\n")
    (work / "run.sh").chmod(0o755)
    (work / "dos.txt").write_bytes(b"a\r\nc\r\n")
    (work / "ends.txt").write_bytes("one\x0b\x0ctwo\rthree\u2028five\n".encode())
    fill(work, {"new/deep file.txt": "hello\n", "empty.txt": "", 'quo"te.txt': "q\n"})
    (work / "link").symlink_to("same.txt")
    diff = changes(before, str(template), str(work))
    apply(template, diff)
    assert tree(template) == tree(work)
    assert "@@ -1,7 +1,8 @@" in diff


def test_a_diff_has_the_usual_format(tmp_path):
    template, work = tmp_path / "template", tmp_path / "work"
    fill(template, {"a.txt": "one\ntwo\n"})
    shutil.copytree(template, work)
    before = snapshot(str(work))
    (work / "a.txt").write_text("one\n2\n")
    assert changes(before, str(template), str(work)) == (
        "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
    )


def test_without_a_template_all_files_are_new(tmp_path):
    fill(tmp_path, {"a.txt": "one\n"})
    assert changes({}, None, str(tmp_path)) == (
        "diff --git a/a.txt b/a.txt\nnew file mode 100644\n--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1 @@\n+one\n"
    )


@pytest.mark.parametrize("content", [b"\x00\x01", b"\xff\xfe", b"x" * 2_000_000], ids=repr)
def test_binary_files_are_listed_without_contents(tmp_path, content):
    fill(tmp_path, {"blob": content})
    diff = changes({}, None, str(tmp_path))
    assert "Binary files /dev/null and b/blob differ" in diff
    assert len(diff) < 200


def test_deeply_nested_folders_are_compared(tmp_path):
    top = deepest = str(tmp_path / "top")
    os.mkdir(top)
    for _ in range(1100):
        deepest += "/d"
        os.mkdir(deepest)
    try:
        assert changes({}, None, top) == ""
    finally:
        remove_folder(top)
    assert not os.path.exists(top)


def test_a_long_diff_is_cut_and_lists_the_omitted_files(tmp_path):
    fill(tmp_path, {f"f{number:03}.txt": "line of text\n" * 5000 for number in range(300)})
    diff = changes({}, None, str(tmp_path))
    assert len(diff.encode()) < file_changes.MAX_BYTES + 5000
    assert diff.splitlines()[-1].startswith("# 297 more changed, but their diffs are too long: f003.txt, f004.txt")


def test_a_large_file_with_small_changes_is_compared_quickly(tmp_path):
    template, work = tmp_path / "template", tmp_path / "work"
    lines = ["}\n" if number % 2 else f"{number % 7} {{\n" for number in range(20_000)]
    fill(template, {"a.txt": "".join(lines)})
    shutil.copytree(template, work)
    before = snapshot(str(work))
    lines[10_000] = "changed\n"
    (work / "a.txt").write_text("".join(lines))
    assert changes(before, str(template), str(work)).count("\n") == 12


def test_a_file_with_too_many_changed_lines_is_only_listed(tmp_path):
    template, work = tmp_path / "template", tmp_path / "work"
    fill(template, {"a.txt": "old\n" * 6000, "b.txt": "one\n"})
    fill(work, {"a.txt": "new\n" * 6000, "b.txt": "two\n"})
    diff = changes({**snapshot(str(template))}, str(template), str(work))
    assert "+two" in diff
    assert diff.splitlines()[-1] == "# 1 more changed, but their diffs are too long: a.txt"


@pytest.mark.parametrize("folder", sorted(file_changes.IGNORED_FOLDERS))
def test_folders_of_tools_are_ignored(tmp_path, folder):
    fill(tmp_path, {f"{folder}/x": "x", f"deep/{folder}/x": "x"})
    assert changes({}, None, str(tmp_path)) == ""


def test_a_changed_file_with_its_old_time_is_detected(tmp_path):
    template, work = tmp_path / "template", tmp_path / "work"
    fill(template, {"a.txt": "one\n"})
    shutil.copytree(template, work)
    before = snapshot(str(work))
    (work / "a.txt").write_text("two\n")
    shutil.copystat(template / "a.txt", work / "a.txt")
    assert "+two" in changes(before, str(template), str(work))


@pytest.mark.slow
@needs_git
@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abc")), st.booleans(), st.booleans())
def test_git_can_apply_the_diff_of_any_two_texts(tmp_path_factory, old, new, old_end, new_end):
    folder = tmp_path_factory.mktemp("texts")
    before = "\n".join(old) + ("\n" if old_end and old else "")
    after = "\n".join(new) + ("\n" if new_end and new else "")
    if before == after or not before or not after:
        return
    fill(folder, {"t": before})
    diff = "--- a/t\n+++ b/t\n" + "".join(hunks(before.splitlines(True), after.splitlines(True)))
    apply(folder, diff)
    assert (folder / "t").read_text() == after
