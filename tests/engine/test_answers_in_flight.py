"""The memory of large answers in flight is bounded: answers wait before they are read, and no run stops for it."""

import asyncio
import subprocess
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from agentv.model.response import SampleRequest
from agentv.support.byte_gate import ByteGate, HeldBytes, hold_bytes
from agentv.targets.python import FunctionTarget
from virtual_time import passes, run

MB = 1 << 20


async def hold(gate, sizes, ended, seconds=1.0):
    """A job with these answers, which ends some time after it has read them."""
    held = HeldBytes(gate)
    for size in sizes:
        await hold_bytes(size)
    ended.append(asyncio.get_running_loop().time() + seconds)
    await passes(seconds)
    held.release()


@pytest.mark.parametrize(
    ("jobs", "ends"),
    [
        ([[4 * MB], [4 * MB], [4 * MB], [4 * MB]], [1, 1, 2, 2]),
        ([[30 * MB], [4 * MB], [30 * MB]], [1, 2, 3]),  # larger than the limit: alone
        ([[MB], [MB], [MB]] * 9, [1] * 27),  # too small to count
        ([[6 * MB, 6 * MB], [6 * MB]], [1, 2]),  # a job that has an answer does not wait for its judge's
    ],
    ids=["at most the limit", "larger than the limit", "small", "a second answer"],
)
def test_jobs_wait_for_the_memory_of_others(jobs, ends):
    async def all_jobs():
        gate, ended = ByteGate(10 * MB), []
        await asyncio.gather(*(hold(gate, sizes, ended) for sizes in jobs))
        return ended

    assert run(all_jobs()) == ends


def test_a_waiting_answer_is_read_when_nothing_moves_for_ten_seconds():
    async def both():
        gate, ended = ByteGate(10 * MB), []
        slow = asyncio.create_task(hold(gate, [10 * MB], ended, 100.0))
        await passes(0)
        await hold(gate, [10 * MB], ended, 0.0)
        slow.cancel()
        return ended[1]

    assert run(both()) == 10.0


def test_a_cancelled_job_leaves_no_memory_behind():
    async def cancelled():
        gate, ended = ByteGate(10 * MB), []
        first = asyncio.create_task(hold(gate, [10 * MB], ended))
        waiting = asyncio.create_task(hold(gate, [10 * MB], ended))
        await passes(0.5)
        waiting.cancel()
        await first
        await hold(gate, [10 * MB], ended, 0.0)
        return ended[1]

    assert run(cancelled()) == 1.0


class _Large(BaseHTTPRequestHandler):
    body = b'{"choices":[{"message":{"content":"' + b"x" * (10 * MB) + b'"},"finish_reason":"stop"}]}'

    def do_POST(self):  # the name that http.server calls
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_):
        pass


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is in other units elsewhere")
def test_many_large_answers_at_once_take_little_memory(project):
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Large)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/v1"
    project.targets({"name": "default", "provider": "openai", "model": "m", "base_url": url, "api_key": "k" * 12})
    peak_kb = peak_of_large_answers(project)
    server.shutdown()
    server.server_close()
    assert peak_kb < 190 * 1024  # 214 MB if the answers do not wait


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak is in other units elsewhere")
@pytest.mark.parametrize("ending", ["", " > {OUTPUT_FILE}"], ids=["printed", "in a file"])
def test_many_large_outputs_at_once_take_little_memory(project, ending):
    command = f"head -c 10485760 /dev/zero | tr '\\0' x{ending}"
    project.targets({"name": "default", "provider": "cli", "command_template": command})
    assert peak_of_large_answers(project) < 150 * 1024  # 238 MB if the outputs do not wait
    assert (project.path / "out" / "results.jsonl").stat().st_size // (10 * MB) == 20


@pytest.mark.parametrize(("is_large", "at_once"), [(lambda _: True, 6), (lambda number: number % 40 == 30, 20)])
def test_a_function_whose_answers_are_large_is_called_less_often_at_a_time(is_large, at_once):
    calls, running, most = iter(range(100)), [0], [0]

    async def answer(prompt):
        number = next(calls)
        running[0] += 1
        await passes(1)
        most[0] = max(most[0], running[0]) if number >= 20 else 0  # the first calls start before a size is known
        running[0] -= 1
        return "x" * (8 * MB if is_large(number) else 10)

    async def jobs(gate, responder):
        held = HeldBytes(gate)
        for _ in range(5):
            await responder.respond(SampleRequest("q"))
            await held.end_job()

    async def main():
        gate, responder = ByteGate(), FunctionTarget(name="f", provider="python", call=answer).open("")
        await asyncio.gather(*(jobs(gate, responder) for _ in range(20)))

    run(main())
    assert most[0] == at_once


def peak_of_large_answers(project):
    """The peak memory of a run of 20 concurrent jobs in KiB. What `wait4` reports includes that of the parent."""
    checks = [{"type": "contains", "value": "x"}]
    project.dataset(*({"input": f"q{number}", "evaluators": checks} for number in range(20)))
    with project.spawn("d.yaml", "--workers", "20", "--out", "out", "--quiet", stdout=None, stderr=None) as process:
        peak = 0
        while process.returncode is None:
            status = Path(f"/proc/{process.pid}/status").read_text()
            peak = int(status.split("VmHWM:")[1].split()[0]) if "VmHWM:" in status else peak
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.02)
    assert (process.returncode, project.summary()["scored"]) == (0, 20)
    return peak
