"""Datasets: bytes on disk → cases. One module per format; everything after the parser is shared."""
