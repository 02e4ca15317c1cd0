"""The hosts that a user's policy allows: no other host receives a request."""

import asyncio

import pytest

from agentv.engine.job.request import CaseRequest
from agentv.errors import UsageError
from agentv.extensions.mcp.server_connection import McpConnection
from agentv.model.case import EvalCase
from agentv.model.response import TargetFailure
from agentv.targets.apis.http_client import HttpClient
from agentv.targets.command_call import _get
from agentv.targets.http import Http
from agentv.targets.tools.tool import McpServer
from agentv_testing import FaultyServer


def test_a_client_for_a_host_outside_the_policy_is_not_created(policy):
    policy("hosts: [api.openai.com]")
    with FaultyServer() as server, pytest.raises(UsageError, match=r"Calls to .127\.0\.0\.1. are not allowed"):
        HttpClient(server.url, {})
    assert server.counts.requests == 0


def test_a_listed_host_is_called(policy):
    policy("hosts: [127.0.0.1]")
    with FaultyServer() as server:
        asyncio.run(_sent(HttpClient(server.url, {}), f"{server.url}/chat/completions"))
        assert server.counts.requests == 1


def test_a_host_that_a_case_fills_in_is_checked_for_each_request(policy):
    policy("hosts: [localhost]")
    with FaultyServer() as server:
        port = server.url.rsplit(":", 1)[1].partition("/")[0]
        responder = Http(name="x", provider="http", url=f"http://{{{{ id }}}}:{port}/chat/completions").open(".")
        with pytest.raises(TargetFailure, match=r"does not allow calls to '127.0.0.1'"):
            asyncio.run(_answered(responder, EvalCase("127.0.0.1", input="Hello")))
        assert server.counts.requests == 0


def test_health_checks_and_mcp_servers_keep_to_the_policy(policy):
    policy("hosts: []")
    with FaultyServer() as server:
        assert "not allowed" in _get(server.url, 5.0)
        with pytest.raises(UsageError, match="are not allowed"):
            McpConnection(McpServer(mcp=server.url), ".")
        assert server.counts.requests == 0


async def _sent(client, url):
    try:
        await client.send("POST", url, b"{}", 5.0)
    except TargetFailure:
        pass  # whatever it answers, it was called
    finally:
        await client.aclose()


async def _answered(responder, case):
    try:
        return await responder.respond(CaseRequest(case))
    finally:
        await responder.aclose()
