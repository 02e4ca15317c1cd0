"""Configurations of promptfoo (`promptfooconfig.yaml`): each test becomes a case, each provider a target."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import msgspec

from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, document_of, objects, record_file
from agentv.datasets.foreign.records import Record, RecordFile
from agentv.datasets.foreign.values import is_blank, metadata_of, object_at, question_of, text_of
from agentv.datasets.formats.dataset_format import BadRow, Batch, Content, Document, ReadOptions, Source
from agentv.datasets.variables import insert_environment
from agentv.errors import DatasetError, InvalidDatasetError
from agentv.extensions.interop.datasets.promptfoo.assertion_entries import Grading, entries_of
from agentv.extensions.interop.datasets.promptfoo.nunjucks import rendered, with_variable_marks
from agentv.extensions.interop.datasets.promptfoo.prompt_sources import PromptTemplate, read_prompts
from agentv.extensions.interop.datasets.promptfoo.suite_files import SuiteFiles
from agentv.extensions.interop.datasets.promptfoo.suite_targets import SuiteTargets
from agentv.extensions.interop.datasets.promptfoo.test_sources import (
    combinations,
    merged_test,
    read_tests,
    resolved,
    scenario_tests,
    test_of_row,
    with_files,
    with_variable_files,
)

_LOST = {
    "sharing": "sharing: reports are local files",
    "outputPath": "outputPath: use --out, or `agentv report`",
    "derivedMetrics": "derivedMetrics: use a `composite` evaluator",
    "nunjucksFilters": "nunjucksFilters: filters that are JavaScript",
    "extensions": "extensions: hooks that are programs",
    "tracing": "tracing: agentv has its own traces (--dump-traces)",
    "redteam": "redteam: agentv does not generate attacks; its tests run if they are in a file",
}
_TEST_KEYS = ("vars", "assert", "options", "metadata", "description", "threshold", "prompts", "providers", "provider")
_OPTIONS = (
    *("transform", "transformVars", "prefix", "suffix", "provider", "disableVarExpansion", "postprocess"),
    *("disableDefaultAsserts", "runSerially", "disableConversationVar"),
)

_PROBLEM = "agentv:problem"
"""The key of a test with the reason why its variables cannot be read."""


class Suite:
    """An open configuration: its prompts, targets and tests. Losses of the settings are passed to `lose`."""

    def __init__(self, path: str, document: dict[str, Any], lose: Lose) -> None:
        self.path = path
        self.files = SuiteFiles(os.path.dirname(path))
        own = {str(key): value for key, value in object_at(document, "env").items()}
        providers = document.get("providers", document.get("targets"))
        marked = with_variable_marks({key: value for key, value in document.items() if key != "env"}, own)
        self.targets = SuiteTargets(with_variable_marks(providers, own), self.files, lose)
        hidden = ("providers", "targets")
        rest = {key: value for key, value in marked.items() if key not in hidden}
        self.data: dict[str, Any] = insert_environment(rest, path, self.files.folder)
        reasons: list[str] = []
        self.prompts = read_prompts(self.data.get("prompts"), self.files, reasons.append, self.targets.sends_chats)
        if reasons and not self.prompts:
            raise ValueError(f"No prompt can be used: {'; '.join(reasons)}")
        for reason in reasons:
            lose(reason)
        self.targets.set_chat_format(self.prompts)
        self.default = self._default_test()
        self.lines = document.get("tests")

    def _default_test(self) -> dict[str, Any]:
        found = self.data.get("defaultTest")
        if isinstance(found, str):
            path = self.files.path(found)
            found = self.files.data(path)
        return dict(found) if isinstance(found, dict) else {}

    def tests(self, lose: Lose) -> Iterator[Record]:
        """Yield all tests, with the defaults merged in; one without variables if there are none."""
        try:
            yield from self._tests(lose)
        except ValueError as error:
            raise InvalidDatasetError(f"Cannot read {self.path}", str(error), path=self.path) from None

    def _tests(self, lose: Lose) -> Iterator[Record]:
        tests = self.data.get("tests")
        scenarios = self.data.get("scenarios")
        if is_blank(tests) and is_blank(scenarios):
            yield Record(1, merged_test(self.default, {}))
            return
        lines = (
            [record.line for record in read_tests(self.lines, self.files, lambda _: None)]
            if _is_inline(self.lines)
            else []
        )
        found = itertools.chain(
            read_tests(tests, self.files, lose),
            [] if is_blank(scenarios) else scenario_tests(scenarios, self.files, lose),
        )
        for number, record in enumerate(found):
            line = lines[number] if number < len(lines) else 1
            data = record.data
            if isinstance(data, dict):
                try:
                    data = merged_test(self.default, with_variable_files(data, self.files))
                except ValueError as error:
                    data = {**merged_test(self.default, {**data, "vars": {}}), _PROBLEM: str(error)}
            yield Record(line, data)


def files_used(path: str, opened: Callable[[], Suite]) -> tuple[str, ...]:
    """Return a configuration and the files that it names; problems with these are reported when it is read."""
    try:
        suite = opened()
        for _ in suite.tests(_ignore):
            pass
    except (DatasetError, ValueError):
        return (path,)
    return (path, *(used for used in suite.files.used if os.path.abspath(used) != os.path.abspath(path)))


def _is_inline(tests: Any) -> bool:
    return isinstance(tests, list) and all(isinstance(test, dict) for test in tests)


class _PromptfooConfig(ForeignFormat):
    title = "a configuration of promptfoo"
    strength = 0.9
    fields = "tests → cases, prompts → prompts, providers → targets, assert → evaluators"
    in_folders = True
    writes = (".yaml", ".yml", ".json")

    def fits(self, file: RecordFile) -> bool:
        document = document_of(file)
        if "redteam" in document and ("targets" in document or "providers" in document):
            return True
        if is_blank(document.get("prompts")) or "evalcases" in document:
            return False
        others = ("providers", "targets", "tests", "scenarios", "defaultTest")
        return any(key in document for key in others) and not _is_ours(document)

    def files(self, path: str) -> tuple[str, ...]:
        """Return the configuration and the files that it names."""
        return files_used(path, lambda: _suite(path, _ignore))

    def targets(self, source: Source) -> list[dict[str, Any]]:
        return _with_graders(_suite(source.files[0], _ignore), _ignore).targets.entries

    def settings(self, file: RecordFile, lose: Lose) -> dict[str, Any]:
        document = document_of(file)
        if "redteam" in document and is_blank(document.get("tests")):
            what = "It is a red-team configuration: promptfoo generates its tests with a model, and it has none itself"
            hint = "Generate the tests with promptfoo, and name the file that it writes under `tests`"
            raise InvalidDatasetError(f"No cases in {file.path}", what, hint, path=file.path)
        suite = _with_graders(_suite(file.path, lose), lose)
        for key, why in _LOST.items():
            if not is_blank(document.get(key)) and document[key] is not False:
                lose(why)
        options = {**object_at(document, "commandLineOptions"), **object_at(document, "evaluateOptions")}
        execution: dict[str, Any] = {"targets": suite.targets.names} if suite.targets.names else {}
        for key, name in (("repeat", "trials"), ("maxConcurrency", "workers")):
            if isinstance(options.get(key), int) and options[key] >= 1:
                execution[name] = options[key]
        if isinstance(options.get("timeoutMs"), int) and options["timeoutMs"] > 0:
            execution["timeout_seconds"] = options["timeoutMs"] / 1000
        header: dict[str, Any] = {"prompt_syntax": "promptfoo"}
        if execution:
            header["execution"] = execution
        if isinstance(document.get("description"), str):
            header["description"] = document["description"]
        if len(suite.prompts) == 1:
            header["prompt"] = suite.prompts[0].content
        else:
            header["prompts"] = [{"id": prompt.id, "prompt": prompt.content} for prompt in suite.prompts]
        return header

    def read(self, document: Document, options: ReadOptions) -> Iterator[Batch]:
        return super().read(msgspec.structs.replace(document, source=_first_file(document.source)), options)

    def items(self, file: RecordFile) -> Iterator[Record]:
        return _suite(file.path, _ignore).tests(_ignore)

    def write(self, content: Content, path: str) -> None:
        from agentv.extensions.interop.datasets.promptfoo.promptfoo_writer import (
            write_config,  # late: few conversions need it
        )

        write_config(content, path)

    def mapper(self, document: Document) -> Any:
        suite = _with_graders(_suite(document.source.files[0], _ignore), _ignore)
        return lambda record, lose: case_rows(suite, record.data, lose)


PROMPTFOO_CONFIG = _PromptfooConfig()


def _first_file(source: Source) -> Source:
    return msgspec.structs.replace(source, files=source.files[:1])


def _suite(path: str, lose: Lose) -> Suite:
    try:
        suite = Suite(path, document_of(record_file(path)), lose)
    except (ValueError, FileNotFoundError) as error:
        raise InvalidDatasetError(f"Cannot read {path}", str(error), path=path) from None
    if not suite.prompts:
        what = "It has no prompt that is text; prompts that are programs are not supported"
        raise InvalidDatasetError(f"Cannot read {path}", what, "Write the prompts as text", path=path)
    return suite


def _ignore(_: str) -> None:
    """Drop a loss that is counted elsewhere."""


def _with_graders(suite: Suite, lose: Lose) -> Suite:
    """Add the targets that tests name: all passes over a configuration must give them the same names."""
    templates = object_at(suite.data, "assertionTemplates")
    for record in suite.tests(lose):
        if isinstance(record.data, dict):
            suite.targets.add_graders(record.data, templates)
    return suite


def _is_ours(document: dict[str, Any]) -> bool:
    """Whether the tests are cases of AgentV: with an input of their own."""
    tests = document.get("tests")
    first = tests[0] if isinstance(tests, list) and tests else None
    return isinstance(first, dict) and "input" in first


def case_rows(suite: Suite, test: dict[str, Any], lose: Lose) -> Iterable[dict[str, Any] | BadRow]:
    """Yield the cases of a test: one for each combination of its lists. Raises ValueError."""
    options = object_at(test, "options")
    for key in options.keys() - set(_OPTIONS):
        lose(f"'{key}' in the options of a test")
    for key in ("transformVars",):
        if not is_blank(options.get(key)):
            raise ValueError(f"'{key}' is JavaScript that changes the variables of a test. Write their values")
    if "providerOutput" in test:
        lose("'providerOutput': the target answers itself")
    variables = object_at(test, "vars")
    try:
        if _PROBLEM in test:
            raise ValueError(test[_PROBLEM])
        variables = with_files(variables, suite.files)
    except ValueError as error:
        yield _refused(error, _case_name(test, variables, ""), variables)
        return
    found = [(variables, "")] if options.get("disableVarExpansion") else combinations(variables)
    for values, told_apart in found:
        try:
            yield from _variants(suite, test, resolved(values), told_apart, lose)
        except ValueError as error:
            yield _refused(error, _case_name(test, values, told_apart), values)


def _refused(error: ValueError, name: Any, values: dict[str, Any]) -> BadRow:
    hint = "The file was read as a configuration of promptfoo"
    return BadRow(str(error), hint=hint, row=_identified({"input": values}, name))


def _variants(
    suite: Suite, test: dict[str, Any], variables: dict[str, Any], told_apart: str, lose: Lose
) -> Iterator[dict[str, Any]]:
    """Yield one case, or one for each prompt if not every target gets every prompt."""
    row = _row(suite, test, variables, lose)
    name = _case_name(test, variables, told_apart)
    prompts = _prompts_for(suite, test)
    pairs = _targets_by_prompt(suite, test, prompts)
    everything = [suite.targets.names] * len(suite.prompts)
    if prompts == suite.prompts and [pairs[prompt.id] for prompt in prompts] == everything:
        yield _identified(row, name)
        return
    for prompt in prompts:
        targets = pairs[prompt.id]
        if not targets and suite.targets.names:
            continue
        own = {**row, "prompt": prompt.content, "metadata": {**row.get("metadata", {}), "prompt": prompt.id}}
        if targets != suite.targets.names:
            own["execution"] = {**row["execution"], "targets": targets}
        many = len(prompts) > 1
        yield _identified(own, f"{name} [{prompt.id}]" if many and name else name)


def _case_name(test: dict[str, Any], variables: dict[str, Any], told_apart: str) -> Any:
    """Return the description of a test, with what tells the combinations of its variables apart."""
    description = test.get("description")
    with suppress(ValueError):
        description = rendered(description, variables)
    return f"{description} [{told_apart}]" if told_apart and description else description


def _identified(row: dict[str, Any], name: Any) -> dict[str, Any]:
    return {"id": name, **row} if isinstance(name, str) and name.strip() else row


def _prompts_for(suite: Suite, test: dict[str, Any]) -> list[PromptTemplate]:
    wanted = test.get("prompts")
    wanted = [wanted] if isinstance(wanted, str) else wanted
    chosen = suite.prompts
    if isinstance(wanted, list):
        chosen = [prompt for prompt in chosen if any(prompt.is_named(str(name)) for name in wanted)]
        if not chosen:
            raise ValueError(f"'prompts' of the test selects none: {', '.join(map(str, wanted))}")
    options = object_at(test, "options")
    prefix, suffix = text_of(options.get("prefix")), text_of(options.get("suffix"))
    return [prompt.wrapped(prefix, suffix) for prompt in chosen] if prefix or suffix else chosen


def _targets_by_prompt(suite: Suite, test: dict[str, Any], prompts: list[PromptTemplate]) -> dict[str, list[str]]:
    names = suite.targets.names
    wanted = test.get("providers")
    if isinstance(wanted, list):
        names = [name for name in names if suite.targets.is_selected(name, [str(each) for each in wanted])]
    if not is_blank(test.get("provider")):
        found = suite.targets.add(test["provider"])
        names = [] if found is None else [found]
    return {prompt.id: [name for name in names if suite.targets.accepts(name, prompt.is_named)] for prompt in prompts}


def _row(suite: Suite, test: dict[str, Any], variables: dict[str, Any], lose: Lose) -> dict[str, Any]:
    options = object_at(test, "options")
    threshold: Any = test.get("threshold")
    has_threshold = isinstance(threshold, int | float) and not isinstance(threshold, bool)
    grading = Grading(
        variables=variables,
        has_threshold=has_threshold,
        judge=lambda given: suite.targets.judge(given, options.get("provider")),
        embedder=lambda given: suite.targets.embedder(given, options.get("provider")),
        read_file=lambda name: suite.files.content(name),
        lose=lose,
        templates=object_at(suite.data, "assertionTemplates"),
    )
    transform = options.get("transform") or options.get("postprocess")
    names = frozenset(name for prompt in suite.prompts for name in prompt.names)
    if "_conversation" in names:
        lose("'_conversation': each test is a case of its own; use `turns` for a conversation")
    evaluators = entries_of(test.get("assert"), grading, transform)
    if test.get("assert") and not evaluators:
        raise ValueError("None of the assertions of the test has a counterpart here, so its answers cannot be scored")
    context = variables.get("context")
    row: dict[str, Any] = {
        "input": variables,
        "expected_outcome": "",
        "evaluators": evaluators,
        "execution": {"threshold": min(1.0, max(0.0, float(threshold))) if has_threshold else 0.0},
    }
    if not is_blank(context):
        row["context"] = context if isinstance(context, list) else text_of(context)
    metadata = metadata_of(test, (*_TEST_KEYS, "providerOutput", "assertScoringFunction"), object_at(test, "metadata"))
    if not is_blank(test.get("assertScoringFunction")):
        lose("'assertScoringFunction': the score is the weighted mean")
    return {**row, "metadata": metadata} if metadata else row


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
                    row = {**row, "input": question_of(dict(row["input"]), lose)}
                yield row

        return rows


class _LooseTests(Suite):
    """Tests without a configuration: the target gets the only variable, or all of them."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.files = SuiteFiles(os.path.dirname(path))
        self.targets = SuiteTargets([], self.files, _ignore)
        self.data, self.prompts, self.default, self.lines = {}, [], {}, None


PROMPTFOO_TESTS = _PromptfooTests()
