"""Convert datasets to other formats without loss."""

ROWS = {
    "agentv.commands": {
        "convert": "agentv.extensions.convert.conversion:convert_command | "
        "Convert a dataset to another format without loss.",
    },
}
