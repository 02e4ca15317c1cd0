"""The format of a file is the one that fits it best, in whatever order formats are registered."""

import pytest

from agentv import UsageError
from agentv.datasets.detection import detect
from agentv.datasets.foreign.foreign_format import ForeignFormat
from agentv.registry import FOREIGN_FORMATS, RESULT_FORMATS, SESSION_FORMATS
from agentv.settings.format_choice import Candidate, strongest


def candidate(name, strength, fit=1.0):
    return Candidate(name, strength, lambda: strength * fit)


@pytest.mark.parametrize(
    ("candidates", "best"),
    [
        ([], None),
        ([candidate("a", 0.5, 0)], None),
        ([candidate("weak", 0.2), candidate("strong", 0.9)], "strong"),
        ([candidate("strong", 0.9, 0), candidate("weak", 0.2)], "weak"),
        ([candidate("half", 0.9, 0.5), candidate("whole", 0.5)], "whole"),
    ],
)
def test_the_strongest_format_is_chosen_in_any_order(candidates, best):
    assert strongest("a.json", candidates) == best
    assert strongest("a.json", candidates[::-1]) == best


def test_two_formats_that_fit_equally_well_are_both_named():
    with pytest.raises(UsageError, match=r"Cannot tell the format of a\.json\n  It fits a and b equally well"):
        strongest("a.json", [candidate("b", 0.5), candidate("a", 0.5)])


@pytest.mark.parametrize("registry", [FOREIGN_FORMATS, RESULT_FORMATS, SESSION_FORMATS])
def test_a_strength_is_a_fraction(registry):
    strengths = {name: getattr(registry.find(name), "strength", 0.5) for name in registry.names()}
    assert {name: value for name, value in strengths.items() if not 0 < value <= 1} == {}


FILES = {
    "promptfooconfig.yaml": "prompts: ['{{q}}']\nproviders: [echo]\ntests: [{vars: {q: hi}}]",
    "samples.jsonl": '{"input": "hi", "target": "hello"}',
    "items.jsonl": '{"input": "hi", "ideal": "hello"}',
    "chat.jsonl": '{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}',
    "table.csv": "question,answer\nhi,hello",
}


@pytest.mark.parametrize("name", FILES)
def test_the_order_of_the_registry_decides_nothing(tmp_path, monkeypatch, name):
    path = tmp_path / name
    path.write_text(FILES[name])
    before = detect(str(path))
    names = list(FOREIGN_FORMATS.all_names())[::-1]
    monkeypatch.setattr(FOREIGN_FORMATS, "all_names", lambda: iter(names))
    assert detect(str(path)) == before is not None


class Rival(ForeignFormat):
    title = "a rival"
    strength = 0.9

    def fits(self, file):
        return "promptfoo" in file.path


def test_a_plugin_that_fits_as_well_as_a_known_format_is_refused(tmp_path, monkeypatch, command):
    path = tmp_path / "promptfooconfig.yaml"
    path.write_text(FILES[path.name])
    rows = {**FOREIGN_FORMATS._rows, "rival": f"{__name__}:RIVAL"}
    monkeypatch.setattr(FOREIGN_FORMATS, "_rows", rows)
    ended = command("cases", str(path))
    assert ended.code == 2 and "It fits promptfoo and rival equally well" in ended.stderr


RIVAL = Rival()


@pytest.mark.parametrize("start", ['{"evalcases": [', '{\n"evalcases": [', '{\n  "evalcases": [\n'])
def test_a_dataset_of_ours_may_be_a_json_document(tmp_path, start):
    (path := tmp_path / "cases.json").write_text(f'{start}{{"id": "a", "input": "x", "expected_outcome": "y"}}]}}')
    assert detect(str(path)) == "yaml"
