"""Score one answer in a process of its own, which imports the user's function and calls it once."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Mapping
from pathlib import Path
from threading import Timer
from typing import Any

import msgspec

from agentv.evaluators.code.fork_server import Channel, JudgeWorker, import_function
from agentv.evaluators.code.judge_io import Setup, WorkerLimits
from agentv.model.case import EvalCase
from agentv.model.evaluator import EvaluatorFailure
from agentv.sandbox.subprocesses import ProcessFailure, ProcessSpec, run_process

IMPORT_S = 60.0
"""Time allowed for importing a file."""

_HOME = str(Path(__file__).parents[3])
_START = "import sys; sys.path.insert(0, sys.argv[1]); from agentv.extensions.windows.plain_judge import main; main()"
_TOO_SLOW = 124
"""The exit code of a process whose function took too long."""


async def judge_plainly(
    setup: Setup, body: bytes, case: EvalCase, environment: Mapping[str, str], timeout_s: float
) -> dict[str, Any]:
    """Return the score of one answer as plain data. Raises EvaluatorFailure."""
    spec = ProcessSpec(
        command=[sys.executable, "-I", "-u", "-c", _START, _HOME],
        cwd=setup.cwd,
        env=environment,
        timeout_s=IMPORT_S + timeout_s,
        stdin=pickle.dumps((setup, body, case, timeout_s, sys.path)),
        noun=setup.reference,
    )
    try:
        output = await run_process(spec)
    except ProcessFailure as failure:
        is_slow = failure.exit_code == _TOO_SLOW
        raise EvaluatorFailure(
            f"{setup.reference} took longer than {timeout_s:g} s" if is_slow else failure.message
        ) from None
    kind, result = msgspec.json.decode(output.stdout)
    if kind == "failure":
        raise EvaluatorFailure(result)
    return dict(result)


class OneCase(Channel):
    """Answers the requests of a function from its own case: the run cannot be reached."""

    def __init__(self, case: EvalCase) -> None:
        self._case = case

    def request(self, message: Any) -> Any:
        """Return the case. Raises EvaluatorFailure for a call to a model."""
        if message == ["case"]:
            return self._case
        raise EvaluatorFailure("On Windows, a function cannot call models: use llm_judge, or WSL")


def main() -> None:
    """Score the answer on stdin. What the function prints goes to stderr."""
    setup, body, case, timeout_s, sys.path[:] = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the run itself
    sys.argv[:] = [""]
    with open(os.dup(1), "wb") as replies:
        os.dup2(2, 1)
        function = import_function(setup)
        if isinstance(function, str):
            reply: list[Any] = ["failure", function]
        else:
            payload, variables = msgspec.json.decode(body)
            os.environ.update(variables)
            timer = Timer(timeout_s, os._exit, (_TOO_SLOW,))
            timer.start()
            reply = JudgeWorker(setup, WorkerLimits(judgements=1, file_bytes=0), function, OneCase(case), 1).judge(
                payload
            )
            timer.cancel()
        replies.write(msgspec.json.encode(reply))
        replies.flush()
        os._exit(0)  # do not wait for threads that the function started
