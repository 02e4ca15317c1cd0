"""Media types by name or file extension."""


def media_type_named(text: str) -> str:
    """Return the media type of a type or file extension; unknown ones are returned unchanged."""
    name = text.strip().lower()
    if not name or "/" in name:
        return name
    extension = name if name.startswith(".") else f".{name}"
    import mimetypes  # late: few cases have files

    return mimetypes.guess_type(f"file{extension}")[0] or extension
