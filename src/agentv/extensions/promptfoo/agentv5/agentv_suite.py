"""Suites of AgentV (TypeScript) 5: the shape of promptfoo, with targets of the project and their own rules for scores.

Other than in promptfoo, a case passes by its weighted mean, `providers` name targets of the project, `vars.input` may
be messages, and only lists of texts multiply a test.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import msgspec

from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, document_of, record_file
from agentv.datasets.foreign.records import Record, RecordFile
from agentv.datasets.foreign.values import is_blank, object_at, text_of
from agentv.datasets.formats.dataset_format import Batch, Document, ReadOptions, Source, SuiteGate
from agentv.errors import DatasetError
from agentv.extensions.promptfoo.agentv5.agentv_environment import workspace_of
from agentv.extensions.promptfoo.agentv5.agentv_hooks import workspace_of_extensions
from agentv.extensions.promptfoo.agentv5.agentv_tests import AgentvSuite, case_rows, is_name, is_written_out
from agentv.extensions.promptfoo.agentv5.earlier_forms import ASSERTIONS, RUN_KEYS, listed
from agentv.extensions.promptfoo.agentv5.positions import error_at, placed_row
from agentv.extensions.promptfoo.agentv5.repeat_policy import gate_of, trials_of
from agentv.extensions.promptfoo.agentv5.typescript_suite import is_typescript
from agentv.extensions.promptfoo.script_config import NOT_CALLED
from agentv.extensions.promptfoo.suite import CIRCLE, files_used
from agentv.support.user_code import importing_nothing
from agentv.trust.inventory import NamedUse

_OWN_KEYS = frozenset({"default_test", "evaluate_options", "environment", "derived_metrics", "output_path"})
_LIMITS = frozenset({"threshold", *RUN_KEYS})
"""Keys that suites of early versions have without another one of `_OWN_KEYS`."""

_OF_OTHERS = frozenset({"evaluators", "expected_outcome", "input_messages"})
"""Keys of cases that no version of 5 has."""
_OF_PROMPTFOO = frozenset(
    {
        *("defaultTest", "evaluateOptions", "commandLineOptions", "outputPath", "derivedMetrics", "nunjucksFilters"),
        *("redteam", "sharing", "assertionTemplates", "writeLatestResults"),
    }
)
_OWN_OBJECTS = ("imports", "experiment", "target", "tags")
_OF_4X = frozenset({"evalcases", "eval_cases", "execution"})
_WITH_PROMPTS = frozenset({"target", "name", "assert", "threshold", "defaults", "category", "governance", "requires"})
"""Keys that promptfoo does not have, and that a 4.x file may have as well."""

_NOTES = ("experiment", "category", "version", "author", "license", "requires", "governance")
_LOST = {
    "derived_metrics": "derived_metrics: use a `composite` evaluator",
    "output_path": "output_path: use --out",
}
_READ = frozenset(
    {
        *("tests", "scenarios", "prompts", "providers", "targets", "defaults", "environment", "timeout_seconds", "env"),
        *("evaluate_options", "threshold", "default_test", *ASSERTIONS, "tags", "metadata", "$schema", *_NOTES, *_LOST),
        *("extensions", "suite", "imports", NOT_CALLED),
    }
)
_DEFAULTS = {"provider", "grader"}
_OPTIONS = {"max_concurrency": "workers"}
_SOURCES = {"execution": "providers", "workspace": "environment", "dataset": "suite", "prompt": "prompts"}
"""Keys of our settings, and those of a suite that they are made of."""


class _AgentvSuite(ForeignFormat):
    title = "a suite of AgentV (TypeScript) 5"
    strength = 0.95
    fields = "vars → input and expected_output, prompts → prompts, providers → targets, assert → evaluators"
    in_folders = True
    refuses_cases = False

    def fits(self, file: RecordFile) -> bool:
        return is_typescript(file.path) or is_suite(document_of(file))

    def files(self, path: str) -> tuple[str, ...]:
        """Return the suite and the files that it names."""
        return files_used(path, lambda: _suite(path, _ignore))

    def targets(self, source: Source) -> list[dict[str, Any]]:
        """Return the targets of providers that are written out, including those of graders."""
        suite = _suite(source.files[0], _ignore)
        for record in suite.tests(_ignore):
            try:
                list(case_rows(suite, record.data, _ignore))
            except ValueError:
                continue  # it is reported when the case is read
        return suite.targets.entries

    def programs(self, source: Source) -> Iterable[NamedUse]:
        """Return the functions of prompts, tests and variables, and a suite that is a program itself."""
        with importing_nothing():
            suite = _suite(source.files[0], _ignore)
            for record in suite.tests(_ignore):
                with suppress(ValueError):
                    list(case_rows(suite, record.data, _ignore))
        return suite.files.programs

    def suite_gate(self, source: Source) -> SuiteGate | None:
        with suppress(DatasetError, ValueError):  # reported when the file is read
            return _gate(_suite(source.files[0], _ignore), _ignore)
        return None

    def settings(self, file: RecordFile, lose: Lose) -> dict[str, Any]:
        suite = _suite(file.path, lose)
        data = suite.data
        for key, why in _LOST.items():
            if not is_blank(data.get(key)):
                lose(why)
        for key in sorted(object_at(data, "defaults").keys() - _DEFAULTS):
            lose(f"defaults.{key}")
        try:
            header = {key: value for key, value in data.items() if key not in _READ and key != "defaultTest"}
            header |= _notes(data)
            targets = {"targets": suite.names} if suite.names else object_at(data, "execution")
            header["execution"] = {**targets, **_execution(data, lose)}
            if not is_blank(data.get("environment")):
                workspace_of(data["environment"], suite.files)  # which each case has, with the hooks of extensions
            if not is_blank(data.get("extensions")):
                header["workspace"] = workspace_of_extensions(data["extensions"])
            if not is_blank(data.get("suite")) and is_blank(data.get("name")):
                header["dataset"] = data["suite"]
            _gate(suite, lose)
        except ValueError as error:
            raise error_at(file.path, str(error), document_of(file)) from None
        if suite.whole_variable is None and suite.prompts:
            header["prompt_syntax"] = "promptfoo"
        if suite.whole_variable is None and len(suite.prompts) == 1:
            header["prompt"] = suite.prompts[0].content
        elif len(suite.prompts) > 1:
            header["prompts"] = [{"id": prompt.id, "prompt": prompt.content} for prompt in suite.prompts]
        header = {key: value for key, value in header.items() if not is_blank(value)}
        return placed_row(header, document_of(file), _SOURCES)

    def read(self, document: Document, options: ReadOptions) -> Iterator[Batch]:
        source = msgspec.structs.replace(document.source, files=document.source.files[:1])
        return super().read(msgspec.structs.replace(document, source=source), options)

    def items(self, file: RecordFile) -> Iterator[Record]:
        return _suite(file.path, _ignore).tests(_ignore)

    def mapper(self, document: Document) -> Any:
        suite = _suite(document.source.files[0], _ignore)
        return lambda record, lose: case_rows(suite, record.data, lose)


AGENTV_SUITE = _AgentvSuite()


def _suite(path: str, lose: Lose) -> AgentvSuite:
    try:
        return AgentvSuite(path, lose)
    except (ValueError, FileNotFoundError, RecursionError) as error:
        what = CIRCLE if isinstance(error, RecursionError) else str(error)
        raise error_at(path, what, document_of(record_file(path))) from None


def _gate(suite: AgentvSuite, lose: Lose) -> SuiteGate:
    return gate_of(suite.data, (record.data for record in suite.tests(_ignore)), lose)


def _ignore(_: str) -> None:
    """Drop a loss that is counted elsewhere."""


def is_suite(document: dict[str, Any]) -> bool:
    """Whether a document is a suite of AgentV (TypeScript) 5: by keys that promptfoo and 4.x do not have."""
    keys = document.keys()
    if keys.isdisjoint(("tests", "scenarios", "imports")) or keys & (_OF_PROMPTFOO | _OF_4X):
        return False
    if keys & _OWN_KEYS or any(isinstance(document.get(key), dict) for key in _OWN_OBJECTS):
        return True
    providers = listed(document.get("providers"))
    tests = [test for test in listed(document.get("tests")) if isinstance(test, dict)]
    if keys & _LIMITS and not any(_OF_OTHERS & test.keys() for test in tests):
        return True
    if any(map(is_written_out, providers)) or any("include" in test for test in tests):
        return True
    if not all(map(is_name, providers)):
        return any(_is_own(test) for test in tests) or (bool(tests) and all("id" in test for test in tests))
    if providers:
        return True
    return "prompts" in keys and (bool(keys & _WITH_PROMPTS) or any(_is_own(test) or "id" in test for test in tests))


def _is_own(test: dict[str, Any]) -> bool:
    """Whether a test has what promptfoo's have not: criteria, or assertions that are texts or programs."""
    assertions = listed(test.get("assert"))
    return "criteria" in test or any(
        (isinstance(assertion, str) and not assertion.startswith("file://"))
        or (isinstance(assertion, dict) and assertion.get("type") == "script")
        for assertion in assertions
    )


def _notes(data: dict[str, Any]) -> dict[str, Any]:
    """Return tags and metadata: tags that are an object label the run, and are kept with the metadata."""
    tags = data.get("tags")
    metadata = {key: data[key] for key in _NOTES if not is_blank(data.get(key))} | object_at(data, "metadata")
    if isinstance(tags, dict):
        return {"metadata": {**metadata, "tags": tags}}
    return {"metadata": metadata, "tags": [tags] if isinstance(tags, str) else tags}


def _execution(data: dict[str, Any], lose: Lose) -> dict[str, Any]:
    options = object_at(data, "evaluate_options")
    settings = {name: options[key] for key, name in _OPTIONS.items() if key in options}
    if "repeat" in options:
        settings["trials"] = trials_of(options["repeat"], lose)
    if not is_blank(timeout_ms := options.get("timeout_ms")):
        if not isinstance(timeout_ms, int | float):
            raise ValueError(f"'evaluate_options.timeout_ms' must be a number, got {text_of(timeout_ms)[:80]}")
        settings["timeout_seconds"] = timeout_ms / 1000
    for key in options.keys() - {*_OPTIONS, "repeat", "timeout_ms"}:
        lose(f"evaluate_options.{key}: use the options of `agentv eval`")
    return settings | {key: data[key] for key in ("timeout_seconds", "threshold") if data.get(key) is not None}
