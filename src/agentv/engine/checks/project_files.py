"""The targets and defaults that the datasets of a folder use, read without running anything."""

import os
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from agentv.datasets.case.header import config_file
from agentv.engine.cases.case_survey import CaseSurvey
from agentv.engine.checks.findings import Finding
from agentv.engine.checks.project_facts import ProjectFacts
from agentv.engine.run_defaults import default_target, load_defaults
from agentv.errors import DatasetError, UsageError
from agentv.model.case import EvalCase
from agentv.model.diagnostics import Problems
from agentv.model.evaluator import Execution
from agentv.settings.environment import references
from agentv.settings.project import project_root
from agentv.settings.settings_reader import field_of
from agentv.support.yaml.yaml_file import parse_yaml_file
from agentv.targets.catalog import find_targets_file, settings_folder
from agentv.targets.target import Target
from agentv.targets.target_uses import target_inventory
from agentv.targets.targets_file import Entry, as_targets_file, check_entry, check_shape, follow, named_entries
from agentv.trust.inventory import Inventory


class ProjectFiles:
    """The targets and defaults for a dataset, read without the environment and without running user code.

    If the targets file is missing or invalid as a whole, target names are not checked. `used` are the targets of the
    cases checked so far.
    """

    def __init__(self, folder: str, root: str) -> None:
        self._folder, self._root = folder, root
        self.targets_file = find_targets_file(folder, root, to_check=True)
        self.config_file = config_file(folder, root)
        self.findings: list[Finding] = []
        self.used: set[str] = set()
        targets = _target_settings(self.targets_file)
        names = tuple(targets or ())
        judges = {name: settings.get("judge_target") for name, settings in (targets or {}).items()}
        variables = (judge for judge in judges.values() if judge is not None and any(references(judge)))
        self.facts = ProjectFacts(
            known=names,
            may_judge=(*names, *variables),
            judge_target=lambda name: judges.get(name),
            transform=lambda name: (targets or {}).get(name, {}).get("transform"),
            has_targets=targets is not None,
        )
        self.survey = CaseSurvey(everything=True)
        self.targets = {} if self.targets_file is None else named_entries(_parsed_targets(self.targets_file))
        self._last: tuple[Execution, tuple[str, ...]] | None = None

    def uses(self) -> Inventory:
        """Return what a run of the datasets checked so far would use."""
        inventory = self.survey.inventory
        # A run of a stranger's dataset uses the targets of the user's project, if there are any.
        place = settings_folder(self._folder)
        own = find_targets_file(place, project_root(place))
        is_own = own is None or self.targets_file is None or os.path.samefile(own, self.targets_file)
        file = self.targets_file if is_own else own
        targets = self.targets if is_own else named_entries(_parsed_targets(str(own)))
        inventory.add(target_inventory(self.used, targets, str(file)))
        return inventory

    def targets_of(self, case: EvalCase) -> tuple[str, ...]:
        """Return the targets of a case; the same object for cases that share their settings."""
        if self._last is None or self._last[0] is not case.execution:
            targets = case.execution.targets
            if not targets and (name := case.execution.target or self._default) is not None:
                targets = (name,)
            self._last = (case.execution, targets if self.facts.has_targets else ())
        return self._last[1]

    @cached_property
    def _default(self) -> str | None:
        if not self.facts.has_targets:
            return None
        try:
            return default_target(self.facts.known, load_defaults(self._folder, self._root, lambda _: None))
        except UsageError as error:
            message = f"{error.headline}: {error.detail}"
            self.findings.append(Finding("error", str(self.config_file), message, hint=error.hint))
        except DatasetError:
            pass  # reported when that file is checked
        return None


def _target_settings(path: str | None) -> dict[str, dict[str, Any]] | None:
    """Return the settings of each target by field name; empty for an invalid one, None without a targets file."""
    data = None if path is None else _parsed_targets(path)
    if data is None or check_shape(data).errors:
        return None
    entries = named_entries(data)
    return {name: _common_settings(entry, entries) for name, entry in entries.items()}


def _parsed_targets(path: str) -> Any:
    data = parsed_or_none(path)
    return None if data is None else as_targets_file(data, path)


def _common_settings(entry: Entry, entries: Mapping[str, Entry]) -> dict[str, Any]:
    problems = Problems()
    check_entry(entry, entries, problems)
    final_entry = None if problems.errors else follow(entry, entries, None, problems)
    settings = {} if problems.errors else entry[1] if final_entry is None else final_entry[1]
    return {field.name: value for key, value in settings.items() if (field := field_of(Target, key))}


def parsed_or_none(path: str) -> Any:
    """Return the content of a YAML file; None if it is invalid, which is reported when that file is checked."""
    try:
        return parse_yaml_file(path)
    except DatasetError:
        return None
