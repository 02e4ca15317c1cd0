"""The data model: frozen, comparable, picklable values. Nothing here does I/O."""
