"""The comment on a pull request as Markdown: verdict, figures, flipped cases, what changed. All text is escaped."""

import re
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import quote

from agentv.comparison.comparison import Comparison
from agentv.comparison.sample_size import Need
from agentv.comparison.scores import RunScores
from agentv.errors import plural
from agentv.extensions.github.evaluation import CANDIDATE, Evaluation, FlippedCase, Flips
from agentv.report.comparisons.change_text import change_data, no_verdict_lines
from agentv.report.comparisons.comparison_text import left_out, use_rows
from agentv.report.comparisons.verdict_text import named_verdict, notes
from agentv.report.figures import NONE, code, fenced, markdown, markdown_table, number, signed, signed_interval

LONGEST_COMMENT = 65_536
"""The most characters of a comment on GitHub. Bytes are counted here, of which there are at least as many."""

_HEAD = ("", "before (A)", "after (B)", "difference", "95 % interval")
_LONGEST_SENTENCE, _LONGEST_NAME = 1_000, 80
_LONGEST_ANSWER, _LONGEST_DIFF = 1_500, 1_500
_LONGEST_CHANGES, _LONGEST_BASELINE = 10_000, 4_000
_MOST_NOTES = 8
_MOST_LISTED = 20
_RESERVE = 1_000
"""Bytes that are left for what the comment does not show."""
_REPLAYED = (
    "The answers of B come from a recording, as in pull requests without keys: other prompts or models show as errors, "
    "not as scores"
)
_START = re.compile(rf"(?:^|(?<=\. )){CANDIDATE[0]}(?={CANDIDATE[1:]})")
_SAFE_IN_LINK = "/:?#[]@!$&'*+,;=%~-._"


class _Section:
    """Lines of a comment with a limited number of bytes. `missing` are the numbers of parts that did not fit."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)
        self.missing: dict[str, int] = {}

    @property
    def size(self) -> int:
        return sum(len(line.encode()) + 1 for line in self.lines)

    def add_parts(self, noun: str, parts: Iterable[Sequence[str]], total: int, limit: int) -> None:
        """Add the parts that fit into `limit` bytes; `total` is the number of all parts, also of those not passed."""
        count, size = 0, self.size
        for part in parts:
            size += sum(len(line.encode()) + 1 for line in part)
            if size > limit:
                break
            self.lines += part
            count += 1
        if count < total:
            self.missing[noun] = total - count


def comment_markdown(evaluation: Evaluation, first: str, suite: str, report_url: str, sha: str | None) -> str:
    """Return the comment. `first` is its invisible first line."""
    comparison, verdict = evaluation.comparison, _verdict(evaluation)
    head = _Section(first, f"### {markdown(suite, _LONGEST_NAME)}: {markdown(verdict, _LONGEST_SENTENCE)}", "")
    if evaluation.run is not None:
        head.lines += (*markdown_table(_HEAD, _rows(evaluation.run, comparison)), "")
    link = [f"[Report](<{quote(report_url, safe=_SAFE_IN_LINK)}>)"] if report_url else []
    commit = [f"commit {code(sha[:7], 7)}"] if sha else []
    end = _Section(" · ".join([*link, *commit, "by agentv"]))
    if comparison is None:
        return "\n".join((*head.lines, *end.lines))
    head.lines += _remarks(evaluation, comparison)
    if verdict.startswith("Can't tell yet"):
        head.lines += _needs(evaluation.needs, comparison)
    setup = [_changes(comparison), _baseline(evaluation, comparison)]
    room = LONGEST_COMMENT - _RESERVE - sum(section.size for section in (head, *setup, end))
    sections = [_flips(evaluation.flips, room), *setup]
    counts = [(count, noun) for section in sections for noun, count in section.missing.items()]
    missing = ", ".join(plural(count, noun) for count, noun in counts)
    cut = (f"Not shown here: {missing}. `agentv compare` lists everything.", "") if missing else ()
    return "\n".join((*head.lines, *(line for section in sections for line in section.lines), *cut, *end.lines))


def _verdict(evaluation: Evaluation) -> str:
    if (comparison := evaluation.comparison) is None:
        return f"No comparison. {evaluation.problem.rstrip('.')}."
    if not comparison.is_comparable:
        return no_verdict_lines(comparison)[0][0]
    return _START.sub(CANDIDATE[0].upper(), named_verdict(comparison, ("the baseline", CANDIDATE)))


def _rows(run: RunScores, comparison: Comparison | None) -> Iterator[Sequence[str]]:
    errors = f"{run.errors:,} of {run.records:,}"
    if comparison is None:
        _, scores = run.scores.arrays()
        yield "mean score", NONE, number(float(scores.mean()) if len(scores) else None), NONE, NONE
        yield "errors (not scored)", NONE, errors, NONE, NONE
        return
    is_comparable = comparison.is_comparable
    for name, paired in (("mean score", comparison.paired), ("pass rate", comparison.pass_rate)):
        if paired is not None and (name == "mean score" or paired != comparison.paired):
            change = (signed(paired.mean_delta), signed_interval(paired.ci95)) if is_comparable else (NONE, NONE)
            yield name, number(paired.mean_before), number(paired.mean_after), *change
    costs = next(use_rows(comparison), None) if comparison.cost is not None else None
    yield ("cost per case", *costs[1:5]) if costs else ("cost per case", NONE, NONE, NONE, NONE)
    side = comparison.sides[0]
    rates = comparison.errors.rates if comparison.errors is not None else None
    change = (NONE, NONE) if rates is None else (signed(rates.mean_delta), signed_interval(rates.ci95))
    yield "errors (not scored)", f"{side.errors:,} of {side.records:,}", errors, *change


def _remarks(evaluation: Evaluation, comparison: Comparison) -> Iterator[str]:
    """Yield the caveats of the figures, and the cases that are not in them."""
    pool = set(evaluation.baseline.import_notes if evaluation.baseline else ())
    texts = [text for text in (*notes(comparison), *left_out(comparison)) if text not in pool]
    manifest = evaluation.run.manifest if evaluation.run is not None else None
    if manifest is not None and manifest.options.get("replay"):
        texts.insert(0, _REPLAYED)
    for text in texts[:_MOST_NOTES]:
        yield f"- {markdown(text, 300)}"
    if len(texts) > _MOST_NOTES:
        yield f"- and {plural(len(texts) - _MOST_NOTES, 'more remark')} in `agentv compare`"
    if texts:
        yield ""


def _needs(needs: Sequence[Need], comparison: Comparison) -> Iterator[str]:
    """Yield how many cases a decision needs."""
    parts = []
    for need in needs:
        low, high = need.cases_ci95 or (None, None)
        between = f" ({low:,} to {high:,})" if low is not None and high is not None else ""
        parts.append(f"about {need.cases:,} cases{between} to show a difference of {need.value:g}")
    if parts and comparison.paired is not None:
        yield f"To decide, a comparison like this needs {', or '.join(parts)}. It has {comparison.paired.n:,}."
        yield ""


def _flips(flips: Flips, limit: int) -> _Section:
    if not (total := flips.now_fail + flips.now_pass):
        return _Section("No case flipped between pass and fail.", "")
    section = _Section(
        f"**Flipped: {plural(flips.now_fail, 'case')} now failing, {flips.now_pass:,} now passing.**", ""
    )
    section.add_parts("flipped case", (list(_flip(case)) for case in flips.cases[:_MOST_LISTED]), total, limit)
    return section


def _flip(case: FlippedCase) -> Iterator[str]:
    pair = case.pair
    name = " · ".join(part for part in (pair.dataset, pair.eval_id, pair.target, pair.prompt) if part)
    kind = "Now passes" if case.now_passes else "Now fails"
    scores = f"{number(pair.score1)} → {number(pair.score2)}"
    yield f"<details><summary>{kind}: {markdown(name, 2 * _LONGEST_NAME)} ({scores})</summary>"
    yield ""
    for label, answer in zip(("Before:", "After:"), case.answers, strict=True):
        yield from (label, "", "(no stored answer)" if answer is None else fenced(answer, _LONGEST_ANSWER), "")
    if case.reason:
        yield from (f"Why: {markdown(case.reason, 300)}", "")
    yield from ("</details>", "")


def _changes(comparison: Comparison) -> _Section:
    (changed,) = change_data(comparison)
    title, changes = markdown(changed["title"], _LONGEST_SENTENCE), changed["changes"]
    if not changes:
        return _Section(title, "")
    parts = [list(_change(change["text"], change["diff"])) for change in changes]
    return _folded(f"{title} ({len(changes):,})", "change of the setup", parts, _LONGEST_CHANGES)


def _folded(summary: str, noun: str, parts: Sequence[Sequence[str]], limit: int) -> _Section:
    """Return a section that the reader has to unfold."""
    section = _Section(f"<details><summary>{summary}</summary>", "")
    section.add_parts(noun, parts, len(parts), limit)
    section.lines += ("", "</details>", "")
    return section


def _change(text: str, diff: str | None) -> Iterator[str]:
    yield f"- {markdown(text, 300)}"
    if diff:
        yield from (f"  {line}" for line in ("", *fenced(diff, _LONGEST_DIFF, "diff").split("\n"), ""))


def _baseline(evaluation: Evaluation, comparison: Comparison) -> _Section:
    """List the runs of the baseline, and those that are not part of it."""
    runs, label = comparison.sides[0].runs, comparison.sides[0].label
    name = markdown(f"{label}: {runs[0]}" if len(runs) == 1 else label, 2 * _LONGEST_NAME)
    remarks = evaluation.baseline.import_notes if evaluation.baseline is not None else ()
    if not remarks:
        return _Section(f"Baseline: {name}", "")
    parts = [[f"- {markdown(remark, 500)}"] for remark in remarks]
    return _folded(f"Baseline: {name}", "remark on the baseline", parts, _LONGEST_BASELINE)
