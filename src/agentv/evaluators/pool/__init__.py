"""Warm processes for Python judges. One judgement cannot affect the next: it starts where all others started.

`pool` is the run's side. It starts a template process for each function (`template`), which imports the user's file
once and forks; what is forked judges (`worker`), again and again for as long as no judgement leaves a trace
(`untouched`).
"""
