"""What a run leaves: records, the folder that holds them, and reading both back. Knows no dataset and no target."""
