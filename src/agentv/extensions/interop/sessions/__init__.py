"""One module per format of recorded sessions."""
