"""The pytest plugin with the fixture `agentv_server`. Imports little, because pytest loads it in every session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from agentv_testing.server import FaultyServer


@pytest.fixture
def agentv_server() -> Iterator[Callable[..., FaultyServer]]:
    """Start model servers: `server = agentv_server(answers="Paris")`. They stop at the end of the test."""
    from agentv_testing.server import FaultyServer  # late: few tests use it

    with ExitStack() as servers:

        def start(*args: Any, **options: Any) -> FaultyServer:
            return servers.enter_context(FaultyServer(*args, **options))

        yield start
