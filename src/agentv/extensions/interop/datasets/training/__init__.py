"""Training data for chat models, used as cases."""
