"""Model APIs, called over HTTP."""
