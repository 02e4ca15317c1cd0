"""Early stopping: in random order, as soon as the result is known, with figures that stay valid."""

import json
import signal

import msgspec
import pytest

from agentv import compare, evaluate
from agentv.datasets.loader import InMemoryCases
from agentv.datasets.selection import Selection
from agentv.engine.early_stop import EarlyStopping, parse_rule
from agentv.engine.run_plan import JobSource
from agentv.errors import UsageError
from agentv.model.values import draw_rank, sampling_unit
from agentv.runs.folder import RunFolder
from agentv.stats.sequential import BettingMean
from waiting import wait_until, whole_lines

CASES = 400


def case_text(number, share):
    """Return a text that passes in the given percentage of cases, spread evenly."""
    return "yes" if number * 37 % 100 < share else "no"


@pytest.fixture
def easy(project):
    project.dataset(*(case_text(number, 95) for number in range(CASES)))
    return project


def summary_of(project, out="out"):
    return RunFolder(project.path / out).read_summary().targets


def test_a_clear_result_ends_the_run_early_and_is_labelled(easy):
    result = easy.eval("--stop-when", "0.7", "--out", "out", "--workers", "4")
    assert result.code == 0
    found = summary_of(easy)["default"]
    stop = found.early_stop
    assert (stop.rule, stop.measure, stop.value, stop.answer) == ("0.7", "mean", 0.7, "above")
    assert stop.not_needed == found.skipped > CASES / 2
    assert stop.n == found.scored == len(easy.records())
    assert stop.e_value >= 20
    assert stop.ci95 == pytest.approx(found.ci95)
    assert 0.7 < found.ci95[0] < found.mean <= found.ci95[1]
    assert (stop.population, stop.biased) == (CASES, True)
    manifest = RunFolder(easy.path / "out").read_manifest()
    assert manifest.stopped_early
    assert manifest.finished_at is not None
    assert manifest.counts.skipped == found.skipped
    assert "Stopped early" in result.stdout
    assert "decided     the mean of all cases is above 0.7" in result.stdout
    assert "; biased: the run stopped early)" in result.stdout
    assert "--resume" not in result.stdout


def test_the_figures_follow_the_random_order(easy):
    easy.eval("--stop-when", "0.7", "--out", "out", "--workers", "7", "--seed", "3")
    path = easy.records()[0]["dataset_path"]
    drawn = sorted(easy.records(), key=lambda each: draw_rank(3, sampling_unit(None, path, each["eval_id"])))
    bet = BettingMean(0.7, population=CASES)
    for record in drawn:
        bet.add(record["score"])
    found = summary_of(easy)["default"]
    assert found.ci95 == pytest.approx(bet.interval)
    assert found.evaluators["says-yes"].ci95 == pytest.approx(bet.interval)
    # The cases that were run are the first of the whole shuffle.
    order = sorted(
        (f"c{number}" for number in range(CASES)), key=lambda id: draw_rank(3, sampling_unit(None, path, id))
    )
    assert {record["eval_id"] for record in drawn} == set(order[: len(drawn)])


def test_an_unclear_result_runs_to_the_end(easy):
    result = easy.eval("--stop-when", "mean=0.95", "--seed", "1", "--out", "out")
    found = summary_of(easy)["default"]
    assert (found.scored, found.skipped, found.early_stop.answer) == (CASES, 0, None)
    assert not RunFolder(easy.path / "out").read_manifest().stopped_early
    assert "undecided   whether the mean of all cases is above or below 0.95" in result.stdout
    assert found.ci95[0] < 0.95 < found.ci95[1]
    easy.eval("--out", "plain")
    plain = summary_of(easy, "plain")["default"]
    assert timeless({"t": found}) == timeless({"t": msgspec.structs.replace(plain, early_stop=found.early_stop)})
    assert found.early_stop.ci95 == plain.ci95
    assert not found.early_stop.biased


def test_every_run_draws_a_new_order_and_records_its_seed(easy):
    shown = easy.command("cases", "d.yaml", "--sample", "90%").stdout
    sample = {json.loads(line)["id"] for line in shown.splitlines()}
    seeds = []
    for name in ("one", "two"):
        easy.eval("--stop-when", "0.7", "--sample", "90%", "--out", name)
        seeds.append(RunFolder(easy.path / name).read_manifest().seed)
        ids = {record["eval_id"] for record in easy.records(name)}
        assert ids <= sample
    assert len({*seeds}) == 2
    (easy.path / "two" / "results.jsonl").write_bytes(b"")
    assert easy.command("eval", "--resume", "--out", "two").code == 0
    assert RunFolder(easy.path / "two").read_manifest().seed == seeds[1]
    again = {record["eval_id"] for record in easy.records("two")}
    assert again <= ids or ids <= again


def test_a_gate_by_interval_makes_the_rule_about_the_population(easy):
    gates = ("--threshold", "0.7", "--gate-on", "interval")
    result = easy.eval("--stop-when", "0.7", *gates, "--seed", "1", "--out", "out")
    found = summary_of(easy)["default"]
    assert (result.code, found.early_stop.answer, found.early_stop.population) == (0, "above", None)
    assert found.skipped and found.ci95[0] >= 0.7
    easy.eval("--stop-when", "0.7", "--threshold", "0.7", "--seed", "1", "--out", "point")
    assert summary_of(easy, "point")["default"].scored < found.scored


def test_below_and_by_pass_rate(easy):
    easy.dataset(*(case_text(number, 30) for number in range(CASES)))
    result = easy.eval("--stop-when", "pass-rate=0.6", "--threshold", "0.6", "--out", "low")
    stop = summary_of(easy, "low")["default"].early_stop
    assert (stop.measure, stop.answer, result.code) == ("pass_rate", "below", 1)


def test_targets_are_decided_individually(project):
    project.targets(
        {"name": "good", "provider": "mock", "response": "yes"},
        {"name": "even", "provider": "mock", "responses": {"c*[02468]": "yes", "*": "no"}},
    )
    project.dataset(*["yes"] * 120)
    result = project.eval("--target", "good", "--target", "even", "--stop-when", "0.5", "--seed", "1", "--out", "out")
    found = summary_of(project)
    assert result.code == 0
    assert found["good"].early_stop.answer == "above"
    assert (found["even"].early_stop.answer, found["even"].scored) == (None, 120)
    assert found["good"].scored < 40
    assert RunFolder(project.path / "out").read_manifest().stopped_early


def test_a_conversation_or_the_trials_of_a_case_are_one_unit(project):
    cases = [{"input": case_text(number // 4, 90), "conversation_id": f"talk-{number // 4}"} for number in range(CASES)]
    project.dataset(*cases)
    project.eval("--stop-when", "0.5", "--trials", "2", "--out", "out", "--workers", "3")
    records = project.records()
    stop = summary_of(project)["default"].early_stop
    talks = {}
    for record in records:
        talks.setdefault(record["conversation_id"], []).append(record)
    assert {len(each) for each in talks.values()} == {8}
    assert (stop.units, stop.n, stop.answer) == (len(talks), len(records), "above")
    assert len(records) < 2 * CASES


def test_against_an_earlier_run(project):
    project.dataset(*(case_text(number, 60) for number in range(CASES)))
    project.eval("--out", "before")
    project.targets({"name": "better", "provider": "mock", "response": "yes"})
    result = project.eval("--target", "better", "--stop-when", "before", "--out", "after")
    stop = summary_of(project, "after")["better"].early_stop
    assert (stop.measure, stop.rule, stop.answer) == ("difference", "before", "above")
    assert 0 < stop.ci95[0] < stop.estimate < stop.ci95[1]
    assert stop.not_needed > 0
    assert "decided     the mean is above that of before (difference +0." in result.stdout


@pytest.mark.parametrize("given", ["one,two", "nightly", "@nightly"])
def test_against_several_runs_that_are_pooled(project, given):
    project.dataset(*(case_text(number, 60) for number in range(CASES)))
    for name in ("one", "two"):
        project.eval("--out", name, "--experiment", "nightly")
    project.targets({"name": "better", "provider": "mock", "response": "yes"})
    assert project.eval("--target", "better", "--stop-when", given, "--out", "after").code == 0
    stop = summary_of(project, "after")["better"].early_stop
    assert (stop.measure, set(stop.rule.split(",")), stop.answer) == ("difference", {"one", "two"}, "above")
    refused = project.eval("--stop-when", "one,after", "--out", "again")
    assert (refused.code, "Cannot pool after into the baseline" in refused.stderr) == (2, True)


def test_a_run_that_stopped_early_can_be_compared(project):
    project.dataset(*(case_text(number, 60) for number in range(CASES)))
    project.eval("--out", "before")
    project.targets({"name": "better", "provider": "mock", "response": "yes"})
    project.eval("--target", "better", "--stop-when", "before", "--out", "after", "--seed", "2")
    stop = summary_of(project, "after")["better"].early_stop
    found = compare(project.path / "before", project.path / "after")
    assert found.paired.test == "e-value"
    assert found.paired.ci95 == pytest.approx(stop.ci95)
    assert found.paired.p_value == pytest.approx(1 / stop.e_value, rel=1e-4)
    result = project.command("compare", "before", "after")
    assert "Note: B was stopped early, so its mean is biased" in result.stdout
    assert "Method: interval and p-value by betting" in result.stdout
    for style in ((), ("--markdown",)):
        many = project.command("compare", "before", "before", "after", *style).stdout
        assert "C was stopped early" in many


def test_a_killed_run_resumes_with_the_same_result(project):
    project.targets({"name": "default", "provider": "mock", "delay_ms": 4, "workers": 3})
    project.dataset(*(case_text(number, 85) for number in range(CASES)))
    options = ("d.yaml", "--stop-when", "0.75", "--seed", "3", "--out")
    with project.spawn(*options, "killed") as process:
        results = project.path / "killed" / "results.jsonl"
        wait_until(lambda: whole_lines(results) >= 20, process)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert project.run("--resume", "--out", "killed")[0] == 0
    assert project.run(*options, "whole")[0] == 0
    killed, whole = (summary_of(project, name)["default"] for name in ("killed", "whole"))
    assert killed.early_stop.answer == whole.early_stop.answer == "above"
    # A few more were in flight in one of them; the order is the same.
    ids = [{record["eval_id"] for record in project.records(name)} for name in ("killed", "whole")]
    assert ids[0] <= ids[1] or ids[1] <= ids[0]
    assert len(project.records("killed")) == len(ids[0])


def test_errors_do_not_count_for_early_stopping(project):
    project.targets({"name": "default", "provider": "mock", "response": "yes", "fault_rate": 0.5, "max_retries": 0})
    project.dataset(*["yes"] * 200)
    project.eval("--stop-when", "0.5", "--out", "out", "--max-retries", "0")
    found = summary_of(project)["default"]
    assert found.errors > 0
    assert (found.mean, found.early_stop.n) == (1.0, found.scored)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1.5", "between 0 and 1"),
        ("0", "between 0 and 1"),
        ("nowhere", "Invalid rule"),
        ("cost=0.5", "Invalid rule"),
    ],
)
def test_invalid_rules_are_errors_before_any_call(easy, text, message):
    result = easy.eval("--stop-when", text, "--out", "out")
    assert result.code == 2
    assert message in result.stderr
    assert not (easy.path / "out").exists()


def test_a_baseline_needs_a_matching_target(project):
    project.targets(*({"name": name, "provider": "mock"} for name in ("one", "two", "three")))
    project.dataset("yes", "no")
    project.eval("--target", "one", "--target", "two", "--out", "before")
    result = project.eval("--target", "three", "--stop-when", "before")
    assert result.code == 2
    assert "that run has several targets, but no 'three'" in result.stderr
    assert project.eval("--target", "three", "--stop-when", "before:two", "--out", "after").code == 0


def test_the_python_api_supports_early_stopping(project):
    run = evaluate(
        [{"id": str(number), "expected_outcome": "x", "input": "yes"} for number in range(200)],
        lambda prompt: prompt,
        [{"type": "contains", "value": "yes"}],
        stop_when=0.5,
        out=project.path / "out",
    )
    (target,) = run.summary.targets.values()
    assert target.early_stop.answer == "above"
    assert json.loads((project.path / "out" / "summary.json").read_text())["targets"]


class OneJobPerCase(JobSource):
    def counts(self, case):
        return {"t": 1}


@pytest.mark.parametrize("at_once", [7, 60, 1_000])
def test_a_large_dataset_has_the_same_order_when_read_in_parts(at_once):
    rows = [
        {"id": str(number), "expected_outcome": "x", "input": "a"}
        | ({"conversation_id": f"c{number % 9}"} if number % 2 else {})
        for number in range(120)
    ]
    cases = InMemoryCases(rows, Selection())
    drawn = list(EarlyStopping(parse_rule("0.5"), 3, cases, OneJobPerCase(), at_once).units(cases))
    names = [sampling_unit(unit[0].conversation_id, unit[0].path, unit[0].id) for unit in drawn]
    assert names == sorted(set(names), key=lambda name: draw_rank(3, name))
    assert sorted(int(case.id) for unit in drawn for case in unit) == list(range(120))
    assert {len(unit) for unit in drawn if unit[0].conversation_id} == {6, 7}


def test_the_same_conversation_id_in_two_datasets_is_two_units():
    assert sampling_unit("c1", "support.yaml", "a") == sampling_unit("c1", "support.yaml", "b")
    assert sampling_unit("c1", "support.yaml", "a") != sampling_unit("c1", "sales.yaml", "a")


def test_rules_are_read():
    assert parse_rule("0.8").measure == parse_rule("mean = 0.8").measure == "mean"
    assert (parse_rule("pass_rate=0.9").measure, parse_rule("pass-rate=0.9").value) == ("pass_rate", 0.9)
    with pytest.raises(UsageError, match="Invalid rule"):
        parse_rule("mean=high")


@pytest.fixture
def talks(project):
    cases = [{"input": case_text(number // 4, 90), "conversation_id": f"talk-{number // 4}"} for number in range(120)]
    project.targets({"name": "default", "provider": "mock", "delay_ms": 2})
    project.dataset(*cases)
    project.eval("--stop-when", "0.5", "--workers", "12", "--seed", "5", "--out", "out")
    assert summary_of(project)["default"].early_stop.not_needed > 0
    return project


def test_a_complete_run_is_left_unchanged(talks):
    files = [talks.path / "out" / name for name in ("summary.json", "results.jsonl", "run.json")]
    before = [file.read_text() for file in files]
    assert talks.command("eval", "--resume", "--out", "out").code == 0
    assert [file.read_text() for file in files] == before


def test_a_started_unit_is_finished_after_a_kill(talks):
    whole = summary_of(talks)
    units = {}
    results = talks.path / "out" / "results.jsonl"
    lines = results.read_bytes().splitlines(keepends=True)
    for number, record in enumerate(map(json.loads, lines)):
        units.setdefault(draw_rank(5, sampling_unit(record["conversation_id"], record["dataset_path"], "")), []).append(
            (number, record["score"])
        )
    *before, last = (units[place] for place in sorted(units))
    bet = BettingMean(0.5, largest=4, population=30)
    for unit in before:
        bet.add(sum(score for _, score in unit), 4)
    assert bet.decided == "above"
    lost = {number for number, _ in last[:2]}
    results.write_bytes(b"".join(line for number, line in enumerate(lines) if number not in lost))
    assert talks.command("eval", "--resume", "--out", "out").code == 0
    found = summary_of(talks)["default"]
    assert found.early_stop == whole["default"].early_stop
    assert (found.ci95, found.skipped) == (whole["default"].ci95, whole["default"].skipped)


def timeless(targets):
    """Without the sum of times, whose last digit depends on the order of records."""
    return {name: msgspec.structs.replace(target, duration_ms=None) for name, target in targets.items()}


def test_a_rescore_keeps_the_early_stop_of_the_run(talks):
    result = talks.command("rescore", "out", "--out", "again")
    assert result.code == 0, result
    before, after = summary_of(talks), summary_of(talks, "again")
    assert timeless(after) == timeless(before)
    manifests = [RunFolder(talks.path / name).read_manifest() for name in ("out", "again")]
    assert [(each.stopped_early, each.seed) for each in manifests] == [(True, 5)] * 2
    assert manifests[0].counts == manifests[1].counts
    assert f"{before['default'].scored} of 120" in result.stdout
    assert compare(talks.path / "out", talks.path / "again").paired.test == "e-value"
    assert talks.command("rescore", "again", "--stored-cases", "--out", "third").code == 0
    assert timeless(summary_of(talks, "third")) == timeless(before)


def test_a_rescore_bets_on_the_new_scores(talks):
    result = talks.command("rescore", "out", "-e", "{type: contains, value: 'no'}", "--out", "again")
    assert result.code == 0, result
    before, after = (summary_of(talks, name)["default"] for name in ("out", "again"))
    assert after.mean == pytest.approx(1 - before.mean)
    assert after.ci95 == pytest.approx([1 - bound for bound in reversed(before.ci95)], abs=1e-4)
    assert (before.early_stop.answer, after.early_stop.answer) == ("above", "below")
    assert after.early_stop.not_needed == after.skipped == before.skipped
    assert RunFolder(talks.path / "again").read_manifest().stopped_early


def test_a_rescore_of_some_cases_bets_on_them(talks):
    assert talks.command("rescore", "out", "--limit", "30", "--out", "again").code == 0
    found = summary_of(talks, "again")["default"]
    assert (found.early_stop.n, found.early_stop.not_needed, found.skipped) == (found.scored, 0, 0)
    assert RunFolder(talks.path / "again").read_manifest().stopped_early


def test_a_rescore_needs_the_baseline_of_the_early_stop(project):
    project.dataset(*(case_text(number, 60) for number in range(CASES)))
    project.eval("--out", "before")
    project.targets({"name": "better", "provider": "mock", "response": "yes"})
    project.eval("--target", "better", "--stop-when", "before", "--out", "after")
    assert project.command("rescore", "after", "--out", "again").code == 0
    assert timeless(summary_of(project, "again")) == timeless(summary_of(project, "after"))
    (project.path / "before").rename(project.path / "gone")
    result = project.command("rescore", "after", "--out", "third")
    assert result.code == 2 and "The run used --stop-when before" in result.stderr
    assert not (project.path / "third").exists()


class TestUntil:
    @pytest.mark.parametrize("width", ["0.05", "±0.05", "pass-rate=0.05"])
    def test_a_run_stops_when_the_interval_is_narrow(self, project, width):
        project.dataset(*(case_text(number, 95) for number in range(2_000)))
        result = project.eval("--until", width, "--seed", "1", "--out", "out")
        found = summary_of(project)["default"]
        assert result.code == 0
        assert (found.early_stop.answer, found.early_stop.e_value, found.early_stop.biased) == ("narrow", None, False)
        assert (found.ci95[1] - found.ci95[0]) / 2 <= 0.05
        assert found.early_stop.not_needed == found.skipped > 1_000
        assert "known within ±0.05 after" in result.stdout

    def test_too_few_cases_run_to_the_end(self, easy):
        result = easy.eval("--until", "0.001", "--out", "out")
        found = summary_of(easy)["default"]
        assert (found.scored, found.early_stop.answer) == (CASES, None)
        assert "not ±0.001" in result.stdout

    def test_a_rescore_keeps_the_interval(self, easy):
        easy.eval("--until", "0.08", "--out", "out")
        assert easy.command("rescore", "out", "--all", "--out", "again").code == 0
        assert summary_of(easy, "again")["default"].early_stop == summary_of(easy)["default"].early_stop

    @pytest.mark.parametrize(
        ("options", "why"),
        [(["2"], "between 0 and 1"), (["x"], "Invalid width"), (["0.1", "--stop-when", "0.5"], "cannot be combined")],
    )
    def test_invalid_widths_are_refused(self, easy, options, why):
        result = easy.eval("--until", *options)
        assert (result.code, why in result.stderr) == (2, True)
