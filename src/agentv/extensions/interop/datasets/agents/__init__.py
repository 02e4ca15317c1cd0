"""Evals of agents: eval sets, task folders and skill evals."""
