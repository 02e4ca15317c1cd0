"""The findings of `agentv skill` and `agentv ablate` on one page: for a terminal, as Markdown and as HTML."""

from collections.abc import Iterator, Sequence

import msgspec

from agentv.comparison.comparison import Change, Comparison, Side
from agentv.comparison.part_comparison import UsageChange
from agentv.errors import plural
from agentv.extensions.skill.arms import PREVIOUS, WITH, WITHOUT
from agentv.extensions.skill.findings import Findings, Reach, Share, TargetFindings
from agentv.report.comparisons.verdict_text import is_judged_only, method, named_verdict, notes
from agentv.report.figures import (
    NONE,
    duration,
    interval,
    markdown,
    markdown_table,
    number,
    one_line,
    percent,
    percent_interval,
    signed,
    usd,
)
from agentv.report.terminal import Line, table_lines
from agentv.stats.paired_comparison import Paired

_LONGEST = 100
_ARM_HEAD = ["target", "arm", "mean", "95 % interval", "passed", "cases", "errors", "loaded", "cost", "time"]
_TRIGGER_HEAD = ["target", "arm", "precision", "95 % interval", "recall", "95 % interval", "errors"]
_STYLES = {"better": "bold green", "worse": "bold red"}


class Block(msgspec.Struct, frozen=True):
    """A part of the page: lines of text with a style each, or a table, header first, under a title."""

    title: str = ""
    lines: tuple[Line, ...] = ()
    rows: tuple[Sequence[str], ...] = ()


def page(findings: Findings) -> list[Block]:
    """Return the parts of the page: verdicts and notes, then the figures."""
    verdicts = tuple(line for finding in findings.targets for line in _verdicts(finding, findings))
    blocks = [Block(lines=verdicts)]
    if messages := tuple(dict.fromkeys(note for finding in findings.targets for note in _notes(finding, findings))):
        blocks.append(Block(lines=tuple((f"Note: {note}", "yellow") for note in messages)))
    if arms := [row for finding in findings.targets for row in _arm_rows(finding)]:
        blocks.append(Block("Arms (means over the shared cases; cost and time per case)", rows=(_ARM_HEAD, *arms)))
    if triggers := [row for finding in findings.targets for row in _trigger_rows(finding)]:
        blocks.append(Block("Triggers", rows=(_TRIGGER_HEAD, *triggers)))
    for finding in findings.targets:
        if changed := [change for label in (WITHOUT, "against") for change in _changes(finding, label)]:
            rows = (["change", "case", "scores", "why"], *map(_change_row, changed))
            blocks.append(Block(f"Largest changes of {finding.target}", rows=rows))
    return [*blocks, Block(lines=tuple(_foot(findings)))]


def _verdicts(finding: TargetFindings, findings: Findings) -> Iterator[Line]:
    if not finding.baselines:
        yield f"{finding.target}: no evals to compare with and without {findings.subject}; only triggers", "bold"
    for label, comparison in finding.baselines.items():
        names = _names(finding.target, label, findings)
        if label == WITHOUT and finding.contaminated:
            loaded = finding.loads[WITHOUT]
            detail = f"{loaded.count} of {plural(loaded.total, 'answer')} of {names[0]} loaded it nevertheless"
            yield f"Can't tell: {detail}.", "bold red"
            continue
        words = {} if is_judged_only(comparison) else {"better": "Helps: ", "worse": "Hurts: "}
        lead = words.get(comparison.answer, "") if label == WITHOUT else f"Compared with {names[0]}: "
        text = lead + named_verdict(comparison, names)
        yield text, _STYLES.get(comparison.answer, "bold")
        if label == WITHOUT and finding.reach is not None:
            yield from ((sentence, "") for sentence in _reach(finding.reach, finding.target))


def _reach(reach: Reach, target: str) -> Iterator[str]:
    """Yield how often the skill was loaded, and the difference by it, which is not that of a randomised comparison."""
    share = reach.answers
    fraction = f"{percent(share.value)}, 95 % interval {percent_interval(share.ci95)}, {plural(share.cases, 'case')}"
    yield f"Reached for: {target} loaded it in {share.count:,} of {plural(share.total, 'answer')} ({fraction})."
    if reach.loaded is None:
        return
    parts = [f"When reached for: {_difference(reach.loaded)}"]
    parts += [f"otherwise {_difference(reach.not_loaded)}"] if reach.not_loaded is not None else []
    parts += [f"{plural(reach.mixed, 'case')} with both kinds of answers not counted"] if reach.mixed else []
    yield f"{'; '.join(parts)}. {target} chose when to load it: this is not a randomised comparison."


def _difference(paired: Paired) -> str:
    return f"{signed(paired.mean_delta)} (95 % {interval(paired.ci95)}, {plural(paired.n, 'case')})"


def _names(target: str, label: str, findings: Findings) -> tuple[str, str]:
    """Return how the arms are called in a sentence."""
    version = findings.versions.get(PREVIOUS, "")[:10]
    other = findings.versions.get("against", "the other one")
    before = {PREVIOUS: f"{target} with the version of {version}", "against": f"{target} with {other}"}
    return before.get(label, f"{target} without it"), f"{target} with {findings.subject}"


def _notes(finding: TargetFindings, findings: Findings) -> Iterator[str]:
    loads = finding.loads.get(WITH)
    if loads is not None and loads.total and not loads.count:
        hint = "its description may not say when to use it"
        yield f"{finding.target} never loaded {findings.subject} in {plural(loads.total, 'answer')}; {hint}"
    if finding.reuse is not None and finding.reuse.count:
        reuse = f"{finding.reuse.count:,} of {plural(finding.reuse.total, 'answer')} of {finding.target} without it"
        yield f"{reuse} are those of an earlier run, and were not made next to the answers with it"
    for comparison in finding.baselines.values():
        if comparison.answer == "cannot tell" and comparison.paired is not None and not findings.trials:
            yield "More cases, or --trials 3, make small differences visible"
        yield from (note for note in notes(comparison) if not note.startswith("Datasets"))


def _arm_rows(finding: TargetFindings) -> Iterator[list[str]]:
    if sides := {label: (comparison, 0) for label, comparison in finding.baselines.items()}:
        sides[WITH] = next(iter(finding.baselines.values())), 1
    for arm, (comparison, place) in sides.items():
        yield [finding.target, arm, *_figures(comparison, place), *_use(comparison, place, finding.loads.get(arm))]


def _figures(comparison: Comparison, place: int) -> list[str]:
    side: Side = comparison.sides[place]
    passes, mean = comparison.pass_rate, side.mean
    passed = None if passes is None else (passes.mean_before, passes.mean_after)[place]
    cases = f"{mean.n if mean else 0:,} of {side.cases:,}"
    means = [number(mean.value if mean else None), interval(mean.ci95 if mean else None)]
    return [*means, percent(passed), cases, f"{side.errors:,}"]


def _use(comparison: Comparison, place: int, loads: Share | None) -> list[str]:
    def value(use: UsageChange | None) -> float | None:
        return None if use is None else (use.before, use.after)[place]

    loaded = NONE if loads is None else f"{loads.count:,} of {loads.total:,}"
    return [loaded, usd(value(comparison.cost)), duration(value(comparison.duration))]


def _trigger_rows(finding: TargetFindings) -> Iterator[list[str]]:
    for label, counts in finding.triggers.items():
        shares = [text for share in (counts.precision, counts.recall) for text in _share(share)]
        yield [finding.target, label, *shares, f"{counts.errors:,}"]


def _share(share: Share) -> list[str]:
    counts = f" ({share.count:,} of {share.total:,})"
    return [f"{percent(share.value)}{counts}", percent_interval(share.ci95)]


def _changes(finding: TargetFindings, label: str) -> Sequence[Change]:
    comparison = finding.baselines.get(label)
    return () if comparison is None else comparison.changes


def _change_row(change: Change) -> list[str]:
    pair = change.pair
    scores = f"{number(pair.score1)} → {number(pair.score2)}"
    return [signed(pair.delta), one_line(pair.eval_id, 40), scores, one_line(change.reason or "", _LONGEST)]


def _foot(findings: Findings) -> Iterator[Line]:
    pairs = (item.paired for target in findings.targets for item in target.baselines.values())
    if (paired := next((item for item in pairs if item is not None), None)) is not None:
        yield f"Method: {method(paired)}", "dim"
    for name, folder in findings.folders.items():
        yield f"Run {name}: {folder}", "dim"


def ablation_lines(findings: Findings) -> list[Line]:
    """Return the page for a terminal."""
    lines: list[Line] = []
    for block in page(findings):
        lines += [("", "")] if lines else []
        lines += [(block.title, "bold")] if block.title else []
        lines += block.lines
        lines += table_lines(block.rows) if block.rows else ()
    return lines


def ablation_markdown(findings: Findings) -> str:
    """Return the page as Markdown, for a pull request."""
    texts = [f"## Does {markdown(findings.subject, 200)} help?"]
    for block in page(findings):
        texts += ["", f"### {markdown(block.title, 200)}"] if block.title else []
        texts += [text for line, style in block.lines for text in ("", _emphasis(line, style))]
        if block.rows:
            head, *body = block.rows
            texts += ["", *markdown_table(head, ([markdown(value, _LONGEST) for value in row] for row in body))]
    return "\n".join(texts) + "\n"


def _emphasis(line: str, style: str) -> str:
    text = markdown(line, 1_000)
    return f"**{text}**" if style.startswith("bold") else f"> {text}" if style == "yellow" else text
