"""The analysis of runs that were made together: the noise of one setup, and a change of model."""
