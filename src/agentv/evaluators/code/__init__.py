"""Evaluators that run the user's code: programs, and Python functions in warm processes.

A function's file is imported once, and processes forked from there are reused. In the run, `worker_pool` keeps one fork
server per file and hands judgements to its forked processes (`worker_process`). `fork_server` is the code of those
processes; `judge_io` has what passes between the two sides.
"""
