"""The targets of a project: find the file, fill in variables, validate settings, and select targets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NoReturn

import msgspec

from agentv.errors import TargetsError, UsageError
from agentv.model.diagnostics import KeyPath, Problem, Problems, did_you_mean, field_name
from agentv.model.environment import SHORTEST_SECRET, Environment, address_secrets
from agentv.model.evaluator import DEFAULT_TARGET
from agentv.registry import TARGETS
from agentv.settings.environment import (
    MASK,
    Home,
    SecretTexts,
    interpolate,
    is_secret_field,
    mask_secrets,
    plain_value,
    references,
)
from agentv.settings.settings_reader import field_of, read_settings
from agentv.support.patterns import upward
from agentv.support.user_code import UninspectableError, import_reference
from agentv.targets.target import Target, explicit_settings
from agentv.targets.target_uses import AnyTarget, target_inventory
from agentv.targets.targets_file import (
    FILE_NAMES,
    Entry,
    Variant,
    check_entry,
    check_reference,
    check_shape,
    file_in,
    find_provider,
    follow,
    iter_texts,
    model_entries,
    named_entries,
    placed,
    repeated_names,
    unset_judge,
    variables_in_addresses,
    variant_entries,
    written_secrets,
)
from agentv.trust.env_file import read_here
from agentv.trust.inventory import Inventory
from agentv.trust.roots import in_project, is_trusted, own_root

PROJECT_FOLDER = ".agentv"
EXAMPLE = """\
targets:
  - name: default
    provider: openai
    model: gpt-5-mini
    api_key: ${{ OPENAI_API_KEY }}"""

_SHOWN_PROBLEMS = 10
LineOf = Callable[[KeyPath], int | None]


class Targets:
    """The targets of one file. Variables are looked up per target, so that those of unused targets may be unset.

    `home`, for `Target.open`, is the folder of the file or of `.agentv`. `warnings` are about the targets read so far.
    """

    def __init__(
        self,
        entries: Mapping[str, Entry],
        path: str | None,
        environment: Environment,
        line_of: LineOf,
        repeated: Mapping[str, Problem] | None = None,
    ) -> None:
        self._entries = entries
        self._repeated = repeated or {}
        self._line_of = line_of
        self._settings: dict[str, Target] = {}
        self.path = path
        self.names = tuple(entries)
        self.warnings: dict[str, None] = {}
        used = [reference for _, entry in entries.values() for reference in references(entry)]
        secret_names = {reference.variable for reference in used if is_secret_field(reference.path)}
        secret_names |= {name for _, entry in entries.values() for name in variables_in_addresses(entry)}
        self.environment = environment.with_secret_names(secret_names)
        folder = os.path.dirname(os.path.abspath(path)) if path is not None else os.getcwd()
        home = os.path.dirname(folder) if os.path.basename(folder) == PROJECT_FOLDER else folder
        self.home = Home(home, self.environment)

    def with_models(self, names: Iterable[str]) -> Targets:
        """Return these targets, and those for names such as `openai:gpt-5-mini` that are not in the file."""
        added = model_entries(names, self._entries)
        return self._extended({**self._entries, **added}) if added else self

    def with_entries(self, entries: Iterable[dict[str, Any]], path: str) -> Targets:
        """Return the targets with those of a dataset. A target of the file replaces one of the same name."""
        own = {str(entry["name"]): (len(self._entries) + index, entry) for index, entry in enumerate(entries)}
        return self._extended({**own, **self._entries}, path) if own else self

    def _extended(self, entries: Mapping[str, Entry], path: str | None = None) -> Targets:
        targets = Targets(entries, self.path or path, self.environment, self._line_of, self._repeated)
        targets.warnings = self.warnings
        return targets

    @cached_property
    def secrets(self) -> frozenset[str]:
        """The values that must not be written anywhere: secrets in the environment and keys in the file."""
        secrets = {text for _, entry in self._entries.values() for _, text in written_secrets(entry)}
        texts = (text for _, entry in self._entries.values() for _, text in iter_texts(entry) if "://" in text)
        secrets |= {secret for text in texts for secret in address_secrets(text) if "${{" not in secret}
        # The part after `Bearer ` is a secret too, because it may appear on its own.
        parts = {part for text in secrets for part in (text, text.rpartition(" ")[2]) if len(part) >= SHORTEST_SECRET}
        return self.environment.secrets | parts

    def pick(self, names: Iterable[str] = ()) -> tuple[str, ...]:
        """Return the named targets, else `default`, else the only target. Raises UsageError if that selects none."""
        if selection := tuple(dict.fromkeys(names)):
            for name in selection:
                self._written(name)
            return selection
        if self.path is None:
            raise no_targets_error()
        if DEFAULT_TARGET in self._entries:
            return (DEFAULT_TARGET,)
        if len(self.names) == 1:
            return self.names
        detail = f"Targets in {self.path}: {', '.join(self.names) or 'none'}"
        raise UsageError("No target is named, and there is no target named 'default'", detail, "Pass --target NAME")

    def with_variants(self, variants: Sequence[Variant]) -> Targets:
        """Return these targets and variants of them."""
        entries = {**self._entries, **variant_entries(variants, self._entries)}
        return Targets(entries, self.path, self.environment, self._line_of, self._repeated) if variants else self

    def get(self, name: str) -> Target:
        """Return a target's settings with all variables filled in."""
        if (settings := self._settings.get(name)) is None:
            settings = self._settings[name] = self._read(name)
        return settings

    def raw(self, name: str) -> dict[str, Any]:
        """Return a target's settings as written in the file, with those of the target it uses."""
        return (follow(self._written(name), self._entries, self._variables, Problems()) or self._written(name))[1]

    def uses(self, names: Iterable[str]) -> Inventory:
        """Return the commands, code, hosts and variables of some targets, as written in the file."""
        return target_inventory(names, self._entries, str(self.path))

    def unresolved(self, name: str) -> Target:
        """Return the settings of a target that is not called, with unset variables in place.

        Settings that cannot be strings are left out if their variable is unset, and nothing else is validated.
        """
        index, entry = self._followed(name)
        unset = {ref.variable for ref in references(entry) if not self.environment.variables.get(ref.variable)}
        variables = self.environment.variables | {variable: f"${{{{ {variable} }}}}" for variable in unset}
        filled = {
            key: value
            for key, value in entry.items()
            if key == "provider" or unset.isdisjoint(ref.variable for ref in references(value))
        }
        for candidate in (entry, filled):
            problems = Problems()
            if (settings := self._parse(name, candidate, variables, problems)) is not None:
                return settings
        raise self._error(placed(problems.errors, index))

    def portable(self, names: Iterable[str]) -> PortableTargets:
        """Return some targets for workers on other machines. Raises UsageError if the file contains their secrets."""
        entries = {name: self._followed(name) for name in names}
        for name, (_, entry) in entries.items():
            for path, _ in written_secrets(entry):
                refuse_to_send(name, path)
        file = None if self.path is None else os.path.abspath(self.path)
        return PortableTargets(entries, file, self.environment.elsewhere())

    def public(self, name: str, settings: Target | None = None) -> dict[str, Any]:
        """Return a target's settings, with secrets replaced by their variables if they have one."""
        fields = explicit_settings(settings or self.get(name))
        return {key: mask_secrets(value, (key,), self._replaceable) for key, value in fields.items()}

    @cached_property
    def _replaceable(self) -> SecretTexts:
        placeholders = {value: f"${{{{ {name} }}}}" for value, name in self.environment.secret_variables.items()}
        return SecretTexts({secret: placeholders.get(secret, MASK) for secret in self.secrets})

    @cached_property
    def _variables(self) -> dict[str, str]:
        return self.environment.variables

    def _written(self, name: str) -> Entry:
        if self.path is None and name not in self._entries:
            raise no_targets_error(name)
        if name not in self._entries:
            detail = f"Targets in {self.path}: {', '.join(self.names) or 'none'}"
            raise UsageError(f"Unknown target '{name}'", detail, did_you_mean(name, self.names))
        return self._entries[name]

    def _followed(self, name: str) -> Entry:
        """Return the entry that a target's settings come from, as written. Raises TargetsError if it is invalid."""
        entry = self._written(name)
        problems = Problems(filter(None, [self._repeated.get(name)]))
        check_entry(entry, self._entries, problems)
        final_entry = None if problems.errors else follow(entry, self._entries, self._variables, problems)
        if final_entry is not None and final_entry[0] != entry[0]:
            check_entry(final_entry, self._entries, problems)
        if final_entry is None or problems.errors:
            raise self._error(problems.errors)
        return final_entry

    def _read(self, name: str) -> Target:
        index, entry = self._followed(name)
        problems = Problems()
        if (settings := self._parse(name, entry, self._variables, problems)) is not None:
            for complaint in settings.complaints():
                problems.error((), f"Target '{name}': {complaint}")
            for other in settings.fallback_targets:
                check_reference(("fallback_targets",), other, self.names, problems)
        if settings is None or problems.errors:
            raise self._error(placed(problems.errors, index))
        return settings

    def _parse(self, name: str, entry: dict[str, Any], values: Mapping[str, str], problems: Problems) -> Target | None:
        """Return the settings in an entry with the values of variables, or None after noting an error."""
        label = f"Target '{name}'"
        provider = interpolate(entry["provider"], values, ("provider",), problems, label)
        provider = TARGETS.canonical(provider) or provider
        kind = None if problems.errors else self._kind(provider, problems)
        if kind is None:
            return None
        optional = self._without_optional(name, entry, kind, values)
        judge = unset_judge(optional, kind, values)
        data = interpolate({**optional, **dict.fromkeys(judge)}, values, (), problems, label) | judge
        data["name"], data["provider"] = name, provider
        if kind is AnyTarget:
            return AnyTarget(name=name, provider=provider)
        return None if problems.errors else _settings(kind, data, entry, problems)

    def _without_optional(
        self, name: str, entry: dict[str, Any], kind: type[Target], values: Mapping[str, str]
    ) -> dict[str, Any]:
        """Return an entry without optional settings that are just an unset variable; each is noted as a warning."""
        result = dict(entry)
        for reference in references(entry):
            field = field_of(kind, str(reference.path[0]))
            is_optional = field is not None and field.name in kind.optional_variables
            if is_optional and reference.whole and len(reference.path) == 1 and not values.get(reference.variable):
                del result[str(reference.path[0])]
                where = f"{self.path}: Target '{name}': '{reference.path[0]}' is ignored"
                self.warnings[f"{where}, because ${{{{ {reference.variable} }}}} is not set"] = None
        return result

    def _kind(self, provider: str, problems: Problems) -> type[Target] | None:
        kind: Any = find_provider(provider, (), problems)
        if kind is None and ".py:" in provider:
            if self.environment.sandbox.of() is not None:
                detail = "A provider runs in the process of agentv"
                raise UsageError(
                    f"The provider {provider} cannot be isolated", detail, "Use a `cli` target, or no sandbox"
                )
            try:
                kind = import_reference(provider, self.home)
            except UninspectableError:
                kind = AnyTarget
        if kind is None or (isinstance(kind, type) and issubclass(kind, Target)):
            return kind
        problems.error(("provider",), f"'{provider}' is not a subclass of agentv.targets.target.Target")
        return None

    def _error(self, errors: list[Problem]) -> TargetsError:
        return _error(errors, str(self.path), self._line_of)


class PortableTargets(msgspec.Struct, frozen=True):
    """Targets as plain data without secrets; variables are filled in where the targets are loaded."""

    entries: dict[str, Entry]
    path: str | None
    environment: Environment

    def load(self) -> Targets:
        """Return the targets with this machine's environment."""
        return Targets(self.entries, self.path, read_here(self.environment), lambda _: None)


def refuse_to_send(name: str, path: KeyPath) -> NoReturn:
    """Raise UsageError for a target whose settings contain a secret."""
    field = field_name(path)
    detail = f"'{field}' of target '{name}' contains a secret, and secrets are not sent to other machines"
    hint = f"Write {field}: ${{{{ VARIABLE }}}}, and set the variable in the environment of the workers"
    raise UsageError(f"Target '{name}' cannot be used by workers on other machines", detail, hint)


def find_targets_file(folder: str, root: str, *, to_check: bool = False) -> str | None:
    """Return the nearest targets file from a folder up to the root, then in the working directory.

    Folders that are not trusted are searched only for a file to check, which is not used.
    """
    folders = (parent for parent in upward(folder, root) if to_check or is_trusted(parent))
    return next(filter(None, map(file_in, (*folders, os.getcwd()))), None)


def settings_folder(folder: str) -> str:
    """Return the folder whose targets, defaults and `.env` apply to the datasets in a folder.

    For a folder outside the project it is the working directory: another project's targets never take precedence. They
    are used only if that folder is trusted, and the project has no targets file.
    """
    if in_project(os.path.realpath(folder)):
        return folder
    own = find_targets_file(".", own_root())
    return folder if own is None and is_trusted(folder) else "."


def named_targets_file(path: str) -> str:
    """Return the targets file at a `--targets` path, which is a file or a folder."""
    file = file_in(path) if os.path.isdir(path) else path if os.path.isfile(path) else None
    if file is None:
        looked = f"The folder has none of {', '.join(FILE_NAMES)}" if os.path.isdir(path) else "The file does not exist"
        raise UsageError(f"No targets file at {path}", looked)
    return file


def load_targets(data: Any, path: str, environment: Environment, line_of: LineOf = lambda _: None) -> Targets:
    """Return the targets in a parsed file, each of which is checked when it is used.

    Raises TargetsError if the file has no list of named targets.
    """
    problems = check_shape(data)
    if problems.errors:
        raise _error(problems.errors, path, line_of)
    targets = Targets(named_entries(data), path, environment, line_of, repeated_names(data))
    targets.warnings = dict.fromkeys(f"{path}: {problem.message}" for problem in problems)
    return targets


def without_targets(environment: Environment) -> Targets:
    """Return the targets of a project without a targets file. Requesting one raises an error with instructions."""
    return Targets({}, None, environment, lambda _: None)


def no_targets_error(name: str | None = None) -> UsageError:
    """Return the error for a project without a targets file."""
    headline = "There is no targets file" + (f", so target '{name}' is not defined" if name else "")
    detail = f"Looked for {FILE_NAMES[0]} and {FILE_NAMES[2]} from the dataset's folder up, and in {os.getcwd()}"
    return UsageError(headline, detail, f"Run `agentv init`, or create {FILE_NAMES[0]}:\n\n{EXAMPLE}")


def _settings(kind: type[Target], data: dict[str, Any], entry: dict[str, Any], problems: Problems) -> Target | None:
    """Read settings after interpolation. A variable's value becomes a number or boolean if the field requires it."""
    first = Problems()
    settings = read_settings(kind, data, (), first, strict=True)
    whole = {reference.path for reference in references(entry) if reference.whole}
    mistyped = [problem.path for problem in first.errors if problem.path in whole]
    for *steps, last in mistyped:
        holder: Any = data
        for step in steps:
            holder = holder[step]
        holder[last] = plain_value(holder[last])
    if mistyped:
        first = Problems()
        settings = read_settings(kind, data, (), first, strict=True)
    problems += first
    return settings


def _error(errors: list[Problem], path: str, line_of: LineOf) -> TargetsError:
    first = errors[0]
    line = line_of(first.path)
    if len(errors) == 1:
        at = f" at line {line} in {path}" if line else f" in {path}"
        return TargetsError(f"Invalid target{at}", first.message, first.hint, path=path, line=line, field=first.field)
    lines = []
    for problem in errors[:_SHOWN_PROBLEMS]:
        number = line_of(problem.path)
        hint = f" ({problem.hint})" if problem.hint else ""
        lines.append((f"Line {number}: " if number else "") + problem.message + hint)
    if len(errors) > _SHOWN_PROBLEMS:
        lines.append(f"… and {len(errors) - _SHOWN_PROBLEMS} more; `agentv validate {path}` lists them all")
    return TargetsError(f"Invalid targets file: {path}", "\n".join(lines), path=path, line=line, field=first.field)
