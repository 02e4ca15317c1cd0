"""Where the answer of a job comes from: a live target, a stored run, a probe, an earlier run."""
