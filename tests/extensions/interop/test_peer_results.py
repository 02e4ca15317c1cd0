"""Results that other tools write are read as they meant them. Needs their packages: `pytest -m peers`."""

from pathlib import Path

import pytest

from agentv.runs.store import RunStore

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("default")]


def figures(path):
    """The status and score of each record, and the scores of its evaluators."""
    return {
        (record.eval_id, record.trial): (
            record.status,
            record.score,
            {result.name: result.score for result in record.evaluator_results},
        )
        for record in RunStore.open(path).records()
    }


@pytest.mark.parametrize("form", ["eval", "json"])
def test_a_log_of_inspect_has_its_scores(tmp_path, form):
    pytest.importorskip("inspect_ai", reason="inspect-ai is not installed")
    from inspect_ai import Task
    from inspect_ai import eval as run_eval
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.log import read_eval_log
    from inspect_ai.model import ModelOutput, ModelUsage, get_model
    from inspect_ai.scorer import includes, match
    from inspect_ai.solver import generate, solver

    @solver
    def fail_for_third():
        async def solve(state, generate):
            if state.sample_id == "three":
                raise RuntimeError("timed out")
            return state

        return solve

    outputs = [ModelOutput.from_content("mockllm/model", "The answer is 2") for _ in range(20)]
    for output in outputs:
        output.usage = ModelUsage(input_tokens=11, output_tokens=4, total_tokens=15)
    samples = [
        Sample(id=id, input=f"What is {id}?", target=target)
        for id, target in (("one", "2"), ("two", "4"), ("three", "6"))
    ]
    task = Task(
        dataset=MemoryDataset(samples, name="sums"),
        solver=[fail_for_third(), generate()],
        scorer=[includes(), match()],
        epochs=2,
    )
    model = get_model("mockllm/model", custom_outputs=outputs)
    (log,) = run_eval(task, model=model, log_dir=str(tmp_path), log_format=form, fail_on_error=False, display="none")
    path = Path(log.location.removeprefix("file://"))
    found = figures(path)
    assert found["one", 1] == found["one", 2] == ("ok", 1.0, {"includes": 1.0, "match": 1.0})
    assert found["two", 1] == ("ok", 0.0, {"includes": 0.0, "match": 0.0})
    assert found["three", 2] == ("error", None, {})
    theirs = read_eval_log(log.location).results.scores[0].metrics["accuracy"].value
    scores = [score for status, score, _ in found.values() if status == "ok"]
    assert sum(scores) / len(scores) == pytest.approx(theirs)
    record = next(RunStore.open(path).records())
    assert record.execution_metrics.token_usage.input == 11 and record.candidate_answer == "The answer is 2"


def test_a_test_run_of_deepeval_has_its_scores(tmp_path, monkeypatch):
    pytest.importorskip("deepeval", reason="deepeval is not installed")
    monkeypatch.setenv("DEEPEVAL_TELEMETRY_OPT_OUT", "YES")
    monkeypatch.chdir(tmp_path)
    from deepeval import evaluate
    from deepeval.evaluate import AsyncConfig, DisplayConfig, ErrorConfig
    from deepeval.metrics import BaseMetric
    from deepeval.test_case import LLMTestCase

    class Exact(BaseMetric):
        __name__ = "Exact"
        threshold, async_mode = 0.5, False

        def measure(self, case, *_, **__):
            if case.input == "boom":
                raise ValueError("the judge failed")
            self.score = 1.0 if case.actual_output == case.expected_output else 0.25
            self.success = self.score >= self.threshold
            return self.score

        async def a_measure(self, case, *_, **__):
            return self.measure(case)

        def is_successful(self):
            return self.success

    inputs = {"one": ("q1", "a"), "two": ("q2", "x"), "three": ("boom", "x")}
    cases = [
        LLMTestCase(name=name, input=given, actual_output=answer, expected_output="a")
        for name, (given, answer) in inputs.items()
    ]
    result = evaluate(
        cases,
        [Exact()],
        async_config=AsyncConfig(run_async=False),
        display_config=DisplayConfig(print_results=False, show_indicator=False),
        error_config=ErrorConfig(ignore_errors=True),
    )
    Path("saved.json").write_text(result.model_dump_json())
    expected = {
        ("one", 1): ("ok", 1.0, {"Exact": 1.0}),
        ("two", 1): ("ok", 0.25, {"Exact": 0.25}),
        ("three", 1): ("error", None, {"Exact": None}),
    }
    assert figures(".deepeval/.latest_test_run.json") == figures("saved.json") == expected


def test_a_report_of_pydantic_evals_has_its_scores(tmp_path):
    pytest.importorskip("pydantic_evals", reason="pydantic-evals is not installed")
    from pydantic_evals import Case, Dataset
    from pydantic_evals.evaluators import EqualsExpected
    from pydantic_evals.reporting import EvaluationReportAdapter

    def task(given):
        if given == "boom":
            raise RuntimeError("no")
        return given.upper()

    cases = [
        Case(name=name, inputs=given, expected_output="A")
        for name, given in (("one", "a"), ("two", "b"), ("three", "boom"))
    ]
    report = Dataset(name="d", cases=cases, evaluators=[EqualsExpected()]).evaluate_sync(task, progress=False, repeat=2)
    (tmp_path / "report.json").write_bytes(EvaluationReportAdapter.dump_json(report))
    found = figures(tmp_path / "report.json")
    assert found["one", 1] == found["one", 2] == ("ok", 1.0, {"EqualsExpected": 1.0})
    assert found["two", 2][:2] == ("ok", 0.0) and found["three", 1][:2] == ("error", None)
