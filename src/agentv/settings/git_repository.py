"""The Git repository to search: its commits, the order in which to test them, and temporary worktrees."""

import os
import re
import shutil
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

import msgspec

from agentv.errors import UsageError

_FORMAT = "%H%x00%an <%ae>%x00%aI%x00%s%x00%P"
_DISTANCE = re.compile(r"dist=(\d+)")
_OF_ANOTHER_REPOSITORY = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR")
"""Variables that Git sets for hooks; they would redirect commands to another repository."""


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """A commit as shown in the report."""

    sha: str
    author: str
    date: str
    subject: str
    is_merge: bool = False

    @property
    def short(self) -> str:
        """The abbreviated hash."""
        return self.sha[:10]

    def __str__(self) -> str:
        return f"{self.short} '{self.subject}'"


def plain_environment() -> dict[str, str]:
    """Return the variables of this process without those that point Git to another repository."""
    return {name: value for name, value in os.environ.items() if name not in _OF_ANOTHER_REPOSITORY}


class GitRepository:
    """A Git repository. Nothing here changes its checkout, index or branches."""

    def __init__(self, folder: str) -> None:
        if shutil.which("git") is None:
            raise UsageError("This needs Git, but there is no `git` on the PATH")
        self.root = os.path.realpath(folder)
        result = self._run("rev-parse", "--show-toplevel")
        if result.returncode:
            raise UsageError(f"Not in a Git repository: {self.root}", result.stderr.strip())
        self.root = os.path.realpath(result.stdout.rstrip("\n"))

    def commit(self, name: str) -> Commit:
        """Return the commit with this hash, tag or branch. Raises UsageError if there is none."""
        result = self._run("log", "-1", f"--format={_FORMAT}", "--no-show-signature", f"{name}^{{commit}}", "--")
        if result.returncode:
            raise UsageError(f"No such commit: {name}", hint="Pass a hash, tag or branch, such as v1.2 or HEAD~20")
        sha, author, date, subject, parents = result.stdout.rstrip("\n").split("\0")
        return Commit(sha=sha, author=author, date=date, subject=subject, is_merge=" " in parents)

    def check_order(self, good: Commit, bad: Commit) -> None:
        """Raise UsageError unless `good` comes before `bad`."""
        if good.sha == bad.sha:
            raise UsageError(f"GOOD and BAD are the same commit: {good.short}")
        if self._is_ancestor(good.sha, bad.sha):
            return
        if self._is_ancestor(bad.sha, good.sha):
            message = f"BAD {bad.short} comes before GOOD {good.short}"
            raise UsageError(message, hint="Name the older commit first: the change is searched between them")
        base = self._run("merge-base", good.sha, bad.sha).stdout.strip()
        hint = f"Use the commit where they diverged as GOOD: {base[:10]}" if base else ""
        raise UsageError(f"{bad.short} does not contain {good.short}: they are on different branches", hint=hint)

    def between(self, good: list[str], bad: str, flags: tuple[str, ...], paths: tuple[str, ...]) -> list[str]:
        """Return the commits after `good` and before `bad`: first those that halve the rest best, the oldest first."""
        arguments = [*flags, bad, "--not", *good, "--", *paths]
        age = {sha: -place for place, sha in enumerate(self._checked("rev-list", "--topo-order", *arguments).split())}
        candidates = []
        for line in self._checked("rev-list", "--bisect-all", *arguments).splitlines():
            sha, _, notes = line.partition(" ")
            candidates.append((-int(_DISTANCE.findall(notes)[-1]), age[sha], sha))
        return [sha for _, _, sha in sorted(candidates) if sha != bad]

    def below(self, path: str) -> str | None:
        """Return the path of a file or folder below the root, where worktrees have it too; None if it is outside."""
        folder, name = os.path.split(os.path.abspath(path))
        below = os.path.relpath(os.path.join(os.path.realpath(folder), name), self.root)
        return None if below.startswith(os.pardir) else below

    def changes_of(self, path: str, most: int) -> list[str]:
        """Return the newest commits that changed a file or folder below the root, newest first."""
        return self._run("log", f"-{most}", "--format=%H", "--no-show-signature", "--", path).stdout.split()

    def export(self, sha: str, path: str, folder: Path) -> bool:
        """Write a folder as it is in a commit to another folder; return whether the commit has it."""
        command = ["git", "-C", self.root, "archive", "--format=tar", f"{sha}:{'' if path == os.curdir else path}"]
        result = subprocess.run(command, capture_output=True, env=plain_environment(), check=False)  # noqa: S603
        if result.returncode:
            return False
        with tarfile.open(fileobj=BytesIO(result.stdout)) as archive:
            archive.extractall(folder, filter="data")
        return True

    def is_tracked(self, path: str) -> bool:
        """Whether Git tracks a file of the checkout."""
        return self._run("ls-files", "--error-unmatch", "--", path).returncode == 0

    def add_worktree(self, path: Path, sha: str) -> None:
        """Check out a commit in a new folder, without running hooks."""
        self.remove_worktree(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._checked("-c", f"core.hooksPath={os.devnull}", "worktree", "add", "-q", "--detach", str(path), sha)

    def remove_worktree(self, path: Path) -> None:
        """Remove a worktree, and Git's entry for it."""
        if path.exists():
            self._run("worktree", "remove", "--force", "--force", str(path))
            shutil.rmtree(path, ignore_errors=True)
        self._run("worktree", "prune")

    def _is_ancestor(self, first: str, second: str) -> bool:
        return self._run("merge-base", "--is-ancestor", first, second).returncode == 0

    def _checked(self, *arguments: str) -> str:
        result = self._run(*arguments)
        if result.returncode:
            raise UsageError(f"`git {arguments[0]}` failed", result.stderr.strip())
        return result.stdout

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["git", "-C", self.root, *arguments]
        return subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, errors="replace", env=plain_environment(), check=False
        )
