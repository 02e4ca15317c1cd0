"""The exit code of a run: the reason it stopped, then errors, then scores."""

import pytest

from agentv.engine.gates import judge
from agentv.engine.run_options import Gates, parse_max_errors
from agentv.errors import UsageError
from agentv.model.manifest import PartSummary, RunSummary, TargetSummary


def target(mean=1.0, scored=10, errors=0, pass_rate=1.0, **evaluators):
    return TargetSummary(
        cases=scored + errors,
        jobs=scored + errors,
        scored=scored,
        errors=errors,
        unscored=0,
        skipped=0,
        mean=mean,
        pass_rate=pass_rate,
        evaluators={name: PartSummary(n=scored, mean=value) for name, value in evaluators.items()},
    )


def code(gates=None, stopped=None, thresholds=None, **targets):
    summary = RunSummary(run_id="r", targets=targets or {"t": target()})
    return judge(summary, gates, stopped, thresholds or {})


@pytest.mark.parametrize(
    ("gates", "found", "expected"),
    [
        (None, target(mean=0.0, pass_rate=0.0), 0),
        (Gates(threshold=0.8), target(mean=0.8), 0),
        (Gates(threshold=0.8), target(mean=0.1 + 0.7), 0),
        (Gates(threshold=0.8), target(mean=0.79), 1),
        (Gates(threshold=0.8), target(mean=None, scored=0), 1),
        (Gates(min_pass_rate=0.5), target(pass_rate=0.5), 0),
        (Gates(min_pass_rate=0.5), target(pass_rate=0.4), 1),
        (None, target(errors=9), 0),
        (None, target(scored=0, errors=3, mean=None), 3),
        (Gates(threshold=0.5), target(errors=1), 3),
        (Gates(threshold=0.5, max_errors=1), target(errors=1), 0),
        (Gates(max_errors=1), target(errors=2), 3),
        (Gates(max_errors=0.1, errors_are_share=True), target(scored=9, errors=1), 0),
        (Gates(max_errors=0.1, errors_are_share=True), target(scored=8, errors=1), 3),
        (Gates(max_errors=0.29, errors_are_share=True), target(scored=71, errors=29), 0),
    ],
)
def test_the_exit_code_depends_on_the_failed_gate(gates, found, expected):
    assert code(gates, t=found).exit_code == expected


def test_every_target_must_pass_the_gate():
    found = code(Gates(threshold=0.5), good=target(), bad=target(mean=0.4))
    assert found.exit_code == 1
    assert found.reasons == ("bad: mean 0.400 (10 of 10 jobs scored) is below the threshold 0.5",)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (target(mean=0.4, errors=2), "mean 0.400 (10 of 12 jobs scored, 2 errors) is below the threshold 0.5"),
        (target(mean=0.49996), "mean 0.49996 (10 of 10 jobs scored) is below the threshold 0.5"),
        (
            target(mean=None, scored=0, errors=2),
            "no mean (0 of 2 jobs scored, 2 errors), required: 0.5",
        ),
    ],
)
def test_a_failed_gate_names_its_sample_size(found, reason):
    assert code(Gates(threshold=0.5, max_errors=2), t=found, other=target()).reasons == (f"t: {reason}",)


@pytest.mark.parametrize(
    ("found", "expected"),
    [(target(tone=0.7), 0), (target(tone=0.69), 1), (target(), 1), (target(errors=1, tone=0.9), 3)],
)
def test_thresholds_of_evaluators_are_gates_too(found, expected):
    assert code(thresholds={"tone": 0.7}, t=found).exit_code == expected


@pytest.mark.parametrize(("stopped", "expected"), [("interrupted", 130), ("budget", 4), ("fail_fast", 1)])
def test_the_reason_a_run_stopped_comes_before_its_scores(stopped, expected):
    assert code(Gates(threshold=0.9), stopped, t=target(mean=0.1)).exit_code == expected


@pytest.mark.parametrize(("text", "parsed"), [("0", (0.0, False)), ("12", (12.0, False)), ("2.5%", (0.025, True))])
def test_max_errors_is_a_number_or_a_percentage(text, parsed):
    assert parse_max_errors(text) == parsed


@pytest.mark.parametrize("text", ["", "x", "1.5", "-1", "-1%", "101%", "nan%", "%"])
def test_an_invalid_max_errors_is_refused(text):
    with pytest.raises(UsageError, match="--max-errors takes a number or a percentage"):
        parse_max_errors(text)
