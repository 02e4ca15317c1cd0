"""What people are shown of a run. Decides nothing; the figures come from `results` and `stats`."""
