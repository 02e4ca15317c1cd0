"""Media types by name or file extension."""

from __future__ import annotations

import mimetypes


def media_type_named(written: str) -> str:
    """Return the media type of a type or file extension; unknown ones are returned unchanged."""
    name = written.strip().lower()
    if not name or "/" in name:
        return name
    extension = name if name.startswith(".") else f".{name}"
    return mimetypes.guess_type(f"file{extension}")[0] or extension
