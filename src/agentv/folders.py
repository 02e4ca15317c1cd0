"""Folders of a project, by where they lie."""

from __future__ import annotations

import os


def upward(folder: str, root: str) -> list[str]:
    """A folder and its parents up to the root; the folder alone when the root is not above it."""
    folder, root = os.path.realpath(folder), os.path.realpath(root)
    found = [folder]
    while found[-1] != root and os.path.dirname(found[-1]) != found[-1]:
        found.append(os.path.dirname(found[-1]))
    return found if found[-1] == root else [folder]
