"""The findings of `agentv skill` and `agentv ablate` on one page: for a terminal, as Markdown and as HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from agentv.comparison.comparison import Change, Comparison, Side
from agentv.comparison.part_comparison import UsageChange
from agentv.errors import plural
from agentv.extensions.skill.arms import PREVIOUS, WITH, WITHOUT
from agentv.extensions.skill.findings import Findings, Share, TargetFindings
from agentv.report.comparisons.verdict_text import method, named_verdict, notes
from agentv.report.figures import (
    NONE,
    aligned,
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
from agentv.report.terminal import Line

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
    verdicts = tuple(line for each in findings.targets for line in _verdicts(each, findings))
    blocks = [Block(lines=verdicts)]
    if found := tuple(dict.fromkeys(note for each in findings.targets for note in _notes(each, findings))):
        blocks.append(Block(lines=tuple((f"Note: {note}", "yellow") for note in found)))
    arms = [row for each in findings.targets for row in _arm_rows(each)]
    if arms:
        blocks.append(Block("Arms (means over the shared cases; cost and time per case)", rows=(_ARM_HEAD, *arms)))
    triggers = [row for each in findings.targets for row in _trigger_rows(each)]
    if triggers:
        blocks.append(Block("Triggers", rows=(_TRIGGER_HEAD, *triggers)))
    for each in findings.targets:
        changed = [change for label in (WITHOUT, "against") for change in _changes(each, label)]
        if changed:
            rows = (["change", "case", "scores", "why"], *map(_change_row, changed))
            blocks.append(Block(f"Largest changes of {each.target}", rows=rows))
    return [*blocks, Block(lines=tuple(_foot(findings)))]


def _verdicts(each: TargetFindings, findings: Findings) -> Iterator[Line]:
    if not each.baselines:
        yield f"{each.target}: no evals to compare with and without {findings.subject}; only triggers", "bold"
    for label, comparison in each.baselines.items():
        names = _names(each.target, label, findings)
        if label == WITHOUT and each.contaminated:
            loaded = each.loads[WITHOUT]
            found = f"{loaded.count} of {plural(loaded.total, 'answer')} of {names[0]} loaded it nevertheless"
            yield f"Can't tell: {found}.", "bold red"
            continue
        words = {"better": "Helps: ", "worse": "Hurts: "}
        lead = words.get(comparison.answer, "") if label == WITHOUT else f"Compared with {names[0]}: "
        text = lead + named_verdict(comparison, names)
        yield text, _STYLES.get(comparison.answer, "bold")


def _names(target: str, label: str, findings: Findings) -> tuple[str, str]:
    """Return how the arms are called in a sentence."""
    version = findings.versions.get(PREVIOUS, "")[:10]
    other = findings.versions.get("against", "the other one")
    before = {PREVIOUS: f"{target} with the version of {version}", "against": f"{target} with {other}"}
    return before.get(label, f"{target} without it"), f"{target} with {findings.subject}"


def _notes(each: TargetFindings, findings: Findings) -> Iterator[str]:
    loads = each.loads.get(WITH)
    if loads is not None and loads.total and not loads.count:
        hint = "its description may not say when to use it"
        yield f"{each.target} never loaded {findings.subject} in {plural(loads.total, 'answer')}; {hint}"
    for comparison in each.baselines.values():
        if comparison.answer == "cannot tell" and comparison.paired is not None and not findings.trials:
            yield "More cases, or --trials 3, make small differences visible"
        yield from (note for note in notes(comparison) if not note.startswith("Datasets"))


def _arm_rows(each: TargetFindings) -> Iterator[list[str]]:
    sides = {label: (comparison, 0) for label, comparison in each.baselines.items()}
    if sides:
        sides[WITH] = next(iter(each.baselines.values())), 1
    for arm, (comparison, place) in sides.items():
        yield [each.target, arm, *_figures(comparison, place), *_use(comparison, place, each.loads.get(arm))]


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


def _trigger_rows(each: TargetFindings) -> Iterator[list[str]]:
    for label, counts in each.triggers.items():
        shares = [text for share in (counts.precision, counts.recall) for text in _share(share)]
        yield [each.target, label, *shares, f"{counts.errors:,}"]


def _share(share: Share) -> list[str]:
    counts = f" ({share.count:,} of {share.total:,})"
    return [f"{percent(share.value)}{counts}", percent_interval(share.ci95)]


def _changes(each: TargetFindings, label: str) -> Sequence[Change]:
    found = each.baselines.get(label)
    return () if found is None else found.changes


def _change_row(change: Change) -> list[str]:
    pair = change.pair
    scores = f"{number(pair.score1)} → {number(pair.score2)}"
    return [signed(pair.delta), one_line(pair.eval_id, 40), scores, one_line(change.reason or "", _LONGEST)]


def _foot(findings: Findings) -> Iterator[Line]:
    found = (each.paired for target in findings.targets for each in target.baselines.values())
    paired = next((each for each in found if each is not None), None)
    if paired is not None:
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
        for place, row in enumerate(aligned(block.rows) if block.rows else ()):
            lines.append((row, "dim" if place == 0 else ""))
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
