"""Evaluators that run user code: programs, and Python functions in warm processes.

A function's file is imported once, and the processes forked from there are reused. On the run's side, `worker_pool`
keeps one fork server per function and sends judgements to its forked processes (`worker_process`). `fork_server` is
the code that runs in those processes; `judge_io` defines the messages between the two sides.
"""
