"""Code that knows nothing about evaluation."""
