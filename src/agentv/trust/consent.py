"""Let files outside the project run programs only if the user trusts them: remembered, asked, or by an option."""

import os
import shlex
import stat
from contextlib import suppress

from agentv.errors import AgentvError, UsageError
from agentv.settings.project import granted_paths, is_inside, is_too_wide, project_root
from agentv.support.hashes import short
from agentv.trust import memory
from agentv.trust.inventory import Inventory, on_one_line
from agentv.trust.policy import load_policy, policy_path, why_denied
from agentv.trust.roots import (
    advice,
    distrust,
    grant,
    in_project,
    is_trusted,
    own_root,
    question,
    trusts_runs,
)


class UntrustedError(UsageError):
    """A file outside the project would run a program, import code or read a variable, and is not trusted."""


def require_trust(file: str, inventory: Inventory) -> None:
    """Trust the folder of a file outside the project, or raise UntrustedError with what it would use.

    A folder that was named with `--trust` is remembered, as if the question had been answered.
    """
    real = os.path.realpath(file)
    folder = next((path for path in granted_paths() if is_inside(real, path)), None)
    if not inventory or (folder is None and in_project(real)):
        return
    if folder is None and _is_accepted(real, inventory):
        return
    if folder is None:
        folder = folder_to_trust(file)
        files = memory.snapshot(folder, inventory)
        ask = question()
        if ask is None or not ask(_question(file, folder, inventory)):
            raise _refusal(file, folder, inventory)
        _check_unchanged(folder, files, inventory)
        grant(folder)
    else:
        files = memory.snapshot(folder, inventory)
    _remember(folder, files)


def _check_unchanged(folder: str, files: dict[str, str] | None, inventory: Inventory) -> None:
    """Raise UntrustedError if a file changed while the user was asked."""
    if memory.snapshot(folder, inventory) != files:
        headline = f"{short(folder)} changed while you were asked"
        raise UntrustedError(headline, "Nothing was run, imported or read.", "Look at its files and try again")


def _remember(folder: str, files: dict[str, str] | None) -> None:
    if files is not None:
        with suppress(AgentvError):  # it is trusted for this command, and asked about again next time
            memory.remember(folder, files)


def require_trust_in_values(file: str, previous: Inventory, current: Inventory) -> None:
    """Ask again if a trusted file, with the values of its variables, would use more than was shown before.

    Raises UntrustedError if the user does not agree. A policy that allows programs agrees with everything.
    """
    more = current.beyond(previous)
    if not more or load_policy().programs == "allow" or memory.is_remembered(file, current) is not None:
        return
    ask, folder = question(), folder_to_trust(file)
    files = memory.snapshot(folder, current)
    lines = [f"With the values of its variables it would also use {more.totals}:", *(f"  {x}" for x in more.lines())]
    headline = f"{short(file)} would use more than it shows without its variables"
    if ask is None or not ask("\n".join((f"{headline}.", *lines))):
        hint = f"Run the command on a terminal to be asked, or set `programs: allow` in {policy_path()}"
        raise UntrustedError(headline, "\n".join((*lines, "Nothing was run or imported.")), hint)
    _check_unchanged(folder, files, current)
    _remember(folder, files)


def check_trust(inventory: Inventory) -> None:
    """Raise UntrustedError if a file that is not trusted would use anything."""
    for file in dict.fromkeys(use.file for use in inventory):
        if not is_trusted(file):
            uses = Inventory(use for use in inventory if use.file == file)
            raise _refusal(file, folder_to_trust(file), uses)


def trust_notes(inventory: Inventory) -> list[str]:
    """Return a note for each folder that a run could use only if it is trusted."""
    files = (use.file for use in inventory if not is_trusted(use.file))
    folders = dict.fromkeys(map(folder_to_trust, files))
    return [f"{folder} is outside your project: a run needs --trust {shlex.quote(folder)}" for folder in folders]


def require_trust_in_run(run: str, inventory: Inventory) -> None:
    """Raise UntrustedError if a run folder names anything to run or to write to, unless the user trusts the run."""
    if not inventory or trusts_runs():
        return
    headline = f"The run {short(run)} would use {inventory.totals} that only its folder names"
    reason = "No dataset of your project names these, and a run folder may come from others:"
    detail = "\n".join((reason, *(f"  {line}" for line in inventory.lines())))
    raise UntrustedError(headline, detail, advice(""))


def check_policy(inventory: Inventory) -> None:
    """Raise UsageError if the policy denies programs, and something would run or import one."""
    if load_policy().programs == "deny" and inventory.running:
        who, how_to_allow = why_denied()
        lines = [f"{who} allows no programs and no code from files, but {inventory.totals} would be used:"]
        lines += (f"  {line}" for line in Inventory(inventory.running).lines())
        raise UsageError("Programs are not allowed", "\n".join(lines), how_to_allow)


def folder_to_trust(file: str) -> str:
    """Return the project of a file, or its folder if that would be too much; the file itself in the home folder."""
    folder = os.path.dirname(os.path.realpath(file))  # a link is trusted where it leads
    root = project_root(folder)
    for place in (root, folder):
        is_around = is_inside(os.path.realpath(os.getcwd()), place)
        is_foreign = place == own_root() and not in_project(place) and not os.stat(place).st_mode & stat.S_ISVTX
        if not is_too_wide(place) and (is_foreign or not is_around):
            return place
    return os.path.realpath(file)


def _is_accepted(real: str, inventory: Inventory) -> bool:
    """Whether a file is trusted without a question: by the user's policy, or because it has not changed since."""
    if load_policy().programs == "allow":
        grant(folder_to_trust(real))
        return True
    if (folder := memory.is_remembered(real, inventory)) is not None:
        grant(folder)
    return folder is not None


def _refusal(file: str, folder: str, inventory: Inventory) -> UntrustedError:
    changed = " It was trusted before, but has changed since." if memory.is_known(file) else ""
    lines = [f"It would use {inventory.totals}:", *(f"  {line}" for line in inventory.lines())]
    lines.append(f"Nothing was run, imported or read.{changed}")
    if gap := memory.coverage_gap(folder, inventory):
        lines.append(gap)
    headline = on_one_line(f"{short(file)} {_place(file)} and is not trusted")
    return UntrustedError(headline, "\n".join(lines), advice(folder))


def _place(file: str) -> str:
    """Describe where a file is: outside the project, or where another user could have written it."""
    real, root = os.path.realpath(file), own_root()
    if is_inside(real, root) and (reason := distrust(real)):
        return f"is not safely yours ({reason})"
    return f"is outside your project ({root})"


def _question(file: str, folder: str, inventory: Inventory) -> str:
    changed = " It has changed since you trusted it." if memory.is_known(file) else ""
    covered = f"Trust in {folder} is remembered until a file in it changes or is removed, except results and Git's own."
    lines = [
        on_one_line(f"{short(file)} {_place(file)}.{changed} It would use {inventory.totals}:"),
        *(f"  {line}" for line in inventory.lines()),
        memory.coverage_gap(folder, inventory) or covered,
    ]
    return "\n".join(lines)
