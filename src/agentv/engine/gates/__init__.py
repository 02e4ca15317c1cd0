"""Gates: conditions that make a run fail."""
