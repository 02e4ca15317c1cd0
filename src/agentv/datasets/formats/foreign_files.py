"""Recognize files of other tools, for error messages that name what a file is."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection

from agentv.datasets.case.keys import OUTCOME_KEYS

TABLES = {".csv": ",", ".tsv": "\t"}
"""Extensions of tables, which `agentv generate evals` converts to datasets, and their column delimiters."""

TABLE = "a table (CSV)"

_DOCUMENTS = {
    "skill_name evals": "an evals.json file of Agent Skills",
    "prompts providers": "a configuration of promptfoo or of AgentV (TypeScript) 5",
    "prompts targets": "a promptfoo configuration",
    "testData messages": "a prompt file of GitHub Models",
    "eval_set_id": "an eval set of Google ADK",
    "stimuli": "an eval file of Vally",
    "testcases": "a test set of DeepEval",
    "testRunData": "a results file of DeepEval",
    "targets": "a targets file",
    "guideline_patterns": "a configuration of agentv",
    "task dataset_path": "a task of lm-evaluation-harness",
}
_ROWS = {
    "input ideal": "a row of OpenAI Evals",
    "input expectedOutput": "a dataset item of Langfuse",
    "inputs outputs": "an example of LangSmith",
    "inputs expectations": "a row of an MLflow dataset",
    "inputs": "an example of LangSmith or MLflow",
    "instance_id problem_statement": "a task of SWE-bench",
    "user_input reference": "a row of a Ragas test set",
    "query ground_truth": "a row of an Azure AI evaluation dataset",
    "question_id turns": "a question of MT-bench",
    "instruction output": "training data in the format of Alpaca",
    "conversations": "training data in the format of ShareGPT",
    "messages": "training data for a chat model",
    "query should_trigger": "a trigger eval of Agent Skills",
    "input target": "a sample of Inspect",
    "input expected": "a row of a Braintrust dataset",
}
_WRITE_CASES = "Write the cases in a YAML or JSONL file"
_KINDS = {
    **dict.fromkeys((".ts", ".mts", ".cts"), ("a TypeScript program", _WRITE_CASES)),
    **dict.fromkeys((".js", ".mjs", ".cjs"), ("a JavaScript program", _WRITE_CASES)),
    ".py": ("a Python program", "Write the cases in a YAML or JSONL file, or call `agentv.evaluate` in it"),
    **dict.fromkeys((".xlsx", ".xls", ".ods"), ("a spreadsheet", "Save the sheet as a .csv file")),
    ".parquet": ("a Parquet file", "Write its rows to a .csv or .jsonl file"),
    ".eval": ("a log of Inspect", _WRITE_CASES),
    ".md": ("a Markdown file", _WRITE_CASES),
}
"""Extensions of files that are never datasets: what they are, and what to do."""

HTML = "an HTML page"
_ADVICE = {
    HTML: "Download the file itself",
    "a targets file": "Pass the dataset; the targets file is found by its name",
    "a configuration of agentv": "Pass the dataset",
}
_INPUTS = ("input", "question", "query", "prompt", "user_input", "instruction", "text")
_REFERENCES = ("expected_output", "answer", "expected", "reference", "ideal", "output", "ground_truth", "target")


def name_of_document(keys: Collection[str]) -> str:
    """Return what an object with these keys is, if another tool writes such files; otherwise an empty text."""
    return _name(_DOCUMENTS, keys)


def name_of_row(keys: Collection[str]) -> str:
    """Return what a row with these keys is, if another tool writes such rows; otherwise an empty text."""
    return _name(_ROWS, keys)


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
    delimiters = (each for each in ",\t;" if each in lines[0])
    return TABLE if any(len(_cells(lines[0], each)) == len(_cells(lines[1], each)) for each in delimiters) else ""


def hint_for(path: str, head: bytes, keys: Collection[str]) -> str:
    """Return a hint for a file that is not a dataset: what it is, and what to do. Empty if it is not recognized."""
    suffix = os.path.splitext(path)[1].lower()
    text = name_of_text(head)
    if suffix in TABLES or text == TABLE:
        return f"This is a table. Convert its rows: {_conversion(path, head, TABLES.get(suffix, ','))}"
    kind = _KINDS.get(suffix)
    if kind is not None:
        return f"This is {kind[0]}. {kind[1]}"
    name = text or name_of_document(keys) or name_of_row(keys)
    advice = _ADVICE.get(name, "Write its cases in a YAML or JSONL file")
    return f"This looks like {name}, not a dataset. {advice}" if name else ""


def _conversion(path: str, head: bytes, delimiter: str) -> str:
    """Return a command that converts a table without a model, from the columns that look like input and reference."""
    first = head.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").split("\n", 1)[0].strip("\r")
    columns = [name.strip() for name in _cells(first, delimiter)]
    usable = [name for name in columns if name.isidentifier()] or ["COLUMN"]
    question = next((name for name in usable if name.lower() in _INPUTS), usable[0])
    answer = next((name for name in usable if name.lower() in _REFERENCES and name != question), None)
    outcome = next((f"{{{{ {name} }}}}" for name in usable if name in OUTCOME_KEYS), "Agrees with the reference")
    base, suffix = os.path.splitext(path)
    table = path if suffix.lower() in TABLES else f"{base}.csv"
    parts = ["agentv", "generate", "evals", table, "--out", f"{base}-cases.jsonl"]
    parts += ["--input", f"{{{{ {question} }}}}", "--expected-outcome", outcome]
    parts += ["--expected-output", f"{{{{ {answer} }}}}"] if answer else []
    rename = "" if table == path else f"mv {shlex.quote(path)} {shlex.quote(table)}; "
    return rename + " ".join(map(shlex.quote, parts))


def _cells(line: str, delimiter: str) -> list[str]:
    import csv  # late: needed only for mistakes

    return next(csv.reader([line], delimiter=delimiter), [])


def _name(names: dict[str, str], keys: Collection[str]) -> str:
    return next((name for wanted, name in names.items() if all(key in keys for key in wanted.split())), "")
