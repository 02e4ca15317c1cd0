"""Tests of promptfoo without a configuration."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, objects, record_file
from agentv.datasets.foreign.records import Record, RecordFile
from agentv.datasets.foreign.values import question_of, text_of
from agentv.datasets.formats.dataset_format import BadRow, Document
from agentv.extensions.promptfoo.promptfoo_cells import test_of_row
from agentv.extensions.promptfoo.promptfoo_config import case_rows
from agentv.extensions.promptfoo.providers.suite_targets import SuiteTargets
from agentv.extensions.promptfoo.suite import Suite, ignore
from agentv.extensions.promptfoo.suite_files import SuiteFiles
from agentv.extensions.promptfoo.test_sources import merged_test


class _PromptfooTests(ForeignFormat):
    title = "tests of promptfoo"
    strength = 0.86
    fields = "vars → input, assert → evaluators"

    def fits(self, file: RecordFile) -> bool:
        rows = objects(file)
        if file.kind in ("table", "sheet"):
            return bool(rows) and any(str(key).startswith("__expected") for key in rows[0])
        return bool(rows) and all(isinstance(row.get("vars"), dict) and "input" not in row for row in rows)

    def mapper(self, document: Document) -> Any:
        path = document.source.files[0]
        is_table = record_file(path).kind in ("table", "sheet")
        suite = _LooseTests(path)

        def rows(record: Record, lose: Lose) -> Iterator[dict[str, Any] | BadRow]:
            test = merged_test({}, test_of_row(record.data) if is_table else record.data)
            for row in case_rows(suite, test, lose):
                if isinstance(row, dict):
                    row = {**row, "input": _wrapped(dict(row["input"]), test.get("options") or {}, lose)}
                yield row

        return rows


def _wrapped(variables: dict[str, Any], options: dict[str, Any], lose: Lose) -> Any:
    """Return the input for variables without a prompt, with the text before and after it."""
    question, edges = question_of(variables, lose), [text_of(options.get(key)) for key in ("prefix", "suffix")]
    if any(edges) and not (isinstance(question, str) and len(variables) == 1):
        lose("'prefix' and 'suffix', which are around a prompt")
        return question
    return question.join(edges) if any(edges) else question


class _LooseTests(Suite):
    """Tests without a configuration: the target gets the only variable, or all of them."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.stored, self.conversations = set(), set()
        self.files = SuiteFiles(os.path.dirname(path))
        self.targets = SuiteTargets([], self.files, ignore)
        self.data, self.prompts, self.default, self.nodes = {}, [], {}, {}


PROMPTFOO_TESTS = _PromptfooTests()
