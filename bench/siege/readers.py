"""The readers that the siege fuzzes. Each takes any bytes, and reads them or raises an error made for the user."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).resolve().parent / "corpus"
FOREIGN = CORPUS.parent.parent.parent / "tests" / "data" / "foreign"
_FILE_NAME = re.compile(r"[a-z0-9_-][a-z0-9_.-]{0,40}\.(jsonl|json|csv|tsv|yaml|yml|toml|txt|parquet|xlsx)")

Reader = Callable[[bytes, Path], object]


def refuses(read: Reader, *also: str) -> Reader:
    """Accept an AgentvError, and exceptions of agentv with one of these names."""

    def reads_or_refuses(data: bytes, folder: Path) -> None:
        from agentv.errors import AgentvError

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                read(data, folder)
            except AgentvError:
                pass
            except Exception as error:
                if type(error).__name__ not in also:
                    raise

    return reads_or_refuses


def seeds(name: str) -> Iterator[tuple[str, bytes]]:
    """Yield the inputs to start from: the corpus and, for files of other tools, the examples of the tests."""
    if (CORPUS / name).is_dir():
        for path in sorted((CORPUS / name).iterdir()):
            yield path.name, path.read_bytes()
    if name == "foreign":
        yield from _foreign_examples()


def _foreign_examples() -> Iterator[tuple[str, bytes]]:
    import yaml

    documents = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in sorted(FOREIGN.glob("*.yaml"))}
    for kind, examples in {**documents.pop("second-group"), **documents}.items():
        for number, example in enumerate(examples):
            if "content" in example:
                head = f"{kind} {Path(example['file']).name}\n"
                yield f"{kind}-{number}", head.encode() + example["content"].encode()


def _dataset(suffix: str) -> Reader:
    def read(data: bytes, folder: Path) -> object:
        from agentv import load_cases

        path = folder / f"d{suffix}"
        path.write_bytes(data)
        return load_cases(str(path))

    return read


def _foreign(data: bytes, folder: Path) -> None:
    """Read a file of another tool. The first line has the format and the file's name, or only the name."""
    from agentv.datasets.dataset import Options
    from agentv.datasets.discovery import GivenFormat, find_datasets
    from agentv.datasets.loader import CaseSource, SkippingSink
    from agentv.datasets.selection import Selection

    head, _, content = data.partition(b"\n")
    kind, _, name = head.decode("utf-8", "replace").rpartition(" ")
    if not _FILE_NAME.fullmatch(name):
        return
    path = folder / name
    path.write_bytes(content)
    ignore: Callable[[object], None] = lambda _: None  # noqa: E731
    try:
        for given in ("", kind):  # recognized by its content, then as named
            found = tuple(find_datasets(str(path), ignore, ignore, given_format=GivenFormat(kind=given)))
            CaseSource(found, Options(), Selection(), SkippingSink(ignore)).load()
    finally:
        path.unlink()


def _results(suffix: str) -> Reader:
    def read(data: bytes, folder: Path) -> object:
        from agentv.runs.store import RunStore

        path = folder / f"eval_r{suffix}"
        path.write_bytes(data)
        return RunStore.open(path).figures()

    return read


def _run_file(name: str) -> Reader:
    def read(data: bytes, folder: Path) -> object:
        from agentv.runs.maintenance.damage import check_run
        from agentv.runs.maintenance.repair import repair_run
        from agentv.runs.store import RunStore

        run = folder / "run"
        run.mkdir(exist_ok=True)
        for path in run.iterdir():
            path.unlink()
        for path in (CORPUS / "run").iterdir():
            (run / path.name).write_bytes(path.read_bytes())
        (run / name).write_bytes(data)
        check_run(run)
        repair_run(run)
        return [list(case.fields) for case in RunStore.open(run).cases()], RunStore.open(run).figures()

    return read


def _targets(data: bytes, folder: Path) -> object:
    from agentv.datasets.formats.yaml_dataset import parse_yaml_file
    from agentv.settings.environment import Environment
    from agentv.targets.catalog import load_targets

    path = folder / "targets.yaml"
    path.write_bytes(data)
    return load_targets(parse_yaml_file(str(path)), str(path), Environment({}))


def _labels(data: bytes, folder: Path) -> object:
    from agentv.calibration.label_file import read_labels

    path = folder / "labels.jsonl"
    path.write_bytes(data)
    return read_labels(path)


def _recording(data: bytes, folder: Path) -> object:
    from agentv.targets.recordings.replay import Recording

    path = folder / "calls.jsonl"
    path.write_bytes(data)
    recording = Recording(str(path))
    recording.close()
    return recording


def _template(data: bytes, folder: Path) -> object:  # noqa: ARG001
    from agentv.support.templates import names_in, render

    text = data.decode("utf-8", "replace")
    values = {"question": "why?", "items": [1, {"a": None}], "n": 3}
    return names_in(text), render(text, values)


def _glob(data: bytes, folder: Path) -> object:  # noqa: ARG001
    """Match the first line, a glob, with the second, a path."""
    from agentv.support.patterns import braces, has_magic, matches

    pattern, _, path = data.decode("utf-8", "replace").partition("\n")
    return braces(pattern), has_magic(pattern), matches(pattern, path)


def _regex(data: bytes, folder: Path) -> object:  # noqa: ARG001
    """Search for the first line, a regular expression, in the rest."""
    from agentv.support.patterns import search

    pattern, _, text = data.decode("utf-8", "replace").partition("\n")
    with suppress(re.error, OverflowError, RecursionError):
        compiled = re.compile(pattern)
        return search(compiled, text, 0.5)
    return None


def _transform(data: bytes, folder: Path) -> object:  # noqa: ARG001
    """Apply the first line, a JSON path, to the rest."""
    from agentv.support.transform import apply_transform

    path, _, text = data.decode("utf-8", "replace").partition("\n")
    return apply_transform(text, {"strip": ["thinking", "fences"], "json_path": path})


def _judge_response(data: bytes, folder: Path) -> object:  # noqa: ARG001
    """Read a judge's reply; the text before the first NUL is quoted from the judged answer."""
    from agentv.evaluators.judges.judge_responses import ResponseFormat, parse_response
    from agentv.evaluators.judges.llm_judge import verdict_format
    from agentv.evaluators.judges.object_scan import UnusableResponse
    from agentv.evaluators.judges.pairwise import SCHEMA, read_preference
    from agentv.evaluators.judges.rubric import SCHEMAS, read_checks, rubric_items

    quoted, _, text = data.decode("utf-8", "replace").rpartition("\0")
    items = rubric_items(["is kind", "is short"])
    forms: tuple[ResponseFormat[Any], ...] = (
        verdict_format((quoted,)),
        ResponseFormat(SCHEMA, read_preference, quoted=(quoted,)),
        ResponseFormat(SCHEMAS["checks"], lambda found: read_checks(found, items), quoted=(quoted,)),
    )
    for form in forms:
        with suppress(UnusableResponse):
            parse_response(text, form)
    return None


READERS: dict[str, Reader] = {
    "jsonl": refuses(_dataset(".jsonl")),
    "yaml": refuses(_dataset(".yaml")),
    "prompt_mdx": refuses(_dataset(".prompt.mdx")),
    "foreign": refuses(_foreign),
    "results": refuses(_results(".jsonl")),
    "results_yaml": refuses(_results(".yaml")),
    "manifest": refuses(_run_file("run.json")),
    "cases": refuses(_run_file("cases.jsonl")),
    "records": refuses(_run_file("results.jsonl")),
    "summary": refuses(_run_file("summary.json")),
    "targets": refuses(_targets),
    "labels": refuses(_labels),
    "recording": refuses(_recording),
    "template": refuses(_template, "TemplateProblem"),
    "glob": refuses(_glob),
    "regex": refuses(_regex, "SlowPattern"),
    "transform": refuses(_transform, "ValueError"),
    "judge_response": refuses(_judge_response),
}
