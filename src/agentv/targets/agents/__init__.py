"""Coding agents: programs that receive a prompt, work in a folder, and print JSON events."""
