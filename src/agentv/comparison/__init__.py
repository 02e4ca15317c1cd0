"""Compare runs case by case, and estimate the sample size that a difference needs."""
