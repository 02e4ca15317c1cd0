"""The engine: cases, targets, prompts and trials → results. Plans, runs, limits, grades; prints nothing."""
