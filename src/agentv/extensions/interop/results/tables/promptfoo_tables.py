"""Read results that promptfoo wrote as CSV, for a spreadsheet, or as YAML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentv.errors import AgentvError
from agentv.extensions.interop.imports.foreign_files import problem, read_table, table_names
from agentv.extensions.interop.imports.foreign_values import Fields, dict_of
from agentv.extensions.interop.imports.run import ForeignRun
from agentv.extensions.interop.results.promptfoo_results import PromptfooResults
from agentv.support.yaml.yaml_file import parse_yaml_file

_PROMPT = re.compile(r"\[(?P<provider>[^\]]+)\] (?P<label>.*)", re.DOTALL)
_CELL = re.compile(
    r"\[(?P<status>PASS|FAIL|ERROR)\](?: \((?P<score>-?[\d.]+)[^)]*\))?\s*(?P<text>.*?)"
    r"(?:\n\n(?:Pass|Fail) Reason: (?P<reason>.*))?",
    re.DOTALL,
)
_OUTCOME = re.compile(rb"\[(PASS|FAIL|ERROR)\]")
_REASON = "Grader Reason"
_ABOUT = ["Status", "Score"]
"""The first columns about an output."""

_FORMULA = re.compile(r"'(?=\s*[=@+-])")
"""The mark before a text that a spreadsheet would take for a formula."""

_SCORE = re.compile(r"(-?\d+(\.\d+)?)?")
_REASONS = {"PASS": 0, "FAIL": 1, "ERROR": 2}
_LAST_KEYS = ("config", "shareableUrl")
_YAML_START = re.compile(rb"evalId:[^\n]*\nresults:\s*\n\s+version:")


class PromptfooTable(PromptfooResults):
    """A table with a row for each test and columns for each prompt and provider. Of assertions, it has the total."""

    title = "a results table of promptfoo"

    def sniff(self, head: bytes, path: Path) -> bool:  # noqa: ARG002
        places = _outputs(names := table_names(head))
        return bool(places) and (_REASON in names or _OUTCOME.search(head) is not None)

    def open(self, path: Path) -> ForeignRun:
        table = read_table(path)
        names = next(table, (1, []))[1]
        prompts = [_prompt(names[place]) for place in _outputs(names)]
        return self.run_of(path, Fields({"prompts": prompts}), _rows(path, names, table))


class PromptfooYaml(PromptfooResults):
    """The results file as YAML."""

    title = "a results file of promptfoo as YAML"

    def sniff(self, head: bytes, path: Path) -> bool:  # noqa: ARG002
        return _YAML_START.match(head) is not None

    def open(self, path: Path) -> ForeignRun:
        try:
            document = dict_of(parse_yaml_file(str(path)))
        except AgentvError as error:
            raise problem(path, error.detail or str(error)) from error
        if missing := [key for key in _LAST_KEYS if key not in document]:
            raise problem(path, f"The file is cut off: it has no '{missing[0]}'")
        results = document.object("results")
        return self.run_of(path, Fields(document | results), iter(results.items_of("results")))


def _outputs(names: list[str]) -> list[int]:
    """Return the columns with outputs; none for a table of another program."""
    if _REASON in names:
        return [place for place in range(len(names)) if names[place + 1 : place + 3] == _ABOUT]
    places = [place for place, name in enumerate(names) if _PROMPT.fullmatch(name)]
    return places if len(places) == len(names[min(places, default=0) :]) else []


def _prompt(name: str) -> dict[str, str]:
    """Return the provider and the prompt that a column is named after."""
    match = _PROMPT.fullmatch(name)
    provider, label = (match["provider"], match["label"]) if match else ("default", name)
    return {"provider": provider, "label": label, "raw": label}


def _rows(path: Path, names: list[str], table: Iterator[tuple[int, list[str]]]) -> Iterator[dict[str, Any]]:
    """Yield the outputs of each row in the shape of results."""
    places = _outputs(names)
    start = 1 if names[0] == "Description" else 0
    for line, cells in table:
        texts = [_FORMULA.sub("", cell, count=1) for cell in cells]
        shared = {
            "vars": dict(zip(names[start : places[0]], texts[start : places[0]], strict=True)),
            "testCase": {"description": texts[0]} if start else {},
        }
        for column, (place, end) in enumerate(zip(places, [*places[1:], len(names)], strict=True)):
            about = dict(zip(names[place + 1 : end], texts[place + 1 : end], strict=True))
            if not any((texts[place].strip(), about.get("Status"))):
                continue  # the test was not run with this prompt
            try:
                output = _output(about, texts[place])
            except ValueError as error:
                raise problem(path, f"Line {line} has {error}") from error
            prompt = _prompt(names[place])
            variant = {"provider": {"id": prompt["provider"]}, "prompt": {"label": prompt["label"]}}
            yield {**shared, "promptIdx": column, **variant, **_result(output)}


def _output(about: dict[str, str], cell: str) -> dict[str, str]:
    """Return an output with its status, score and reason. Raises ValueError."""
    if "Status" in about:
        status, score, reason = (about.get(name, "") for name in (*_ABOUT, _REASON))
        output = {"status": status, "score": score, "text": cell, "reason": reason}
    elif match := _CELL.fullmatch(cell):
        output = {name: value or "" for name, value in match.groupdict().items()}
    else:
        raise ValueError("an output without [PASS], [FAIL] or [ERROR]")
    if output["status"] not in _REASONS:
        raise ValueError(f"the status '{output['status']}'")
    if _SCORE.fullmatch(output["score"]) is None:
        raise ValueError(f"the score '{output['score']}'")
    return output


def _result(output: dict[str, str]) -> dict[str, Any]:
    passed, is_error = output["status"] == "PASS", output["status"] == "ERROR"
    score = float(output["score"] or passed)
    grade = {"pass": passed, "score": score, "reason": output["reason"]}
    parts = {"componentResults": [{**grade, "assertion": {"type": "total"}}]}
    return {
        "success": passed,
        "score": score,
        "failureReason": _REASONS[output["status"]],
        "error": output["reason"] or output["text"] if is_error else None,
        "response": {"output": None if is_error else output["text"]},
        "gradingResult": {} if is_error else {**grade, **parts},
    }
