"""The cost of a model call beyond its latency: concurrent 200 ms calls, compared with bare aiohttp and msgspec."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import median

import msgspec

import harness
from harness import BENCH, Goal, Measurement, Options, environment

LATENCY_S = 0.2
SIZES = ((2_000, 100), (8_000, 400))
QUICK_SIZES = ((400, 100), (1_200, 400))
QUESTION = "What is the capital of France? Answer with the name of the city and nothing else."
FLOOR_IS = "aiohttp and msgspec by hand"

CPU = Goal("ratio", "≤", 1.2)
SPEED = {100: Goal("ratio", "≥", 0.95), 400: Goal("ratio", "≥", 0.9)}

Ask = Callable[[], Awaitable[str]]


@dataclass(frozen=True)
class Sample:
    """One run of calls in its own process."""

    seconds: float
    cpu_seconds: float
    calls: int


class ReplyMessage(msgspec.Struct):
    content: str


class Choice(msgspec.Struct):
    message: ReplyMessage


class Completion(msgspec.Struct):
    choices: list[Choice]


@contextmanager
def server() -> Iterator[str]:
    """Start the fake model server in its own process and yield its address."""
    command = [sys.executable, str(BENCH / "calls.py"), "serve"]
    with subprocess.Popen(
        command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        try:
            yield child.stdout.readline().strip()
        finally:
            child.stdin.close()


def serve() -> None:
    """Serve until stdin is closed."""
    from agentv_testing import FaultyServer

    with FaultyServer("Paris", latency_s=LATENCY_S, keep=0) as started:
        print(started.url, flush=True)
        sys.stdin.read()


async def ours(url: str, calls: int, at_once: int) -> Sample:
    """Call our target the way a run does."""
    from agentv.targets.apis.openai import OpenAI
    from agentv_testing import SampleRequest

    target = OpenAI(name="bench", provider="openai", model="fake", base_url=url, api_key="bench-key").open(".")
    request = SampleRequest(QUESTION, timeout_s=60.0)

    async def ask() -> str:
        return (await target.respond(request)).text

    try:
        return await timed(ask, calls, at_once)
    finally:
        await target.aclose()


async def floor(url: str, calls: int, at_once: int) -> Sample:
    """The minimum work: a session, one body encoded, one body decoded to a struct."""
    import aiohttp

    decode = msgspec.json.Decoder(Completion).decode
    headers = {"Authorization": "Bearer bench-key", "Content-Type": "application/json"}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

        async def ask() -> str:
            body = msgspec.json.encode({"model": "fake", "messages": [{"role": "user", "content": QUESTION}]})
            async with session.post(f"{url}/chat/completions", data=body) as response:
                return decode(await response.read()).choices[0].message.content

        return await timed(ask, calls, at_once)


async def timed(ask: Ask, calls: int, at_once: int) -> Sample:
    """Make all calls with as many workers as the concurrency; each takes the next call."""
    left, answered = iter(range(calls)), 0

    async def worker() -> None:
        nonlocal answered
        for _ in left:
            text = await ask()
            answered += text == "Paris"

    start, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(worker() for _ in range(at_once)))
    return Sample(time.perf_counter() - start, time.process_time() - cpu, answered)


def in_child(client: str, url: str, calls: int, at_once: int) -> Sample:
    """Run one client once in a new process."""
    command = [sys.executable, str(BENCH / "calls.py"), client, url, str(calls), str(at_once)]
    done = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, check=True)
    sample = Sample(**json.loads(done.stdout))
    if sample.calls != calls:
        raise SystemExit(f"{client} got {sample.calls} answers instead of {calls}")
    return sample


def measurements(options: Options) -> Iterator[Measurement]:
    """Speed and CPU time at each size; ours and the floor alternate."""
    sizes = QUICK_SIZES if options.quick else SIZES
    if options.cases:
        sizes = tuple((calls, min(calls, 100)) for calls in options.cases)
    for calls, at_once in sizes:
        rounds = options.rounds or (1 if options.quick else 3)
        with server() as url:
            samples: dict[str, list[Sample]] = {"ours": [], "floor": []}
            for turn in range(rounds):
                for client in list(samples)[:: -1 if turn % 2 else 1]:
                    samples[client].append(in_child(client, url, calls, at_once))
        yield from measured(samples["ours"], samples["floor"], calls, at_once)


def measured(ours: list[Sample], floor: list[Sample], calls: int, at_once: int) -> Iterator[Measurement]:
    """The best round of each, because other load on the machine only makes a round slower."""
    title = f"{calls:,} calls of {LATENCY_S * 1000:.0f} ms, {at_once} in parallel"
    ideal = at_once / LATENCY_S
    rates = [[sample.calls / sample.seconds for sample in samples] for samples in (ours, floor)]
    cpu_ms = [[sample.cpu_seconds / sample.calls * 1e6 for sample in samples] for samples in (ours, floor)]
    shares = {"ideal": ideal, "ours_of_ideal": max(rates[0]) / ideal, "floor_of_ideal": max(rates[1]) / ideal}
    speed = {name: round(value, 3) for name, value in shares.items()} | details(rates)
    goal = SPEED[at_once] if (calls, at_once) in SIZES else None
    yield Measurement("calls", f"{title}, speed", "cases/s", max(rates[0]), max(rates[1]), FLOOR_IS, goal, speed)
    goal = CPU if (calls, at_once) in SIZES else None
    cost = details(cpu_ms)
    yield Measurement(
        "calls", f"{title}, client CPU of 1,000", "ms", min(cpu_ms[0]), min(cpu_ms[1]), FLOOR_IS, goal, cost
    )


def details(figures: list[list[float]]) -> dict[str, object]:
    """Details of a line in addition to its two figures."""
    ours, floor = figures
    ratios = (mine / least for mine, least in zip(ours, floor, strict=True))
    return {
        "rounds": len(ours),
        "statistic": "best",
        "ours_median": round(median(ours), 3),
        "floor_median": round(median(floor), 3),
        "ratio_median": round(median(ratios), 3),
    }


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    elif sys.argv[1:2] in (["ours"], ["floor"]):
        client = {"ours": ours, "floor": floor}[sys.argv[1]]
        print(json.dumps(asdict(asyncio.run(client(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))))
    else:
        harness.main(__doc__ or "", measurements)
