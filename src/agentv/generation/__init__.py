"""Write rubrics and cases with a model."""
