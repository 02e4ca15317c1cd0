"""Coding agents: programs on the PATH that get a prompt, work in a folder, and print what they do as JSON events."""
