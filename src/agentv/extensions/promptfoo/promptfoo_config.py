"""Configurations of promptfoo (`promptfooconfig.yaml`): each test becomes a case, each provider a target."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import msgspec

from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, document_of
from agentv.datasets.foreign.records import Record, RecordFile
from agentv.datasets.foreign.values import is_blank, metadata_of, object_at, text_of
from agentv.datasets.formats.dataset_format import BadRow, Batch, Content, Document, ReadOptions, Source
from agentv.errors import InvalidDatasetError
from agentv.extensions.promptfoo.assertion_entries import combined_entry, entries_of
from agentv.extensions.promptfoo.config_templates import names_of, rendered
from agentv.extensions.promptfoo.evaluators.judge_entries import Grading
from agentv.extensions.promptfoo.prompt_chats import name_other_forms, with_chat, with_problem
from agentv.extensions.promptfoo.prompt_sources import PromptTemplate
from agentv.extensions.promptfoo.providers.provider_entries import NoCounterpart, provider_name, provider_parts
from agentv.extensions.promptfoo.script_config import document_at, is_script_config
from agentv.extensions.promptfoo.suite import CIRCLE, PROBLEM, Suite, files_used, ignore
from agentv.extensions.promptfoo.test_sources import (
    combinations,
    resolved,
    transformed_variables,
    with_files,
)
from agentv.model.evaluator import EvaluatorFailure
from agentv.model.values import digest
from agentv.support.user_code import importing_nothing
from agentv.trust.inventory import NamedUse

_LOST = {
    "sharing": "sharing: reports are local files",
    "outputPath": "outputPath: use --out, or `agentv report`",
    "derivedMetrics": "derivedMetrics: use a `composite` evaluator",
    "extensions": "extensions: hooks that are programs",
    "tracing": "tracing: agentv has its own traces (--dump-traces)",
    "redteam": "redteam: agentv does not generate attacks; its tests run if they are in a file",
}
_OPTIONS_LOST = {
    "filterRange": "all tests are run; use `--case`, or `--sample`",
    "filterSample": "all tests are run; use `--sample` with `--seed`",
    "vars": "write the variables into `defaultTest`",
    "envPath": "only `.env` is read",
    "delay": "calls are paced by rate limits",
    "maxEvalTimeMs": "use `--deadline`",
    "generateSuggestions": "agentv does not suggest prompts",
}
"""Options of a run, in `evaluateOptions` and `commandLineOptions`, that change its results."""

_TEST_KEYS = ("vars", "assert", "options", "metadata", "description", "threshold", "prompts", "providers", "provider")
_OPTIONS = (
    *("transform", "transformVars", "prefix", "suffix", "provider", "disableVarExpansion", "postprocess"),
    *("disableDefaultAsserts", "runSerially", "disableConversationVar", "storeOutputAs", "rubricPrompt", "factuality"),
)


class _PromptfooConfig(ForeignFormat):
    title = "a configuration of promptfoo"
    strength = 0.9
    fields = "tests → cases, prompts → prompts, providers → targets, assert → evaluators"
    in_folders = True
    writes = (".yaml", ".yml", ".json")

    def fits(self, file: RecordFile) -> bool:
        if is_script_config(file.path):
            return True
        document = document_of(file)
        if "redteam" in document and ("targets" in document or "providers" in document):
            return True
        if "evalcases" in document or _is_ours(document):
            return False
        if is_blank(document.get("prompts")):
            return _has_providers(document) or (
                ("providers" in document or "targets" in document) and _is_test(_first_test(document))
            )
        return any(key in document for key in ("providers", "targets", "tests", "scenarios", "defaultTest"))

    def files(self, path: str) -> tuple[str, ...]:
        """Return the configuration and the files that it names."""
        return files_used(path, lambda: _suite(path, ignore))

    def targets(self, source: Source) -> list[dict[str, Any]]:
        return _with_graders(_suite(source.files[0], ignore), ignore).targets.entries

    def programs(self, source: Source) -> Iterable[NamedUse]:
        """Return the functions of prompts, tests and variables."""
        with importing_nothing():
            suite = _suite(source.files[0], ignore)
            for record in suite.tests(ignore):
                if isinstance(record.data, dict):
                    with suppress(ValueError):
                        list(case_rows(suite, record.data, ignore))
        return suite.files.programs

    def settings(self, file: RecordFile, lose: Lose) -> dict[str, Any]:
        document = _document(file.path)
        if "redteam" in document and is_blank(document.get("tests")):
            what = "It is a red-team configuration: promptfoo generates its tests with a model, and it has none itself"
            hint = "Generate the tests with promptfoo, and name the file that it writes under `tests`"
            raise InvalidDatasetError(f"No cases in {file.path}", what, hint, path=file.path)
        suite = _with_graders(_suite(file.path, lose), lose)
        for path, text in suite.files.dates.items():
            lose(f"the date {text} in {path}: without quotes it is an empty object in promptfoo, as it is here")
        options = {**object_at(document, "evaluateOptions"), **object_at(document, "commandLineOptions")}
        for reason in (
            *(why for key, why in _LOST.items() if document.get(key)),
            *(f"{key}: {why}" for key, why in _OPTIONS_LOST.items() if options.get(key)),
        ):
            lose(reason)
        targets = suite.targets.names or list(dict.fromkeys(suite.targets.unusable))
        execution: dict[str, Any] = {"targets": targets} if targets else {}
        for key, name in (("repeat", "trials"), ("maxConcurrency", "workers")):
            if isinstance(options.get(key), int) and options[key] >= 1:
                execution[name] = options[key]
        if isinstance(options.get("timeoutMs"), int) and options["timeoutMs"] > 0:
            execution["timeout_seconds"] = options["timeoutMs"] / 1000
        syntax = "promptfoo-anthropic" if suite.targets.are_anthropic else "promptfoo"
        header: dict[str, Any] = {"prompt_syntax": syntax}
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
        source = msgspec.structs.replace(document.source, files=document.source.files[:1])
        return super().read(msgspec.structs.replace(document, source=source), options)

    def items(self, file: RecordFile) -> Iterator[Record]:
        return _suite(file.path, ignore).tests(ignore)

    def write(self, content: Content, path: str) -> None:
        from agentv.extensions.promptfoo.promptfoo_writer import (
            write_config,  # late: few conversions need it
        )

        write_config(content, path)

    def mapper(self, document: Document) -> Any:
        suite = _with_graders(_suite(document.source.files[0], ignore), ignore)
        return lambda record, lose: case_rows(suite, record.data, lose)


PROMPTFOO_CONFIG = _PromptfooConfig()


def _suite(path: str, lose: Lose) -> Suite:
    try:
        suite = Suite(path, _document(path), lose)
    except (ValueError, FileNotFoundError, RecursionError) as error:
        what = CIRCLE if isinstance(error, RecursionError) else str(error)
        raise InvalidDatasetError(f"Cannot read {path}", what, path=path) from None
    if is_script_config(path):
        suite.files.add_program(os.path.abspath(path))
    if not suite.prompts:
        raise InvalidDatasetError(f"Cannot read {path}", "It has no prompt", "Add a list of `prompts`", path=path)
    return suite


def _document(path: str) -> dict[str, Any]:
    try:
        return document_at(path)
    except ValueError as error:
        raise InvalidDatasetError(f"Cannot read {path}", str(error), path=path) from None


def _with_graders(suite: Suite, lose: Lose) -> Suite:
    """Add the targets that tests name: all passes over a configuration must give them the same names."""
    templates = object_at(suite.data, "assertionTemplates")
    for record in suite.tests(lose):
        if isinstance(record.data, dict):
            suite.targets.add_graders(record.data, templates)
            suite.stored |= {text_of(object_at(record.data, "options").get("storeOutputAs"))} - {""}
    return suite


def _first_test(document: dict[str, Any]) -> dict[str, Any]:
    tests = document.get("tests")
    first = tests[0] if isinstance(tests, list) and tests else None
    return first if isinstance(first, dict) else {}


def _has_providers(document: dict[str, Any]) -> bool:
    """Whether tests that are in files belong to promptfoo: a provider has an id of it."""
    providers = document.get("providers") or document.get("targets")
    names = [provider_name(each) for each in (providers if isinstance(providers, list) else [providers])]
    return isinstance(document.get("tests"), str) and any(name == "echo" or ":" in name for name in names)


def _is_ours(document: dict[str, Any]) -> bool:
    """Whether the tests are cases of AgentV: with an input of their own."""
    return "input" in _first_test(document)


def _is_test(test: dict[str, Any]) -> bool:
    """Whether a test is one of promptfoo, also without a prompt: with variables or assertions, and without an id."""
    return "id" not in test and ("vars" in test or "assert" in test)


def case_rows(suite: Suite, test: dict[str, Any], lose: Lose) -> Iterable[dict[str, Any] | BadRow]:
    """Yield the cases of a test: one for each combination of its lists. Raises ValueError."""
    options = object_at(test, "options")
    for key in options.keys() - set(_OPTIONS):
        lose(f"'{key}' in the options of a test")
    if not is_blank(test.get("provider")) and (count := len(suite.targets.names)) > 1:
        lose(f"repetitions of a test with its own 'provider', which promptfoo runs once for each of {count} providers")
    variables = object_at(test, "vars")
    try:
        _check_test(suite, test, variables)
        variables = transformed_variables(variables, options.get("transformVars"), suite.files)
        texts = [prompt.text for prompt in suite.prompts if prompt.text]
        expands = not options.get("disableVarExpansion")
        variables = with_files(variables, suite.files, texts[0] if len(texts) == 1 else "", expands=expands)
    except (ValueError, EvaluatorFailure) as error:
        yield _refused(error, _case_name(test, variables, ""), variables)
        return
    value_sets = combinations(variables) if expands else [(variables, "")]
    for values, told_apart in value_sets:
        try:
            yield from _variants(suite, test, resolved(values), told_apart, lose)
        except ValueError as error:
            yield _refused(error, _case_name(test, values, told_apart), values)


def _check_test(suite: Suite, test: dict[str, Any], variables: dict[str, Any]) -> None:
    """Raise ValueError if the variables or the answer of a test cannot be used."""
    if PROBLEM in test:
        raise ValueError(test[PROBLEM])
    if not isinstance(test.get("providerOutput") or "", str):
        raise NoCounterpart("'providerOutput' must be text; data is not supported")
    templates = [*map(text_of, variables.values()), *(prompt.text for prompt in suite.prompts)]
    for name in sorted(suite.stored - variables.keys()):
        if any(name in names_of(text) for text in templates):
            raise NoCounterpart(f"'{{{{{name}}}}}' is the output of another test (`storeOutputAs`). Use `turns`")


def _refused(error: Exception, name: Any, values: dict[str, Any]) -> dict[str, Any] | BadRow:
    """Return the row of a test that cannot be run; the file is valid if only a counterpart is missing."""
    if isinstance(error, NoCounterpart):
        return _identified({"input": values, "case_error": str(error)}, name)
    hint = "The file was read as a configuration of promptfoo"
    return BadRow(str(error), hint=hint, row=_identified({"input": values}, name))


def _variants(
    suite: Suite, test: dict[str, Any], variables: dict[str, Any], told_apart: str, lose: Lose
) -> Iterator[dict[str, Any]]:
    """Yield one case, or one for each prompt if not every target gets every prompt."""
    row = _row(suite, test, variables, lose)
    name = _case_name(test, variables, told_apart)
    if suite.prompts and not (isinstance(name, str) and name.strip()):
        name = f"test-{digest([variables, digest(test['assert'])])[:10]}"  # as in results of promptfoo
    prompts = [
        with_problem(with_chat(suite.targets, prompt, variables, test.get("provider")), variables)
        for prompt in _prompts_for(suite, test)
    ]
    for prompt in prompts:
        name_other_forms(suite.targets, prompt, variables, test, lose)
    pairs = _targets_by_prompt(suite, test, prompts)
    everything = [suite.targets.names] * len(suite.prompts)
    can_run = not any(prompt.problem for prompt in prompts)
    if can_run and prompts == suite.prompts and [pairs[prompt.id] for prompt in prompts] == everything:
        yield _identified(row, name)
        return
    for prompt in prompts:
        targets = pairs[prompt.id]
        if not targets and suite.targets.names:
            continue
        own = {**row, "prompt": prompt.content, "metadata": {**row.get("metadata", {}), "prompt": prompt.id}}
        own |= {"case_error": prompt.problem} if prompt.problem else {}
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
    names = test.get("prompts")
    names = [names] if isinstance(names, str) else names
    prompts = suite.prompts
    if isinstance(names, list):
        prompts = [prompt for prompt in prompts if any(prompt.is_named(str(name)) for name in names)]
        if not prompts:
            raise ValueError(f"'prompts' of the test selects none: {', '.join(map(str, names))}")
    options = object_at(test, "options")
    prefix, suffix = text_of(options.get("prefix")), text_of(options.get("suffix"))
    return [prompt.wrapped(prefix, suffix) for prompt in prompts] if prefix or suffix else prompts


def _targets_by_prompt(suite: Suite, test: dict[str, Any], prompts: list[PromptTemplate]) -> dict[str, list[str]]:
    names = suite.targets.names
    patterns = test.get("providers")
    if isinstance(patterns, list):
        names = [name for name in names if suite.targets.is_selected(name, [str(pattern) for pattern in patterns])]
    if not is_blank(test.get("provider")):
        target = suite.targets.add(test["provider"])
        if target is None:
            id, _ = provider_parts(test["provider"])
            raise NoCounterpart(f"The provider of the test has no counterpart here: {id}. Define a target in its place")
        names = [target]
    if test.get("providerOutput"):
        names = [suite.targets.add_answer(name, test["providerOutput"]) for name in names]
    return {
        prompt.id: [
            name for name in names if prompt.target in ("", name) and suite.targets.accepts(name, prompt.is_named)
        ]
        for prompt in prompts
    }


def _check_conversation(suite: Suite, test: dict[str, Any]) -> None:
    """Raise ValueError if the prompt has the answers to tests before this one, in the same conversation."""
    if object_at(test, "options").get("disableConversationVar"):
        return
    if any(prompt.has_history for prompt in suite.prompts):
        id = text_of(object_at(test, "metadata").get("conversationId"))
        if id in suite.conversations:
            what = "'_conversation' has the answers to tests before this one, and each test is a case of its own here"
            raise NoCounterpart(f"{what}. Write the conversation as one case with `turns`")
        suite.conversations.add(id)


def _row(suite: Suite, test: dict[str, Any], variables: dict[str, Any], lose: Lose) -> dict[str, Any]:
    options = object_at(test, "options")
    _check_conversation(suite, test)
    threshold: Any = test.get("threshold")
    has_threshold = isinstance(threshold, int | float) and not isinstance(threshold, bool)
    if has_threshold and threshold > 1:
        raise ValueError(f"The threshold of the test is {threshold}, and no score is above 1")
    grading = Grading(
        variables=variables,
        has_threshold=has_threshold,
        judge=lambda provider: suite.targets.judge(provider, options.get("provider")),
        embedder=lambda provider: suite.targets.embedder(provider, options.get("provider")),
        read_file=lambda name: suite.files.content(name),
        lose=lose,
        templates=object_at(suite.data, "assertionTemplates"),
        options=options,
        read_prompt=suite.files.prompt_text,
        form_of=suite.targets.form_of,
        targets=suite.targets.evaluated(test.get("provider")),
        source_variables=object_at(test, "vars"),
        is_counted=has_threshold,
    )
    transform = options.get("transform") or options.get("postprocess")
    evaluators = _evaluators(test, grading, transform)
    context = variables.get("context")
    decides = has_threshold and is_blank(test.get("assertScoringFunction"))  # the function gets the threshold
    row: dict[str, Any] = {
        "input": variables,
        "expected_outcome": "",
        "evaluators": evaluators,
        "execution": {"threshold": max(0.0, float(threshold)) if decides else 0.0},
    }
    if not is_blank(context):
        row["context"] = context if isinstance(context, list) else text_of(context)
    metadata = metadata_of(test, (*_TEST_KEYS, "providerOutput", "assertScoringFunction"), object_at(test, "metadata"))
    return {**row, "metadata": metadata} if metadata else row


def _evaluators(test: dict[str, Any], grading: Grading, transform: Any) -> list[dict[str, Any]]:
    function = test.get("assertScoringFunction")
    if is_blank(function):
        return entries_of(test.get("assert"), grading, transform)
    entry = combined_entry(test.get("assert"), function, grading, transform)
    limit = {"threshold": test["threshold"]} if grading.has_threshold else {}
    return [] if entry is None else [{**entry, **limit}]
