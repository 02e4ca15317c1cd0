"""What users name in a targets file as `file.py:name` or `module:name`, and what their code says when it fails."""

from __future__ import annotations

import os
import sys
from typing import Any

from agentv.errors import AgentvError
from agentv.functions import FunctionError, describe, load
from agentv.suggest import did_you_mean


def import_reference(reference: str, home: str) -> Any:
    """The object behind a name; files are relative to `home`, where modules are found too.

    Dots lead to attributes. A class that is followed by one is made into an object first: `agent.py:Agent.ask`.
    """
    place, _, name = reference.rpartition(":")
    first, *rest = name.split(".")
    if home not in sys.path:
        # At the end: what is there must not hide a module of Python's own.
        sys.path.append(str(home))
    try:
        found = load(f"{place}:{first}", lambda file: os.path.join(home, file))
    except FunctionError as error:
        raise AgentvError(
            f"Cannot use '{reference}'", str(error), f"Files and modules are looked up in {home}"
        ) from error
    for step in rest:
        if isinstance(found, type):
            found = built(found, reference, home)
        try:
            found = getattr(found, step)
        except AttributeError:
            public = [known for known in dir(found) if not known.startswith("_")]
            detail = f"There is no '{step}' in {type(found).__name__}"
            raise AgentvError(f"Cannot use '{reference}'", detail, did_you_mean(step, public)) from None
    return found


def built(kind: type, reference: str, home: str) -> Any:
    """An object of a user's class, made without arguments."""
    try:
        return kind()
    except (Exception, SystemExit) as error:
        hint = "A class is made without arguments; name an object instead, or a function"
        raise AgentvError(f"Cannot use '{reference}'", in_one_line(error, home), hint) from error


def in_one_line(error: BaseException, home: str) -> str:
    """An exception of the user's code, with the innermost line of the project that it came through."""
    own = ""
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if os.path.realpath(file).startswith(os.path.join(os.path.realpath(home), "")):
            own = file
        trace = trace.tb_next
    return describe(error, own)
