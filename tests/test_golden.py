"""What the commands print for the examples, the test data and stored runs, byte by byte.

`pytest tests/test_golden.py --update-golden` rewrites the files after a deliberate change; read their diff.
"""

import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml
from foreign_results import READABLE, Example, put

HERE = Path(__file__).parent
DATA = HERE / "data"
GOLDEN = DATA / "golden"
EXAMPLES = HERE.parent / "examples"
RUNS = ("before", "after", "both")

Scene = Callable[[Path], Iterator[tuple[str, ...]]]
"""Write the files of a scene to a folder, and yield the commands to run there."""


@cache
def foreign_examples() -> dict[str, list[dict]]:
    """The files of other tools in the test data, by format."""
    files = sorted((DATA / "foreign").glob("*.yaml"))
    groups = {path.stem: yaml.load(path.read_text("utf-8"), yaml.CSafeLoader) for path in files}
    groups |= groups.pop("second-group")
    return {name: [each for each in examples if "content" in each] for name, examples in groups.items()}


def write_example(folder: Path, example: dict) -> Path:
    path = folder / example["file"]
    for name, text in example.get("files", {}).items():
        put(folder / name, text)
    put(path, example["content"])
    if "sidecar" in example:
        put(path.with_suffix(".yaml"), example["sidecar"])
    return path


def foreign_scene(examples: list[dict]) -> Scene:
    def commands(folder: Path) -> Iterator[tuple[str, ...]]:
        for number, example in enumerate(examples):
            path = write_example(folder / str(number), example)
            fields = ("--map", example["map"]) if "map" in example else ()
            yield from ((name, str(path.relative_to(folder)), *fields) for name in ("cases", "validate"))

    return commands


def results_scene(examples: list[Example]) -> Scene:
    def commands(folder: Path) -> Iterator[tuple[str, ...]]:
        for number, example in enumerate(examples):
            (folder / str(number)).mkdir()
            path = str(example.write(folder / str(number)).relative_to(folder))
            yield "report", path, "--json"
            yield "compare", path, path, "--json"

    return commands


def folder_scene(source: Path, *names: str) -> Scene:
    """All files of a folder, each with `cases` and `validate`."""

    def commands(folder: Path) -> Iterator[tuple[str, ...]]:
        place = shutil.copytree(source, folder / source.name)
        files = sorted(file for name in names for file in place.rglob(name) if not file.name.endswith(".expect.json"))
        for path in files:
            yield from ((name, str(path.relative_to(folder))) for name in ("cases", "validate"))

    return commands


def runs_scene(folder: Path) -> Iterator[tuple[str, ...]]:
    for name in RUNS:
        shutil.copytree(DATA / "runs" / name, folder / name)
        yield "report", name
        yield "report", name, "--json"
        yield "report", name, "--markdown"
        yield "report", name, "--csv"
    for pair in (("before", "after"), ("both:old", "both:new"), ("before", "both:old")):
        yield "compare", *pair
        yield "compare", *pair, "--json"
        yield "compare", *pair, "--markdown"


def scenes() -> dict[str, Scene]:
    hard = {f"hard-{path.name}": folder_scene(path, "*.*") for path in sorted((DATA / "hard").iterdir())}
    promptfoo = {
        f"promptfoo-{path.name}": folder_scene(path, "promptfooconfig.*")
        for path in sorted((DATA / "promptfoo").iterdir())
    }
    formats = sorted({example.format for example in READABLE})
    return {
        **{f"format-{name}": foreign_scene(examples) for name, examples in foreign_examples().items()},
        **{f"results-{name}": results_scene([each for each in READABLE if each.format == name]) for name in formats},
        **{f"example-{path.name}": folder_scene(path, "*.yaml", "*.jsonl") for path in sorted(EXAMPLES.iterdir())},
        **hard,
        **promptfoo,
        "runs": runs_scene,
    }


SCENES = scenes()


def transcript(command: Callable, folder: Path, scene: Scene) -> str:
    """The commands of a scene with their output, messages and exit codes."""
    parts = []
    for arguments in scene(folder):
        ended = command(*arguments)
        messages = "".join(f"! {line}\n" for line in ended.stderr.splitlines())
        parts.append(f"$ agentv {' '.join(arguments)}\n{ended.stdout}{messages}= {ended.code}\n")
    return "\n".join(parts).replace(str(folder), "FOLDER")


@pytest.mark.parametrize("name", SCENES)
def test_the_output_of_the_commands_is_unchanged(tmp_path, monkeypatch, command, request, name):
    monkeypatch.chdir(tmp_path)
    text = transcript(command, tmp_path, SCENES[name])
    file = GOLDEN / f"{name}.txt"
    if request.config.getoption("--update-golden"):
        file.write_bytes(text.encode())
    assert text == file.read_bytes().decode()


def test_every_golden_file_belongs_to_a_scene():
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(SCENES)
