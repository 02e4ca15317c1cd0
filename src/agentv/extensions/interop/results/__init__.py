"""One module per format of other tools' results."""
