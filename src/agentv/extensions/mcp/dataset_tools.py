"""Tools that read the datasets and targets of the project. They start no program and import no code."""

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from agentv.datasets.case.prompts import resolved_data
from agentv.datasets.dataset import Options
from agentv.datasets.discovery import find_datasets
from agentv.datasets.loader import CaseSource, ignore
from agentv.engine.checks.findings import Finding
from agentv.engine.checks.validation import validate
from agentv.engine.run_options import EvalOptions
from agentv.engine.run_project import open_targets
from agentv.errors import AgentvError, UsageError, plural
from agentv.extensions.mcp.run_tools import Offset, next_offset
from agentv.extensions.mcp.served_project import ServedProject
from agentv.extensions.mcp.served_tool import CallInProgress, ServedTool, ToolAnswer, ToolArguments
from agentv.model.case import EvalCase, case_to_data
from agentv.report.figures import one_line
from agentv.trust.consent import trust_notes
from agentv.trust.inventory import Inventory

Datasets = Annotated[list[str], Meta(min_length=1, description="Files, folders or globs of datasets in the project")]
CaseIds = Annotated[list[str], Meta(description="Only the cases with these ids")]
CaseFilters = Annotated[
    list[str], Meta(description="Only cases that match all of these: an id glob, tag=x, tag!=x or metadata.k=v")
]

_LONGEST_PREVIEW = 200
_MOST_FINDINGS = 50


class ValidateToolArguments(ToolArguments, frozen=True, kw_only=True):
    """Check datasets, their targets and the configuration, and report every problem with its line and how to fix it.
    Executes nothing. Use it after each change of a dataset."""

    datasets: Datasets


class ValidateAnswer(ToolAnswer, frozen=True, kw_only=True):
    """The problems found. The counts are complete, also if not all `findings` are listed.

    `uses` are the commands, code, hosts and variables that a run would use.
    """

    REST = "The command `agentv validate PATHS --json` prints everything"

    files: int
    cases: int
    errors: int
    warnings: int
    findings: list[Finding] = []
    uses: list[str] = []
    notes: list[str] = []

    def lines(self) -> Iterator[str]:
        yield f"Checked {plural(self.files, 'file')} with {plural(self.cases, 'readable case')}: " + (
            f"{plural(self.errors, 'error')}, {plural(self.warnings, 'warning')}"
        )
        for finding in self.findings:
            place = f"{finding.path}:{finding.line or 1}"
            yield f"{place}: {finding.severity}: {finding.message}{f' ({finding.hint})' if finding.hint else ''}"


def check(project: ServedProject, args: ValidateToolArguments, _: CallInProgress) -> ValidateAnswer:
    """Validate datasets."""
    paths = project.dataset_paths(args.datasets)
    project.check_sources(find_datasets(paths, ignore, ignore, ignore))
    report = validate(paths, Options())
    worst = sorted(report.findings, key=lambda finding: finding.severity != "error")
    uses = Inventory(report.uses or ())
    return ValidateAnswer(
        files=report.files,
        cases=report.cases,
        errors=report.errors,
        warnings=report.warnings,
        findings=worst[:_MOST_FINDINGS],
        uses=list(uses.lines())[:_MOST_FINDINGS],
        notes=[*trust_notes(uses), *report.notes][:_MOST_FINDINGS],
    )


class ListCasesArguments(ToolArguments, frozen=True, kw_only=True):
    """List the cases of datasets: ids, lines, the beginning of the input, tags and evaluators."""

    datasets: Datasets
    cases: CaseIds = []
    filters: CaseFilters = []
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    offset: Offset = 0


class CaseRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One case. `input` is the beginning of its last user message."""

    id: str
    path: str
    line: int | None = None
    input: str
    tags: tuple[str, ...] = ()
    evaluators: tuple[str, ...] = ()


class ListCasesAnswer(ToolAnswer, frozen=True, kw_only=True):
    """One page of the cases that match, of `total`."""

    REST = "Read one case with read_case, or fewer with `limit`"

    total: int
    cases: list[CaseRow] = []
    next_offset: int | None = None
    notes: list[str] = []

    def lines(self) -> Iterator[str]:
        yield plural(self.total, "case")
        for case in self.cases:
            yield f"{case.id} ({case.path}:{case.line or 1}): {case.input}"
        yield from self.notes


def list_cases(project: ServedProject, args: ListCasesArguments, _: CallInProgress) -> ListCasesAnswer:
    """Return a page of cases."""
    notes: list[str] = []
    source = _opened(project, args.datasets, args.cases, args.filters, notes)
    total, page = 0, []
    for case in source.stream():
        if args.offset <= total < args.offset + args.limit:
            page.append(_listed(case))
        total += 1
    end = min(total, args.offset + args.limit)
    return ListCasesAnswer(total=total, cases=page, next_offset=next_offset(end, total), notes=notes[:_MOST_FINDINGS])


def _opened(
    project: ServedProject, datasets: list[str], cases: list[str], filters: list[str], notes: list[str]
) -> CaseSource:
    options = EvalOptions(paths=project.dataset_paths(datasets), cases=tuple(cases), filters=tuple(filters))
    source = options.open_cases(lambda warning: notes.append(warning.message), ignore)
    project.check_sources(source.sources)
    return source


def _listed(case: EvalCase) -> CaseRow:
    last = next((message for message in reversed(case.input) if message.role == "user"), None)
    content = "" if last is None else last.content
    if isinstance(content, tuple):
        content = " ".join(part.value for part in content)
    text = content if isinstance(content, str) else repr(content)
    return CaseRow(
        id=case.id,
        path=case.path,
        line=case.line,
        input=one_line(text, _LONGEST_PREVIEW),
        tags=tuple(case.tags),
        evaluators=tuple(spec.name for spec in case.evaluators),
    )


class ReadCaseArguments(ToolArguments, frozen=True, kw_only=True):
    """Read one case of a dataset in full, with its evaluators and settings resolved."""

    datasets: Datasets
    case: Annotated[str, Meta(description="The id of the case")]
    resolve: Annotated[bool, Meta(description="Insert files and variables, as the target would receive them")] = False


class ReadCaseAnswer(ToolAnswer, frozen=True, kw_only=True):
    """A case as `agentv cases` prints it."""

    REST = "The command `agentv cases PATHS --case ID --json` prints the whole case"

    case: dict[str, Any]
    path: str
    line: int | None = None
    notes: list[str] = []

    def lines(self) -> Iterator[str]:
        yield f"{self.case.get('id')} ({self.path}:{self.line or 1})"
        yield one_line(str(self.case.get("input") or self.case.get("prompts") or ""), _LONGEST_PREVIEW)
        yield from self.notes


def read_case(project: ServedProject, args: ReadCaseArguments, _: CallInProgress) -> ReadCaseAnswer:
    """Return one case."""
    notes: list[str] = []
    matches = list(_opened(project, args.datasets, [args.case], [], notes).stream())
    if len(matches) != 1:
        places = ", ".join(f"{case.path}:{case.line or 1}" for case in matches[:10])
        raise UsageError(f"{len(matches):,} cases have the id '{args.case}'", places, "Name one dataset")
    case = matches[0]
    data = resolved_data(case) if args.resolve else case_to_data(case)
    return ReadCaseAnswer(case=data, path=case.path, line=case.line, notes=notes[:_MOST_FINDINGS])


class ListTargetsArguments(ToolArguments, frozen=True, kw_only=True):
    """List the targets of the project, the models, agents, commands or functions that run_cases can evaluate."""


class ListedTarget(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One target. `problem` is why it cannot be used, such as a variable that is not set."""

    name: str
    provider: str
    model: str | None = None
    problem: str | None = None


class ListTargetsAnswer(ToolAnswer, frozen=True, kw_only=True):
    """The targets of the project."""

    REST = "The targets are defined in targets.yaml"

    targets: list[ListedTarget] = []

    def lines(self) -> Iterator[str]:
        yield plural(len(self.targets), "target")
        for target in self.targets:
            yield " ".join(filter(None, (target.name, target.provider, target.model, target.problem)))


def list_targets(project: ServedProject, args: ListTargetsArguments, _: CallInProgress) -> ListTargetsAnswer:  # noqa: ARG001
    """Return the targets of the project."""
    targets = open_targets(".", project.targets_file)
    entries = []
    for name in targets.names:
        settings, problem = targets.raw(name), None
        try:
            settings = targets.public(name)
        except AgentvError as error:
            problem = error.detail or error.headline
        model = None if settings.get("model") is None else str(settings["model"])
        entries.append(ListedTarget(name=name, provider=str(settings["provider"]), model=model, problem=problem))
    return ListTargetsAnswer(targets=entries)


TOOLS = (
    ServedTool("validate_datasets", "Validate datasets", ValidateToolArguments, ValidateAnswer, check),
    ServedTool("list_cases", "List cases", ListCasesArguments, ListCasesAnswer, list_cases),
    ServedTool("read_case", "Read one case", ReadCaseArguments, ReadCaseAnswer, read_case),
    ServedTool("list_targets", "List targets", ListTargetsArguments, ListTargetsAnswer, list_targets),
)
