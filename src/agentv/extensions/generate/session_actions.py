"""`agentv generate from-sessions`: write a regression suite from recorded sessions."""

import os
from typing import Any

from agentv.cli import output
from agentv.cli.options import options_of
from agentv.datasets.formats import dataset_format as formats
from agentv.datasets.loader import InMemoryCases, case_source
from agentv.errors import UsageError, plural
from agentv.extensions.generate.command import SessionsArguments
from agentv.extensions.generate.session_suite import SessionSuite, SuiteOptions, SuiteSummary
from agentv.sessions.private_data import PrivateData, describe_counts
from agentv.sessions.session import ReadLog
from agentv.sessions.session_file import read_sessions
from agentv.settings.project import project_root
from agentv.trust.env_file import load_environment

_COUNTED = {"first": "first request", "each": "request", "all": "conversation"}
"""What is counted for each value of `--requests`."""


def from_sessions(args: SessionsArguments) -> None:
    """Read the sessions, choose cases, write them, and print what was read, merged and left out."""
    kind = _check_out(args)
    folder = os.path.dirname(args.out) or "."
    log, privacy = ReadLog(), PrivateData(load_environment(folder, project_root(folder)).secrets)
    with SessionSuite(options_of(SuiteOptions, args), privacy, log) as suite:
        suite.read(read_sessions([os.path.expanduser(path) for path in args.paths], log))
        rows = suite.choose()
    summary = suite.summary(len(rows))
    if not rows:
        raise UsageError(
            f"No sessions with a request and an answer in {', '.join(args.paths)}", "\n".join(summary.left_out)
        )
    if not args.dry_run:
        _write(args.out, kind, rows)
    if args.as_json:
        output.echo_json(summary)
        return
    for line in _lines(summary, args):
        output.message(line)


def _check_out(args: SessionsArguments) -> str:
    """Return the format of the output file. Raises UsageError if the file cannot be written."""
    if not (kinds := [kind for kind in formats.suggested(args.out) if kind in ("yaml", "jsonl")]):
        raise UsageError(f"--out must be a .yaml or .jsonl file, got {args.out}")
    sidecar = formats.base_of(args.out) + formats.SIDECAR_SUFFIXES[0]
    for path in (args.out, sidecar) if kinds[0] == "jsonl" else (args.out,):
        if os.path.exists(path) and not (args.force or args.dry_run):
            raise UsageError(f"{path} already exists", hint="Choose another name, or --force to replace it")
    return kinds[0]


def _write(path: str, kind: str, rows: list[dict[str, Any]]) -> None:
    """Write the cases and read them back, so that a suite that was written can be used."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    header = {"dataset": os.path.basename(formats.base_of(path))}
    cases = InMemoryCases(rows).stream()
    output_rows = (formats.WrittenRow(row, None, case) for row, case in zip(rows, cases, strict=True))
    formats.load_format(kind).write(formats.Content(header, output_rows), path)
    read = sum(1 for _ in case_source(path, warn=output.discard, note=output.discard).stream())
    if read != len(rows):
        raise UsageError(f"{path} has {plural(read, 'case')} instead of {len(rows)}")


def _lines(summary: SuiteSummary, args: SessionsArguments) -> list[str]:
    agents = ", ".join(f"{name} {count:,}" for name, count in summary.sessions.items())
    sessions = f"{plural(sum(summary.sessions.values()), 'session')} ({agents})"
    cases = plural(summary.cases, "case")
    wrote = f"Would write {cases}" if args.dry_run else f"Wrote {cases} to {args.out}"
    replaced = describe_counts(summary.replaced)
    requests = plural(summary.requests, _COUNTED[args.requests])
    return [
        f"Read {plural(summary.files, 'file')}: {sessions}, {requests}",
        f"Merged {plural(summary.exact_duplicates, 'repeated request')} and {summary.near_duplicates:,} nearly equal",
        f"Grouped the rest by wording and tools: {plural(summary.clusters, 'group')}",
        *summary.left_out,
        *([f"Replaced: {replaced}"] if replaced else []),
        f"{wrote}. Nothing was called. Check them for private data before you share them.",
    ]
