"""Speed of Python judges on one core: warm processes, compared with a program per answer and a bare loop."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import harness
from harness import Goal, Measurement, Options, Pair, Sample, Work

SIZES, QUICK_SIZES = (20_000,), (2_000,)
MOST_STARTED, MOST_FRESH = 60, 1_000
"""Starting a program is 100 times slower and a fork 10 times slower, so fewer answers are enough."""

AT_ONCE = 32
SPEED, BESIDE_STARTED = Goal("ours", "≥", 5_000), Goal("ratio", "≥", 5_000 / 60)
STARTED_IS = "the same judge as a program, started for each answer"
BARE_IS = "a bare loop: JSON through a socket to one process, no checks, no limits"

JUDGE = '''
import json
import re
import sys

WORD = re.compile(r"\\w+")

def overlap(answer, reference):
    """The fraction of the reference's words that occur in the answer."""
    expected = WORD.findall(reference.lower())
    found = set(WORD.findall(answer.lower()))
    return sum(word in found for word in expected) / max(1, len(expected))

def judge(context):
    return overlap(context.candidate_answer, context.reference_answer)

again = judge

if __name__ == "__main__":
    payload = json.load(sys.stdin)
    print(json.dumps({"score": overlap(payload["candidate_answer"], payload["reference_answer"])}))
'''


def judged(folder: str, type_: str, settings: str, count: str, scores: str) -> Callable[[], Any]:
    """Judge answers the way a run does; processes and imports are ready before the clock starts."""
    from agentv.evaluators.code.judge_host import JudgeHost
    from agentv.model.environment import Environment
    from agentv.model.evaluator import EvaluatorSpec
    from agentv.model.values import freeze
    from agentv.settings.evaluator_reader import evaluator_of

    on_one_core()
    evaluator = evaluator_of(EvaluatorSpec(type=type_, name=type_, settings=freeze(json.loads(settings))))
    host = JudgeHost(Environment())
    loop = asyncio.new_event_loop()
    loop.run_until_complete(evaluator.evaluate(judgement(0, folder, host)))

    async def work() -> list[float]:
        found = [0.0] * int(count)
        numbers = iter(range(int(count)))

        async def worker() -> None:
            for number in numbers:
                found[number] = (await evaluator.evaluate(judgement(number, folder, host))).score

        await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
        return found

    def timed() -> int:
        found = loop.run_until_complete(work())
        loop.run_until_complete(host.aclose())
        Path(scores).write_text(json.dumps(found))
        return len(found)

    return timed


def judgement(number: int, folder: str, host: Any) -> Any:
    """One answered case; every case has a different answer."""
    from agentv.engine.job.request import CaseRequest
    from agentv.model.case import EvalCase
    from agentv.model.job import Judgement
    from agentv.model.message import Message
    from agentv.model.response import answer

    text = f"The parcel {number} left the warehouse on Monday and will be there within {number % 7} days."
    expected = (Message("assistant", f"It left on Monday and takes {number % 5} days."),)
    case = EvalCase(str(number), expected_outcome="Says when", input="Where is my parcel?", expected_output=expected)
    return Judgement(CaseRequest(case), answer(text), candidate_answer=text, workdir=folder, host=host)


def bare(folder: str, count: str) -> Callable[[], Any]:
    """The minimum for a warm process: send a payload, receive a score, one at a time."""
    import msgspec

    from agentv.evaluators.code.payload import payload

    on_one_core()
    ours, theirs = socket.socketpair()
    code = (
        "import socket, sys, types, msgspec; from judge import judge\n"
        "line = socket.socket(fileno=int(sys.argv[1]))\n"
        "while data := line.recv(65536):\n"
        "    context = types.SimpleNamespace(**msgspec.json.decode(data))\n"
        "    line.send(msgspec.json.encode({'score': judge(context)}))\n"
    )
    command = [sys.executable, "-c", code, str(theirs.fileno())]
    process = subprocess.Popen(command, cwd=folder, pass_fds=[theirs.fileno()])
    theirs.close()
    ours.send(msgspec.json.encode(payload(judgement(0, folder, None), {})))
    ours.recv(65536)

    def work() -> int:
        for number in range(int(count)):
            ours.send(msgspec.json.encode(payload(judgement(number, folder, None), {})))
            msgspec.json.decode(ours.recv(65536))
        ours.close()
        process.wait()
        return int(count)

    return work


def on_one_core() -> None:
    """Pin this process and its children to one core."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def measurements(options: Options) -> Iterator[Measurement]:
    """Warm processes compared with a bare loop and with programs; fresh processes compared with programs."""
    for cases in options.sizes(SIZES, QUICK_SIZES):
        yield from by_size(cases, options.rounds or 3)


def by_size(cases: int, rounds: int) -> Iterator[Measurement]:
    """Run all of them in turn, every round. Scores must be equal in all of them."""
    few = min(cases, MOST_STARTED)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "judge.py").write_text(JUDGE)
        script = {"script": [sys.executable, "judge.py"]}
        works = {
            "warm": work(folder, "python", {"function": "judge.py:judge"}, cases),
            "fresh": work(folder, "python", {"function": "judge.py:again", "fresh": True}, min(cases, MOST_FRESH)),
            "started": work(folder, "code_judge", script, few),
            "bare": Work(bare, (folder, str(cases))),
        }
        samples: dict[str, list[Sample]] = {name: [] for name in works}
        for turn in range(rounds):
            for name in list(works)[:: -1 if turn % 2 else 1]:
                samples[name].append(harness.in_child(works[name]))
        check_agreement(folder, few)
    size = f"{cases:,} judgements"
    goal = SPEED if cases in SIZES else None
    yield Pair("judgements", f"{size}, warm", samples["warm"], samples["bare"], BARE_IS).speed(goal)
    named = f"{size}, warm or started"
    yield Pair("judgements", named, samples["warm"], samples["started"], STARTED_IS).speed(BESIDE_STARTED)
    named = f"{size}, each in a fresh process"
    yield Pair("judgements", named, samples["fresh"], samples["started"], STARTED_IS).speed()


def work(folder: str, type_: str, settings: dict[str, Any], count: int) -> Work:
    """Judge in a separate process and write the scores to a file."""
    name = settings.get("function", "started").rpartition(":")[2]
    return Work(judged, (folder, type_, json.dumps(settings), str(count), os.path.join(folder, f"{name}.json")))


def check_agreement(folder: str, count: int) -> None:
    """Exit if a judge's scores differ between warm and fresh processes."""
    warm, fresh, started = (
        json.loads(Path(folder, f"{name}.json").read_text())[:count] for name in ("judge", "again", "started")
    )
    if not warm == fresh == started:
        raise SystemExit("the same judge gave different scores warm and started")


if __name__ == "__main__":
    harness.main(__doc__ or "", measurements)
