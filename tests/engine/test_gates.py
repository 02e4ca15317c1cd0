"""The exit code of a run: the reason it stopped, then errors, then scores."""

import json
import random

import msgspec
import pytest

from agentv.engine.gates.exit_code import judge
from agentv.engine.gates.gate_options import Gates, parse_max_errors
from agentv.errors import UsageError
from agentv.runs.summary import RunSummary, SummaryBuilder
from agentv.runs.target_summary import PartSummary, TargetSummary
from agentv.stats.intervals import proportion_interval
from made_results import failed, judged, scored


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


def measured(passed, n, errors=0):
    """The summary of a run in which `passed` of n scored cases pass."""
    results = [scored(float(number < passed), eval_id=str(number)) for number in range(n)]
    results += [failed(eval_id=f"lost {number}") for number in range(errors)]
    return SummaryBuilder("r").add_all(results).build().targets["t"]


@pytest.mark.parametrize(
    ("found", "least", "expected"),
    [
        (measured(98, 100), 0.9, 0),
        (measured(92, 100), 0.9, 5),
        (measured(88, 100), 0.9, 5),
        (measured(70, 100), 0.9, 1),
        (measured(10, 10), 0.9, 5),
        (measured(0, 3), 0.9, 1),
        (measured(98, 98, errors=2), 0.9, 0),
        (measured(96, 96, errors=8), 0.9, 5),
        (measured(70, 80, errors=40), 0.9, 5),
        (measured(30, 80, errors=2), 0.9, 1),
        (target(mean=None, pass_rate=None, scored=0), 0.9, 1),
    ],
)
def test_a_gate_on_the_interval_passes_fails_or_cannot_tell(found, least, expected):
    for gates in (Gates(threshold=least), Gates(min_pass_rate=least)):
        gates = msgspec.structs.replace(gates, gate_on="interval", max_errors=100)
        assert code(gates, t=found).exit_code == expected


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (
            measured(92, 100),
            "t: pass rate 0.920 (95 % interval 0.848 to 0.965) with 100 of 100 jobs scored; the gate is 0.9. "
            "About 1,800 cases would probably decide.",
        ),
        (
            measured(96, 96, errors=8),
            "t: pass rate 1.000 (95 % interval 0.854 to 1.000 with 8 errors counted as 0 and as 1) with 96 of 104 jobs "
            "scored, 8 errors; the gate is 0.9. Fix the errors: without them the gate would be decided.",
        ),
        (
            measured(90, 100),
            "t: pass rate 0.900 (95 % interval 0.824 to 0.951) with 100 of 100 jobs scored; the gate is 0.9. "
            "The pass rate is too close to the gate for more cases to decide.",
        ),
    ],
)
def test_an_undecided_gate_states_what_would_decide_it(found, reason):
    gates = Gates(min_pass_rate=0.9, gate_on="interval", max_errors=100)
    assert code(gates, t=found).reasons == (reason,)


@pytest.mark.parametrize(("passed", "n", "least"), [(92, 100, 0.9), (20, 20, 0.9), (44, 80, 0.6), (19, 20, 0.8)])
def test_the_suggested_number_of_cases_usually_decides(passed, n, least):
    (reason,) = code(Gates(min_pass_rate=least, gate_on="interval"), t=measured(passed, n)).reasons
    needed = int(reason.split("About ")[1].split(" cases")[0].replace(",", ""))
    low, high = proportion_interval(passed / n, needed)
    assert low > least or high < least
    draw = random.Random(7)
    decided = 0
    for _ in range(300):
        low, high = proportion_interval(sum(draw.random() < passed / n for _ in range(needed)) / needed, needed)
        decided += low >= least or high < least
    assert decided > 0.7 * 300


def test_a_failed_gate_comes_before_an_undecided_one():
    found = code(Gates(min_pass_rate=0.9, gate_on="interval"), sure=measured(10, 100), unsure=measured(92, 100))
    assert found.exit_code == 1
    assert found.reasons[0].startswith(
        "sure: pass rate 0.100 (95 % interval 0.049 to 0.176; 100 of 100 jobs scored) is"
    )
    assert found.reasons[1].startswith("can't tell: unsure: pass rate 0.920")


def test_thresholds_of_evaluators_can_be_decided_by_interval_too():
    results = [scored(evaluator_results=(judged("tone", float(number < 92)),)) for number in range(100)]
    found = SummaryBuilder("r").add_all(results).build().targets["t"]
    assert code(Gates(gate_on="interval"), thresholds={"tone": 0.9}, t=found).exit_code == 5
    assert code(Gates(), thresholds={"tone": 0.9}, t=found).exit_code == 0


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


def test_a_gate_by_interval_needs_a_gate(project):
    project.dataset("yes")
    result = project.eval("--gate-on", "interval", "--max-errors", "3")
    assert result.code == 2
    assert "--gate-on interval has no gate to decide" in result.stderr
    project.dataset("yes", execution={"thresholds": {"says-yes": 0.1}})
    assert project.eval("--gate-on", "interval").code == 5


@pytest.mark.parametrize(("gate_on", "expected"), [("point", 0), ("interval", 5)])
def test_the_command_exits_with_5_if_it_cannot_tell(project, gate_on, expected):
    project.dataset(*["yes"] * 11, "no")
    result = project.eval("--min-pass-rate", "0.9", "--gate-on", gate_on, "--out", "out", "--quiet")
    assert result.code == expected
    assert result.stderr.startswith("Can't tell: default: pass rate 0.917 (95 % interval") is (expected == 5)
    assert json.loads((project.path / "out" / "run.json").read_text())["exit_code"] == expected
    shown = json.loads(
        project.command("rescore", "out", "--min-pass-rate", "0.9", "--gate-on", gate_on, "--json").stdout
    )
    assert (shown["exit_code"], len(shown["reasons"])) == (expected, int(expected > 0))
    assert shown["headlines"] == ["Passed 91.7 % of the 12 cases"]
