"""The official client, connected to `agentv mcp` over the pipes of a process, or to its server in this process."""

import os
import sys
from contextlib import contextmanager
from pathlib import Path

from late import Late

mcp, stdio, threads = Late("mcp"), Late("mcp.client.stdio"), Late("anyio.from_thread")
budgets, projects = Late("agentv.extensions.mcp.run_budget"), Late("agentv.extensions.mcp.served_project")
servers = Late("agentv.extensions.mcp.server")

SOURCE = Path(__file__).resolve().parents[3] / "src"


class Connection:
    """Calls tools of one server and returns what it replied. `log` is the server's stderr."""

    def __init__(self, portal, client, log):
        self.portal, self.client, self.log = portal, client, log
        self.progress = []

    def tools(self):
        return {tool.name: tool for tool in self.portal.call(self.client.list_tools).tools}

    async def _call(self, name, arguments):
        async def seen(done, total, message):
            self.progress.append((done, total, message))

        return await self.client.call_tool(name, arguments, progress_callback=seen)

    def reply(self, name, /, **arguments):
        return self.portal.call(self._call, name, arguments)

    def call(self, name, /, **arguments):
        """Return the data of a successful call."""
        result = self.portal.call(self._call, name, arguments)
        assert not result.is_error, result.content[0].text
        return result.structured_content

    def text(self, name, /, **arguments):
        result = self.portal.call(self._call, name, arguments)
        assert not result.is_error, result.content[0].text
        return result.content[0].text

    def error(self, name, /, **arguments):
        """Return the message of a call that failed."""
        result = self.portal.call(self._call, name, arguments)
        assert result.is_error and result.structured_content is None, result.content[0].text
        return result.content[0].text

    def start(self, name, /, **arguments):
        """Start a call; cancelling the future cancels the request."""
        return self.portal.start_task_soon(self._call, name, arguments)


@contextmanager
def served(*, usd=None, jobs=None, allows_programs=False, workers=None):
    """Serve the project of the working directory in this process, with the limits that the command would set."""
    project = projects.ServedProject(budgets.ServerBudget(usd, jobs), allows_programs=allows_programs, advice=str)
    project.workers = workers
    client = mcp.Client(servers.build_server(project))
    with threads.start_blocking_portal() as portal, portal.wrap_async_context_manager(client) as ready:
        yield Connection(portal, ready, None)


@contextmanager
def connected(folder, *options, variables=None):
    """Start a server for a project and connect to it."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), **(variables or {})}
    parameters = stdio.StdioServerParameters(
        command=sys.executable, args=["-m", "agentv", "mcp", *options], cwd=folder, env=environment
    )
    with open(folder / "server.log", "w+", encoding="utf-8") as log, threads.start_blocking_portal() as portal:
        client = mcp.Client(stdio.stdio_client(parameters, errlog=log))
        with portal.wrap_async_context_manager(client) as ready:
            yield Connection(portal, ready, log)
