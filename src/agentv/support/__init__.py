"""General-purpose code that does not depend on evaluation concepts."""
