"""How the reference is written from the code."""
