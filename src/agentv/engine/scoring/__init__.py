"""Score one answer with the evaluators of its case."""
