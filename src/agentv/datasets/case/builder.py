"""Build cases from rows of any format: aliases, required fields, shorthand, variables and evaluators."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from agentv.datasets.case.evaluator_entries import with_preprocessors
from agentv.datasets.case.header import (
    DEFAULT_CHOICE,
    EvaluatorChoice,
    Header,
    case_evaluators,
    read_evaluators,
    read_rubrics,
    skips_defaults,
    warn_of_replaced,
    warn_of_target,
)
from agentv.datasets.case.keys import LIST_KEYS, OUTCOME_KEYS, CaseKeys, ExecutionKeys, Memo, UserKeys
from agentv.datasets.case.shorthand import (
    ItemIds,
    MessageReader,
    foreign_note,
    is_message,
    is_plain_text,
    is_result,
    outcome_notes,
    read_cluster,
    with_files,
)
from agentv.datasets.case.turns import (
    CONVERSATION_KEYS,
    checks_turns,
    read_conversation_settings,
    read_turns,
    with_input_in_first_turn,
)
from agentv.datasets.case.workspaces import merged, read_workspace
from agentv.datasets.formats.dataset_format import PlainRow, Row
from agentv.datasets.variables import inserter, with_vars
from agentv.model.case import (
    NO_DETAILS,
    CaseDetails,
    DependencyFailure,
    EvalCase,
    PromptInput,
    SimulatedUser,
    Turn,
    refused_case,
)
from agentv.model.diagnostics import KeyPath, Problems, did_you_mean, nearest
from agentv.model.message import ROLES, Message
from agentv.model.origin import Place
from agentv.model.values import FrozenDict, NestingError, freeze
from agentv.settings.evaluator_reader import ListsTests
from agentv.settings.settings_reader import aliases_of, known_keys, read_settings, read_value
from agentv.support.yaml.yaml_writer import WrittenInt

if TYPE_CHECKING:
    from agentv.datasets.case.prompts import RenderablePrompt

_CASE_KEYS = frozenset({*known_keys(CaseKeys), *aliases_of(CaseKeys)})
_OTHER_TOOLS = {
    **dict.fromkeys(("reference_answer", "reference", "expected", "ideal", "answer"), "expected_output"),
    **dict.fromkeys(("question", "query", "messages", "inputs"), "input"),
}
"""Names that other tools use for our fields."""

Messages = str | tuple[Message, ...]
"""Messages, or the text of a single one."""

Input = tuple[Messages, FrozenDict | None, tuple[PromptInput, ...]]
"""The messages of a case, the variables they were rendered from, and the input per prompt if there are several."""

_DEPENDENCY_KEYS = ("depends_on", "on_dependency_failure")
_PLAIN_DETAILS = ("description", "context", "rubrics", "turns", "user", "workspace")
_DETAIL_KEYS = frozenset({*_PLAIN_DETAILS, *CONVERSATION_KEYS, *_DEPENDENCY_KEYS})


class CaseBuilder(msgspec.Struct):
    """Builds the cases of one dataset.

    `outcome_optional`: an evaluator or an expected output may replace the expected outcome; with `is_jsonl`, only the
    latter may. `settings_file` is the file that messages name for the dataset's settings.
    """

    header: Header
    reader: MessageReader
    is_agentmark: bool = False
    outcome_optional: ListsTests = False
    is_jsonl: bool = False
    settings_file: str = "the dataset"
    item_ids: ItemIds = msgspec.field(default_factory=ItemIds)

    def add_plain(self, rows: list[Row], place: Place, start: int, cases: list[EvalCase]) -> int:
        """Add cases for plain rows from `start` on; return the offset of the first row that needs `build`."""
        header = self.header
        shared_metadata, shared_tags = header.metadata, header.tags
        execution, specs = header.execution, with_preprocessors(header.evaluators.specs, header.preprocessors)
        add = cases.append
        for offset, row in enumerate(islice(rows, start, None), start):
            if type(row) is not PlainRow or header.cluster is not None:
                return offset
            id, input, expected = row.id, row.input, row.expected_output
            metadata, tags = shared_metadata, shared_tags
            # Most rows have two texts and nothing else.
            if type(input) is not str or type(expected) is not str or row.metadata is not None or row.tags is not None:
                if (values := self._plain_values(row)) is None:
                    return offset
                expected, metadata, tags = values
            if not id or id.isspace():
                return offset
            case = EvalCase(
                id, row.expected_outcome, input, expected, row.conversation_id,
                metadata, tags, execution, specs, NO_DETAILS, place, offset,
            )  # fmt: skip
            add(case)
        return len(rows)

    def _plain_values(self, row: PlainRow) -> tuple[str | tuple[Message, ...], FrozenDict, tuple[str, ...]] | None:
        """Return expected output, metadata and tags of a plain row; None if the row needs `build`."""
        header, expected = self.header, row.expected_output
        if type(row.input) is not str and not is_plain_text(row.input):
            return None
        try:
            metadata = header.metadata if row.metadata is None else header.with_metadata(row.metadata)
            tags = header.tags if row.tags is None else header.with_tags(row.tags)
            if expected is None:
                return (), metadata, tags
            if isinstance(expected, dict):
                return None if "role" in expected else ((Message("assistant", freeze(expected)),), metadata, tags)
        except NestingError:
            return None
        return (expected, metadata, tags) if type(expected) is str or is_plain_text(expected) else None

    def build(self, row: dict[str, Any], place: Place, offset: int, problems: Problems) -> EvalCase | None:
        """Build a case from any row. After errors in `problems` the case is incomplete, or None."""
        header = self.header
        try:
            self._check_keys(row, problems)
            if _typed(row, "case_error", str, problems):
                return self._refused(row, place, offset, problems)
            if row.get("vars") is not None:
                row = with_vars(row, problems)
            execution = row.get("execution")
            execution_keys = None if execution is None else _read_execution(execution, ("execution",), problems)
            id = self._id(row, problems)
            outcome = self._outcome(row, problems)
            case_input = self._input(row, problems)
            if header.input.messages and not skips_defaults(row):
                case_input = _with_messages(case_input, header.input.messages_for(row, self.reader))
            expected = self._expected_output(row, problems)
            rubric = None if row.get("rubrics") is None else read_rubrics(row["rubrics"], ("rubrics",), problems)
            own = read_evaluators(row, self.reader.finder, (), problems, lists_tests=self.outcome_optional)
            warn_of_replaced(row if self.is_jsonl else {}, header, problems)
            if execution_keys is not None and self.outcome_optional == "agentv-4":
                warn_of_target(execution_keys, problems)
            lacks_criteria = row.get("mode") is not None or not (outcome or expected)
            if own is None and header.evaluators is DEFAULT_CHOICE and lacks_criteria and rubric is None:
                own = EvaluatorChoice(()) if checks_turns(row) else None  # the criteria are for the judges of turns
            metadata = _typed(row, "metadata", dict[str, Any], problems)
            tags = _typed(row, "tags", list[str], problems)
            case = EvalCase(
                id,
                outcome,
                case_input[0],
                expected,
                _typed(row, "conversation_id", str, problems),
                header.metadata if metadata is None else header.with_metadata(row["metadata"]),
                header.tags if tags is None else header.with_tags(tags),
                header.execution if execution_keys is None else execution_keys.to_execution().over(header.execution),
                case_evaluators(header, own, rubric, execution_keys, is_bare=self.is_agentmark and not expected),
                self._details(row, case_input, rubric, problems),
                place,
                offset,
            )
            return case if row.get("mode") is None else with_input_in_first_turn(case)
        except (NestingError, RecursionError):
            problems.error((), f"The case is {NestingError()}")
            return None

    def _refused(self, row: dict[str, Any], place: Place, offset: int, problems: Problems) -> EvalCase | None:
        """Build a case that cannot be run, with what can be read of it. It has the jobs that it would have had."""
        ignored = Problems()
        if (case := self.build({**row, "case_error": None}, place, offset, ignored)) is None:
            problems += ignored
            return None
        problems += (problem for problem in ignored if problem.path == ("id",))
        case = refused_case(case, row["case_error"])
        if case.prompts or not self.header.several_prompts or row.get("prompt") is not None:
            return case
        prompts = tuple(PromptInput(prompt.id, ()) for prompt in self.header.prompts)
        return msgspec.structs.replace(case, details=msgspec.structs.replace(case.details, prompts=prompts))

    def _check_keys(self, row: dict[str, Any], problems: Problems) -> None:
        if row.keys() <= _CASE_KEYS or is_result(row):
            return
        for key in row:
            if key in CaseKeys.unsupported:
                if row[key] is not None:
                    problems.error((key,), f"Field '{key}' is not supported", CaseKeys.unsupported[key])
            elif key not in _CASE_KEYS:
                hint = f"Did you mean '{_OTHER_TOOLS[key]}'?" if key in _OTHER_TOOLS else did_you_mean(key, _CASE_KEYS)
                problems.warning((key,), f"Unknown field '{key}'", hint or "Put your own data under 'metadata'")

    def _id(self, row: dict[str, Any], problems: Problems) -> str:
        id = row.get("id")
        if isinstance(id, str):
            if not id.strip():
                problems.error(("id",), "Field 'id' must not be blank")
            return id
        if isinstance(id, int) and not isinstance(id, bool):
            return id.written if isinstance(id, WrittenInt) else str(id)
        if id is not None:
            problems.wrong_type(("id",), "a string", id)
        elif self.is_agentmark:
            return self.item_ids.id_for(row.get("input"))
        else:
            problems.missing(("id",), self._required_fields(row, "id"))
        return ""

    def _outcome(self, row: dict[str, Any], problems: Problems) -> str:
        if not (keys := [key for key in OUTCOME_KEYS if row.get(key) is not None]):
            if not self._may_lack_outcome(row):
                problems.missing(("expected_outcome",), self._required_fields(row, "expected_outcome"))
            return ""
        for key in keys[1:]:
            problems.warning((key,), f"Field '{key}' is ignored because '{keys[0]}' is set")
        outcome = row[keys[0]]
        if not isinstance(outcome, str):
            problems.wrong_type((keys[0],), "a string", outcome)
            return ""
        return outcome

    def _may_lack_outcome(self, row: dict[str, Any]) -> bool:
        if self.is_agentmark or not self.outcome_optional:
            return self.is_agentmark or (self.is_jsonl and bool(row.get("expected_output")))
        execution = row.get("execution")
        lists = isinstance(execution, dict) and execution.get("evaluators")
        keys = ("expected_output", "expected_messages", "evaluator", "rubrics", "turns", *LIST_KEYS)
        return bool(lists) or any(row.get(key) for key in keys) or not self.header.evaluators.kind_only

    def _required_fields(self, row: dict[str, Any], missing: str) -> str:
        if self.is_agentmark:
            return "Required fields: input"
        if self.outcome_optional:
            return "Required fields: id, input, and one of criteria, expected_output, assertions"
        fields = "Required fields: id, expected_outcome, input"
        if typo := nearest(missing, row.keys() - _CASE_KEYS):
            return f"{fields}\nDid you mean '{missing}' instead of '{typo}'?"
        if missing == "expected_outcome":
            fields += outcome_notes(row, self.settings_file)
        return f"{fields}{foreign_note(row, _CASE_KEYS)}"

    def _new_or_old(self, row: dict[str, Any], new: str, old: str, problems: Problems) -> tuple[str, Any]:
        """Return the key and value under the new name, or else under the old one, and warn about the old one."""
        value, former = row.get(new), row.get(old)
        if former is None:
            return new, value
        if value is not None:
            problems.warning((old,), f"Field '{old}' is ignored because '{new}' is set", topic=f"ignored {old}")
            return new, value
        if not isinstance(former, list):
            problems.wrong_type((old,), "an array", former)
            return old, None
        problems.warning((old,), f"Field '{old}' is deprecated: use '{new}'", topic=f"deprecated {old}")
        return old, former

    def _input(self, row: dict[str, Any], problems: Problems) -> Input:
        before = len(problems.errors)
        key, value = self._new_or_old(row, "input", "input_messages", problems)
        if value is None or value == []:
            if len(problems.errors) == before and not row.get("turns"):  # a conversation may begin with its first turn
                problems.missing((key,), self._required_fields(row, key))
            return (), None, ()
        prompts = self.header.prompts
        if row.get("prompt") is not None:
            own = self.header.read_prompt(row["prompt"], self.reader.finder, problems)
            prompts = () if own is None else (own,)
        files = row.get("input_files")
        if files is not None or (self.header.input.files and not skips_defaults(row)):
            return self._input_with_files(row, files, problems), None, ()
        if isinstance(value, dict) and not is_message(value):
            return self._render(value, prompts, problems)
        if prompts:
            message = "The prompt is ignored: it applies only if 'input' is an object of variables"
            problems.warning((key,), message, topic="prompt ignored")
        return self.reader.input(value, (key,), problems), None, ()

    def _input_with_files(self, row: dict[str, Any], files: Any, problems: Problems) -> Messages:
        """Return the files of a case, or else of the suite, followed by its text."""
        if files is None:
            insert = inserter(row["vars"] if isinstance(row.get("vars"), dict) else {}, Problems())
            files = [insert(name, ()) for name in self.header.input.files]
        names = read_value(list[str], files, ("input_files",), problems)
        if not isinstance(row.get("input"), str):
            hint = "Use parts of type 'file' in 'input' instead"
            problems.error(("input_files",), "Field 'input_files' needs an 'input' that is text", hint)
            return ()
        return with_files(names or [], row["input"], ("input_files",), self.reader, problems)

    def _render(self, variables: dict[str, Any], prompts: tuple[RenderablePrompt, ...], problems: Problems) -> Input:
        frozen: FrozenDict = freeze(variables)
        is_data = variables.keys().isdisjoint(("userMessage", "role")) and not self.header.prompt_failed
        if not prompts and is_data and self.outcome_optional == "agentv-4":  # the message is the object, as there
            return self.reader.input([{"role": "user", "content": variables}], ("input",), problems), None, ()
        if not prompts:
            return self._user_message(variables, problems), frozen, ()
        results = [(prompt.id, prompt.render(frozen, problems)) for prompt in prompts]
        rendered = [PromptInput(id, messages) for id, messages in results if messages is not None]
        if len(rendered) == 1 and not self.header.several_prompts:
            return rendered[0].input, frozen, ()
        return (), frozen, tuple(rendered)

    def _user_message(self, variables: dict[str, Any], problems: Problems) -> str:
        text = variables.get("userMessage")
        if isinstance(text, str):
            return text
        if text is not None:
            problems.wrong_type(("input", "userMessage"), "a string", text)
        elif isinstance(variables.get("role"), str) and "content" in variables:
            role = variables["role"]
            message = f"Role {role!r} is not one of {', '.join(ROLES)}, so 'input' is read as variables"
            problems.error(("input",), message, did_you_mean(role, ROLES))
        elif not problems.errors and not self.header.prompt_failed:
            hint = f"Add a 'userMessage' to 'input', or set a 'prompt' that uses the variables in {self.settings_file}"
            hint += "\nIf its 'text' is the prompt: --map input=input.text" * ("text" in variables)
            problems.error(("input",), "Field 'input' contains variables, but there is no prompt to render them", hint)
        return ""

    def _expected_output(self, row: dict[str, Any], problems: Problems) -> Messages:
        key, value = self._new_or_old(row, "expected_output", "expected_messages", problems)
        if value is None:
            return ()
        read = self.reader.messages if key == "expected_messages" else self.reader.expected_output
        return read(value, (key,), problems)

    def _turns(self, row: dict[str, Any], problems: Problems) -> tuple[Turn, ...]:
        turns = _typed(row, "turns", list[Any], problems) or ()
        is_there = row.get("mode") is not None
        read = read_turns(turns, self.reader, problems, lists_tests=self.outcome_optional, judges_reference=is_there)
        shared, replace = self.header.preprocessors, msgspec.structs.replace
        return tuple(replace(turn, evaluators=with_preprocessors(turn.evaluators, shared)) for turn in read)

    def _details(self, row: dict[str, Any], case_input: Input, rubric: Any, problems: Problems) -> CaseDetails:
        _, variables, prompts = case_input
        cluster = read_cluster(row, self.header.cluster, problems)
        special = (variables, cluster, self.header.workspace)
        if _DETAIL_KEYS.isdisjoint(row) and all(each is None for each in special):
            return NO_DETAILS
        conversation = read_conversation_settings(row, problems)
        context = _typed(row, "context", str | tuple[str, ...], problems)
        user = _typed(row, "user", UserKeys, problems)
        workspace = self.header.workspace
        if row.get("workspace") is not None:
            workspace = merged(workspace, read_workspace(row["workspace"], self.reader.finder, problems))
        details = CaseDetails(
            description=_typed(row, "description", str, problems),
            cluster=cluster,
            context=(context,) if isinstance(context, str) else context or (),
            rubrics=tuple(rubric.settings["rubrics"]) if rubric is not None else (),
            variables=variables,
            prompts=prompts,
            turns=self._turns(row, problems),
            user=None if user is None else SimulatedUser(**msgspec.structs.asdict(user)),
            workspace=workspace,
            depends_on=tuple(dict.fromkeys(_typed(row, "depends_on", tuple[str, ...], problems) or ())),
            on_dependency_failure=_typed(row, "on_dependency_failure", DependencyFailure, problems),
            **conversation,
        )
        return NO_DETAILS if details == NO_DETAILS else details


def _with_messages(case_input: Input, shared: tuple[Message, ...]) -> Input:
    """Return an input with the shared messages first."""
    messages, variables, prompts = case_input
    own = (Message("user", messages),) if isinstance(messages, str) else messages
    return (
        (*shared, *own) if own else (),
        variables,
        tuple(PromptInput(prompt.id, (*shared, *prompt.input)) for prompt in prompts),
    )


@Memo
def _read_execution(execution: Any, path: KeyPath, problems: Problems) -> ExecutionKeys | None:
    if not isinstance(execution, dict):
        problems.wrong_type(path, "an object", execution)
        return None
    settings = {key: value for key, value in execution.items() if key != "evaluators"}
    return read_settings(ExecutionKeys, settings, path, problems)


def _typed(row: dict[str, Any], key: str, type_: Any, problems: Problems) -> Any:
    value = row.get(key)
    return None if value is None else read_value(type_, value, (key,), problems)
