"""Run the documentation: every example on every page must work as shown.

A page is run from top to bottom, in a project of its own that contains a copy of `examples/` if the page names it:

    ```yaml evals/a.yaml      a block with a file name (yaml, jsonl, markdown, sh, python) is written to that file
    ```console                `$ command` lines are run; the lines below are the expected output; `…` matches anything
    ```console terminal       the same, with a terminal attached
    ```python                 runs after the earlier Python blocks of the page; `# → text` is the expected output

A failing command is followed by `$ echo $?`. `pip install` commands are skipped.

`pytest tests/test_docs.py --update-docs` rewrites the expected output after a deliberate change; read the diff.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple

import click
import pytest

import agentv
from agentv.cli import cli
from agentv.registry import EVALUATORS, TARGETS
from doc_updates import matches, updated, updated_python
from writing import evaluators as evaluator_pages
from writing import peer_differences, reference
from writing import targets as target_pages

REPOSITORY = Path(__file__).resolve().parent.parent
DOCS = REPOSITORY / "docs"
REFERENCE = DOCS / "reference"
GENERATED = "<!-- Written by docs/generate.py."
DOC_PAGES = sorted(DOCS.rglob("*.md"))
GENERATED_PAGES = [page for page in DOC_PAGES if page.read_text(encoding="utf-8").startswith(GENERATED)]
GENERATED_PART = re.compile(r"<!-- Written by [\s\S]*?<!-- end -->", re.IGNORECASE)
PAGES = [
    REPOSITORY / "README.md",
    *(page for page in DOC_PAGES if page not in GENERATED_PAGES),
    *sorted(REPOSITORY.glob("examples/*/README.md")),
    *sorted(REPOSITORY.glob("skills/**/*.md")),
]
ALL_PAGES = [
    *PAGES,
    *GENERATED_PAGES,
    *(page for page in sorted(REPOSITORY.glob("*.md")) if page not in PAGES),
    *sorted(REPOSITORY.glob("packages/*/README.md")),
    REPOSITORY / "bench/README.md",
]
FILES = ("yaml", "json", "jsonl", "csv", "markdown", "sh")
MAX_PAGE_LINES = 200
MAX_README_LINES = 150
LANGUAGES = ("console", "python", "text", *FILES)

_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_INSTALL = re.compile(r"pip install (-q )?(-e )?\S+")


class Block(NamedTuple):
    """A fenced block: language, file name, text, first line, and the paragraph before it."""

    language: str
    file: str
    text: str
    line: int
    before: str


def name_of(page):
    return str(page.relative_to(REPOSITORY))


def blocks_of(page):
    text = page.read_text(encoding="utf-8")
    for fence in _FENCE.finditer(text):
        language, _, file = fence["info"].strip().partition(" ")
        before = _FENCE.sub("", text[: fence.start()]).rstrip().rsplit("\n\n", 1)[-1]
        yield Block(language, file, fence["body"], text.count("\n", 0, fence.start()) + 1, before)


@pytest.fixture(scope="module")
def programs(program):
    """Return a folder with this test's `agentv` and `python`."""
    python = program.parent / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return program.parent


@pytest.fixture
def project(tmp_path, monkeypatch, programs, page):
    """Create a project, with the examples if the page names them, and put this test's programs on the PATH."""
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    if "examples" in page.read_text(encoding="utf-8"):
        shutil.copytree(REPOSITORY / "examples", folder / "examples")
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    packages = (REPOSITORY / "src", REPOSITORY / "packages" / "agentv-testing" / "src")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, packages)))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # loading all installed plugins takes most of the time
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def accept(request):
    """Return whether the pages are rewritten instead of compared."""
    return request.config.getoption("--update-docs")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_examples_on_page_work(page, project, capsys, accept):
    names, text = {}, page.read_text(encoding="utf-8")
    for block in blocks_of(page):
        place = f"{name_of(page)}, line {block.line}"
        output = block.text
        if block.language == "console":
            output = run_console(block, place, accept=accept)
        elif block.file:
            write_file(block, place, project)
        elif block.language == "python":
            output = run_python(block, place, names, capsys, accept=accept)
        if output != block.text:
            text = text.replace(f"\n{block.text}```\n", f"\n{output}```\n", 1)
    if text != page.read_text(encoding="utf-8"):
        page.write_text(text, encoding="utf-8", newline="\n")


def write_file(block, place, project):
    assert Path(block.file).name in block.before, f"{place}: the text before the block does not name {block.file}"
    path = project / block.file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.text, encoding="utf-8", newline="\n")


def run_console(block, place, *, accept=False):
    """Run the commands of a block, and return its text with the output that it should show."""
    status, parts = 0, []
    normal = one_space if block.file == "terminal" else str  # column widths are not part of the contract
    for line, expected in commands_in(block.text, place):
        assert status == 0 or line == "echo $?", f"{place}: exit code {status} before `{line}`"
        command = without_install(line)
        if command is not None:
            status, printed = run(f"(exit {status}); {command}", on_terminal=block.file == "terminal")
            if not matches(normal(expected), normal(printed)):
                skip_without_module(printed)
                assert accept, f"{place}: `{command}` prints\n{printed}\nand not\n{expected}"
                expected = updated(expected, printed, normal=normal)
        parts.append(f"$ {line}\n{expected}")
    assert status == 0, f"{place}: the last command ends with {status}"
    return "".join(parts)


def skip_without_module(printed):
    """Skip a page whose own program needs a package that is not installed."""
    failure = rf'File "{re.escape(str(Path.cwd()))}.*\n.*\nModuleNotFoundError: .*\'(\S+)\'$'
    if match := re.search(failure, printed, re.MULTILINE):
        pytest.importorskip(match[1])


def run(command, *, on_terminal):
    """Return the exit code and the output of a command, without colours and trailing spaces."""
    reader, writer = os.openpty() if on_terminal else os.pipe()
    process = subprocess.Popen(["sh", "-c", command], stdout=writer, stderr=writer, stdin=subprocess.DEVNULL)
    os.close(writer)
    printed = b"".join(iter(lambda: read_some(reader), b"")).decode()
    os.close(reader)
    lines = [line.rstrip() for line in _COLOUR.sub("", printed).splitlines()]
    return process.wait(), "".join(f"{line}\n" for line in lines)


def one_space(text):
    return re.sub(" +", " ", text)


def read_some(reader):
    try:
        return os.read(reader, 65536)
    except OSError:  # end of the terminal
        return b""


def commands_in(text, place):
    """Yield the commands of a console block, each with its expected output."""
    assert text.startswith("$ "), f"{place}: a console block starts with a command"
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def without_install(command):
    """Return a command without its `pip install`, or None if nothing is left or it would run the tests again."""
    if not command.startswith("pip install "):
        return command
    _, _, rest = command.partition(" && ")
    assert _INSTALL.match(command)
    return None if rest in ("", "pytest") else rest


def run_python(block, place, names, capsys, *, accept=False):
    """Run a block after the earlier ones of its page, and return its text with the output that it should show."""
    capsys.readouterr()
    code = compile("\n" * block.line + block.text, place, "exec")
    exec(code, names)
    expected = [line.removeprefix(" ") for line in re.findall(r"# →(.*)$", block.text, re.MULTILINE)]
    printed = capsys.readouterr().out.splitlines()
    if printed != expected and accept and len(printed) == len(expected):
        return updated_python(block.text, printed)
    assert printed == expected, place
    return block.text


def problem_of(block):
    """Return what is wrong in the first line of a block, or None."""
    if block.language not in LANGUAGES:
        return f"```{block.language} is not one of {', '.join(LANGUAGES)}"
    if block.language in FILES:
        return None if block.file else f"```{block.language} without the name of its file"
    is_allowed = block.file in ("", "terminal") or (block.language == "python" and block.file.endswith(".py"))
    return None if is_allowed else f"a file name belongs to {', '.join(FILES)} and python"


def test_blocks_are_of_a_known_kind():
    blocks = ((page, block) for page in PAGES for block in blocks_of(page))
    assert [
        f"{name_of(page)}, line {block.line}: {text}" for page, block in blocks if (text := problem_of(block))
    ] == []


def test_links_and_anchors_exist():
    links = (
        (page, link["target"])
        for page in ALL_PAGES
        for link in _LINK.finditer(_FENCE.sub("", page.read_text(encoding="utf-8")))
    )
    assert [f"{name_of(page)}: {target}" for page, target in links if not link_exists(page, target)] == []


def link_exists(page, target):
    """Whether a link leads to a file and heading of the repository; other hosts are not checked."""
    if target.startswith(("https://", "http://")):
        return True
    file, _, anchor = target.partition("#")
    path = (page.parent / file).resolve() if file else page
    return path.exists() and (not anchor or anchor in anchors_of(path))


@cache
def anchors_of(page):
    headings = re.findall(r"^#+ (.*)$", _FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_source_map_lists_existing_folders():
    block = next(block for block in blocks_of(REPOSITORY / "CONTRIBUTING.md") if block.text.startswith("src/agentv/"))
    folder = REPOSITORY / "src/agentv"
    parent = folder
    for indent, name in re.findall(r"^( +)(\S+)", block.text, re.MULTILINE):
        path = folder / name if len(indent) == 2 else parent / name
        parent = path if len(indent) == 2 else parent
        assert path.exists(), f"{name} is not there"


def test_decisions_are_numbered_in_order():
    numbers = re.findall(r"^### (\d+)\.", (REPOSITORY / "DECISIONS.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert list(map(int, numbers)) == list(range(1, len(numbers) + 1))


def test_decisions_justify_every_dependency():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(name for extra in project["optional-dependencies"].values() for name in extra),
    ]
    names = {re.match(r"[\w.-]+", requirement)[0] for requirement in wanted} - {"agentv"}
    reasons = (REPOSITORY / "DECISIONS.md").read_text(encoding="utf-8")
    assert sorted(name for name in names if f"`{name}`" not in reasons) == []


def links_of(page):
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    paths = {found["target"].partition("#")[0] for found in _LINK.finditer(text)}
    return {(page.parent / path).resolve() for path in paths if path and not path.startswith("http")}


def test_every_page_is_one_click_from_the_index():
    index = DOCS / "index.md"
    linked = links_of(index) | {index}
    for page in sorted(linked & set(REFERENCE.glob("*.md"))):
        linked |= links_of(page)
    assert sorted(set(DOC_PAGES) - linked) == []
    assert {page for page in DOC_PAGES if page.parent.name == "how-to"} <= links_of(index)


def test_pages_written_by_hand_are_short():
    pages = set(DOC_PAGES).difference(GENERATED_PAGES)
    texts = {name_of(page): page.read_text(encoding="utf-8") for page in pages}
    sizes = {name: len(GENERATED_PART.sub("", text).splitlines()) for name, text in texts.items()}
    assert {page: size for page, size in sizes.items() if size > MAX_PAGE_LINES} == {}


def test_readme_is_short():
    assert len((REPOSITORY / "README.md").read_text(encoding="utf-8").splitlines()) <= MAX_README_LINES


def test_the_skill_is_a_valid_agent_skill():
    folder = REPOSITORY / "skills/agentv"
    text = (folder / "SKILL.md").read_text(encoding="utf-8")
    fields = dict(re.findall(r"^(\w+): (.+)$", text.split("---\n")[1], re.MULTILINE))
    assert fields["name"] == folder.name and 50 < len(fields["description"]) <= 1024
    assert len(text.splitlines()) <= 150


def test_every_how_to_opens_with_an_example():
    pages = DOCS.glob("how-to/*.md")
    openings = {page.stem: page.read_text(encoding="utf-8").partition("\n## ")[0] for page in pages}
    assert openings and {page for page, opening in openings.items() if "```" not in opening} == set()


def test_reference_is_up_to_date():
    written = {str(page.relative_to(REFERENCE)): page.read_text(encoding="utf-8") for page in GENERATED_PAGES}
    assert written == reference.pages(), "run: python docs/generate.py"


def test_tables_of_differences_are_up_to_date():
    written = {page: page.read_text(encoding="utf-8") for page in peer_differences.pages()}
    assert written == peer_differences.pages(), "run: python docs/generate.py"


EXAMPLES = [name for name in EVALUATORS.names() if evaluator_pages.example(name)]


def test_every_evaluator_has_an_example():
    assert EVALUATORS.names() == EXAMPLES
    assert {path.stem for path in (DOCS / "examples").iterdir()} == set(EXAMPLES)


LIBRARIES = {"bleu": "sacrebleu", "rouge": "rouge_score"}
"""Extras that an evaluator needs."""


@pytest.mark.parametrize("name", EXAMPLES)
def test_evaluator_example_scores_as_documented(name, folder):
    pytest.importorskip(LIBRARIES.get(name, "agentv"))
    files = evaluator_pages.example(name)
    scores = files.pop("scores")
    for file, text in files.items():
        folder.write(file, text)
    assert f"evals/{name}.yaml" in files
    results = agentv.evaluate(f"evals/{name}.yaml", out="out").results
    found = {result.eval_id: result.score for result in results}
    assert found == {
        id: pytest.approx(float(score)) for id, _, score in (row.partition(": ") for row in scores.splitlines())
    }


@pytest.mark.parametrize("name", TARGETS.names())
def test_provider_example_is_valid(name, folder, command):
    folder.write(".agentv/targets.yaml", target_pages.provider_example(name))
    done = command("validate", ".agentv/targets.yaml", "--strict")
    assert done.code == 0, done


@pytest.mark.parametrize("name", [name for name in TARGETS.names() if target_pages.missing_key(name)])
def test_missing_key_message_is_as_documented(name, folder, command, monkeypatch):
    for variable in list(os.environ):
        if variable.endswith(("_KEY", "_TOKEN")):
            monkeypatch.delenv(variable)
    folder.write(".agentv/targets.yaml", target_pages.provider_example(name))
    folder.write("cases.yaml", {"evalcases": [{"id": "one", "expected_outcome": "x", "input": "Hi", "evaluators": []}]})
    done = command("eval", "cases.yaml")
    assert (done.code, done.stderr) == (2, target_pages.missing_key(name) + "\n")


def commands():
    context = click.Context(cli)
    return {name: cli.get_command(context, name) for name in cli.list_commands(context)}


def test_every_command_and_option_is_in_the_reference():
    missing = []
    for name, command in commands().items():
        text = (REFERENCE / "cli" / f"{name}.md").read_text(encoding="utf-8")
        options = [option for param in command.params for option in param.opts if option.startswith("-")]
        missing += [f"{name} {option}" for option in options if f"`{option}`" not in text]
    assert missing == []


@pytest.mark.parametrize(
    ("expected", "printed", "fits"),
    [
        ("a\n", "a\n", True),
        ("a\n", "b\n", False),
        ("a…c\n", "abbc\n", True),
        ("a…c\n", "ab\nbc\n", False),
        ("a\n…\nd\n", "a\nb\nc\nd\n", True),
        ("a\n…\nd\n", "a\nb\nc\n", False),
        ("…\nd\n", "a\nd\n", True),
        ("a\n…\n", "a\nb\nc\n", True),
        ("", "a\n", False),
    ],
)
def test_output_matching(expected, printed, fits):
    assert matches(expected, printed) == fits


@pytest.mark.parametrize(
    ("expected", "printed", "shown"),
    [
        ("a\nb\n", "a\nc\n", "a\nc\n"),
        ("a\n…\nz\n", "b\nx\ny\nz\n", "b\n…\nz\n"),
        ("mean 0.5 in …s\n", "average 0.5 in 1.2s\n", "average 0.5 in …s\n"),
        ("run …\nold\n", "run 17\nnew\nnewer\n", "run …\nnew\nnewer\n"),
        ("a\n…\n", "b\n", "b\n…\n"),
        ("a\nb\n…\nc\n", "d\n", "…\n"),
        ("…\ntarget mean cost\n…\n", "x\ntarget mean new cost\ny\n", "…\ntarget mean new cost\n…\n"),
        ("a\n", "", ""),
        ("", "a\n", "a\n"),
        ("a  b\nc  d\n", "a b\nc  e\n", "a  b\nc  e\n"),
    ],
)
def test_updated_output_keeps_the_ellipses_that_match(expected, printed, shown):
    assert updated(expected, printed, normal=one_space) == shown
    assert matches(one_space(shown), one_space(printed))


def test_updated_python_shows_what_is_printed():
    assert updated_python("print(a)  # → 1\nprint('')  # → 2\n", ["3", ""]) == "print(a)  # → 3\nprint('')  # →\n"


def test_pip_install_is_skipped():
    assert without_install("pip install -e . && agentv cases x") == "agentv cases x"
    assert without_install("pip install -e '.[dev]' && pytest") is None
    assert without_install("agentv --version") == "agentv --version"
