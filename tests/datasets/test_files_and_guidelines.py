"""§1.8: file lookup, the project boundary, and guidelines."""

import base64
import os

import pytest

from agentv.settings.project import project_root

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def asking(*parts, id="a"):
    return {"id": id, "expected_outcome": "x", "input": [{"role": "user", "content": list(parts)}]}


def file(value):
    return {"type": "file", "value": value}


def image(value):
    return {"type": "image", "value": value}


@pytest.fixture
def found(folder):
    """Return the file that a dataset finds by a name, relative to the working directory."""

    def find(dataset, name, **options):
        folder.write(dataset, [asking(file(name))])
        part = folder.load(dataset, **options)[0].input[0].parts[0]
        return os.path.relpath(part.path, folder.path)

    return find


class TestProjectRoot:
    def test_it_is_the_nearest_parent_with_git(self, folder):
        for name in (".git/HEAD", "a/.git/HEAD", "a/b/.agentv/config.yaml", ".agentv/targets.yaml"):
            folder.write(name, "")
        (folder.path / "a/b/c").mkdir()
        assert project_root(str(folder.path / "a/b/c")) == str(folder.path / "a")

    def test_git_may_be_a_file(self, folder):
        folder.write("a/.git", "gitdir: elsewhere\n")
        (folder.path / "a/b").mkdir()
        assert project_root(str(folder.path / "a/b")) == str(folder.path / "a")

    @pytest.mark.parametrize("mark", ["config.yaml", "targets.yaml"])
    def test_or_else_it_is_the_outermost_parent_with_a_configuration(self, folder, mark):
        folder.write(f"a/.agentv/{mark}", "")
        folder.write("a/b/.agentv/config.yaml", "")
        (folder.path / "a/b/c").mkdir()
        assert project_root(str(folder.path / "a/b/c")) == str(folder.path / "a")

    def test_an_empty_agentv_folder_is_ignored(self, folder):
        folder.write("a/.agentv/results/run.jsonl", "")
        (folder.path / "a/b").mkdir()
        assert project_root(str(folder.path / "a/b")) == str(folder.path / "a/b")

    def test_or_else_it_is_the_folder_of_the_dataset(self, folder):
        (folder.path / "a/b").mkdir(parents=True)
        assert project_root(str(folder.path / "a/b")) == str(folder.path / "a/b")

    def test_the_home_folder_is_never_the_project(self, folder, monkeypatch):
        folder.write("home/.git/HEAD", "")
        folder.write("home/.agentv/config.yaml", "")
        (folder.path / "home/evals").mkdir()
        assert project_root("home/evals") == str(folder.path / "home")
        monkeypatch.setenv("HOME", str(folder.path / "home"))
        assert project_root("home/evals") == str(folder.path / "home/evals")

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
    @pytest.mark.parametrize("mark", [".git", ".agentv/config.yaml", ".agentv/targets.yaml"])
    def test_a_project_of_another_user_above_mine_is_not_mine(self, tmp_path, mark):
        own = tmp_path / "shared" / "own"
        own.mkdir(parents=True)
        planted = tmp_path / "shared" / mark
        planted.parent.mkdir(exist_ok=True)
        planted.write_text("")
        os.chown(planted, 65534, 65534)
        assert project_root(str(own)) == str(own)

    def test_a_dataset_in_the_home_folder_reads_no_files(self, folder, monkeypatch):
        folder.write("home/notes.txt", "private")
        folder.write("home/d.jsonl", [asking(file("notes.txt"))])
        assert folder.load("home/d.jsonl")
        monkeypatch.setenv("HOME", str(folder.path / "home"))
        error = folder.error("home/d.jsonl")
        assert error.detail == f"File 'notes.txt' is in {folder.path}/home, which is never a project, and was not read"
        assert "--allow-outside-files" in error.hint
        assert folder.load("home/d.jsonl", allow_outside_files=True)


class TestSearchOrder:
    def test_next_to_the_dataset_then_each_parent_up_to_the_root(self, folder, found):
        folder.write("project/.git/HEAD", "")
        folder.write("project/notes.md", "root")
        assert found("project/evals/deep/d.jsonl", "notes.md") == "project/notes.md"
        folder.write("project/evals/notes.md", "parent")
        assert found("project/evals/deep/d.jsonl", "notes.md") == "project/evals/notes.md"
        folder.write("project/evals/deep/notes.md", "beside")
        assert found("project/evals/deep/d.jsonl", "notes.md") == "project/evals/deep/notes.md"

    def test_not_above_the_root(self, folder):
        folder.write("notes.md", "above")
        folder.write("project/.git/HEAD", "")
        folder.write("project/d.jsonl", [asking(file("notes.md"))])
        assert folder.error("project/d.jsonl").detail == "File 'notes.md' was not found"

    def test_then_the_working_directory_when_it_is_inside_the_root(self, folder, found, monkeypatch):
        folder.write("project/.git/HEAD", "")
        folder.write("project/area/notes.md", "here")
        folder.write("project/evals/d.jsonl", [asking(file("notes.md"))])
        monkeypatch.chdir(folder.path / "project/area")
        part = folder.load("../evals/d.jsonl")[0].input[0].parts[0]
        assert part.path == str(folder.path / "project/area/notes.md")

    def test_the_working_directory_outside_the_root_is_not_searched(self, folder):
        folder.write("notes.md", "here")
        folder.write("evals/d.jsonl", [asking(file("notes.md"))])
        assert folder.error("evals/d.jsonl").detail == "File 'notes.md' was not found"

    @pytest.mark.parametrize("name", ["./notes.md", "../evals/notes.md", "sub/../notes.md"])
    def test_dots_are_understood(self, folder, found, name):
        folder.write("project/.git/HEAD", "")
        folder.write("project/evals/notes.md", "x")
        (folder.path / "project/evals/sub").mkdir()
        assert found("project/evals/d.jsonl", name) == "project/evals/notes.md"

    def test_a_name_that_leads_up_is_tried_from_each_parent_too(self, folder, found):
        folder.write("project/.git/HEAD", "")
        folder.write("project/features/basic/notes.md", "beside the parent")
        assert found("project/features/other/evals/d.jsonl", "../basic/notes.md") == "project/features/basic/notes.md"

    def test_a_leading_slash_means_the_root(self, folder, found):
        folder.write("project/.git/HEAD", "")
        folder.write("project/docs/notes.md", "root")
        folder.write("project/evals/docs/notes.md", "beside")
        assert found("project/evals/d.jsonl", "/docs/notes.md") == "project/docs/notes.md"
        assert found("project/evals/d.jsonl", "docs/notes.md") == "project/evals/docs/notes.md"

    def test_a_leading_slash_is_not_an_absolute_path(self, folder):
        folder.write("secret.txt", "s3cret")
        folder.write("project/d.jsonl", [asking(file(str(folder.path / "secret.txt")))])
        error = folder.error("project/d.jsonl")
        assert "was not found" in error.detail
        assert f"Looked for {folder.path}/project/" in error.hint

    def test_not_found_lists_the_places_that_were_tried(self, folder):
        folder.write("project/.git/HEAD", "")
        folder.write("project/evals/d.yaml", {"evalcases": [asking("see", file("none.md"))]})
        error = folder.error("project/evals/d.yaml")
        assert error.detail == "File 'none.md' was not found"
        places = [folder.path / "project/evals/none.md", folder.path / "project/none.md"]
        assert error.hint == "Looked for " + ", ".join(map(str, places))
        assert error.field == "input[0].content[1].value"
        assert error.line == 1

    @pytest.mark.parametrize(
        ("name", "detail"),
        [
            ("sub", "'sub' is a folder, not a file"),
            ("", "The file name is empty"),
            ("a\0b", "'a\0b' is not a valid file name"),
        ],
    )
    def test_an_invalid_file_name_is_an_error(self, folder, name, detail):
        (folder.path / "sub").mkdir()
        folder.write("d.jsonl", [asking(file(name))])
        assert folder.error("d.jsonl").detail == detail

    def test_an_empty_file_is_a_warning(self, folder):
        folder.write("empty.md", "")
        folder.write("d.jsonl", [asking(file("empty.md"))])
        (warning,) = folder.load("d.jsonl").messages
        assert "File 'empty.md' is empty" in warning

    def test_a_file_above_64_mebibytes_is_rejected(self, folder):
        with open("huge.txt", "wb") as stream:
            stream.truncate(64 * 1024 * 1024 + 1)
        folder.write("d.jsonl", [asking(file("huge.txt"))])
        assert folder.error("d.jsonl").detail == "File 'huge.txt' is larger than 64 MiB"


class TestProjectBoundary:
    @pytest.fixture
    def project(self, folder):
        folder.write("secret", "s3cret")
        folder.write("project/.git/HEAD", "")
        return folder

    @pytest.mark.parametrize("name", ["../../secret", "../../../secret", "/../secret", "./../../secret"])
    @pytest.mark.parametrize("part", [file, image])
    def test_a_file_outside_the_project_is_refused(self, project, name, part):
        project.write("project/evals/d.jsonl", [asking(part(name))])
        error = project.error("project/evals/d.jsonl")
        assert "was not read" in error.detail or "was not found" in error.detail
        assert "s3cret" not in str(error)

    def test_the_error_names_the_project_root_and_the_option(self, project):
        project.write("project/evals/d.jsonl", [asking(file("../../secret"))])
        error = project.error("project/evals/d.jsonl")
        assert error.detail == (
            f"File '../../secret' is outside the project root {project.path}/project and was not read"
        )
        assert "--allow-outside-files" in error.hint

    def test_a_link_that_leads_outside_is_refused_too(self, project):
        (project.path / "project/evals").mkdir()
        (project.path / "project/evals/innocent.txt").symlink_to(project.path / "secret")
        project.write("project/evals/d.jsonl", [asking(file("innocent.txt"))])
        assert "is outside the project root" in project.error("project/evals/d.jsonl").detail

    def test_a_file_in_a_linked_folder_outside_is_refused(self, project):
        project.write("elsewhere/notes.md", "s3cret")
        (project.path / "project/linked").symlink_to(project.path / "elsewhere")
        project.write("project/d.jsonl", [asking(file("linked/notes.md"))])
        assert "is outside the project root" in project.error("project/d.jsonl").detail

    def test_a_link_that_stays_inside_is_fine(self, project):
        project.write("project/real.md", "fine")
        (project.path / "project/link.md").symlink_to("real.md")
        project.write("project/d.jsonl", [asking(file("link.md"))])
        part = project.load("project/d.jsonl")[0].input[0].parts[0]
        assert (part.value, part.path) == ("link.md", str(project.path / "project/real.md"))

    def test_a_folder_whose_name_begins_like_the_root_is_outside(self, project):
        project.write("project-other/notes.md", "s3cret")
        project.write("project/d.jsonl", [asking(file("../project-other/notes.md"))])
        assert "is outside the project root" in project.error("project/d.jsonl").detail

    def test_allow_outside_files_allows_files_outside(self, project, command):
        project.write("project/evals/d.jsonl", [asking(file("../../secret"))])
        part = project.load("project/evals/d.jsonl", allow_outside_files=True)[0].input[0].parts[0]
        assert part.path == str(project.path / "secret")
        refused = command("cases", "--resolve", "project/evals/d.jsonl")
        assert (refused.code, refused.stdout) == (2, "")
        allowed = command("cases", "--resolve", "--allow-outside-files", "project/evals/d.jsonl")
        assert allowed.printed[0]["input"][0]["content"][0]["text"] == "s3cret"

    def test_with_it_a_leading_slash_can_be_an_absolute_path(self, project):
        project.write("project/evals/d.jsonl", [asking(file(str(project.path / "secret")))])
        part = project.load("project/evals/d.jsonl", allow_outside_files=True)[0].input[0].parts[0]
        assert part.path == str(project.path / "secret")

    HIDDEN = (
        "/.env", "../.env", "/.git/config", ".hidden/notes.txt", "/.agentv/targets.yaml", "/.github/.token",
        "a/b/.env", "/a/.docker/config.json", "/.github/a/b/.env.local", "/.claude/skills/a/.aws/credentials",
    )  # fmt: skip

    @pytest.mark.parametrize("name", [*HIDDEN, "link.txt", "linked/config"])
    @pytest.mark.parametrize("key", ["input", "prompt"])
    def test_a_hidden_file_is_refused(self, project, name, key):
        for each in self.HIDDEN:
            project.write(os.path.join("project/evals", each) if each[0] != "/" else f"project{each}", "s3cret")
        (project.path / "project/evals/link.txt").symlink_to("../.env")
        (project.path / "project/evals/linked").symlink_to("../.git")
        row = asking(file(name)) if key == "input" else asking("x") | {"input": {"v": 1}, "prompt": f"file://{name}"}
        project.write("project/evals/d.jsonl", [row])
        error = project.error("project/evals/d.jsonl")
        assert error.detail == f"File '{name}' is hidden and was not read"
        assert "--allow-outside-files" in error.hint
        assert project.load("project/evals/d.jsonl", allow_outside_files=True)

    @pytest.mark.parametrize("name", ["/.github/prompts/a.md", "/.claude/skills/a/SKILL.md", "/.agentv/prompts/a.md"])
    def test_instructions_for_agents_are_not_hidden(self, project, found, name):
        project.write(f"project{name}", "x")
        assert found("project/evals/d.jsonl", name) == f"project{name}"

    def test_a_dataset_in_a_hidden_folder_reads_files_next_to_it(self, project, found):
        project.write("project/.evals/notes.md", "x")
        assert found("project/.evals/d.jsonl", "notes.md") == "project/.evals/notes.md"

    @pytest.mark.parametrize("link", ["evals/d.jsonl", "evals", "evals/d.yaml"])
    def test_a_dataset_that_is_a_link_out_of_the_project_is_refused(self, project, link):
        project.write("elsewhere/d.jsonl", [asking("s3cret")])
        project.write("elsewhere/d.yaml", "description: s3cret\n")
        place = project.path / "project" / link
        if link != "evals":
            project.write("project/evals/d.jsonl", [asking("x")])
            place.unlink(missing_ok=True)
        place.symlink_to(project.path / "elsewhere" / link.partition("/")[2])
        error = project.error("project/evals/d.jsonl")
        assert "is a link to" in error.detail and "outside the project root" in error.detail
        assert "s3cret" not in str(error) and "--allow-outside-files" in error.hint
        assert project.load("project/evals/d.jsonl", allow_outside_files=True)

    def test_a_project_reached_through_a_link_is_fine(self, project):
        project.write("project/evals/d.jsonl", [asking("x")])
        (project.path / "alias").symlink_to("project")
        (project.path / "project/same.jsonl").symlink_to("evals/d.jsonl")
        assert project.load("alias/evals/d.jsonl") and project.load("project/same.jsonl")

    def test_all_file_names_are_checked_against_the_project_root(self, project):
        inside = [{"role": "user", "content": [file("../../secret")]}]
        rows = [
            {"id": "a", "expected_outcome": "x", "input": "y", "expected_output": inside},
            {"id": "a", "expected_outcome": "x", "input": "y", "turns": [{"input": inside}]},
            {"id": "a", "expected_outcome": "x", "input": {"v": 1}, "prompt": inside},
            {"id": "a", "expected_outcome": "x", "input": {"v": 1}, "prompt": "file://../../secret"},
        ]
        for row in rows:
            project.write("project/evals/d.jsonl", [row])
            assert "is outside the project root" in project.error("project/evals/d.jsonl").detail


class TestContents:
    def resolved(self, command, dataset="d.jsonl"):
        return command("cases", "-q", "--resolve", dataset).printed[0]["input"][0]["content"]

    def test_without_resolve_a_file_is_only_named(self, folder, command):
        folder.write("notes.md", "text")
        folder.write("d.jsonl", [asking(file("notes.md"))])
        assert command("cases", "-q", "d.jsonl").printed[0]["input"][0]["content"] == [file("notes.md")]

    @pytest.mark.parametrize(
        ("written", "read"),
        [
            (b"plain\n", "plain\n"),
            (b"one\r\ntwo\r\n", "one\ntwo\n"),
            (b"one\rtwo", "one\rtwo"),
            ("é日本\u2028".encode(), "é日本\u2028"),
            (b"\xef\xbb\xbfmarked", "marked"),
            (b"", ""),
        ],
    )
    def test_text_is_utf_8_with_line_feeds(self, folder, command, written, read):
        folder.write("notes.md", written)
        folder.write("d.jsonl", [asking("see", file("notes.md"))])
        assert self.resolved(command) == [{"type": "text", "value": "see"}, file("notes.md") | {"text": read}]

    def test_a_binary_file_is_an_error_when_it_is_read(self, folder, command):
        folder.write("notes.md", b"caf\xe9")
        folder.write("d.jsonl", [asking(file("notes.md"))])
        ended = command("cases", "--resolve", "d.jsonl")
        assert (ended.code, ended.stdout) == (2, "")
        assert "File 'notes.md' is not UTF-8 text (byte 3)" in ended.stderr

    @pytest.mark.parametrize(
        ("name", "media_type"),
        [
            ("a.png", "image/png"),
            ("a.JPG", "image/jpeg"),
            ("a.jpeg", "image/jpeg"),
            ("a.gif", "image/gif"),
            ("a.webp", "image/webp"),
            ("a.svg", "image/svg+xml"),
        ],
    )
    def test_images_become_data_uris_with_their_media_type(self, folder, command, name, media_type):
        folder.write(name, PNG)
        folder.write("d.jsonl", [asking(image(name))])
        data = f"data:{media_type};base64,{base64.b64encode(PNG).decode()}"
        assert self.resolved(command) == [image(name) | {"data": data}]

    def test_an_image_of_unknown_kind_is_an_error(self, folder, command):
        folder.write("a.xyz", PNG)
        folder.write("d.jsonl", [asking(image("a.xyz"))])
        ended = command("cases", "--resolve", "d.jsonl")
        assert ended.code == 2
        assert "Image 'a.xyz' has an unknown extension" in ended.stderr

    @pytest.mark.parametrize("address", ["https://example.org/a.png", "data:image/png;base64,AAAA"])
    def test_a_url_is_unchanged(self, folder, command, address):
        folder.write("d.jsonl", [asking(image(address))])
        assert self.resolved(command) == [image(address)]

    def test_every_message_of_a_case_is_resolved(self, folder, command):
        folder.write("notes.md", "text")
        messages = [{"role": "user", "content": [file("notes.md")]}]
        row = {"id": "a", "expected_outcome": "x", "input": messages, "expected_output": messages}
        folder.write("d.jsonl", [row | {"turns": [{"input": messages, "expected_output": messages}]}])
        printed = command("cases", "-q", "--resolve", "d.jsonl").printed[0]
        resolved = [{"role": "user", "content": [file("notes.md") | {"text": "text"}]}]
        assert printed["input"] == printed["expected_output"] == resolved
        assert printed["turns"] == [{"input": resolved, "expected_output": resolved}]


class TestGuidelines:
    def resolved(self, folder, command, dataset="evals/d.jsonl"):
        parts = command("cases", "-q", "--resolve", dataset).printed[0]["input"][0]["content"]
        return {part["value"]: part.get("guideline", False) for part in parts}

    def test_there_are_no_guidelines_by_default(self, folder, command):
        folder.write("evals/a.instructions.md", "x")
        folder.write("evals/d.jsonl", [asking(file("a.instructions.md"))])
        assert self.resolved(folder, command) == {"a.instructions.md": False}

    def test_patterns_match_paths_relative_to_the_root(self, folder, command):
        folder.write(".git/HEAD", "")
        folder.write(
            ".agentv/config.yaml", "guideline_patterns: ['**/*.instructions.md', 'rules/**', 'evals/{x,y}.md']\n"
        )
        for name in ("evals/a.instructions.md", "rules/deep/b.txt", "evals/x.md", "evals/z.md"):
            folder.write(name, "x")
        parts = [file(name) for name in ("a.instructions.md", "/rules/deep/b.txt", "x.md", "z.md")]
        folder.write("evals/d.jsonl", [asking(*parts)])
        assert self.resolved(folder, command) == {
            "a.instructions.md": True,
            "/rules/deep/b.txt": True,
            "x.md": True,
            "z.md": False,
        }

    def test_the_nearest_configuration_up_to_the_root_counts(self, folder, command):
        folder.write(".git/HEAD", "")
        folder.write(".agentv/config.yaml", "guideline_patterns: ['**/*.md']\n")
        folder.write("evals/.agentv/config.yaml", "guideline_patterns: ['**/*.txt']\n")
        folder.write("evals/a.md", "x")
        folder.write("evals/b.txt", "x")
        folder.write("evals/d.jsonl", [asking(file("a.md"), file("b.txt"))])
        assert self.resolved(folder, command) == {"a.md": False, "b.txt": True}

    def test_a_configuration_above_the_root_is_ignored(self, folder, command):
        folder.write(".agentv/config.yaml", "guideline_patterns: ['**/*.md']\n")
        folder.write("evals/.git/HEAD", "")
        folder.write("evals/a.md", "x")
        folder.write("evals/d.jsonl", [asking(file("a.md"))])
        assert self.resolved(folder, command) == {"a.md": False}

    @pytest.mark.parametrize("config", ["", "# nothing yet\n", "- a list\n", "version: 1\n", "guideline_patterns:\n"])
    def test_a_configuration_without_patterns_makes_nothing_a_guideline(self, folder, command, config):
        folder.write(".agentv/config.yaml", config)
        folder.write("evals/a.instructions.md", "x")
        folder.write("evals/d.jsonl", [asking(file("a.instructions.md"))])
        assert self.resolved(folder, command) == {"a.instructions.md": False}

    def test_invalid_patterns_are_an_error_with_their_line(self, folder):
        folder.write(".agentv/config.yaml", "version: 1\nguideline_patterns: '*.md'\n")
        folder.write("evals/d.jsonl", [asking("x")])
        error = folder.error("evals/d.jsonl")
        assert error.path.endswith(".agentv/config.yaml")
        assert error.line == 2
        assert "guideline_patterns" in error.detail
