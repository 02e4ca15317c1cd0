"""The cache of imported results."""

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location

import pytest

from agentv.extensions.interop.imports.import_cache import imported_folder

FORMAT = """
from agentv.extensions.interop.imports.run import ForeignCase, ForeignJob, ForeignResults, ForeignRun

class Toy(ForeignResults):
    title = "a toy"

    def open(self, path):
        case = ForeignCase(id="a", dataset="d")
        return ForeignRun(jobs=[ForeignJob(case=case, target="t", answer="{answer}", score=1.0)])
"""


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """Return the format of a file with this answer in its code."""

    def load(answer):
        path = tmp_path / answer / "toy.py"
        path.parent.mkdir()
        path.write_text(FORMAT.format(answer=answer))
        spec = spec_from_file_location("toy", path)
        module = module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "toy", module)
        spec.loader.exec_module(module)
        return module.Toy()

    return load


def test_results_are_imported_again_if_the_code_of_their_format_changed(tmp_path, toy):
    file = tmp_path / "results.json"
    file.write_text("{}")
    folders = [imported_folder(toy(answer), file) for answer in ("old", "new")]
    answers = [json.loads((folder.path / "results.jsonl").read_text())["candidate_answer"] for folder in folders]
    assert answers == ["old", "new"]


def test_equal_reports_of_two_models_keep_the_names_of_their_folders(tmp_path, command, monkeypatch):
    targets = []
    for model in ("one", "two"):
        folder = tmp_path / "logs" / model / "o__r-1"
        folder.mkdir(parents=True)
        (folder / "report.json").write_text('{"o__r-1": {"patch_exists": true, "resolved": true}}')
        monkeypatch.chdir(folder)
        targets += json.loads(command("report", "report.json", "--json").stdout)["summary"]["targets"]
    assert targets == ["one", "two"]
