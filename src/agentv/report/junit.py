"""JUnit XML report: a test suite for each dataset and target, a test case for each job."""

import re
import shutil
import tempfile
from contextlib import ExitStack
from html import escape
from typing import IO, BinaryIO

from agentv.model.result import Result, reason_of
from agentv.report.figures import excerpt, job_name, number, one_line, safe_text
from agentv.report.formats import ReportFormat
from agentv.runs.run_figures import Figures
from agentv.runs.store import RunStore

_LONGEST_MESSAGE = 300
_LONGEST_ANSWER = 4_000
_HELD_BYTES = 1 << 20
_COUNTS = ("tests", "failures", "errors", "skipped", "time")
_NOT_XML = re.compile("[\ufffe\uffff]")
"""Characters that XML 1.0 does not allow, in addition to those that `safe_text` escapes."""


def write(run: RunStore, figures: Figures, stream: BinaryIO) -> None:
    """Write the report in one pass. Suites are buffered, because their counts precede their test cases."""
    lines = run.case_lines()
    suites: dict[tuple[str, str], _Suite] = {}
    with ExitStack() as stack:
        for result in run.records():
            key = (result.dataset, result.target)
            if key not in suites:
                suites[key] = _Suite(result, stack)
            suites[key].add(result, lines.get((result.dataset_path, result.eval_id)))
        totals = _shown({name: sum(suite.counts[name] for suite in suites.values()) for name in _COUNTS})
        skipped = figures.jobs - figures.done
        missing = f"<!-- {skipped} of {figures.jobs} jobs were not run -->\n" if skipped else ""
        stream.write(f'<?xml version="1.0" encoding="UTF-8"?>\n{missing}'.encode())
        stream.write(f"<testsuites{_attributes(name=f'agentv {run.run_id}', **totals)}>\n".encode())
        for suite in suites.values():
            suite.write(stream)
        stream.write(b"</testsuites>\n")


class _Suite:
    """The test cases of one dataset and target, buffered on disk if there are many."""

    def __init__(self, first: Result, stack: ExitStack) -> None:
        self._name = f"{first.dataset} ({first.target})" if first.dataset else first.target
        self._timestamp = first.timestamp
        spool = tempfile.SpooledTemporaryFile(_HELD_BYTES)  # noqa: SIM115 - the stack closes it
        self._body: IO[bytes] = stack.enter_context(spool)
        self.counts = dict.fromkeys(_COUNTS, 0.0)

    def add(self, result: Result, line: int | None) -> None:
        outcome = _outcome(result)
        self.counts["tests"] += 1
        self.counts["time"] += _seconds(result)
        if outcome:
            self.counts[{"failure": "failures", "error": "errors", "skipped": "skipped"}[outcome]] += 1
        self._body.write(_test_case(result, outcome, line).encode())

    def write(self, stream: BinaryIO) -> None:
        attributes = {"name": self._name, **_shown(self.counts), "timestamp": self._timestamp.removesuffix("Z")}
        stream.write(f"  <testsuite{_attributes(**attributes)}>\n".encode())
        self._body.seek(0)
        shutil.copyfileobj(self._body, stream)
        stream.write(b"  </testsuite>\n")


def _outcome(result: Result) -> str | None:
    """Return JUnit's outcome. A borderline verdict is not a failure, as with `--fail-fast`."""
    if result.status == "error":
        return "error"
    if result.status == "unscored":
        return "skipped"
    return "failure" if result.verdict == "fail" else None


def _test_case(result: Result, outcome: str | None, line: int | None) -> str:
    place = {"file": result.dataset_path, "line": line} if result.dataset_path and line else {}
    head = _attributes(
        classname=".".join(filter(None, (result.dataset, result.target))),
        name=job_name(result.eval_id, result.prompt, result.trial),
        time=f"{_seconds(result):.3f}",
        **place,
    )
    ending = ""
    if outcome == "skipped":
        ending = f"      <skipped{_attributes(message='unscored: no evaluator scored this answer')}/>\n"
    elif outcome:
        kind = "fail" if outcome == "failure" else result.error.error_class if result.error else "unknown"
        about = _attributes(type=kind, message=headline(result))
        ending = f"      <{outcome}{about}>{_escaped(story(result))}</{outcome}>\n"
    return f"    <testcase{head}>\n{_properties(result)}{ending}    </testcase>\n"


def _properties(result: Result) -> str:
    cost = result.execution_metrics.cost_usd if result.execution_metrics else None
    values = {
        "target": result.target,
        "status": result.status,
        "verdict": result.verdict,
        "score": None if result.score is None else repr(result.score),
        "tags": ", ".join(result.tags),
        "cost_usd": None if cost is None else repr(cost),
    }
    lines = [f"        <property{_attributes(name=name, value=value)}/>\n" for name, value in values.items() if value]
    return "".join(["      <properties>\n", *lines, "      </properties>\n"])


def headline(result: Result) -> str:
    """Return the score and the reason, or the error, on one line."""
    reason = one_line(reason_of(result), _LONGEST_MESSAGE)
    if result.status == "error":
        return reason or "no message"
    return f"score {number(result.score)}" + (f": {reason}" if reason else "")


def story(result: Result) -> str:
    """Return the details of a job that did not pass."""
    lines = [f"case: {result.eval_id}", f"target: {result.target}"]
    if result.error is not None:
        lines.append(f"error: {result.error.error_class} ({result.error.stage}): {result.error.message}")
    for evaluation in result.evaluator_results:
        outcome = f"error: {evaluation.error.message}" if evaluation.error else number(evaluation.score)
        lines += [f"{evaluation.name}: {outcome}", *(f"  missed: {miss}" for miss in evaluation.misses)]
    evaluator_misses = {miss for evaluation in result.evaluator_results for miss in evaluation.misses}
    lines += [f"missed: {miss}" for miss in result.misses if miss not in evaluator_misses]
    if result.reasoning:
        lines.append(f"reasoning: {result.reasoning}")
    texts = [("answer", result.candidate_answer)]
    texts += [(f"text scored by {entry.name}", entry.candidate_answer) for entry in result.evaluator_results]
    texts.append(("raw answer", result.raw_answer))
    answers = (f"\n\n{title}:\n{excerpt(text, _LONGEST_ANSWER)}" for title, text in texts if text is not None)
    return excerpt("\n".join(lines), _LONGEST_ANSWER) + "".join(answers)


def _shown(counts: dict[str, float]) -> dict[str, str]:
    return {name: f"{value:.3f}" if name == "time" else str(int(value)) for name, value in counts.items()}


def _seconds(result: Result) -> float:
    metrics = result.execution_metrics
    return 0.0 if metrics is None or metrics.duration_ms is None else metrics.duration_ms / 1000


def _attributes(**values: object) -> str:
    return "".join(f' {name}="{_escaped(str(value)).replace(chr(10), "&#10;")}"' for name, value in values.items())


def _escaped(text: str) -> str:
    return escape(_NOT_XML.sub("\ufffd", safe_text(text)))


JUNIT = ReportFormat(
    write=write, extensions=(".xml",), file_name="junit.xml", help="Write JUnit XML with a test case for each job."
)
