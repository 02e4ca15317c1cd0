"""What scores mean: pure functions and accumulators over numbers. Knows no result and no file.

`distributions`, `intervals`, `sequential`, `trials`, `power` and `multiplicity` are plain Python, and runs use them;
the others work on arrays and import numpy when they are called.
"""
