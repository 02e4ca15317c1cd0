"""Commands that analyse runs: reports, comparisons, plans, and searches for the cause of a change."""
