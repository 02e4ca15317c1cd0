"""An open configuration of promptfoo: its prompts, targets and tests."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from agentv.datasets.foreign.foreign_format import Lose
from agentv.datasets.foreign.records import Record, items_of
from agentv.datasets.foreign.values import is_blank, object_at, text_of
from agentv.datasets.variables import copied, insert_environment
from agentv.errors import DatasetError, DatasetWarning, InvalidDatasetError
from agentv.extensions.promptfoo.config_templates import EnvironmentMarks, with_provider_ids
from agentv.extensions.promptfoo.prompt_sources import PromptTargets, read_prompts, shared_config
from agentv.extensions.promptfoo.providers.provider_entries import UNUSABLE, provider_name, with_config
from agentv.extensions.promptfoo.providers.suite_targets import SuiteTargets
from agentv.extensions.promptfoo.script_config import NOT_CALLED
from agentv.extensions.promptfoo.suite_files import SuiteFiles
from agentv.extensions.promptfoo.test_sources import (
    PLACEHOLDERS,
    merged_test,
    read_tests,
    scenario_tests,
    with_variable_files,
)
from agentv.model.values import to_json
from agentv.settings.project import project_root
from agentv.support.user_code import importing_nothing
from agentv.trust.env_file import load_environment
from agentv.trust.roots import is_trusted

_PROMPT = "{{prompt}}"
"""The prompt of a configuration that has none."""

PROBLEM = "agentv:problem"
"""The key of a test with the reason why its variables cannot be read."""


class Suite:
    """An open configuration: its prompts, targets and tests. Losses of the settings are passed to `lose`."""

    is_promptfoo = True
    """Whether dates and templates of the environment are those of promptfoo."""

    def __init__(self, path: str, document: dict[str, Any], lose: Lose) -> None:
        self.path = path
        self.stored: set[str] = set()
        self.conversations: set[str] = set()
        self.files = SuiteFiles(os.path.dirname(path), reads_dates=self.is_promptfoo)
        document = self.files.with_dates(path, document)
        document = self.files.with_references(document, document) if _has_references(document) else document
        own = {str(key): value for key, value in object_at(document, "env").items()}
        providers = document.get("providers") or document.get("targets")
        hidden = ("env", "providers", "targets")
        variables = _variables(path, self.files.folder or ".")
        public = {name: value for name, value in variables.items() if value is not None}
        self.marks = marks = EnvironmentMarks(own, variables, evaluates=self.is_promptfoo)
        rest = marks.of(copied(document, {key: value for key, value in document.items() if key not in hidden}))
        providers = with_provider_ids(providers, {**public, **own})
        listed = providers if isinstance(providers, list) else [] if is_blank(providers) else [providers]
        providers = [_marked(provider, marks) for provider in listed]
        env = {**dict.fromkeys(name for name, value in variables.items() if value != ""), **own}
        losses: list[DatasetWarning] = []
        self.data: dict[str, Any] = insert_environment(rest, path, self.files.folder, losses=losses)
        for loss in losses:
            lose(loss.message)
        config = shared_config(self.data.get("prompts"))
        self.targets = SuiteTargets(with_config(providers, config), self.files, lose, env)
        are_models = all(map(self.targets.is_model, self.targets.names))
        reasons: list[str] = []
        filters = {str(name): self._filter(path) for name, path in object_at(self.data, "nunjucksFilters").items()}
        targets = PromptTargets(
            self.targets.ids,
            self.targets.sends_chats,
            self.is_promptfoo and self.targets.are_anthropic,
            filters,
            config if are_models else {},
        )
        self.prompts = read_prompts(self.data.get("prompts") or _PROMPT, self.files, reasons.append, targets)
        if reasons and not self.prompts:
            raise ValueError(f"No prompt can be used: {'; '.join(reasons)}")
        for reason in reasons:
            lose(reason)
        self.targets.set_chat_format(self.prompts)
        if NOT_CALLED in document:
            lose(f"the tests that '{os.path.basename(path)}' exports: they are checked when a run calls it")
        self.default = self._default_test()
        self.nodes = {key: document.get(key) for key in ("tests", "scenarios")}

    def _filter(self, name: Any) -> str:
        path = os.path.abspath(self.files.path(text_of(name)))
        self.files.add_program(path)
        return path

    def _default_test(self) -> dict[str, Any]:
        test = self.data.get("defaultTest")
        if isinstance(test, str):
            test = self.files.data(self.files.path(test))
        if not isinstance(test, dict | None):
            raise ValueError(f"'defaultTest' must be an object, or name a file with one, got {text_of(test)[:80]}")
        test = dict(test or {})
        grader = object_at(self.data, "commandLineOptions").get("grader")
        return test if is_blank(grader) else {**test, "options": {**object_at(test, "options"), "provider": grader}}

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
        records = itertools.chain(
            self._placed("tests", tests, partial(read_tests, files=self.files, lose=lose)),
            self._placed("scenarios", scenarios, partial(scenario_tests, files=self.files, lose=lose)),
        )
        for record, node in records:
            data = record.data
            if isinstance(data, dict) and data.get("vars") is PLACEHOLDERS:
                data = {**data, "vars": {name: f"({name})" for prompt in self.prompts for name in prompt.names}}
            if isinstance(data, dict):
                try:
                    data = merged_test(self.default, with_variable_files(data, self.files))
                except ValueError as error:
                    data = {**merged_test(self.default, {**data, "vars": {}}), PROBLEM: str(error)}
            yield record._replace(data=self._with_positions(data, node))

    def _placed(
        self, key: str, value: Any, read: Callable[[list[Any]], Iterator[Record]]
    ) -> Iterator[tuple[Record, Any]]:
        """Yield the tests that each item of a list names, with its line, and the node that they were made of."""
        for item, place in zip(_items(value), items_of(_items(self.nodes[key])), strict=True):
            for test in read([item]):
                yield (test, test.data) if test.file else (test._replace(line=place.line), place.data)

    def _with_positions(self, test: Any, node: Any) -> Any:  # noqa: ARG002  # only some need them
        """Return a test with the positions of the node that it was made of."""
        return test


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _marked(provider: Any, marks: EnvironmentMarks) -> Any:
    """Return a provider with its variables of the environment, or with the reason why it cannot be used."""
    try:
        return marks.of(provider)
    except ValueError as error:
        return {"id": provider_name(provider), UNUSABLE: str(error)}


def _variables(path: str, folder: str) -> dict[str, str | None]:
    """Return the variables of the environment; without values if they are secret, or if the file is not trusted."""
    if not is_trusted(path):
        return dict.fromkeys(os.environ)
    environment = load_environment(folder, project_root(folder))
    return {name: None if environment.is_secret(name) else value for name, value in environment.variables.items()}


CIRCLE = "It is nested too deeply, or its parts or files refer to each other"


def files_used(path: str, opened: Callable[[], Suite]) -> tuple[str, ...]:
    """Return a configuration and the files that it names; problems with these are reported when it is read."""
    try:
        with importing_nothing():
            suite = opened()
            for _ in suite.tests(ignore):
                pass
    except (DatasetError, ValueError, RecursionError):
        return (path,)
    return (path, *(used for used in suite.files.used if os.path.abspath(used) != os.path.abspath(path)))


def _has_references(document: dict[str, Any]) -> bool:
    return b'"$ref":' in to_json(document)


def ignore(_: str) -> None:
    """Drop a loss that is counted elsewhere."""
