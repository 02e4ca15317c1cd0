"""CPU time per call for each model API at concurrency 100, compared with the vendor's SDK."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from statistics import median
from typing import Any

import harness
from calls import LATENCY_S, QUESTION, Sample, server, timed
from harness import BENCH, Goal, Measurement, Options, environment

CALLS, QUICK_CALLS = 2_000, 300
AT_ONCE = 100
SDKS = {"chat": "openai", "responses": "openai", "anthropic": "anthropic", "gemini": "google.genai"}
"""The APIs and the vendors' packages."""


def target(api: str, url: str) -> Any:
    """Return our target for an API."""
    from agentv.targets.apis.anthropic import Anthropic
    from agentv.targets.apis.gemini import Gemini
    from agentv.targets.apis.openai import OpenAI

    common = {"name": "bench", "model": "fake", "api_key": "bench-key"}
    if api == "anthropic":
        return Anthropic(provider=api, base_url=url, **common)
    if api == "gemini":
        return Gemini(provider=api, base_url=url.removesuffix("/v1"), **common)
    return OpenAI(provider="openai", base_url=url, api=api, **common)  # type: ignore[arg-type]


async def ours(api: str, url: str, calls: int) -> Sample:
    """Call our target the way a run does."""
    from agentv_testing import SampleRequest

    responder = target(api, url).open(".")
    request = SampleRequest(QUESTION, timeout_s=60.0)

    async def ask() -> str:
        return str((await responder.respond(request)).text)

    try:
        return await timed(ask, calls, AT_ONCE)
    finally:
        await responder.aclose()


async def sdk(api: str, url: str, calls: int) -> Sample:
    """Call the vendor's asynchronous client as documented, without retries."""
    if api == "anthropic":
        return await _anthropic(url, calls)
    if api == "gemini":
        return await _gemini(url, calls)
    from openai import AsyncOpenAI

    async with AsyncOpenAI(base_url=url, api_key="bench-key", max_retries=0) as client:

        async def chat() -> str:
            reply = await client.chat.completions.create(model="fake", messages=[{"role": "user", "content": QUESTION}])
            return str(reply.choices[0].message.content)

        async def responses() -> str:
            return (await client.responses.create(model="fake", input=QUESTION, store=False)).output_text

        return await timed(chat if api == "chat" else responses, calls, AT_ONCE)


async def _anthropic(url: str, calls: int) -> Sample:
    from anthropic import AsyncAnthropic

    async with AsyncAnthropic(base_url=url.removesuffix("/v1"), api_key="bench-key", max_retries=0) as client:

        async def ask() -> str:
            message = {"role": "user", "content": QUESTION}
            reply: Any = await client.messages.create(model="fake", max_tokens=1000, messages=[message])
            return str(reply.content[0].text)

        return await timed(ask, calls, AT_ONCE)


async def _gemini(url: str, calls: int) -> Sample:
    from google import genai

    client = genai.Client(api_key="bench-key", http_options={"base_url": url.removesuffix("/v1")})

    async def ask() -> str:
        return str((await client.aio.models.generate_content(model="fake", contents=QUESTION)).text)

    try:
        return await timed(ask, calls, AT_ONCE)
    finally:
        await client.aio.aclose()


def in_child(client: str, api: str, url: str, calls: int) -> Sample:
    """Run one client once in a new process."""
    command = [sys.executable, str(BENCH / "apis.py"), client, api, url, str(calls)]
    done = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, check=True)
    sample = Sample(**json.loads(done.stdout))
    if sample.calls != calls:
        raise SystemExit(f"{client} of {api} got {sample.calls} answers instead of {calls}")
    return sample


def is_installed(package: str) -> bool:
    """Whether a vendor's SDK is installed."""
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def measurements(options: Options) -> Iterator[Measurement]:
    """CPU time of each API; ours and the vendor's alternate."""
    calls = options.cases[0] if options.cases else QUICK_CALLS if options.quick else CALLS
    rounds = options.rounds or (1 if options.quick else 3)
    with server() as url:
        for api, package in SDKS.items():
            if not is_installed(package):
                print(f"{api}: {package} is not installed; skipped", file=sys.stderr)
                continue
            samples: dict[str, list[Sample]] = {"ours": [], "sdk": []}
            for turn in range(rounds):
                for client in list(samples)[:: -1 if turn % 2 else 1]:
                    samples[client].append(in_child(client, api, url, calls))
            yield measured(api, package, samples, calls)


def measured(api: str, package: str, samples: dict[str, list[Sample]], calls: int) -> Measurement:
    """The best round of each, because other load on the machine only makes a round slower."""
    mine, theirs = ([each.cpu_seconds / each.calls * 1e6 for each in samples[client]] for client in ("ours", "sdk"))
    title = f"{api}: {calls:,} calls of {LATENCY_S * 1000:.0f} ms, {AT_ONCE} in parallel, client CPU per 1,000"
    details = {
        "rounds": len(mine),
        "statistic": "best",
        "ours_median": round(median(mine), 3),
        "floor_median": round(median(theirs), 3),
    }
    goal = Goal("ours", "≤", 350)
    return Measurement("apis", title, "ms", min(mine), min(theirs), f"the SDK {package}", goal, details)


if __name__ == "__main__":
    if sys.argv[1:2] in (["ours"], ["sdk"]):
        client = {"ours": ours, "sdk": sdk}[sys.argv[1]]
        print(json.dumps(asdict(asyncio.run(client(sys.argv[2], sys.argv[3], int(sys.argv[4]))))))
    else:
        harness.main(__doc__ or "", measurements)
