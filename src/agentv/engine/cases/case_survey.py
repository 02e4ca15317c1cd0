"""Find out what cases would use, and ask for trust in datasets outside the project before anything of them is used."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from agentv.datasets.dataset import Dataset, Options, SilentSink
from agentv.datasets.discovery import find_datasets
from agentv.datasets.formats.dataset_format import Source
from agentv.datasets.stamps import files_of
from agentv.engine.scoring.fingerprints import references_of
from agentv.errors import AgentvError
from agentv.model.case import NO_DETAILS, EvalCase
from agentv.model.evaluator import EvaluatorSpec
from agentv.model.workspace_settings import Workspace
from agentv.settings.environment import REFERENCE
from agentv.settings.project import project_root
from agentv.support.user_code import importing_nothing, may_import
from agentv.targets.target_uses import target_inventory
from agentv.trust.consent import require_trust, require_trust_in_run, require_trust_in_values
from agentv.trust.env_file import load_environment
from agentv.trust.inventory import Inventory, Use, command_text
from agentv.trust.policy import load_policy
from agentv.trust.roots import in_project, is_trusted, noted_variables, trusting_only_the_project
from agentv.trust.template_search import added_repositories, is_tool_setting, template_uses

Evaluators = tuple[EvaluatorSpec, ...] | None

_CACHE_SIZE = 1024


class CaseSurvey:
    """Collects what cases would use: those of files that are not trusted, or with `everything` those of all files.

    Everything is collected by default while settings are only checked, or if the user's policy denies programs.

    `evaluators` replace those of the cases. Without `calls`, answers exist already and no workspace is prepared.
    """

    def __init__(self, evaluators: Evaluators = None, *, everything: bool | None = None, calls: bool = True) -> None:
        self.inventory = Inventory()
        self.has_targets = False
        if everything is None:
            everything = not may_import() or load_policy().programs == "deny"
        self.everything = everything
        self._evaluators = evaluators
        self._calls = calls
        self._known: dict[str, bool] = {}
        self._seen: set[object] = set()
        self._last: tuple[object, object] = (None, None)

    def add(self, case: EvalCase) -> None:
        """Add what one case would use. One check per file decides whether its cases are looked at."""
        specs, origin = self._last
        if case.evaluators is specs and case.place.origin is origin and case.details is NO_DETAILS:
            return  # it uses what the last case does
        path = case.path
        is_surveyed = self._known.get(path)
        if is_surveyed is None:
            is_surveyed = self._known[path] = self.everything or case.place.origin.is_foreign
            if is_surveyed:
                self.inventory.files[path] = None
        if is_surveyed:
            self.inventory.add(self._uses(case))
        self._last = (case.evaluators, case.place.origin)

    def add_targets(self, source: Source) -> dict[str, dict[str, Any]]:
        """Add what reading a dataset, and the targets that it brings along, would use. Return their settings."""
        self.inventory.add(program_uses([source]))
        entries = {entry["name"]: (index, entry) for index, entry in enumerate(source.format.targets(source))}
        self.inventory.add(target_inventory(entries, entries, source.files[0]) if entries else ())
        self.has_targets = self.has_targets or bool(entries)
        return {name: settings for name, (_, settings) in entries.items()}

    def _uses(self, case: EvalCase) -> Iterator[Use]:
        path = case.path
        if self._calls and case.workspace is not None and self._is_new((path, case.workspace)):
            yield from workspace_uses(case.workspace, path)
        if self._evaluators is not None:
            own, path = [self._evaluators], "--evaluator"
        else:
            own = [case.evaluators, *(turn.evaluators for turn in case.turns)]
        for specs in own if self._evaluators is None or self.everything else ():
            for spec in specs if self._is_new((path, specs)) else ():
                yield from spec_uses(spec, path)

    def _is_new(self, subject: object) -> bool:
        is_new = subject not in self._seen
        if len(self._seen) >= _CACHE_SIZE:
            self._seen.clear()  # each case may have its own evaluators, and memory must not grow with them
        self._seen.add(subject)
        return is_new


class _SurveySink(SilentSink):
    """Adds invalid cases to a survey: they may be valid as soon as variables are inserted."""

    def __init__(self, survey: CaseSurvey) -> None:
        self._survey = survey

    def bad_case(self, *items: object) -> None:
        """Add what could be read of the case."""
        for case in items:
            if isinstance(case, EvalCase):
                self._survey.add(case)


def spec_uses(spec: EvaluatorSpec, file: str) -> Iterator[Use]:
    """Yield the commands and the code of an evaluator and its members."""
    for reference in references_of(spec):
        if reference.executes:
            holders = (reference, reference.value, spec.evaluator)
            cwd = next((cwd for holder in holders if (cwd := getattr(holder, "cwd", None))), "")
            yield Use(reference.executes, command_text(reference.value), file, f"evaluator '{spec.name}'", cwd)
    for member in spec.evaluator.members if spec.evaluator is not None else ():
        yield from spec_uses(member, file)


def workspace_uses(workspace: Workspace, file: str) -> Iterator[Use]:
    """Yield the commands of a workspace, its repositories, and settings of tools in its template and files."""
    commands = {"workspace.setup": (workspace.setup, None), "workspace.teardown": (workspace.teardown, None)}
    of_targets = ((f"hooks of target '{target}'", hooks) for target, hooks in workspace.target_hooks)
    for place, hooks in (("workspace.hooks", workspace.hooks), *of_targets):
        for name in hooks.__struct_fields__ if hooks is not None else ():
            hook = getattr(hooks, name)
            commands[f"{place}.{name}"] = (None, None) if hook is None else (hook.command, hook.cwd)
    for place, (command, cwd) in commands.items():
        if command is not None:
            yield Use("command", command_text(command), file, place, cwd or "")
    for repository in workspace.repos:
        yield Use("command", f"git clone {repository.repo}", file, "workspace.repos")
    if workspace.path:
        yield from (Use("template", value, file, "workspace.template") for value in template_uses(workspace.path))
    for added in workspace.files:
        if is_tool_setting(added.path):
            yield Use("template", added.path, file, "workspace.files")
        elif os.path.isdir(added.file):
            yield from (Use("template", value, file, "workspace.files") for value in template_uses(added.file))
    repositories = added_repositories(workspace.path or "", (added.path for added in workspace.files))
    yield from (Use("template", value, file, "workspace.files") for value in repositories)


def dataset_uses(source: Source, options: Options, survey: CaseSurvey) -> Inventory:
    """Return what a dataset would use, also in invalid cases: those are reported when the run reads them."""
    options = msgspec.structs.replace(options, on_error="skip")  # an invalid case stays as it is, and is not refused
    try:
        for batch in Dataset(source, options, _SurveySink(survey)).batches(None):
            for case in batch:
                survey.add(case)
    except AgentvError:
        pass  # reported when the run reads it
    survey.inventory.files.update(dict.fromkeys(files_of(source)))
    survey.inventory.add(variable_uses([source]))
    with suppress(AgentvError):
        survey.add_targets(source)
    return survey.inventory


def program_uses(sources: Iterable[Source]) -> Iterator[Use]:
    """Yield the programs that datasets run when they are read."""
    for source in sources:
        yield from (Use(kind, value, source.files[0]) for kind, value in source.format.programs(source))


def variable_uses(sources: Iterable[Source]) -> Iterator[Use]:
    """Yield the variables that datasets name. They must have been read."""
    for source in sources:
        for file in files_of(source):
            yield from (Use("variable", name, file) for name in noted_variables(file))


def settle_trust(sources: Iterable[Source], options: Options, evaluators: Evaluators, *, calls: bool = True) -> None:
    """Ask for trust in the datasets outside the project that would run, import or read something.

    Raises UntrustedError if it is not given. Datasets in the project cost one check each. While settings are only
    checked, nothing is asked: nothing runs, and no variable is read.
    """
    for source in sources if may_import() else ():
        outside = [file for file in files_of(source) if not in_project(os.path.realpath(file))]
        if outside:
            with trusting_only_the_project():
                uses = dataset_uses(source, options, _outside_survey(evaluators, calls=calls))
            require_trust(outside[0], uses)
            if is_trusted(outside[0]):
                _settle_values(outside[0], uses, source, options, _outside_survey(evaluators, calls=calls))


def _settle_values(file: str, inventory: Inventory, source: Source, options: Options, survey: CaseSurvey) -> None:
    """Compare what was shown with what a trusted dataset uses when its variables are inserted; import nothing yet."""
    survey.inventory.has_values = True
    with importing_nothing():
        uses = dataset_uses(source, options, survey)
    folder = source.folder or "."
    variables = load_environment(folder, project_root(folder)).variables
    values = (msgspec.structs.replace(use, value=text) for use in inventory for text in _inserted(use.value, variables))
    require_trust_in_values(file, Inventory((*inventory, *values)), uses)


def _inserted(text: str, variables: Mapping[str, str]) -> Iterator[str]:
    """Yield a command with variables inserted: into its text, and into its arguments."""

    def insert(part: str) -> str:
        return REFERENCE.sub(lambda match: variables.get(match["variable"], ""), part)

    if REFERENCE.search(text):
        yield insert(text)
        with suppress(ValueError):  # not a list of arguments
            yield shlex.join(map(insert, shlex.split(text)))


def _outside_survey(evaluators: Evaluators, *, calls: bool) -> CaseSurvey:
    """Return a survey of all that cases use themselves: not of evaluators that the user gives."""
    return CaseSurvey(None if evaluators is None else (), everything=True, calls=calls)


def settle_run_trust(run: str, cases: Iterable[EvalCase], evaluators: Evaluators) -> None:
    """Refuse cases stored in a run folder that would run what no dataset of the project names.

    A run folder may come from others, also one inside the project. Raises UntrustedError.
    """
    survey = _outside_survey(evaluators, calls=False)
    paths: dict[str, None] = {}
    for case in cases:
        survey.add(case)
        paths[case.path] = None
    if survey.inventory.running:
        project_uses = {(use.kind, use.value, use.cwd) for use in _current_uses(paths)}
        unknown_uses = [use for use in survey.inventory.running if (use.kind, use.value, use.cwd) not in project_uses]
        require_trust_in_run(run, Inventory(msgspec.structs.replace(use, file=run) for use in unknown_uses))


def _current_uses(paths: Iterable[str]) -> Iterator[Use]:
    """Yield what the datasets of a run use now, if they still exist and are trusted."""
    existing = [path for path in paths if os.path.isfile(path) and is_trusted(path)]
    for path in existing:
        try:
            sources = find_datasets(path, lambda _: None, lambda _: None)
        except AgentvError:
            continue
        for source in sources:
            yield from dataset_uses(source, Options(), CaseSurvey(everything=True, calls=False))
