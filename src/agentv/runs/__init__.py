"""Store runs: records, run folders, summaries and merges. Independent of datasets and targets."""
