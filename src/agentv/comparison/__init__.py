"""Runs held against each other, case by case: scores read in brief, paired, and asked what they show."""
