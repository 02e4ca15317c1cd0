"""The summary of a run, on a terminal and as plain text."""

import io

import pytest

from agentv.model.manifest import VarianceSummary
from agentv.model.result import ExecutionMetrics
from agentv.report.figures import bars, counted, duration, fitting, usd
from agentv.report.summary_text import noise_advice, noise_notes
from agentv.report.terminal import Ending, print_ending, summary_lines
from agentv.runs.summary import SummaryBuilder
from made_results import failed, judged, scored, unscored


def results():
    for number in range(8):
        score = 1.0 if number < 6 else 0.25
        yield scored(
            score,
            target="quick",
            eval_id=f"case-{number}",
            misses=() if score == 1.0 else ("says\n\x1b[31m5\x1b[0m, not 4",),
            evaluator_results=(judged("sum", score, cost_usd=0.001),),
            execution_metrics=ExecutionMetrics(cost_usd=0.01, duration_ms=100.0 * (number + 1)),
        )
    for number in range(2):
        yield failed("rate_limit", "429: slow down", target="quick", eval_id=f"lost-{number}", trial=2)
    yield unscored(target="other")


def ending():
    builder = SummaryBuilder("20260102-030405-abcd").add_all(results())
    return Ending(
        summary=builder.build({"quick": 12, "other": 1}),
        details=builder.details(),
        duration_ms=83_400,
        notes=["Stopped by the budget"],
        commands=["agentv eval --resume", "agentv view"],
    )


PRINTED = """\
quick: passed 75 % of the 8 cases scored; 2 of 12 errored; 2 of 12 not run
other: no case was scored; 1 of 1 unscored

Stopped by the budget

Run 20260102-030405-abcd in 1m 23s

target  mean   95 % interval   scored   passed           errors  cost
quick   0.812  0.486 to 1.000  8 of 12  75.0 % (6 of 8)  2       $0.0880
other   -      -               0 of 1   -                0       -

quick
  scored      8 of 12 cases; not scored: 2 errors, 2 skipped
  mean        0.812 (95 % interval 0.486 to 1.000, n = 8)
  passed      75.0 %, 6 of 8 (95 % interval 35 to 97 %)
  scores    0   ▃      █ 1
  detectable  a second run on these 8 cases would reliably show differences above about 0.59
  cost        $0.0800 (8 jobs)
  judges      $0.0080 (8 jobs)
  time        450 ms per job, 3.6 s in total (8 jobs)
  evaluators
    sum  0.812  (95 % interval 0.486 to 1.000, n = 8)
  errors      2 of 10: rate_limit 2
    95 % interval 0.321 to 1.000 of the mean with 2 errors counted as 0 and as 1
    rate_limit  lost-0 (trial 2)  429: slow down
  worst
    0.250  case-6  says \\x1b[31m5\\x1b[0m, not 4
    0.250  case-7  says \\x1b[31m5\\x1b[0m, not 4
  slowest
    800 ms  case-7
    700 ms  case-6
    600 ms  case-5
    500 ms  case-4
    400 ms  case-3

other
  scored      0 of 1 case; not scored: 1 unscored
  mean        - (95 % interval -, n = 0)

Next
  agentv eval --resume
  agentv view
"""


def printed(encoding, interactive=False, shown=None):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="\n")
    print_ending(shown or ending(), stream, interactive)
    stream.flush()
    return stream.buffer.getvalue()


def test_the_summary_has_every_figure_with_its_denominator():
    assert printed("utf-8").decode() == PRINTED


def test_digits_replace_bars_if_the_encoding_lacks_them():
    lines = printed("ascii").decode().splitlines()
    assert "  scores    0 0030000008 1" in lines


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_characters_that_an_encoding_lacks_are_replaced(encoding):
    assert fitting("\u22120.490 to +0.490", encoding) == "-0.490 to +0.490"
    assert fitting("0.5 \u2192 1, \u65e5", encoding) == "0.5 -> 1, ?"
    assert fitting("half a pair \ud83d", "utf-8") == "half a pair ?"


def test_a_terminal_shows_the_same_text():
    shown = printed("utf-8", interactive=True).decode()
    assert shown.split() == PRINTED.split()


@pytest.mark.parametrize(
    ("width", "head"),
    [
        (80, "target  mean   95 % interval   scored   passed           errors  cost"),
        (64, "target  mean   95 % interval   scored   passed           errors"),
        (50, "target  mean   95 % interval   scored   errors"),
        (25, "target  mean   scored"),
    ],
)
def test_a_narrow_terminal_shows_fewer_columns(width, head):
    lines = [line for line, _ in summary_lines(ending(), True, width)]
    assert head in lines
    reasons = [line for line in lines if "case-6  says" in line or "lost-0" in line]
    assert reasons and all(len(line) <= width for line in reasons)
    assert "  mean        0.812 (95 % interval 0.486 to 1.000, n = 8)" in lines


@pytest.mark.parametrize(
    ("results", "planned", "text"),
    [
        ([scored(1.0)], 1, "Passed 100 % of the 1 case"),
        ([scored(1.0), failed(), failed()], 3, "Passed 100 % of the 1 case scored; 2 of 3 errored"),
        ([failed(), failed()], 2, "No case was scored; 2 of 2 errored"),
        ([scored(0.0), unscored()], 4, "Passed 0 % of the 1 case scored; 1 of 4 unscored; 2 of 4 not run"),
        ([scored(1.0)] * 2999 + [scored(0.0)], 3000, "Passed more than 99.9 % of the 3,000 cases"),
        ([scored(0.0)] * 2999 + [scored(1.0)], 3000, "Passed less than 0.1 % of the 3,000 cases"),
    ],
)
def test_the_first_line_includes_errors_and_jobs_that_did_not_run(results, planned, text):
    builder = SummaryBuilder("r").add_all(results)
    shown = Ending(summary=builder.build({"t": planned}), details=builder.details())
    assert printed("utf-8", shown=shown).decode().splitlines()[0] == text


@pytest.mark.parametrize(
    ("found", "advice"),
    [
        (VarianceSummary(case=0.1, trial=0.02, trials=3), "Most of the noise is between cases: add cases, not trials."),
        (
            VarianceSummary(case=0.05, trial=0.15, trials=3),
            "Trials of the same case vary more than cases: 6 trials instead of 3 would shrink the interval by "
            "about 13 %; so would 33 % more cases.",
        ),
        (
            VarianceSummary(case=0.05, trial=0.15, trials=3, judge=0.3, votes=3),
            "Most of the noise between trials comes from the judge: add votes, or make its criteria clearer.",
        ),
        (VarianceSummary(case=0, trial=0, trials=3), ""),
        (VarianceSummary(judge=0.1, votes=3), ""),
    ],
)
def test_the_advice_names_what_would_shrink_the_interval(found, advice):
    assert noise_advice(found) == advice


@pytest.mark.parametrize(
    ("scores", "text"),
    [
        ([0.0, 1.0] * 100, "a second run on these 200 cases would reliably show differences above about 0.12"),
        ([1.0] * 200, "a second run on these 200 cases would reliably show differences above about 0.039"),
        ([1.0] * 5, "5 cases: too few to show any difference to a second run"),
        ([1.0], "1 case: too few to show any difference to a second run"),
    ],
)
def test_the_detectable_difference_is_shown_or_why_there_is_none(scores, text):
    results = [scored(score, eval_id=str(number)) for number, score in enumerate(scores)]
    found = SummaryBuilder("r").add_all(results).build().targets["t"]
    assert dict(noise_notes(found)) == {"detectable": text}


@pytest.mark.parametrize(
    ("jobs", "text"), [(400, "these 200 cases"), (403, "the scored cases")], ids=["all are scored", "three errors"]
)
def test_the_cases_of_a_detectable_difference_are_counted_only_if_they_are_known(jobs, text):
    trials = [scored(number % 2, eval_id=str(number), trial=trial) for number in range(200) for trial in (1, 2)]
    found = SummaryBuilder("r", 2).add_all(trials).build({"t": jobs}).targets["t"]
    assert dict(noise_notes(found))["detectable"].startswith(f"a second run on {text} would reliably show")


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (None, "-"),
        (0, "0 ms"),
        (999.4, "999 ms"),
        (999.6, "1.0 s"),
        (59_900, "59.9 s"),
        (59_960, "1m 00s"),
        (3_599_400, "59m 59s"),
        (3_600_000, "1h 00m"),
        (90_061_000, "25h 01m"),
    ],
)
def test_durations_have_two_units_at_most(milliseconds, text):
    assert duration(milliseconds) == text


def test_small_amounts_have_four_decimals():
    assert [usd(amount) for amount in (None, 0, 0.0123, 12.345)] == ["-", "$0.00", "$0.0123", "$12.35"]


def test_counts_are_sorted_by_frequency():
    assert counted({"a": 1, "b": 3, "c": 1}) == "b 3, a 1, c 1"


def test_bars_distinguish_small_counts_from_zero():
    assert bars([0, 1, 1000], drawn=True) == " ▁█"
    assert bars([0, 1, 1000], drawn=False) == "018"
    assert bars([0, 0], drawn=True) == ""


def test_counts_of_jobs_and_cases_are_labelled():
    results = [scored(1.0, eval_id="a", trial=trial) for trial in (1, 2, 3)] + [scored(0.0, eval_id="b")]
    builder = SummaryBuilder("r", jobs_per_case=3).add_all(results)
    shown = Ending(summary=builder.build({"t": 6}, {"t": 2}), details=builder.details())
    said = printed("utf-8", shown=shown).decode()
    assert "  scored      4 of 6 jobs of 2 cases; not scored: 2 skipped\n" in said
    assert "  mean        0.750 (" in said
    assert "  by case     0.500 (mean of the case means, as in comparisons)\n" in said


def test_prompts_are_listed_after_evaluators():
    found = [
        scored(score, eval_id=id, prompt=prompt) for prompt, score in (("short", 1.0), ("long", 0.0)) for id in "ab"
    ]
    builder = SummaryBuilder("r", jobs_per_case=2).add_all(found)
    out = io.StringIO()
    print_ending(Ending(summary=builder.build(), details=builder.details()), out, False)
    assert """\
  prompts
    short  1.000  (95 % interval 0.158 to 1.000, n = 2)
    long   0.000  (95 % interval 0.000 to 0.842, n = 2)
""" in out.getvalue()
