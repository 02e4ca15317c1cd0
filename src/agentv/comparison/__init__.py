"""Compare runs case by case, and plan how many cases a difference needs."""
