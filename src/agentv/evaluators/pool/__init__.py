"""Warm processes for Python judges: the user's file is imported once, and processes forked from there are reused.

In the run: `pool` keeps one fork server per file and hands judgements to its forked processes (`worker_process`).
In those processes: `fork_server` imports the user's file and forks; `worker` calls the function. `protocol` has the
messages that pass between the two sides.
"""
