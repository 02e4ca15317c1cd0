"""Recognize the format of a file or folder: ours by its content, another tool's by the records in it."""

import os
from collections.abc import Iterable
from functools import partial

from agentv.datasets.case.keys import OUTCOME_KEYS
from agentv.datasets.formats import dataset_format as formats
from agentv.datasets.formats.foreign_files import hint_for
from agentv.errors import DatasetNotFoundError
from agentv.lazy_regex import lazy_regex
from agentv.registry import FOREIGN_FOLDERS, FOREIGN_FORMATS
from agentv.settings.format_choice import Candidate, strongest
from agentv.support.lines import LFS_POINTER, LFS_PROBLEM

_OUR_LIST = lazy_regex(rb"""(?m)^["']?(?:evalcases|eval_cases)["']?\s*:""")
_TESTS = lazy_regex(rb"""(?m)^["']?tests["']?\s*:""")
_OTHER_LISTS = lazy_regex(
    rb"""(?m)^["']?(?:prompts|providers|targets|scenarios|redteam|defaultTest|tasks|default_test|environment"""
    rb"""|evaluate_options|experiment|imports)["']?\s*:|^(?:target|tags)[ \t]*:[ \t]*(?:\{|\r?\n +\w+:)|^ *- include:"""
)
_FIELDS = lazy_regex(rb"(?m)^fields\s*:")
MAPPED = "records"
"""The format of records with a field map."""

_IN_FOLDERS = (".json", ".yaml", ".yml", ".jsonl", ".toml", ".eval.ts", ".eval.mts")
"""Endings of other tools' files that are opened if a folder is searched."""


def detect(path: str, *, by_extension: bool = False) -> str | None:
    """Return the format that fits a file or folder best; those that its extension suggests come before the others.

    If no format recognizes the content, the extension decides, so that the reader can report the problem.
    With `by_extension`, for files found in a folder, the formats of other tools must be sure about the file.
    """
    if os.path.isdir(path):
        own = _strongest(path, b"", (name for name, fmt in formats.usable() if fmt.is_folder))
        return own or _strongest(path, b"", FOREIGN_FOLDERS.all_names())
    likely = formats.suggested(path)
    if by_extension and not likely and not path.lower().endswith(_IN_FOLDERS):
        return None
    if _has_field_map(path):
        return MAPPED
    head = formats.read_head(path)
    if not _is_ours(head, path) and (foreign := foreign_format(path, in_folders=by_extension)):
        return foreign
    if by_extension and len(likely) < 2:
        return likely[0] if likely else None
    if (fitting := _strongest(path, head, likely)) is not None:
        return fitting
    others = (
        [] if by_extension else [name for name, fmt in formats.usable() if name not in likely and not fmt.is_folder]
    )
    return _strongest(path, head, others) or (likely[0] if likely else None)


def _has_field_map(path: str) -> bool:
    """Whether the sidecar of a file maps its fields."""
    if formats.suffix_of(path).lower() in formats.SIDECAR_SUFFIXES:
        return False
    sidecar = formats.sidecar_of(formats.base_of(path))
    return sidecar is not None and bool(_FIELDS.search(formats.read_head(sidecar)))


def foreign_format(path: str, *, in_folders: bool = False) -> str | None:
    """Return the format of another tool that fits a file best: a known one, a plug-in, or any records."""
    names = (name for name in FOREIGN_FORMATS.all_names() if not in_folders or formats.load_format(name).in_folders)
    return _strongest(path, b"", names)


def _strongest(path: str, head: bytes, names: Iterable[str]) -> str | None:
    candidates = ((name, formats.load_format(name)) for name in names)
    return strongest(path, (Candidate(name, fmt.strength, partial(fmt.fit, head, path)) for name, fmt in candidates))


def _is_ours(head: bytes, path: str) -> bool:
    """Whether the start of a file shows that it is a dataset of ours, so that no other format is tried."""
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    is_front_matter = start.startswith(b"---") and not path.lower().endswith((".yaml", ".yml"))
    if not start or is_front_matter:
        return True
    if start.startswith(b"{"):
        if "evalcases" in formats.object_keys(start):  # `eval_cases` may be those of ADK
            return True
        keys = formats.object_keys(start.split(b"\n", 1)[0])
        has_id = "id" in keys and ("input" in keys or "input_messages" in keys)
        return has_id and not keys.isdisjoint((*OUTCOME_KEYS, "evaluators", "assertions", "assert"))
    return bool(_OUR_LIST.search(start)) or (bool(_TESTS.search(start)) and not _OTHER_LISTS.search(start))


def unsupported(path: str) -> DatasetNotFoundError:
    """Return the error for a file in an unknown format."""
    suffix = formats.suffix_of(path)
    if not (head := formats.read_head(path)).strip():
        return DatasetNotFoundError(
            f"No cases in {path}", "The file is empty", "A dataset needs at least one case", path=path
        )
    if head.startswith(LFS_POINTER):
        return DatasetNotFoundError(f"No cases in {path}", *LFS_PROBLEM, path=path)
    keys = formats.object_keys(head.removeprefix(b"\xef\xbb\xbf").lstrip().removeprefix(b"["))
    hint = hint_for(path, head, keys) or "Neither the content nor the extension of this file is that of a dataset"
    detail = f"The extension {suffix or '(none)'} is not one of {', '.join(formats.known_suffixes())}"
    if keys:
        detail += f"\nNo known format has its fields: {', '.join(sorted(keys)[:12])}"
    return DatasetNotFoundError(f"Unsupported file format: {path}", detail, hint, path=path)
