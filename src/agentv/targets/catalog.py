"""The targets of a project: found, read, filled in from the environment, chosen. Parses no file and calls nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn

import msgspec

from agentv.errors import TargetsError, UsageError
from agentv.model.evaluator import DEFAULT_TARGET
from agentv.registry import TARGETS
from agentv.settings.diagnostics import KeyPath, Problem, Problems, did_you_mean, field_name
from agentv.settings.environment import (
    SHORTEST_SECRET,
    Environment,
    Home,
    interpolate,
    is_secret_field,
    plain_value,
    references,
)
from agentv.settings.settings_reader import read_settings
from agentv.support.patterns import upward
from agentv.support.user_code import import_reference
from agentv.targets.target import MASK, Target, explicit_settings, mask_secrets
from agentv.targets.targets_file import check_targets, iter_texts, target_names

PROJECT_FOLDER = ".agentv"
FILE_NAMES = (f"{PROJECT_FOLDER}/targets.yaml", f"{PROJECT_FOLDER}/targets.yml", "targets.yaml", "targets.yml")
EXAMPLE = """\
targets:
  - name: default
    provider: openai
    model: gpt-5-mini
    api_key: ${{ OPENAI_API_KEY }}"""

_SHOWN_PROBLEMS = 10

LineOf = Callable[[KeyPath], int | None]


class Targets:
    """The targets of one file. A target's variables are looked up when it is asked for, so that others may stay unset.

    `home` is what `Target.open` takes: the folder of the file, and of `.agentv` for a file in there.
    """

    def __init__(
        self,
        entries: Mapping[str, tuple[int, dict[str, Any]]],
        path: str | None,
        environment: Environment,
        line_of: LineOf,
    ) -> None:
        self._entries = entries
        self._line_of = line_of
        self._settings: dict[str, Target] = {}
        self.path = path
        self.names = tuple(entries)
        self.warnings: tuple[str, ...] = ()
        self.environment = environment.with_secret_names(
            {
                reference.variable
                for _, entry in entries.values()
                for reference in references(entry)
                if is_secret_field(reference.path)
            }
        )
        folder = os.path.dirname(os.path.abspath(path)) if path is not None else os.getcwd()
        home = os.path.dirname(folder) if os.path.basename(folder) == PROJECT_FOLDER else folder
        self.home = Home(home, self.environment)

    @property
    def secrets(self) -> frozenset[str]:
        """The values that must not be written anywhere: those of the environment, and keys written into the file."""
        written = {text for _, entry in self._entries.values() for _, text in _written_secrets(entry)}
        # Behind `Bearer ` stands the secret itself, which may turn up without the word.
        parts = {part for text in written for part in (text, text.rpartition(" ")[2]) if len(part) >= SHORTEST_SECRET}
        return self.environment.secrets | parts

    def pick(self, named: Iterable[str] = ()) -> tuple[str, ...]:
        """The targets that answer: those named, else `default`, else the only one. Raises when that decides nothing."""
        chosen = tuple(dict.fromkeys(named))
        if chosen:
            for name in chosen:
                self._entry(name)
            return chosen
        if self.path is None:
            raise no_targets_error()
        if DEFAULT_TARGET in self._entries:
            return (DEFAULT_TARGET,)
        if len(self.names) == 1:
            return self.names
        listed = f"Targets in {self.path}: {', '.join(self.names) or 'none'}"
        raise UsageError("No target was named, and none is called 'default'", listed, "Name one with --target")

    def get(self, name: str) -> Target:
        """The settings of a target, its variables filled in."""
        settings = self._settings.get(name)
        if settings is None:
            settings = self._settings[name] = self._read(name)
        return settings

    def raw(self, name: str) -> dict[str, Any]:
        """A target as the file has it."""
        return self._entry(name)[1]

    def unresolved(self, name: str) -> Target:
        """The settings of a target that is not called: a variable that is unset stays as it is written.

        A setting that cannot be a text goes without its variable, and nothing is asked of those that a call needs.
        """
        index, entry = self._entry(name)
        unset = {each.variable for each in references(entry) if not self.environment.variables.get(each.variable)}
        written = {variable: f"${{{{ {variable} }}}}" for variable in unset}
        variables = {**self.environment.variables, **written}
        place: KeyPath = ("targets", index)
        filled = {key: value for key, value in entry.items() if unset.isdisjoint(r.variable for r in references(value))}
        for kept in (entry, filled):
            problems = Problems()
            data = interpolate(kept, variables, (), problems, f"Target '{name}'")
            data["name"], data["provider"] = name, TARGETS.canonical(data["provider"]) or data["provider"]
            settings = _settings(self._kind(data["provider"], place), data, entry, problems)
            if settings is not None:
                return settings
        raise self._error(problems.errors, place)

    def portable(self, names: Iterable[str]) -> PortableTargets:
        """Return some targets for workers on other machines. Raises UsageError for one with a secret in the file."""
        kept = {name: self._entry(name) for name in names}
        for name, (_, entry) in kept.items():
            for path, _ in _written_secrets(entry):
                refuse_to_send(name, path)
        file = None if self.path is None else os.path.abspath(self.path)
        return PortableTargets(kept, file, self.environment.elsewhere())

    def public(self, name: str, settings: Target | None = None) -> dict[str, Any]:
        """The settings that were given, without secrets: each by the variable it comes from, where there is one."""
        given = explicit_settings(settings or self.get(name))
        return {key: mask_secrets(value, (key,), self._replaceable) for key, value in given.items()}

    @property
    def _replaceable(self) -> dict[str, str]:
        known = {value: f"${{{{ {name} }}}}" for value, name in self.environment.secret_variables.items()}
        return {secret: known.get(secret, MASK) for secret in self.secrets}

    def _entry(self, name: str) -> tuple[int, dict[str, Any]]:
        if self.path is None:
            raise no_targets_error(name)
        if name not in self._entries:
            listed = f"Targets in {self.path}: {', '.join(self.names) or 'none'}"
            raise UsageError(f"Unknown target '{name}'", listed, did_you_mean(name, self.names))
        return self._entries[name]

    def _read(self, name: str) -> Target:
        index, entry = self._entry(name)
        place: KeyPath = ("targets", index)
        problems = Problems()
        data = interpolate(entry, self.environment.variables, (), problems, f"Target '{name}'")
        self._raise(problems, place)
        data["name"], data["provider"] = name, TARGETS.canonical(data["provider"]) or data["provider"]
        kind = self._kind(data["provider"], place)
        settings = _settings(kind, data, entry, problems)
        for complaint in settings.complaints() if settings is not None else ():
            problems.error((), f"Target '{name}': {complaint}")
        judge = settings.judge_target if settings is not None else None
        if judge is not None and judge not in self._entries:
            message = f"Target '{name}': 'judge_target' names '{judge}', which is no target of this file"
            problems.error(("judge_target",), message, did_you_mean(judge, self.names))
        self._raise(problems, place)
        assert settings is not None
        return settings

    def _kind(self, provider: str, place: KeyPath) -> type[Target]:
        canonical = TARGETS.canonical(provider)
        if canonical is None:
            problem = Problem(("provider",), f"Unknown provider '{provider}'", TARGETS.suggestion(provider))
            raise self._error([problem], place)
        if ".py:" not in provider:
            kind: type[Target] = TARGETS.find(canonical)
            return kind
        own = import_reference(provider, self.home)
        if isinstance(own, type) and issubclass(own, Target):
            return own
        message = f"'{provider}' is no class derived from agentv.targets.target.Target"
        raise self._error([Problem(("provider",), message)], place)

    def _raise(self, problems: Problems, place: KeyPath) -> None:
        if problems.errors:
            raise self._error(problems.errors, place)

    def _error(self, errors: list[Problem], place: KeyPath) -> TargetsError:
        placed = [msgspec.structs.replace(problem, path=(*place, *problem.path)) for problem in errors]
        return _error(placed, str(self.path), self._line_of)


class PortableTargets(msgspec.Struct, frozen=True):
    """Targets as plain data without secrets: variables are filled in where they are loaded."""

    entries: dict[str, tuple[int, dict[str, Any]]]
    path: str | None
    environment: Environment

    def load(self) -> Targets:
        """Return the targets, with the environment of this machine."""
        return Targets(self.entries, self.path, self.environment.read_here(), lambda _: None)


def refuse_to_send(name: str, path: KeyPath) -> NoReturn:
    """Raise UsageError for a target whose settings have a secret in them."""
    field = field_name(path)
    detail = f"'{field}' of target '{name}' is written out, and secrets are not sent to other machines"
    hint = f"Write {field}: ${{{{ VARIABLE }}}}, and set the variable in the environment of the workers"
    raise UsageError(f"Target '{name}' cannot be used by workers on other machines", detail, hint)


def find_targets_file(folder: str, root: str) -> str | None:
    """The nearest targets file from a folder up to the root, then in the working directory."""
    for parent in (*upward(folder, root), os.getcwd()):
        found = _in_folder(parent)
        if found is not None:
            return found
    return None


def named_targets_file(path: str) -> str:
    """The file that `--targets` names: itself, or the one in a folder."""
    found = _in_folder(path) if os.path.isdir(path) else path if os.path.isfile(path) else None
    if found is None:
        looked = f"The folder has none of {', '.join(FILE_NAMES)}" if os.path.isdir(path) else "There is no such file"
        raise UsageError(f"No targets file at {path}", looked)
    return found


def load_targets(data: Any, path: str, environment: Environment, line_of: LineOf = lambda _: None) -> Targets:
    """The targets in a parsed file. Raises TargetsError for a file that is wrong in itself, whatever is set."""
    problems = check_targets(data)
    if problems.errors:
        raise _error(problems.errors, path, line_of)
    entries = {name: (index, data["targets"][index]) for index, name in enumerate(target_names(data))}
    targets = Targets(entries, path, environment, line_of)
    targets.warnings = tuple(f"{path}: {problem.message}" for problem in problems)
    return targets


def without_targets(environment: Environment) -> Targets:
    """The targets of a project that has no file of them: none, and asking for one says how to write it."""
    return Targets({}, None, environment, lambda _: None)


def no_targets_error(name: str | None = None) -> UsageError:
    """What to say where there is no targets file."""
    headline = "There is no targets file" + (f" that could have the target '{name}'" if name else "")
    detail = f"Looked for {FILE_NAMES[0]} and {FILE_NAMES[2]} from the dataset's folder up, and in {os.getcwd()}"
    return UsageError(headline, detail, f"Write {FILE_NAMES[0]}, or let `agentv init` write one:\n\n{EXAMPLE}")


def _in_folder(folder: str) -> str | None:
    path = next((path for name in FILE_NAMES if os.path.isfile(path := os.path.join(folder, name))), None)
    if path is None:
        return None
    short = os.path.relpath(path)
    return path if short.startswith(os.pardir) else short


def _settings(kind: type[Target], data: dict[str, Any], entry: dict[str, Any], problems: Problems) -> Target | None:
    """Settings whose variables are filled in: a text where a text is wanted, else the number or boolean that it is."""
    first = Problems()
    settings = read_settings(kind, data, (), first, strict=True)
    whole = {reference.path for reference in references(entry) if reference.whole}
    late = [problem.path for problem in first.errors if problem.path in whole]
    for *steps, last in late:
        holder: Any = data
        for step in steps:
            holder = holder[step]
        holder[last] = plain_value(holder[last])
    if late:
        first = Problems()
        settings = read_settings(kind, data, (), first, strict=True)
    problems += first
    return settings


def _written_secrets(entry: dict[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    """The keys that an entry has in it instead of a variable, with their paths."""
    return ((path, text) for path, text in iter_texts(entry) if is_secret_field(path) and not any(references(text)))


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
