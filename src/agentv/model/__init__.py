"""The nouns: frozen, comparable, picklable values. Nothing here reads a file or calls anything."""
