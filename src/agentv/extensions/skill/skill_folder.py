"""The folder of an Agent Skill: its name, its evals and trigger sets, copies of it, and its versions in Git."""

import json
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

import msgspec

from agentv.datasets.discovery import find_datasets
from agentv.errors import DatasetNotFoundError, UsageError
from agentv.settings.git_repository import GitRepository
from agentv.settings.project import is_inside, project_root
from agentv.support.hashes import folder_digest
from agentv.support.user_code import may_import
from agentv.targets.workspace_target import SKILL_FILE, install_skill, installed_files, is_skill, skill_name
from agentv.trust.consent import require_trust
from agentv.trust.inventory import Inventory, Use

_EVALS = ("evals.json", "eval.json")
_MOST_VERSIONS = 50
_TRIGGER_FORMAT = "skill-triggers"
_TRIGGERS = re.compile(r".*trigger[_-]?evals?.*\.(?:jsonl?|ya?ml)", re.IGNORECASE)


class SkillFolder(msgspec.Struct, frozen=True, kw_only=True):
    """A skill, the datasets with its evals, and those with its trigger sets."""

    path: str
    name: str
    evals: tuple[str, ...]
    triggers: tuple[str, ...]


def open_skill(path: str) -> SkillFolder:
    """Read the folder of a skill. Raises UsageError if it has no SKILL.md or no evals."""
    if os.path.basename(path) == SKILL_FILE:
        path = os.path.dirname(path) or "."
    if not is_skill(path):
        below = sorted(name for name in (os.listdir(path) if os.path.isdir(path) else ()) if _has_skill(path, name))
        detail = f"Skills in it: {', '.join(below)}" if below else ""
        hint = (
            f"Name one of them: agentv skill {os.path.join(path, below[0])}" if below else "Name a folder with SKILL.md"
        )
        raise UsageError(f"There is no {SKILL_FILE} in {path}", detail, hint)
    name = skill_name(path)
    if may_import():
        file = os.path.join(path, SKILL_FILE)
        require_trust(file, Inventory([Use("template", path, file, f"skill '{name}'")]))
    evals, triggers = _datasets(path)
    if not evals and not triggers:
        _refuse_unreadable(path)
        hint = (
            f'Write {os.path.join(path, "evals", "evals.json")}: {{"skill_name": "{name}", "evals": [{{"id": 1, …}}]}}'
        )
        raise UsageError(f"The skill '{name}' has no evals", f"Looked in {os.path.join(path, 'evals')}", hint)
    return SkillFolder(path=path, name=name, evals=tuple(evals), triggers=tuple(triggers))


def _has_skill(path: str, name: str) -> bool:
    return is_skill(os.path.join(path, name))


def _datasets(path: str) -> tuple[list[str], list[str]]:
    """Return the evals and the trigger sets of a skill: in its folder `evals`, or next to SKILL.md."""
    folders = [folder for name in ("evals", "eval") if os.path.isdir(folder := os.path.join(path, name))]
    loose = [os.path.join(path, name) for name in sorted(os.listdir(path)) if _is_loose(name)]
    if not folders and not loose:
        return [], []
    try:
        sources = find_datasets([*folders, *loose], lambda _: None, lambda _: None)
    except DatasetNotFoundError:
        return [], []
    triggers = [source.path for source in sources if source.kind == _TRIGGER_FORMAT]
    return [source.path for source in sources if source.path not in triggers], triggers


def _refuse_unreadable(path: str) -> None:
    """Raise UsageError for a file of evals that is not valid JSON or lists none."""
    for file in (os.path.join(path, folder, name) for folder in ("evals", "eval", "") for name in _EVALS):
        if os.path.isfile(file):
            text = Path(file).read_bytes().decode(errors="replace").removeprefix("\ufeff")
            try:
                json.loads(text)
            except (ValueError, RecursionError) as error:
                why = str(error) if text.strip() else "The file is empty"
                raise UsageError(f"Invalid JSON in {file}", why, "Correct the file") from error
            raise UsageError(f"{file} contains no evals", hint='Add cases: "evals": [{"id": 1, "prompt": "…"}]')


def _is_loose(name: str) -> bool:
    return name in _EVALS or _TRIGGERS.fullmatch(name) is not None


def copy_skill(path: str, to: Path) -> str:
    """Copy a skill without its evals, so that later changes do not affect a run; return the folder of the copy.

    Links are followed inside the project. Raises UsageError for one that leads out of it.
    """
    root = os.path.realpath(project_root(path))
    for parent, folders, files in os.walk(path):
        for name in (*folders, *files):
            link = os.path.join(parent, name)
            if os.path.islink(link) and not is_inside(os.path.realpath(link), root):
                raise UsageError(f"{link} is a link out of the project", hint="Copy the file into the skill")
    copied = to / skill_name(path)
    shutil.rmtree(to, ignore_errors=True)
    copied.mkdir(parents=True)
    for name in installed_files(path):
        source = os.path.join(path, name)
        if os.path.isdir(source):
            shutil.copytree(source, copied / name)
        else:
            shutil.copy(source, copied)
    return str(copied)


def copy_previous(path: str, ref: str | None, current: str, to: Path) -> tuple[str, str]:
    """Copy an earlier version of a skill from Git; return the folder and the commit.

    Without `ref` it is the newest version that differs from the current one. Raises UsageError if there is none.
    """
    repository = GitRepository(path)
    if (below := repository.below(path)) is None:
        raise UsageError(f"{path} is not in the Git repository {repository.root}")
    current_digest, digest = folder_digest(current), ""
    commits = [repository.commit(ref).sha] if ref else repository.changes_of(below, _MOST_VERSIONS)
    for sha in commits:
        with suppress(OSError):
            shutil.rmtree(to)
        raw = to / "raw"
        raw.mkdir(parents=True)
        if not repository.export(sha, below, raw) or not is_skill(str(raw)):
            continue
        install_skill(str(raw), str(to / "skill"))
        shutil.rmtree(raw)
        (folder,) = (to / "skill").iterdir()
        if (digest := folder_digest(str(folder))) != current_digest:
            return _renamed(folder, os.path.basename(current)), sha
    if ref:
        why = "is the same as now" if digest else f"has no {SKILL_FILE} there"
        raise UsageError(f"There is no earlier version to compare with: the skill in {ref} {why}")
    hint = "Leave out --previous, or name a commit: --previous main"
    raise UsageError("There is no earlier version to compare with: Git has no other version of this skill", hint=hint)


def _renamed(folder: Path, name: str) -> str:
    """Give a version the folder name of the current one, in case the skill was renamed."""
    return str(folder if folder.name == name else folder.rename(folder.with_name(name)))
