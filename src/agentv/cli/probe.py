"""`agentv judge probe` at work: runs the probes, in a folder that is kept when asked for, and says who was fooled."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from agentv.calibration.probe_results import Probed, probed
from agentv.cli import output
from agentv.datasets.case.evaluator_entries import given_entries, specs_of
from agentv.datasets.dataset import Options
from agentv.datasets.loader import case_source
from agentv.engine.answers.probes import KINDS, ORACLE, ProbeSession, chosen_kinds
from agentv.engine.run import Observer
from agentv.engine.run_options import EvalOptions, number_of, parse_max_errors
from agentv.engine.session import unwatched
from agentv.errors import EXIT_FINDINGS, EXIT_INTERRUPTED, EXIT_OK
from agentv.model.values import to_json
from agentv.report.figures import number, one_line
from agentv.runs.store import read_run

EXIT_ERRORS = 3
_LONGEST_REASON = 100


def probing(paths: tuple[str, ...], given: dict[str, Any], selected: dict[str, Any]) -> Probed:
    """Runs every probe and sums up."""
    parse_max_errors(given["max_fooled"], "--max-fooled")  # wrong usage is told before anything is asked
    options = EvalOptions(
        paths=paths,
        judge=given["judge"],
        targets_file=given["targets_file"],
        workers=given["workers"],
        timeout_s=given["timeout_s"],
        on_error=given["on_error"],
        allow_outside_files=given["allow_outside_files"],
        max_line_bytes=given["max_line_bytes"],
        **selected,
    )
    warn, note = (output.silent, output.silent) if given["quiet"] else (output.warn, output.note)
    reading = Options(options.allow_outside_files, options.max_line_bytes)
    cases = case_source(
        paths, warn=warn, note=note, on_error=options.on_error, options=reading, selection=options.selection
    )
    specs = specs_of(given_entries(given["evaluators"]))[0] if given["evaluators"] else None
    session = ProbeSession(options, cases, chosen_kinds(given["kinds"]), specs)
    checked = session.check()
    with _folder(given["out"]) as folder:
        outcome = _executed(session, checked, folder, given)
        found = probed(read_run(outcome.folder), frozenset({ORACLE}))
    if outcome.stopped == "interrupted":
        kept = "" if given["out"] is None else f": what is done is kept in {given['out']}"
        output.say(f"Interrupted{kept}")
        raise click.exceptions.Exit(EXIT_INTERRUPTED)
    return found


def _executed(session: ProbeSession, checked: Any, folder: str, given: dict[str, Any]) -> Any:
    if given["quiet"] or given["as_json"]:
        return session.execute(checked, folder, False, Observer(), unwatched)
    from agentv.cli.display import Shown
    from agentv.runs.redaction import Redactor

    shown = Shown(Redactor(session.secrets))
    return session.execute(checked, folder, False, shown, shown)


@contextmanager
def _folder(out: str | None) -> Iterator[str]:
    """The run folder: the one that is named, else one that is gone afterwards."""
    if out is not None:
        yield out
        return
    with tempfile.TemporaryDirectory(prefix="agentv-probe-") as folder:
        yield str(Path(folder) / "run")


def print_probing(found: Probed, given: dict[str, Any]) -> int:
    """The findings, and the exit code."""
    allowed = number_of(*parse_max_errors(given["max_fooled"], "--max-fooled"), found.judged_in_all)
    wrong = found.misjudged_in_all
    code = EXIT_FINDINGS if wrong > allowed else EXIT_OK
    if not found.judged_in_all:
        code = EXIT_ERRORS if found.errors_in_all else code
    if given["as_json"]:
        click.echo(to_json({"exit_code": code, **_data(found)}))
        return code
    for line in _lines(found):
        click.echo(line)
    if code == EXIT_FINDINGS:
        output.say(output.styled("Gate:", "red") + f" {wrong} of {found.judged_in_all} probes were misjudged")
    if code == EXIT_ERRORS:
        output.say(output.styled("Ended:", "red") + f" no probe got a verdict: {one_line(found.first_error, 200)}")
    return code


def _data(found: Probed) -> dict[str, Any]:
    return {
        "judged": found.judged_in_all,
        "misjudged": found.misjudged_in_all,
        "errors": found.errors_in_all,
        "kinds": found.kinds,
        "evaluators": found.evaluators,
        "examples": found.misjudged,
    }


def _lines(found: Probed) -> Iterator[str]:
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
