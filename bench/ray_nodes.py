"""Two Ray nodes with one CPU each on loopback, for a benchmark and for tests.

    python bench/ray_nodes.py

Prints the address of the cluster. A line on stdin kills all processes of the second node and is answered with their
number; the end of stdin ends the cluster.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from contextlib import suppress
from types import TracebackType


class RayNodes:
    """Two nodes, in a separate process: Ray's environment is read once per process, when Ray is imported.

    `environment` is what a driver needs to be let in; `variables` are set for the nodes only.
    """

    def __init__(self, variables: dict[str, str] | None = None) -> None:
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        self.environment = {**os.environ, **token}
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            env={**self.environment, **(variables or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.address = self._line()
        self.options = ("--executor", "ray", "--ray-address", self.address)

    def kill_node(self) -> int:
        """Kill the second node; return the number of its processes."""
        assert self._process.stdin is not None
        self._process.stdin.write("kill\n")
        self._process.stdin.flush()
        return int(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise RuntimeError("The Ray cluster has ended")
        return line

    def __enter__(self) -> RayNodes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate(timeout=60)


def main() -> None:
    from ray.cluster_utils import Cluster

    from agentv.support.processes.watchdog import family

    head = {"num_cpus": 1, "include_dashboard": False, "node_ip_address": "127.0.0.2"}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    node = cluster.add_node(num_cpus=1, node_ip_address="127.0.0.3")
    cluster.wait_for_nodes()
    print(cluster.address, flush=True)
    for _ in sys.stdin:
        raylet = node.all_processes["raylet"][0].process.pid
        pids = [raylet, *(pid for pid, _ in family(raylet, "no process has this mark"))]
        for pid in pids:
            with suppress(ProcessLookupError):  # already ended
                os.kill(pid, signal.SIGKILL)
        print(len(pids), flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
