"""Runs in Python: data frames, notebooks, and opening a run by name."""

import sys

import pytest

import agentv
from agentv import UsageError

CASES = [{"id": "good", "input": "yes", "tags": ["t"]}, {"id": "bad", "input": "<b>no"}, {"id": "broken", "input": "x"}]


def answer(prompt):
    if prompt == "x":
        raise ValueError("broken")
    return prompt


@pytest.fixture
def run(folder):
    return agentv.evaluate(CASES, answer, [{"type": "contains", "value": "yes"}])


def test_pandas_has_a_row_per_job(run):
    pytest.importorskip("pandas")
    frame = run.to_pandas().set_index("eval_id")
    assert frame.loc["good", "score"] == 1.0 and frame.loc["bad", "score.contains"] == 0.0
    assert frame.loc["broken", "error_class"] == "process" and frame["score"].isna()["broken"]
    assert frame["trial"].dtype == "Int64" and frame.loc["good", "tags"] == ["t"]
    assert frame["score"].mean() == 0.5  # errors are not scores


def test_polars_has_the_same_rows(run):
    polars = pytest.importorskip("polars")
    frame = run.to_polars()
    assert frame.sort("eval_id")["score"].to_list() == [0.0, None, 1.0]
    assert frame.schema["trial"] == polars.Int64 and frame.schema["tags"] == polars.List(polars.String)


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_a_missing_package_names_the_extra(run, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match=rf"pip install 'agentv\[{name}\]'"):
        getattr(run, f"to_{name}")()


def test_a_run_is_shown_as_a_table(run):
    shown = run._repr_html_()
    assert "<td>0.500</td>" in shown and "<td>2 of 3</td>" in shown
    assert "bad" in shown and "ValueError: broken" in shown and "<b>no" not in shown


def test_a_run_is_opened_by_name(run):
    opened = agentv.Run.open("latest")
    assert opened.path == run.path and opened.summary.targets["answer"].mean == 0.5
    assert [type(result) for result in opened.results] == [agentv.Result] * 3


NOTEBOOK = """
import agentv
cases = [{"id": str(number), "input": "x"} for number in range(3)]
agentv.evaluate(cases, lambda prompt: "yes", [{"type": "contains", "value": "yes"}])
"""


@pytest.mark.slow
@pytest.mark.parametrize("source", [NOTEBOOK, NOTEBOOK.replace("agentv.evaluate(", "await agentv.evaluate_async(")])
def test_a_notebook_shows_the_progress_and_the_run(folder, source):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    nbclient.NotebookClient(notebook, timeout=110, kernel_name="python3").execute()
    outputs = notebook.cells[0].outputs
    assert outputs[0].data["text/plain"].startswith("3/3 (100 %)")
    assert "<td>1.000</td>" in outputs[-1].data["text/html"]
