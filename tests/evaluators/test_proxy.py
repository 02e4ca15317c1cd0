"""The model proxy for judge programs: wire format of AgentV (TypeScript), token, host name and call limit."""

import asyncio
import json
import sys

import pytest
from aiohttp import ClientSession

from agentv.evaluators.code.model_proxy import ModelProxy
from agentv.model.evaluator import EvaluatorFailure
from agentv.model.response import answer
from waiting import wait_until_async

# A judge in the style of AgentV (TypeScript): standard library only, the proxy from the environment.
JUDGE = """
import json, os, sys, urllib.error, urllib.request
payload = json.load(sys.stdin)
def call(path, body=None, **headers):
    request = urllib.request.Request(
        os.environ["AGENTV_TARGET_PROXY_URL"] + path,
        None if body is None else json.dumps(body).encode(),
        {"Authorization": "Bearer " + os.environ["AGENTV_TARGET_PROXY_TOKEN"], **headers},
    )
    try:
        return json.load(urllib.request.urlopen(request, timeout=200))
    except urllib.error.HTTPError as error:
        return {"status": error.code, **json.load(error)}
"""


def program(code):
    return [sys.executable, "-c", f"{JUDGE}\ndetails = {code}\nprint(json.dumps({{'score': 1, 'details': details}}))"]


class Model:
    """Responds with the prompt in capitals; a prompt with 'fail' fails."""

    def __init__(self):
        self.calls = []

    async def ask(self, target, messages, wanted=None):
        self.calls.append((target, [(message.role, message.content) for message in messages]))
        if messages[-1].content == "fail":
            raise EvaluatorFailure("The judge small failed (server): it is down")
        return answer(messages[-1].content.upper())


@pytest.fixture
def model():
    return Model()


@pytest.fixture
def details(scoring, model):
    """Return the responses that a program got from some calls, and its input."""

    def run(code, **settings):
        judgement = scoring.judgement("x", ask=model.ask, judges=("small",))
        entry = {"script": program(code), "target_proxy": True} | settings
        return scoring.run(scoring.evaluator("code_judge", **entry), judgement).details

    return run


def test_a_program_calls_a_model(details, model):
    found = details("call('/invoke', {'question': 'is it so?', 'systemPrompt': 'Be brief', 'target': 'other'})")
    assert found == {"outputMessages": [{"role": "assistant", "content": "IS IT SO?"}], "rawText": "IS IT SO?"}
    assert model.calls == [("other", [("system", "Be brief"), ("user", "is it so?")])]


def test_without_a_target_the_judge_is_called(details, model):
    details("call('/invoke', {'question': 'a'})")
    assert model.calls == [(None, [("user", "a")])]


def test_a_batch_keeps_its_order_and_isolates_errors(details):
    found = details("call('/invokeBatch', {'requests': [{'question': q} for q in ('a', 'fail', 'c')]})")
    texts = [each["rawText"] for each in found["responses"]]
    assert texts == ["A", "Error: The judge small failed (server): it is down", "C"]


def test_info_reports_the_call_count(details):
    first, _, after = details(
        "[call('/info'), call('/invoke', {'question': 'a'}), call('/info')]", target_proxy={"max_calls": 7}
    )
    assert first == {"targetName": "small", "maxCalls": 7, "callCount": 0, "availableTargets": ["small"]}
    assert after["callCount"] == 1


REFUSED = {
    "no question": ("call('/invoke', {})", 400, "'question' must be a non-empty string"),
    "an empty question": ("call('/invoke', {'question': ''})", 400, "'question' must be a non-empty string"),
    "an invalid question": ("call('/invoke', {'question': [1]})", 400, "'question' must be a non-empty string"),
    "an invalid system prompt": ("call('/invoke', {'question': 'a', 'systemPrompt': 1})", 400, "'systemPrompt'"),
    "an invalid target": ("call('/invoke', {'question': 'a', 'target': 5})", 400, "Unknown target 5"),
    "a list": ("call('/invoke', [])", 400, "must be a JSON object"),
    "no requests": ("call('/invokeBatch', {'requests': 'a'})", 400, "must be a list"),
    "invalid requests": ("call('/invokeBatch', {'requests': ['a']})", 400, "must be a list"),
    "a wrong token": ("call('/info', Authorization='Bearer no')", 401, "Unknown token"),
    "no token": ("call('/info', Authorization='')", 401, "Unknown token"),
    "another host name": ("call('/info', Host='evil.example')", 403, "loopback host name"),
    "a model that fails": ("call('/invoke', {'question': 'fail'})", 500, "it is down"),
    "a batch above the limit": ("call('/invokeBatch', {'requests': [{'question': 'a'}] * 3})", 429, "may make 2 calls"),
    "a call above the limit": ("[call('/invoke', {'question': 'a'}) for _ in range(3)][-1]", 429, "and has made 2"),
}  # fmt: skip


@pytest.mark.parametrize(("code", "status", "message"), REFUSED.values(), ids=REFUSED)
def test_invalid_requests_are_refused(details, code, status, message):
    found = details(code, target_proxy={"max_calls": 2})
    assert found["status"] == status
    assert message in found["error"]


def test_a_batch_above_the_limit_makes_no_call(details, model):
    details("call('/invokeBatch', {'requests': [{'question': 'a'}] * 3})", target_proxy={"max_calls": 2})
    assert model.calls == []


def test_without_a_proxy_no_variables_are_set(scoring):
    script = [sys.executable, "-c", "import json, os; print(json.dumps({'score': 1, 'details': dict(os.environ)}))"]
    inherited = scoring.score("code_judge", {"script": script}).details
    assert not [name for name in inherited if "PROXY_URL" in name or "PROXY_TOKEN" in name]


def test_a_run_without_a_judge_is_refused_before_anything_is_called(folder, command):
    entry = {"type": "code_judge", "script": "touch ran", "target": True}
    case = {"id": "a", "criteria": "x", "input": "hi", "evaluators": [entry]}
    folder.write("cases.yaml", {"evalcases": [case]})
    folder.write("targets.yaml", {"targets": [{"name": "default", "provider": "mock"}]})
    ended = command("eval", "cases.yaml")
    assert ended.code == 2
    assert "Evaluator 'code_judge' needs a judge, but none is configured" in ended.stderr
    assert not (folder.path / "ran").exists()


@pytest.mark.parametrize("place", ["an entry", "a member of a composite"])
def test_calls_are_in_the_record_with_their_tokens(folder, command, place):
    script = [
        sys.executable,
        "-c",
        JUDGE + "call('/invokeBatch', {'requests': [{'question': 'a'}] * 2})\nprint('{\"score\": 1}')",
    ]
    entry = {"type": "code_judge", "script": script, "target": {"max_calls": 2}}
    if place != "an entry":
        entry = {"type": "composite", "evaluators": [entry], "aggregator": "weighted_average"}
    folder.write("cases.yaml", {"evalcases": [{"id": "a", "criteria": "x", "input": "hi", "evaluators": [entry]}]})
    judge = {"name": "judge", "provider": "mock", "response": "yes", "token_usage": {"input": 10, "output": 1}}
    folder.write("targets.yaml", {"targets": [{"name": "default", "provider": "mock"}, judge]})
    assert command("eval", "cases.yaml", "--out", "out").code == 0
    [found] = json.loads((folder.path / "out" / "results.jsonl").read_text())["evaluator_results"]
    if place != "an entry":
        [found] = found["evaluator_results"]
    assert found["token_usage"] == {"input": 20, "output": 2}
    assert "proxy" not in json.dumps(found["evaluator_provider_request"]).lower()


def test_a_token_is_valid_only_during_its_judgement(scoring, model):
    async def steps():
        proxy = ModelProxy()
        await proxy.start()
        judgement = scoring.judgement("x", ask=model.ask, judges=("small",))
        try:
            async with ClientSession() as session:
                async with proxy.granted(judgement, 5) as one, proxy.granted(judgement, 5) as other:
                    assert one["AGENTV_TARGET_PROXY_TOKEN"] != other["AGENTV_TARGET_PROXY_TOKEN"]
                    assert await called(session, one) == 200
                    assert await count(session, one) == 1
                    assert await count(session, other) == 0
                return await called(session, one)
        finally:
            await proxy.aclose()

    assert asyncio.run(steps()) == 401


def test_running_calls_are_cancelled_with_the_judgement(scoring):
    ended = []

    async def ask(target, messages, wanted=None):
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def steps():
        proxy = ModelProxy()
        await proxy.start()
        try:
            async with ClientSession() as session:
                async with proxy.granted(scoring.judgement("x", ask=ask), 5) as found:
                    call = asyncio.ensure_future(called(session, found))
                    await wait_until_async(lambda: proxy._grants[found["AGENTV_TARGET_PROXY_TOKEN"]].calls)
                call.cancel()
        finally:
            await proxy.aclose()

    asyncio.run(steps())
    assert ended == [True]


async def called(session, found):
    url, token = found["AGENTV_TARGET_PROXY_URL"], found["AGENTV_TARGET_PROXY_TOKEN"]
    headers = {"Authorization": f"Bearer {token}"}
    async with session.post(f"{url}/invoke", data=json.dumps({"question": "a"}), headers=headers) as reply:
        return reply.status


async def count(session, found):
    url, token = found["AGENTV_TARGET_PROXY_URL"], found["AGENTV_TARGET_PROXY_TOKEN"]
    async with session.get(f"{url}/info", headers={"Authorization": f"Bearer {token}"}) as reply:
        return (await reply.json())["callCount"]


def test_a_warm_script_finds_the_proxy_too(scoring, model, tmp_path):
    text = JUDGE.replace("payload = json.load(sys.stdin)\n", "")
    (tmp_path / "judge.py").write_text(
        text + "def agentv_judge(payload):\n    return {'score': 1, 'details': call('/invoke', {'question': 'a'})}\n"
    )
    evaluator = scoring.evaluator("code_judge", script=[sys.executable, "judge.py"], target_proxy=True)

    async def twice(host):
        judgement = scoring.judgement("x", ask=model.ask, workdir=str(tmp_path), host=host)
        return [(await evaluator.evaluate(judgement)).details["rawText"] for _ in range(2)]

    assert scoring.hosted(twice) == ["A", "A"]
