"""The tests of a suite of AgentV (TypeScript) 5 as rows: variables, inputs, assertions and settings of a case."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from agentv.datasets.case.shorthand import is_message
from agentv.datasets.foreign.foreign_format import Lose
from agentv.datasets.foreign.values import first_of, is_blank, object_at, text_of
from agentv.datasets.variables import copied, insert_environment, inserter, replace_texts
from agentv.errors import DatasetWarning
from agentv.extensions.promptfoo.agentv5.agentv_assertions import evaluators_of, texts_in, with_variables
from agentv.extensions.promptfoo.agentv5.agentv_environment import workspace_of
from agentv.extensions.promptfoo.agentv5.agentv_hooks import with_extensions
from agentv.extensions.promptfoo.agentv5.agentv_prompts import prompts_of
from agentv.extensions.promptfoo.agentv5.earlier_forms import (
    ASSERTIONS,
    assertions_in,
    imported_tests,
    listed,
    path_of,
    with_current_forms,
)
from agentv.extensions.promptfoo.agentv5.positions import placed_list, placed_row, with_positions
from agentv.extensions.promptfoo.agentv5.repeat_policy import own_repeat, trials_of
from agentv.extensions.promptfoo.agentv5.suite_references import FOLDER, default_test_of, test_in_file, with_root
from agentv.extensions.promptfoo.agentv5.typescript_suite import document_at, is_typescript
from agentv.extensions.promptfoo.config_templates import names_of
from agentv.extensions.promptfoo.evaluators.judge_entries import Grading
from agentv.extensions.promptfoo.functions.calls import FUNCTION_FILE
from agentv.extensions.promptfoo.providers.provider_entries import NoCounterpart
from agentv.extensions.promptfoo.suite import Suite
from agentv.extensions.promptfoo.test_sources import combinations, resolved, with_files
from agentv.model.diagnostics import KeyPath, Problems
from agentv.model.values import to_json
from agentv.registry import service
from agentv.settings.project import project_root
from agentv.support.yaml.yaml_parser import parse_yaml
from agentv.trust.env_file import load_environment

_KEPT = (
    *("conversation_id", "depends_on", "on_dependency_failure", "mode", "aggregation", "on_turn_failure", "tags"),
    *("cluster", "workspace", "context", "input_files", "window_size", "provider_output"),
)
_TEST_KEYS = frozenset(
    {
        *("id", "description", "vars", "criteria", *ASSERTIONS, "options", "threshold", "execution", "run"),
        *("environment", "metadata", "turns", "input", "expected_output", *_KEPT),
    }
)
_PROMPT_FILE = "PROMPT.md"
"""The prompt of a suite without prompts, next to it."""

_OWN_KINDS = frozenset(
    {
        *("mock", "cli", "replay", "copilot-log", "copilot-cli", "copilot-sdk", "codex", "codex-cli", "codex-sdk"),
        *("claude", "claude-cli", "claude-sdk", "pi-cli", "pi-coding-agent", "pi-sdk", "pi-rpc", "vscode", "agentv"),
        "codex-app-server",
    }
)
_WHOLE = re.compile(r"\{\{-?\s*(?:vars\.)?(\w+)\s*(?:\|\s*safe\s*)?-?\}\}")
_PART = re.compile(r"\{\{\s*[\w.]+\s*\}\}")
_ENV_DEFAULT = re.compile(r"""\{\{\s*env\.(\w+)\s*\|\s*default\(\s*(['"])(.*?)\2\s*(?:,\s*true\s*)?\)\s*\}\}""")
_ENV_LEFT = re.compile(r"\{\{-?\s*env\b[^}]*\}\}")


def _with_defaults(data: Any, path: str, own: dict[str, Any]) -> Any:
    """Return data with the default of each variable of the environment that has one and is not set.

    `own` are the variables that the suite sets.
    """
    folder = os.path.dirname(path) or "."

    def replace(text: str, _: KeyPath) -> str:
        text = with_root(text, folder)
        return _ENV_DEFAULT.sub(chosen, text) if "env" in text and "default" in text else text

    def chosen(match: re.Match[str]) -> str:
        is_set = match[1] in own or load_environment(folder, project_root(folder)).variables.get(match[1])
        return f"{{{{ env.{match[1]} }}}}" if is_set else match[3]

    return replace_texts(data, replace)


def _with_imports(document: dict[str, Any]) -> Any:
    """Return the tests with those of `imports.tests` and of tests with `include`, which are files."""
    tests, files = document.get("tests"), imported_tests(document)
    if isinstance(tests, list) and any(isinstance(test, dict) and "include" in test for test in tests):
        tests = [path_of(test) if isinstance(test, dict) and "include" in test else test for test in tests]
    return [*listed(tests), *files] if files else tests


class AgentvSuite(Suite):
    """An open suite. `names` are the targets that are evaluated, and `judge` that of its graders.

    `has_prompts` is false if its prompt is a file next to it.
    """

    is_promptfoo = False

    def __init__(self, path: str, lose: Lose) -> None:
        source = document_at(path)
        document = with_current_forms(_with_defaults(source, path, object_at(source, "env")))
        self.has_prompts = not is_blank(document.get("prompts"))
        if is_blank(document.get("prompts")) and os.path.isfile(os.path.join(os.path.dirname(path), _PROMPT_FILE)):
            document = {**document, "prompts": [f"file://{_PROMPT_FILE}"]}
        document = {**document, "prompts": prompts_of(document.get("prompts"))}
        default = default_test_of(document.get("default_test"), os.path.dirname(path) or ".")
        shared = {**document, "defaultTest": default, "tests": _with_imports(document)}
        rest = {key: value for key, value in shared.items() if key not in ("providers", "targets")}
        super().__init__(path, placed_row(rest, source, {"defaultTest": "default_test"}), lose)
        self.files.tests_function, self.files.tests_in_folder = "create_tests", FOLDER
        self.files.test_in_file = partial(test_in_file, folder=self.files.folder)  # type: ignore[method-assign]
        if is_typescript(path):
            self.files.add_program(os.path.abspath(path))
        match = _ENV_LEFT.search(text_of(self.data))
        if match is not None:
            raise ValueError(f"'{match[0]}' changes a variable of the environment. Use `default(…)`, or no filter")
        defaults = {key: self.default.pop(key, None) for key in ASSERTIONS}
        self.shared_assertions = [*assertions_in(defaults), *assertions_in(self.data)]
        providers = self.targets.listed(document.get("providers", document.get("targets")))
        self.names = [name for provider in providers if (name := self.target(provider)) is not None]
        references = listed(object_at(document, "execution").get("targets"))
        self.targets.entries += [
            {"name": entry["name"], "use_target": entry["use_target"]} for entry in references if "use_target" in entry
        ]
        defaults = object_at(self.data, "defaults")
        if not self.names and not is_blank(defaults.get("provider")):
            self.names = [name for name in [self.target(defaults["provider"])] if name is not None]
        self.judge = None if is_blank(defaults.get("grader")) else self.target(defaults["grader"])

    def with_environment(self, test: dict[str, Any], lose: Lose) -> Any:
        """Return a test with the variables of the environment that it names, which one in a file still does."""
        if "env." not in text_of(test):
            return test
        losses: list[DatasetWarning] = []
        marked = self.marks.of(_with_defaults(test, self.path, object_at(self.data, "env")))
        test = insert_environment(marked, self.path, self.files.folder, losses=losses)
        for loss in losses:
            lose(loss.message)
        return test

    def _with_positions(self, test: Any, node: Any) -> Any:
        return with_positions(test, node)

    def target(self, provider: Any) -> str | None:
        """Return the name of a target of the project, or of a provider that is written out."""
        if is_name(provider):
            return _name_of(provider)
        entries = _target_entries(provider) if is_written_out(provider) else []
        self.targets.entries += [entry for entry in entries if entry not in self.targets.entries]
        return entries[0]["name"] if entries else self.targets.add(provider)

    @property
    def whole_variable(self) -> str | None:
        """The variable that is the whole prompt, whose value is the input as it is: text or messages."""
        content = self.prompts[0].content if len(self.prompts) == 1 else None
        match = _WHOLE.fullmatch(content.strip()) if isinstance(content, str) else None
        return match[1] if match else None


def is_written_out(provider: Any) -> bool:
    """Whether a provider has settings or a model, and an id of AgentV only, such as `mock` or `claude-cli:opus`.

    Earlier versions have the name in `id`, next to a `provider`.
    """
    id = first_of(provider, "provider", "id") if isinstance(provider, dict) else provider
    return isinstance(id, str) and id.partition(":")[0] in _OWN_KINDS and not is_name(provider)


def _target_entries(provider: Any) -> list[dict[str, Any]]:
    """Return the target for a provider as in a provider file."""
    read = service("providers-files", "A provider of AgentV (TypeScript)")
    data = read(placed_list([provider]) if isinstance(provider, dict) else parse_yaml(to_json([provider])), "")
    for entry in data["targets"] if isinstance(data, dict) else ():
        if "runtime" in entry:
            runtime = text_of(first_of(object_at(entry, "runtime"), "mode", "type") or entry["runtime"])
            raise ValueError(f"The runtime '{runtime}' of '{entry['name']}' is not supported: only `host` is")
    return [dict(entry) for entry in data["targets"]] if isinstance(data, dict) else []


def is_name(provider: Any) -> bool:
    """Whether a provider is a target of the project: a name, not an id of promptfoo such as `openai:gpt-4o`."""
    if isinstance(provider, dict):
        return provider.keys() <= {"id", "name", "label"} and is_name(_name_of(provider))
    is_text = isinstance(provider, str) and bool(provider.strip())
    return is_text and not set(provider) & set(":/") and provider != "echo" and not FUNCTION_FILE.match(provider)


def _name_of(provider: Any) -> str:
    return text_of(first_of(provider, "id", "name", "label")) if isinstance(provider, dict) else provider


def case_rows(suite: AgentvSuite, test: dict[str, Any], lose: Lose) -> Iterator[dict[str, Any]]:
    """Yield the cases of a test: one for each combination of its lists of texts. Raises ValueError."""
    if not isinstance(test, dict):
        raise ValueError(f"A test must be an object, got {text_of(test)[:80]}")
    test = suite.with_environment(_with_prompt_input(suite, test), lose)
    variables = with_files(object_at(test, "vars"), suite.files)
    for values, told_apart in combinations(variables):
        row = _row(suite, test, _resolved(values, lose), lose)
        if told_apart and "id" in row:
            row["id"] = f"{row['id']} [{told_apart}]"
        yield row


def _with_prompt_input(suite: AgentvSuite, test: dict[str, Any]) -> dict[str, Any]:
    """Return a test whose input is a variable of the prompts, or in a file that it attaches without prompts."""
    if suite.has_prompts:
        if is_blank(test.get("input")):
            return test
        variables = {**object_at(test, "vars"), "input": test["input"]}
        rest = {key: value for key, value in test.items() if key not in ("input", "input_files")}
        return copied(test, {**rest, "vars": variables})  # type: ignore[no-any-return]
    names = listed(test.get("input_files"))
    name = next((name for name in names if os.path.basename(str(name)) == _PROMPT_FILE), None)
    if name is None or not is_blank(test.get("input")):
        return test
    text = suite.files.text(suite.files.path(name))
    return copied(test, {**test, "input": text, "input_files": [other for other in names if other != name]})  # type: ignore[no-any-return]


def _resolved(variables: dict[str, Any], lose: Lose) -> dict[str, Any]:
    """Return variables with others inserted where their texts name them, in messages too."""
    variables = resolved(variables)
    for name in sorted({name for text in texts_in(variables) for name in names_of(text)} - variables.keys() - {"vars"}):
        lose(f"'{{{{ {name} }}}}' in a variable: the test has no such variable, so that it is empty")
    inserted: dict[str, Any] = _values(variables, variables)
    return inserted


def _row(suite: AgentvSuite, test: dict[str, Any], variables: dict[str, Any], lose: Lose) -> dict[str, Any]:
    id = first_of(test, "id") if "id" in test else variables.get("id")
    grading = _grading(suite, test, variables, lose)
    transform = object_at(test, "options").get("transform")
    skips = object_at(test, "execution").get("skip_defaults") is True
    assertions = [*assertions_in(test), *([] if skips else suite.shared_assertions)]
    row: dict[str, Any] = {
        **({} if is_blank(id) else {"id": with_variables(id, variables)}),
        **{key: test[key] for key in _KEPT if not is_blank(test.get(key))},
        "input": _input(suite, test, variables),
        "execution": _own_execution(suite, test, lose),
    }
    expected = first_of(test, "expected_output") or variables.get("expected_output")
    if not is_blank(expected):
        row["expected_output"] = _values(expected, variables)
    if not is_blank(test.get("criteria")):
        row["criteria"] = with_variables(test["criteria"], variables)
    if assertions:
        try:
            row["evaluators"] = evaluators_of(assertions, grading, transform)
        except NoCounterpart as error:
            row |= {"evaluators": [], "case_error": str(error)}
    elif any(isinstance(turn, dict) and assertions_in(turn) for turn in listed(test.get("turns"))):
        row["evaluators"] = []
    return placed_row({**row, **_details(suite, test, grading)}, test, _source_of(test))


def _values(value: Any, variables: dict[str, Any]) -> Any:
    """Return a value with variables inserted; a text that is only a variable, or a part of one, becomes its value."""
    insert = inserter({"vars": variables, **variables}, Problems())

    def replace(text: str, path: KeyPath) -> Any:
        whole = _PART.fullmatch(text.strip())
        value = None if whole is None else insert(whole[0], path)
        return with_variables(text, variables) if whole is None or value == whole[0] else value

    return replace_texts(value, replace)


def _details(suite: AgentvSuite, test: dict[str, Any], grading: Grading) -> dict[str, Any]:
    details: dict[str, Any] = {}
    for key in test.keys() - _TEST_KEYS:
        if not is_blank(test[key]):
            grading.lose(f"'{key}' of a test")
    if not is_blank(test.get("description")):
        details["description"] = text_of(with_variables(test["description"], grading.variables))
    if not is_blank(test.get("metadata")):
        details["metadata"] = test["metadata"]
    environment = first_of(test, "environment") or suite.data.get("environment")
    if not is_blank(environment):
        workspace = workspace_of(environment, suite.files)
        extensions = suite.data.get("extensions")
        details["workspace"] = workspace if is_blank(extensions) else with_extensions(workspace, extensions)
    if isinstance(test.get("turns"), list):
        details["turns"] = placed_list([_turn(turn, grading) for turn in test["turns"]])
    return details


def _turn(turn: Any, grading: Grading) -> Any:
    if not isinstance(turn, dict):
        return turn
    fields = {key: value for key, value in turn.items() if key not in ASSERTIONS}
    assertions = assertions_in(turn)
    texts = with_variables(fields, grading.variables)
    row = {**texts, "evaluators": evaluators_of(assertions, grading)} if assertions else texts
    return placed_row(row, turn, _source_of(turn))


def _source_of(entry: dict[str, Any]) -> dict[str, str]:
    """Return the key of a test or turn that its evaluators are made of."""
    return {"evaluators": next((key for key in ASSERTIONS if key in entry), ASSERTIONS[0])}


def _input(suite: AgentvSuite, test: dict[str, Any], variables: dict[str, Any]) -> Any:
    """Return the input of a case: its own, the variable that is the prompt, or variables for the prompts."""
    if not is_blank(test.get("input")):
        return with_variables(test["input"], variables)
    name = suite.whole_variable or (None if suite.prompts else "input")
    if name is None:
        used = frozenset(variable for prompt in suite.prompts for variable in prompt.names)
        for variable in sorted(used & variables.keys()):
            if _is_messages(variables[variable]):
                raise ValueError(f"The variable '{variable}' has messages, which cannot be inserted in a text")
        names = {"vars": dict(variables)} if "vars" in used and "vars" not in variables else {}
        return {**variables, **names}
    value = variables.get(name)
    if is_blank(value):
        if test.get("turns"):
            return None
        raise ValueError(f"The variable '{name}', which is the prompt, is missing in this test")
    if isinstance(value, str) or is_message(value) or _is_messages(value):
        return value
    return [{"role": "user", "content": value if isinstance(value, dict) else text_of(value)}]


def _is_messages(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) and "role" in item for item in value)


def _own_execution(suite: AgentvSuite, test: dict[str, Any], lose: Lose) -> dict[str, Any]:
    """Return the settings of one case: its target, threshold, trials and time limit."""
    own, run, options = object_at(test, "execution"), object_at(test, "run"), object_at(test, "options")
    settings = {key: value for key, value in own.items() if key != "skip_defaults"}
    settings |= {key: run[key] for key in ("threshold", "timeout_seconds") if run.get(key) is not None}
    if (repeat := own_repeat(test)) is not None:
        settings["trials"] = trials_of(repeat, lose)
    if test.get("threshold") is not None:
        settings["threshold"] = test["threshold"]
    if not is_blank(options.get("provider")):
        target = suite.target(options["provider"])
        settings |= {} if target is None else {"targets": [target]}
    for key in (run.keys() - {"threshold", "repeat", "timeout_seconds"}) | (
        options.keys() - {"provider", "transform", "repeat", "rubric_prompt"}
    ):
        lose(f"'{key}' in the options of a test")
    return settings


def _grading(suite: AgentvSuite, test: dict[str, Any], variables: dict[str, Any], lose: Lose) -> Grading:
    texts = {key: _text_of_messages(value) if _is_messages(value) else value for key, value in variables.items()}
    if not is_blank(test.get("criteria")):
        texts.setdefault("criteria", test["criteria"])

    def judge(provider: Any) -> str | None:
        return suite.judge if is_blank(provider) else suite.target(provider)

    return Grading(
        variables=texts,
        has_threshold=True,
        has_commands=True,
        judge=judge,
        embedder=lambda provider: suite.targets.embedder(None, None) if is_blank(provider) else suite.target(provider),
        read_file=suite.files.content,
        lose=lose,
        options=object_at(test, "options"),
    )


def _text_of_messages(messages: list[dict[str, Any]]) -> str:
    """Return the text of messages in an assertion: that of the last one, or else its tool calls."""
    last = messages[-1]
    return text_of(last.get("tool_calls") if is_blank(last.get("content")) else last["content"])
