"""The readers that the siege fuzzes. Each takes any bytes, and reads them or raises an error made for the user."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).resolve().parent / "corpus"
DATA = CORPUS.parent.parent.parent / "tests" / "data"
FOREIGN = DATA / "foreign"
_PROJECT_FILES = (".agentv/targets.yaml", ".agentv/config.yaml", "d.yaml")
_ANY_NAME = re.compile(r"[\w.-]{1,80}")
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


def file_name(name: str, data: bytes) -> tuple[str, bytes, bytes]:
    """Return the name of the file that an input of a reader is, the line before its content, and the content."""
    if name not in _WITH_HEAD:
        return _SUFFIXES.get(name, "x.txt"), b"", data
    head, _, content = data.partition(b"\n")
    return head.decode("utf-8", "replace").rpartition(" ")[2], head + b"\n", content


def seeds(name: str) -> Iterator[tuple[str, bytes]]:
    """Yield the inputs to start from: the corpus and, for files of other tools, the examples of the tests."""
    if (CORPUS / name).is_dir():
        for path in sorted((CORPUS / name).iterdir()):
            yield path.name, path.read_bytes()
    if name in ("jsonl", "yaml"):
        for path in sorted((DATA.parent.parent / "examples").glob(f"*/evals/*.{name}")):
            yield f"{path.parent.parent.name}-{path.stem}", path.read_bytes()
    if name == "project":
        yield from _project_examples()
    if name == "foreign":
        yield from _foreign_examples()
    if name in ("foreign_results", "sessions"):
        yield from _examples(DATA / name)
    if name == "otlp":
        yield from ((title, data) for title, data in _examples(DATA / "sessions") if title.startswith("otlp"))


def _examples(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the examples of results or sessions: a line with the file's name, and its content."""
    import json

    import yaml

    for path in sorted(folder.glob("*.yaml")):
        for number, example in enumerate(yaml.safe_load(path.read_text("utf-8"))):
            content = example.get("content")
            if content is not None and "file" in example:
                text = content if isinstance(content, str) else _as_text(content, example["file"], json.dumps)
                yield f"{path.stem}-{number}", f"{Path(example['file']).name}\n{text}".encode()


def _as_text(content: Any, file: str, dump: Callable[[Any], str]) -> str:
    is_lines = file.endswith(".jsonl") and isinstance(content, list)
    return "\n".join(map(dump, content)) + "\n" if is_lines else dump(content)


def _project_examples() -> Iterator[tuple[str, bytes]]:
    """Yield the examples of evaluators in the documentation: their targets and datasets in one JSON object."""
    import json

    import yaml

    for path in sorted((DATA.parent.parent / "docs" / "examples").glob("*.txt")):
        files = dict(part.partition("\n")[::2] for part in path.read_text("utf-8").split("=== ") if part)
        datasets = [content for name, content in files.items() if name.startswith("evals/") and name.endswith(".yaml")]
        if datasets:
            texts = {".agentv/targets.yaml": files.get(".agentv/targets.yaml", ""), "d.yaml": datasets[0]}
            yield path.stem, json.dumps({name: yaml.safe_load(text) for name, text in texts.items()}).encode()


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


def _foreign_results(data: bytes, folder: Path) -> None:
    """Read the results of another tool. The first line has the file's name."""
    from agentv.runs.store import RunStore

    path = _named_file(data, folder)
    try:
        RunStore.open(path).figures()
    finally:
        path.unlink()


def _sessions(data: bytes, folder: Path) -> None:
    """Read the sessions of an agent. The first line has the file's name."""
    from agentv.sessions.session import ReadLog
    from agentv.sessions.session_file import read_sessions

    path = _named_file(data, folder)
    try:
        for session in read_sessions([str(path)], ReadLog()):
            [(exchange.text, exchange.answer, exchange.tools) for exchange in session.exchanges]
    finally:
        path.unlink()


def _named_file(data: bytes, folder: Path) -> Path:
    head, _, content = data.partition(b"\n")
    name = head.decode("utf-8", "replace")
    path = folder / (name if _ANY_NAME.fullmatch(name) else "x.json")
    path.write_bytes(content)
    return path


def _otlp(data: bytes, folder: Path) -> None:  # noqa: ARG001
    from agentv.extensions.otel.otlp_body import JSON, UnreadableBody, spans_of_body

    for signal in ("traces", "logs"):
        with suppress(UnreadableBody):
            spans_of_body(data.partition(b"\n")[2], JSON, signal)


def _spreadsheet(suffix: str) -> Reader:
    def read(data: bytes, folder: Path) -> object:
        from agentv import load_cases

        path = folder / f"d{suffix}"
        path.write_bytes(data)
        return load_cases(str(path))

    return read


def _results(suffix: str) -> Reader:
    def read(data: bytes, folder: Path) -> object:
        from agentv.runs.store import RunStore

        path = folder / f"eval_r{suffix}"
        path.write_bytes(data)
        return RunStore.open(path).figures()

    return read


def _run_file(name: str) -> Reader:
    """Read a run with one changed file: as it is with the right hashes, as it is, and repaired."""

    def read(data: bytes, folder: Path) -> None:
        from agentv.errors import AgentvError
        from agentv.extensions.maintenance.repair import repair_run
        from agentv.runs.damage import check_run

        run = folder / "run"
        run.mkdir(exist_ok=True)
        for path in run.iterdir():
            path.unlink()
        for path in (CORPUS / "run").iterdir():
            (run / path.name).write_bytes(path.read_bytes())
        (run / name).write_bytes(data)
        with suppress(AgentvError):
            _read_run(_with_hashes(run))
        (run / name).write_bytes(data)
        check_run(run)
        repair_run(run)
        _read_run(run)

    return read


def _with_hashes(run: Path) -> Path:
    """Set the hashes in the manifest to those of the files, so that the run is read as if it was written this way."""
    import json

    from agentv.runs.folder import content_digest

    try:
        manifest = json.loads((run / "run.json").read_bytes())
    except ValueError:
        return run
    if isinstance(manifest, dict):
        manifest.pop("checksum", None)
        files = ("results.jsonl", "cases.jsonl", "summary.json")
        manifest["digests"] = {name: content_digest(run / name) for name in files}
        (run / "run.json").write_text(json.dumps(manifest), encoding="utf-8")
    return run


def _read_run(run: Path) -> None:
    """Read a run in every way that commands do: its cases and figures, all reports, and a comparison with another."""
    from agentv import compare
    from agentv.comparison.comparison_json import comparison_data
    from agentv.errors import AgentvError
    from agentv.registry import REPORTS
    from agentv.report.comparisons.comparison_text import comparison_lines, comparison_markdown
    from agentv.report.formats import write_report
    from agentv.report.summary_text import headlines
    from agentv.runs.store import RunStore

    store = RunStore.open(run)
    for case in store.cases():
        list(case.fields)
    figures = store.figures()
    for name in REPORTS.names():
        write_report(name, store, figures, run.parent / f"report.{name}")
    headlines(figures.summary)
    for key in store.index:
        store.get(key)
    store.close()
    for target in ("default", "plain"):
        with suppress(AgentvError):
            comparison = compare(f"{CORPUS / 'run'}:{target}", f"{run}:{target}", allow_changed_measure=True)
            comparison_lines(comparison)
            comparison_markdown(comparison)
            comparison_data(comparison, 0)


def _project(data: bytes, folder: Path) -> None:
    """Check a project. The input has the content of its files by name, such as `d.yaml`."""
    import json
    import os

    from agentv.engine.checks.validation import validate

    try:
        files = json.loads(data)
    except ValueError:
        return
    project = folder / "project"
    (project / ".agentv").mkdir(parents=True, exist_ok=True)
    for name in _PROJECT_FILES:
        content = files.get(name) if isinstance(files, dict) else files
        (project / name).write_text(json.dumps(content), encoding="utf-8")
    before = os.getcwd()
    os.chdir(project)
    try:
        validate(["d.yaml"])
    finally:
        os.chdir(before)


def _targets(data: bytes, folder: Path) -> object:
    from agentv.model.environment import Environment
    from agentv.support.yaml.yaml_file import parse_yaml_file
    from agentv.targets.catalog import load_targets

    path = folder / "targets.yaml"
    path.write_bytes(data)
    return load_targets(parse_yaml_file(str(path)), str(path), Environment({}))


def _labels(data: bytes, folder: Path) -> object:
    from agentv.extensions.judge.label_file import read_labels

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
    from agentv.settings.transform import apply_transform

    path, _, text = data.decode("utf-8", "replace").partition("\n")
    return apply_transform(text, {"strip": ["thinking", "fences"], "json_path": path})


def _judge_response(data: bytes, folder: Path) -> object:  # noqa: ARG001
    """Read a judge's reply; the text before the first NUL is quoted from the judged answer."""
    from agentv.evaluators.judges.judge_responses import ResponseFormat, parse_response
    from agentv.evaluators.judges.llm_judge import SCHEMA, read_preference, verdict_format
    from agentv.evaluators.judges.object_scan import UnusableResponse
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
    "xlsx": refuses(_spreadsheet(".xlsx")),
    "ods": refuses(_spreadsheet(".ods")),
    "foreign_results": refuses(_foreign_results),
    "sessions": refuses(_sessions),
    "otlp": refuses(_otlp),
    "results": refuses(_results(".jsonl")),
    "results_yaml": refuses(_results(".yaml")),
    "manifest": refuses(_run_file("run.json")),
    "cases": refuses(_run_file("cases.jsonl")),
    "records": refuses(_run_file("results.jsonl")),
    "summary": refuses(_run_file("summary.json")),
    "targets": refuses(_targets),
    "project": refuses(_project),
    "labels": refuses(_labels),
    "recording": refuses(_recording),
    "template": refuses(_template, "TemplateProblem"),
    "glob": refuses(_glob),
    "regex": refuses(_regex, "SlowPattern"),
    "transform": refuses(_transform, "TransformFailure", "ValueError"),
    "judge_response": refuses(_judge_response),
}

_WITH_HEAD = ("foreign", "foreign_results", "sessions", "otlp")
_SUFFIXES = {
    "jsonl": "d.jsonl", "yaml": "d.yaml", "results": "r.jsonl", "results_yaml": "r.yaml", "manifest": "run.json",
    "cases": "c.jsonl", "records": "r.jsonl", "summary": "s.json", "targets": "t.yaml", "labels": "l.jsonl",
    "recording": "c.jsonl", "project": "p.json", "xlsx": "d.xlsx", "ods": "d.ods",
}  # fmt: skip
"""The names of files, whose extensions tell how inputs are changed."""

PACKAGES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("jsonl", "yaml"), ("datasets/case", "datasets/formats", "support/yaml")),
    "prompt_mdx": ("datasets/case", "datasets/formats", "support/yaml", "extensions/agentmark"),
    "foreign": ("datasets/foreign", "extensions/interop/datasets", "extensions/promptfoo"),
    **dict.fromkeys(("xlsx", "ods"), ("extensions/spreadsheets/spreadsheets", "datasets/foreign/records")),
    "foreign_results": ("extensions/interop/imports", "extensions/interop/results"),
    "sessions": ("sessions", "extensions/interop/sessions", "extensions/otel"),
    "otlp": ("extensions/otel",),
    **dict.fromkeys(("results", "results_yaml"), ("runs", "extensions/interop/results/agentv/agentv_rows")),
    **dict.fromkeys(("manifest", "cases", "records", "summary"), ("runs", "report", "comparison")),
    "targets": ("targets/catalog", "settings"),
    "project": ("datasets/case", "evaluators", "engine/checks", "settings", "targets"),
    "labels": ("extensions/judge/label_file",),
    "recording": ("targets/recordings",),
    "template": ("support/templates",),
    **dict.fromkeys(("glob", "regex"), ("support/patterns",)),
    "transform": ("settings/transform",),
    "judge_response": ("evaluators/judges",),
}
"""The packages of each reader, whose lines are counted."""
