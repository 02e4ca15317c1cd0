"""Check, repair and merge run folders."""
