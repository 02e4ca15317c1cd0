"""Recognize files of other tools, for error messages that name what a file is."""

import os
import shlex
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from agentv.errors import UsageError
from agentv.registry import RESULT_FORMATS

TABLES = {".csv": ",", ".tsv": "\t"}
"""Extensions of tables, which `agentv generate evals` converts to datasets, and their column delimiters."""

TABLE = "a table (CSV)"

_DOCUMENTS = {
    "prompts providers": "a configuration of promptfoo or of AgentV (TypeScript) 5",
    "prompts targets": "a promptfoo configuration",
    "testcases": "a test set of DeepEval",
    "testRunData": "a results file of DeepEval",
    "targets": "a targets file",
    "guideline_patterns": "a configuration of agentv",
    "schema_version skills engine cases": "an eval of skill-up",
    "inputs graders": "a task of waza",
    "inputs expected": "a task of waza",
}
_WRITE_CASES = "Write the cases in a YAML or JSONL file"
_REPORT = "To see its results, use `agentv report`"
_KINDS = {
    ".prompt.md": ("a prompt of VS Code, which has no cases", _WRITE_CASES),
    **dict.fromkeys((".ts", ".mts", ".cts"), ("a TypeScript program", _WRITE_CASES)),
    **dict.fromkeys((".js", ".mjs", ".cjs"), ("a JavaScript program", _WRITE_CASES)),
    ".py": ("a Python program", "Write the cases in a YAML or JSONL file, or call `agentv.evaluate` in it"),
    ".xls": ("an old spreadsheet", "Save it as .xlsx or .csv"),
    ".eval": ("a log of Inspect", _REPORT),
    ".md": ("a Markdown file", _WRITE_CASES),
}
"""Endings of files that are never datasets, the longer ones first: what they are, and what to do."""

HTML = "an HTML page"
ADVICE = {
    HTML: "Download the file itself",
    "a targets file": "Pass the dataset; the targets file is found by its name",
    "a configuration of agentv": "Pass the dataset",
    "a results file of DeepEval": _REPORT,
    "an eval of skill-up": "Run it with skill-up",
    "a task of waza": "Pass the eval file that lists it",
}
"""What to do with a file that is something else."""


def name_of_document(keys: Collection[str]) -> str:
    """Return what an object with these keys is, if another tool writes such files; otherwise an empty text."""
    return next((name for fields, name in _DOCUMENTS.items() if all(key in keys for key in fields.split())), "")


def name_of_text(head: bytes) -> str:
    """Return what a file is by its first bytes; empty if they are not those of a known format."""
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:4096]
    if start[:15].lower().startswith((b"<!doctype html", b"<html")):
        return HTML
    if start.startswith(b"<?xml"):
        return "an XML file"
    if start.startswith(b"PAR1"):
        return "a Parquet file"
    if start.startswith(b"PK\x03\x04"):
        return "a ZIP archive"
    lines = [line for line in start.decode("utf-8", "replace").splitlines() if line.strip()][:3]
    if len(lines) < 2 or any(char in lines[0] for char in "{}[]:"):
        return ""
    delimiters = (sep for sep in ",\t;" if sep in lines[0])
    return TABLE if any(len(_cells(lines[0], sep)) == len(_cells(lines[1], sep)) for sep in delimiters) else ""


def results_in(path: str, head: bytes) -> str:
    """Return what a file is if it has results of another tool; otherwise an empty text."""
    for name in RESULT_FORMATS.all_names():
        with suppress(UsageError):
            form = RESULT_FORMATS.find(name)
            if getattr(form, "is_imported", False) and form().sniff(head, Path(path)):
                return str(form.title)
    return ""


def hint_for(path: str, head: bytes, keys: Collection[str]) -> str:
    """Return a hint for a file that is not a dataset: what it is, and what to do. Empty if it is not recognized."""
    if (text := name_of_text(head)) == TABLE:
        base, table = os.path.splitext(path)[0], "tsv" if b"\t" in head.split(b"\n", 1)[0] else "csv"
        return f"This is a table. Give it the right name: mv {shlex.quote(path)} {shlex.quote(f'{base}.{table}')}"
    for ending, (what, advice) in _KINDS.items():
        if path.lower().endswith(ending):
            return f"This is {what}. {advice}"
    name = text or results_in(path, head) or name_of_document(keys)
    if name and not text and name not in ADVICE and name not in _DOCUMENTS.values():
        return f"The file has {name}, not cases. {_REPORT}"
    advice = ADVICE.get(name, "Write its cases in a YAML or JSONL file")
    return f"This looks like {name}, not a dataset. {advice}" if name else ""


def _cells(line: str, delimiter: str) -> list[str]:
    import csv  # late: needed only for mistakes

    return next(csv.reader([line], delimiter=delimiter), [])
