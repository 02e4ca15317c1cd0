"""What went wrong inside a judge, in the user's own lines: frames of libraries and of ours are left out."""

from __future__ import annotations

import linecache
import os
from traceback import walk_tb

from agentv.evaluators.pool.untouched import is_users_file
from agentv.support.user_code import describe

_MOST_FRAMES = 5


def failure_text(name: str, error: BaseException) -> str:
    """The exception in a line; below it the user's frames, the innermost last, when it passed through several."""
    frames = [
        (frame.f_code.co_filename, line, frame.f_code.co_name)
        for frame, line in walk_tb(error.__traceback__)
        if is_users_file(frame.f_code.co_filename)
    ]
    # What never reached the user's code has no place in it, and a line of ours would help nobody.
    told = describe(error, frames[-1][0]) if frames else describe(error.with_traceback(None))
    first = f"{name} failed: {told}"
    if len(frames) < 2:
        return first
    return "\n".join([first, *(_line(*each) for each in frames[-_MOST_FRAMES:])])


def _line(file: str, line: int, function: str) -> str:
    source = linecache.getline(file, line).strip()
    return f"  {os.path.basename(file)}, line {line}, in {function}" + (f": {source}" if source else "")
