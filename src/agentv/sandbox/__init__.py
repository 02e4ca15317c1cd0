"""Isolate users' programs: namespaces, Landlock, a system call filter, bubblewrap and containers."""

PROXY_PORT = 8765
"""The port of a proxy in the network of an isolated program, in which no other program listens."""

SHARED_MEMORY = "/dev/shm"  # noqa: S108
