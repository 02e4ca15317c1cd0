"""Warm processes for Python judges. One judgement cannot affect the next: it starts where all others started.

In the run: `pool` keeps `templates`, which keep forked processes busy (`judging`). In those processes: `template`
imports the user's file once and forks; what is forked judges (`worker`), again and again for as long as no judgement
leaves a trace (`untouched`). Between the two: `wire` and `lines`.
"""
