"""`agentv judge probe`: runs the probes and prints which of them were misjudged."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from agentv.calibration.probe_results import ProbeSummary, summarize_probes
from agentv.cli import output
from agentv.cli.commands.eval import run_folder
from agentv.cli.display import observer_of
from agentv.cli.evaluation_options import ProbeArguments
from agentv.cli.options import options_of
from agentv.datasets.case.header import given_entries, specs_of
from agentv.engine.answers.probes import KINDS, ORACLE, chosen_kinds, prepare_probes
from agentv.engine.run import open_executor, open_store, run
from agentv.engine.run_options import EvalOptions, number_of, parse_max_errors
from agentv.errors import EXIT_FINDINGS, EXIT_INTERRUPTED
from agentv.model.values import to_json
from agentv.report.figures import number, one_line
from agentv.runs.store import RunStore

_LONGEST_REASON = 100


def probe(args: ProbeArguments) -> None:
    """Run every probe, print the findings and end with their exit code."""
    allowed = parse_max_errors(args.max_fooled, "--max-fooled")  # wrong usage is reported before anything is called
    options = options_of(EvalOptions, args)
    specs = specs_of(given_entries(args.evaluators))[0] if args.evaluators else None
    plan = prepare_probes(options, options.open_cases(*output.listeners(args.quiet)), chosen_kinds(args.kinds), specs)
    with _folder(run_folder(args.out)) as folder:
        outcome = run(plan, open_store(plan, folder), open_executor(plan), observer_of(plan, args))
        found = summarize_probes(RunStore.open(outcome.folder).records(), frozenset({ORACLE}))
    if outcome.stopped == "interrupted":
        kept = "" if args.out is None else f": what is done is kept in {args.out}"
        output.say(f"Interrupted{kept}")
        sys.exit(EXIT_INTERRUPTED)
    code = found.exit_code(number_of(*allowed, found.judged_in_all))
    _print(found, code, args.as_json)
    sys.exit(code)


@contextmanager
def _folder(out: str | None) -> Iterator[str]:
    """The run folder: the one that is named, else one that is gone afterwards."""
    if out is not None:
        yield out
        return
    with tempfile.TemporaryDirectory(prefix="agentv-probe-") as folder:
        yield str(Path(folder) / "run")


def _print(found: ProbeSummary, code: int, as_json: bool) -> None:
    if as_json:
        click.echo(to_json({"exit_code": code, **_data(found)}))
        return
    for line in _lines(found):
        click.echo(line)
    if code == EXIT_FINDINGS:
        wrong = f"{found.misjudged_in_all} of {found.judged_in_all} probes were misjudged"
        output.say(output.styled("Gate:", "red") + f" {wrong}")
    elif code:
        output.say(output.styled("Ended:", "red") + f" no probe got a verdict: {one_line(found.first_error, 200)}")


def _data(found: ProbeSummary) -> dict[str, Any]:
    return {
        "judged": found.judged_in_all,
        "misjudged": found.misjudged_in_all,
        "errors": found.errors_in_all,
        "kinds": found.kinds,
        "evaluators": found.evaluators,
        "examples": found.misjudged,
    }


def _lines(found: ProbeSummary) -> Iterator[str]:
    width = max(map(len, KINDS))
    yield f"{'an answer that':<{width + 39}}  misjudged  no verdict"
    for kind, (what, _) in KINDS.items():
        counts = found.kinds.get(kind)
        if counts is not None:
            wrong = f"{counts.misjudged} of {counts.judged}"
            yield f"{kind:<{width}}  {what:<37}  {wrong:>9}  {counts.errors + counts.unscored or '':>10}".rstrip()
    fooled = {name: {kind: pair for kind, pair in kinds.items() if pair[0]} for name, kinds in found.evaluators.items()}
    for name, kinds in fooled.items():
        if kinds:
            told = ", ".join(f"{kind} {pair[0]} of {pair[1]}" for kind, pair in kinds.items())
            yield f"\nEvaluator {one_line(name, 60)} misjudged: {told}"
    if found.misjudged:
        yield "\nMisjudged"
    for each in found.misjudged:
        what = "fails" if each.kind == ORACLE else "lets through"
        by = ", ".join(each.by) or "the verdict"
        reason = one_line(each.reason, _LONGEST_REASON)
        line = f"  {one_line(each.eval_id, 40)}: {by} {what} {each.kind}, score {number(each.score)}"
        yield line + (f": {reason}" if reason else "")
    hidden = found.misjudged_in_all - len(found.misjudged)
    if hidden > 0:
        yield f"  and {hidden} more"
    if found.errors_in_all and found.judged_in_all:
        first = one_line(found.first_error, _LONGEST_REASON)
        yield f"\n{found.errors_in_all} probes ended in errors; the first: {first}"
