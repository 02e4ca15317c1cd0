"""The cost of calls: as reported, else from the price list, else unknown; and budgets, which need it."""

import asyncio
import re
import sys

import pytest

from agentv.engine.calls import prices
from agentv.engine.calls.prices import PriceWrapper, price_of, why_unpriced
from agentv.model.result import TokenUsage
from agentv.targets.apis.anthropic import Anthropic
from agentv.targets.apis.openai import Azure, Compatible, OpenAI
from agentv.targets.cli import Cli
from agentv.targets.mock import Mock
from agentv.targets.target import Prices
from agentv_testing import Answer, FaultyServer, RawReply, SampleRequest

pytest.importorskip("genai_prices")


def openai(model="gpt-4o", **settings):
    return OpenAI(name="t", provider="openai", model=model, **settings)


def test_tokens_are_priced_by_the_list():
    price = price_of(openai())
    assert price.cost_usd(TokenUsage(1_000_000, 0)) == 2.5
    assert price.cost_usd(TokenUsage(0, 1_000_000)) == 10
    assert price.cost_usd(TokenUsage(1_000_000, 0, cached=1_000_000)) == 1.25


def test_cache_writes_cost_more_and_for_an_hour_most():
    def written(**settings):
        target = Anthropic(name="t", provider="anthropic", model="claude-haiku-4-5", **settings)
        return price_of(target).cost_usd(TokenUsage(1_000_000, 0, cache_write=1_000_000))

    plain = price_of(Anthropic(name="t", provider="anthropic", model="claude-haiku-4-5"))
    assert plain.cost_usd(TokenUsage(1_000_000, 0)) < written(prompt_caching=True) < written(prompt_caching="1h")


def test_the_reported_model_decides_the_price_if_it_is_listed():
    price = price_of(openai("gpt-4o"))
    million = TokenUsage(1_000_000, 0)
    assert price.cost_usd(million, "gpt-4o-mini") < price.cost_usd(million, "gpt-4o-2024-08-06")
    assert price.cost_usd(million, "nobody-knows-it") == price.cost_usd(million)


@pytest.mark.parametrize(
    "settings",
    [
        openai("nobody-knows-it"),
        openai(base_url="http://gateway.test/v1"),
        Compatible(name="t", provider="ollama", model="gpt-4o"),
        Azure(name="t", provider="azure", endpoint="r", model="my-deployment"),
    ],
    ids=lambda settings: f"{settings.provider} {settings.model}",
)
def test_a_price_is_never_guessed(settings):
    price = price_of(settings)
    assert price is None or price.cost_usd(TokenUsage(1000, 1000)) is None


def request(answers, settings):
    async def once(server):
        target = openai(base_url=server.url, api_key="none")
        responder = PriceWrapper(target.open("."), price_of(settings), settings)
        try:
            return await responder.respond(SampleRequest())
        finally:
            await responder.aclose()

    with FaultyServer(answers) as server:
        return asyncio.run(once(server))


def test_an_answer_has_its_cost():
    assert request(Answer("Hi", usage=TokenUsage(1000, 100)), openai()).cost_usd == pytest.approx(0.0035)


def test_prices_of_the_target_come_before_the_list():
    own = openai(prices=Prices(input=2, output=10, cached=0.5))
    usage = TokenUsage(1000, 100, cached=400)
    assert price_of(own).cost_usd(usage, "another-model") == pytest.approx((600 * 2 + 400 * 0.5 + 100 * 10) / 1e6)
    assert request(Answer("Hi", usage=TokenUsage(1000, 100)), own).cost_usd == pytest.approx(0.003)


def test_cached_tokens_cost_the_same_without_a_price_of_their_own():
    price = price_of(openai(prices=Prices(input=2, output=0)))
    assert price.cost_usd(TokenUsage(1_000_000, 5, cached=500_000)) == 2


def test_a_cost_reported_by_the_api_is_kept():
    body = b'{"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": 1000, "cost": 0.25}}'
    assert request(RawReply(body), openai()).cost_usd == 0.25


def test_an_answer_without_token_counts_has_no_cost():
    assert request(Answer("Hi", wrong_usage=True), openai()).cost_usd is None


@pytest.mark.parametrize(
    ("settings", "free"),
    [
        (Mock(name="t", provider="mock"), True),
        (Compatible(name="t", provider="ollama", model="m"), True),
        (Compatible(name="t", provider="ollama", model="m", base_url="http://127.0.0.1:1/v1"), True),
        (Compatible(name="t", provider="ollama", model="m", base_url="https://cloud.test/v1"), False),
        (Compatible(name="t", provider="ollama", model="m", prices=Prices(input=1, output=1)), False),
        (Compatible(name="t", provider="groq", model="m"), False),
        (openai(base_url="http://127.0.0.1:1/v1"), False),
    ],
)
def test_targets_that_are_not_billed_are_free(settings, free):
    assert settings.is_free == free


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (openai("gpt-4o"), None),
        (openai("nobody-knows-it", prices=Prices(input=1, output=1)), None),
        (Mock(name="t", provider="mock"), None),
        (Compatible(name="t", provider="ollama", model="m"), None),
        (Compatible(name="t", provider="openrouter", model="some/new-model"), None),
        (Cli(name="t", provider="cli", command_template="echo"), None),
        (openai("nobody-knows-it"), "does not contain 'nobody-knows-it' of openai"),
        (openai(base_url="http://127.0.0.1:1/v1"), "does not contain 'gpt-4o' at 127.0.0.1"),
    ],
)
def test_a_budget_needs_a_price(settings, why):
    output = why_unpriced(settings)
    assert output is None if why is None else why in output


def test_without_the_package_nothing_has_a_price_and_the_install_command_is_named(monkeypatch):
    prices._package.cache_clear()
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    try:
        assert price_of(openai()) is None
        assert "pip install 'agentv[prices]'" in why_unpriced(openai())
    finally:
        prices._package.cache_clear()


# In runs


@pytest.fixture
def priced(project, agentv_server):
    """A project whose target has a price and a server that answers for it."""

    def start(model="gpt-4o", **options):
        server = agentv_server(Answer("yes", usage=TokenUsage(100_000, 1000)), **options)
        target = {"name": "default", "provider": "azure", "endpoint": server.origin, "model": model, "api_key": "none"}
        project.targets({**target, "workers": 1})
        project.dataset(*["yes"] * 8)
        return server

    return start


def test_a_run_reports_its_cost_and_stops_at_its_budget(project, priced):
    server = priced()
    ended = project.eval("--budget-usd", "0.7", "--out", "run")
    assert ended.code == 4
    assert server.counts.requests == 3  # 0.26 each
    costs = [record["execution_metrics"]["cost_usd"] for record in project.records("run")]
    assert costs == [pytest.approx(0.26)] * 3


def test_a_target_without_a_price_is_refused_before_anything_is_called(project, priced):
    server = priced("my-deployment")
    ended = project.eval("--budget-usd", "1")
    assert ended.code == 2
    assert "--budget-usd cannot be enforced: the price of target 'default' is unknown" in ended.stderr
    assert server.counts.requests == 0


@pytest.mark.parametrize(
    ("more", "output"),
    [
        ({}, "cost about $0.0200 for prompts, plus $0.0100 per 1,000 response tokens"),
        ({"max_output_tokens": 500}, "cost about $0.0200 for prompts, at most $0.0600 with responses"),
    ],
)
def test_a_dry_run_estimates_from_the_list(project, more, output):
    target = {"name": "default", "provider": "openai", "model": "gpt-4o", "api_key": "none"}
    project.targets({**target, **more})
    project.dataset(*["yes " * 1000] * 8)
    assert output in project.eval("--dry-run").stdout


def test_a_dry_run_counts_the_system_prompt_and_the_tools_of_every_call(project):
    tool = {"name": "search", "description": "x" * 4000}
    settings = {"provider": "openai", "model": "m", "base_url": "http://127.0.0.1:1/v1"}
    project.targets({"name": "default", **settings, "system_prompt": "x" * 40_000, "tools": [tool]})
    project.dataset("a", "b")
    found = re.search(r"2 cases, 2 jobs, about ([\d,]+) prompt tokens", project.eval("--dry-run").stdout)
    assert 22_000 < int(found[1].replace(",", "")) < 22_200


def test_own_prices_make_a_budget_work_for_a_self_hosted_model(project, agentv_server):
    server = agentv_server(Answer("yes", usage=TokenUsage(100, 10)))
    target = {"name": "default", "provider": "openai", "base_url": server.url, "model": "mine", "workers": 1}
    project.targets(target)
    project.dataset(*(["q"] * 20))
    refused = project.eval("--out", "out", "--budget-usd", "1")
    assert (refused.code, "Set `prices` of the target" in refused.stderr) == (2, True)
    project.targets({**target, "prices": {"input": 1000, "output": 10_000}})
    assert "cost about" in project.eval("--dry-run").stdout
    assert project.eval("--out", "out", "--budget-usd", "1").code == 4
    assert project.summary()["cost_usd"] == pytest.approx(0.2 * project.summary()["scored"])
