"""Export runs to collectors, and notes about the spans that a run received."""
