"""Results that are tables: a row for each case, and columns for its metrics."""
