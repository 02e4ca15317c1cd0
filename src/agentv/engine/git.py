"""The commit that a project is at. Knows no more of git than that."""

from __future__ import annotations

import subprocess


def git_commit(root: str) -> str | None:
    """The hash of the commit that is checked out; None where there is no git, or no commit yet."""
    try:
        command = ["git", "-C", root, "rev-parse", "HEAD"]
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None if found.returncode == 0 else None
