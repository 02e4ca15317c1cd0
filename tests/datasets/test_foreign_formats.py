"""Files of other tools, as they occur: what each becomes, and what is reported as not kept."""

from pathlib import Path

import pytest
import yaml

import agentv
from agentv.datasets.dataset import Options
from agentv.datasets.detection import detect
from agentv.datasets.loader import case_source
from agentv.errors import LossWarning, MappedNote
from agentv.registry import FOREIGN_FORMATS

DATA = Path(__file__).parent.parent / "data" / "foreign"
SECOND = yaml.safe_load((DATA / "second-group.yaml").read_text("utf-8"))
FIRST = {
    path.stem: yaml.safe_load(path.read_text("utf-8"))
    for path in DATA.glob("*.yaml")
    if path.stem not in "second-group"
}
EXAMPLES = [
    pytest.param(kind, example, id=f"{kind}-{number}")
    for kind, examples in {**FIRST, **SECOND}.items()
    for number, example in enumerate(examples)
]


def text(messages):
    return "" if not messages else messages[-1].content if isinstance(messages[-1].content, str) else None


def shape(case, wanted):
    """Return what is known about a case, for the wanted keys."""
    found = {
        "id": case.id,
        "input": text(case.input),
        "messages": [message.role for message in case.input],
        "expected_output": text(case.expected_output),
        "expected_outcome": case.expected_outcome,
        "evaluators": [spec.type for spec in case.evaluators],
        "rubrics": [item if isinstance(item, str) else dict(item) for item in case.rubrics],
        "tags": list(case.tags),
        "context": list(case.context),
        "turns": len(case.turns),
        "goal": case.user.goal if case.user else None,
        "lines": case.line,
    }
    found["metadata"] = {key: case.metadata.get(key) for key in wanted.get("metadata", {})}
    return {key: found[key] for key in wanted}


def written(folder, example):
    path = folder / example["file"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(example["content"].encode())
    if "sidecar" in example:
        path.with_suffix(".yaml").write_text(example["sidecar"], "utf-8")
    return path


@pytest.mark.parametrize(("kind", "example"), EXAMPLES)
def test_a_file_becomes_the_expected_cases(tmp_path, monkeypatch, kind, example):
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, example).relative_to(tmp_path)
    warnings = []
    source = case_source(str(path), warn=warnings.append, note=print, options=Options(fields=example.get("map", "")))
    cases = source.load()
    if "map" not in example:
        assert detect(str(path)) == kind
    assert [shape(case, wanted) for case, wanted in zip(cases, example["cases"], strict=True)] == example["cases"]
    assert {case.dataset for case in cases} == {example.get("dataset", cases[0].dataset)}
    losses = [str(each) for each in warnings if isinstance(each, LossWarning)]
    assert len(losses) == len(example.get("losses", ())), losses
    assert all(any(part in loss for loss in losses) for part in example.get("losses", ()))
    assert len([each for each in warnings if isinstance(each, MappedNote)]) == 1


def test_every_format_has_enough_examples():
    few = {kind: len(found) for kind, found in FIRST.items() if len(found) < 5}
    few |= {kind: len(found) for kind, found in SECOND.items() if len(found) < 3}
    assert not few
    assert set(FOREIGN_FORMATS.names()) == {*FIRST, *SECOND}


@pytest.mark.parametrize(("kind", "example"), EXAMPLES)
@pytest.mark.parametrize("target", ["out.yaml", "out.jsonl"])
def test_a_file_converts_to_our_formats(tmp_path, command, kind, example, target):
    path = written(tmp_path, example)
    fields = ["--map", example["map"]] if "map" in example else []
    ended = command("convert", str(path), str(path.parent / target), *fields)
    assert ended.code == 0, ended.stderr
    assert len(agentv.load_cases(path.parent / target)) == len(example["cases"])
