"""Find the commit that changed the scores: history, worktrees, batches of cases, and the decision at each commit."""
