"""Record promptfoo's verdicts: `promptfoo eval` on each configuration, whose answers the `echo` provider scripts.

A prompt is `{{answer}}`, so the echo is the scripted answer. A test is named by its description, and an assertion by
its `metric` or its type.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peer_tools import PeerError, copied, npm_package, npm_version, pair_files, run_tool, temporary_folder

VERSION = "0.121"
"""The newest line of versions that runs on Node.js 20."""
_OFFLINE = (
    *("DISABLE_TELEMETRY", "DISABLE_UPDATE", "DISABLE_REMOTE_GENERATION", "DISABLE_SHARING", "DISABLE_UPDATE_CHECK"),
    *("DISABLE_ERROR_LOG", "DISABLE_DEBUG_LOG", "DISABLE_REDTEAM_REMOTE_GENERATION"),
)
_FAILED_TESTS = 100
"""The exit code of promptfoo if a test fails."""


def records() -> Iterator[dict[str, Any]]:
    """Yield a record for each assertion and answer, and one for each test as a whole."""
    package = npm_package("promptfoo", "PROMPTFOO_PACKAGE", VERSION)
    folder = copied("promptfoo")
    for path in pair_files("promptfoo", ".yaml"):
        results = results_of(package, folder, path.name)
        answers = {_squeezed(answer): answer for answer in map(_answer, results) if answer is not None}
        for result in results:
            answer = _answer(result)
            # A result with an error has only `vars`, where JSON has lost its white space.
            if answer is None:
                answer = answers.get(_squeezed(result["vars"]["answer"]), result["vars"]["answer"])
            common = {"tool": "promptfoo", "version": npm_version(package), "file": path.name, "answer": answer}
            yield from ({**common, **each} for each in _checks(result))


def results_of(package: Path, folder: Path, name: str) -> list[dict[str, Any]]:
    """Return promptfoo's results for the tests of one configuration."""
    state = temporary_folder("promptfoo-state")
    env = {**{f"PROMPTFOO_{key}": "1" for key in _OFFLINE}, "PROMPTFOO_CONFIG_DIR": str(state)}
    program = package / json.loads((package / "package.json").read_text("utf-8"))["bin"]["promptfoo"]
    options = ("--no-cache", "--no-progress-bar", "--no-table", "--max-concurrency", "1")
    command = ["node", str(program), "eval", *options, "-c", name, "-o", str(state / "out.json")]
    ended = run_tool(command, folder, env, codes=(0, _FAILED_TESTS))
    if not (state / "out.json").is_file():
        raise PeerError(f"promptfoo wrote no results for {name}:\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}")
    results: list[dict[str, Any]] = json.loads((state / "out.json").read_text("utf-8"))["results"]["results"]
    return results


def _checks(result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the records of one answer: its assertions, and the test as a whole (`evaluator: null`)."""
    common = {"case": result["testCase"].get("description")}
    graded = result.get("gradingResult") or {}
    components = [each for each in graded.get("componentResults") or [] if each.get("assertion")]
    if result.get("error") and not components:
        message = result["error"].split("\n")[0]  # without the stack, which names folders of this machine
        for assertion in result["testCase"].get("assert") or []:
            yield {**common, "evaluator": _name(assertion), "passed": None, "score": None, "error": message}
        yield {**common, "evaluator": None, "passed": None, "score": None, "error": message}
        return
    for each in components:
        evaluator = _name(each["assertion"])
        yield {**common, "evaluator": evaluator, "passed": bool(each["pass"]), "score": each["score"]}
    yield {**common, "evaluator": None, "passed": bool(result["success"]), "score": result["score"]}


def _answer(result: dict[str, Any]) -> str | None:
    """Return the answer before transforms; None for a result with an error, which has no response.

    Another provider than `echo` is asked for an answer by its name.
    """
    if result["provider"]["id"] != "echo":
        return str(result["vars"]["answer"])
    response = result.get("response") or {}
    answer = response.get("raw", response.get("output"))
    return answer if answer is None else str(answer)


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _name(assertion: dict[str, Any]) -> str:
    return str(assertion.get("metric") or assertion["type"])
