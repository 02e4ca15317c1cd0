"""Read the records of spreadsheets and Parquet files."""

ROWS = {
    "agentv.services": {
        "spreadsheets": "agentv.extensions.spreadsheets.spreadsheets:records",
    },
}
