"""Where a case comes from: its file, its line, and the folders that its paths are relative to."""

import msgspec


class Origin(msgspec.Struct, frozen=True, gc=False):
    """Where the cases of one file come from; shared by all of them.

    `work_dir` is set if the file is not trusted: the user's own programs run there instead of next to the file.
    `refuses_cases` is set for files of another tool: an invalid case does not make the file invalid.
    """

    path: str = ""
    dataset: str = ""
    base_dir: str = ""
    root: str = ""
    guideline_patterns: tuple[str, ...] = ()
    work_dir: str = ""
    refuses_cases: bool = False

    @property
    def is_foreign(self) -> bool:
        """Whether the file is outside the project and not trusted."""
        return bool(self.work_dir)

    @property
    def program_dir(self) -> str:
        """The folder in which programs run and code is looked up; empty for cases that are in no folder."""
        return self.work_dir or self.base_dir


class Place(msgspec.Struct, frozen=True, gc=False):
    """A line of a file. Nearby cases share one and add their own offset, which saves memory."""

    origin: Origin
    line: int


NOWHERE = Place(Origin(), 0)
