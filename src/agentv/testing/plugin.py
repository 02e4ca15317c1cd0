"""The pytest plug-in: the fixture `agentv_server`. Imports nothing: pytest loads it wherever agentv is installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentv.testing.server import FaultyServer


@pytest.fixture
def agentv_server() -> Iterator[Callable[..., FaultyServer]]:
    """Starts model servers: `server = agentv_server(answers="Paris")`. They stop at the end of the test."""
    from contextlib import ExitStack

    from agentv.testing.server import FaultyServer

    with ExitStack() as servers:

        def start(*args: Any, **options: Any) -> FaultyServer:
            return servers.enter_context(FaultyServer(*args, **options))

        yield start
