"""What the cases of a suite share: messages before each case's own, files before its text, and the cluster."""

from typing import Any

import msgspec

from agentv.datasets.case.shorthand import MessageReader
from agentv.datasets.variables import inserter, replace_texts
from agentv.model.diagnostics import Problems
from agentv.model.message import Message
from agentv.settings.settings_reader import read_value


class SuiteInput(msgspec.Struct, frozen=True):
    """The shared messages and files. `template` is the input as written if it may name variables of a case."""

    messages: tuple[Message, ...] = ()
    files: tuple[str, ...] = ()
    template: Any = None

    def messages_for(self, row: dict[str, Any], reader: MessageReader) -> tuple[Message, ...]:
        """Return the shared messages for one case, with its variables inserted."""
        variables = row.get("vars")
        if self.template is None or not isinstance(variables, dict):
            return self.messages
        value = replace_texts(self.template, inserter(variables, Problems()))
        return _messages(value, reader, Problems())


NO_INPUT = SuiteInput()


def read_suite_input(data: dict[str, Any], reader: MessageReader, problems: Problems) -> SuiteInput:
    """Read `input` and `input_files` of a suite."""
    value, files = data.get("input"), data.get("input_files")
    if value is None and files is None:
        return NO_INPUT
    names = read_value(tuple[str, ...], files, ("input_files",), problems) if files is not None else ()
    for index, name in enumerate(names or ()):
        if "{{" not in name:
            with_files([name], "", ("input_files", index), reader, problems)
    messages = () if value is None else _messages(value, reader, problems)
    return SuiteInput(messages, tuple(names or ()), value if _is_template(value) else None)


def with_files(
    files: list[str], text: str, path: tuple[str | int, ...], reader: MessageReader, problems: Problems
) -> tuple[Message, ...]:
    """Return one user message: the files, then the text. A file that cannot be used is an error at `path`."""
    parts: list[Any] = [{"type": "file", "value": name} for name in files]
    file_problems = Problems()
    messages = reader.messages([{"role": "user", "content": [*parts, text]}], path, file_problems)
    for problem in file_problems:
        problems.append(msgspec.structs.replace(problem, path=path))
    return messages


def _is_template(value: Any) -> bool:
    """Whether any text may name a variable."""
    if isinstance(value, dict | list):
        return any(map(_is_template, value.values() if isinstance(value, dict) else value))
    return isinstance(value, str) and "{{" in value


def _messages(value: Any, reader: MessageReader, problems: Problems) -> tuple[Message, ...]:
    read = reader.input(value, ("input",), problems)
    return (Message("user", read),) if isinstance(read, str) else read


def read_cluster(row: dict[str, Any], shared: str | None, problems: Problems) -> str | None:
    """Return the `cluster` of a row, or else the dataset's, where `{{ metadata.document }}` is a value of the row."""
    if row.get("cluster") is not None:
        own = read_value(str | int, row["cluster"], ("cluster",), problems)
        return None if own is None else str(own)
    if shared is None or "{{" not in shared:
        return shared
    from agentv.support.templates import TemplateProblem, render  # late: minijinja is slow to import

    values = {"id": row.get("id"), "metadata": row.get("metadata") or {}, "vars": row.get("vars") or {}}
    try:
        return render(shared, values)
    except TemplateProblem as problem:
        problems.error(("cluster",), f"The dataset's 'cluster' cannot be rendered: {problem}", f"It is '{shared}'")
        return None
