"""The cases of a run: streamed, surveyed and written, after those they depend on."""
