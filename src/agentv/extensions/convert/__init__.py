"""Convert datasets to other formats without loss."""

ROWS = {
    "agentv.commands": {
        "convert": "agentv.extensions.convert.command:convert_command | "
        "Convert a dataset to another format without loss.",
    },
}
