"""The branch of a session that its last record is on: going back to an earlier request starts a new one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def branch_of(records: Iterable[dict[str, Any]], id_key: str, parent_key: str) -> list[dict[str, Any]]:
    """Return the records from the first to the last one, of those with an id; all records if none has a parent.

    A record whose parent cannot be read continues the record before it.
    """
    records = list(records)
    nodes = [record for record in records if isinstance(record.get(id_key), str) and parent_key in record]
    if not nodes:
        return records
    places = {node[id_key]: place for place, node in enumerate(nodes)}
    branch: dict[int, dict[str, Any]] = {}
    place = len(nodes) - 1
    while place >= 0 and place not in branch:  # a damaged file may have a cycle
        branch[place] = nodes[place]
        parent = nodes[place][parent_key]
        place = places.get(parent, place - 1) if isinstance(parent, str) else -1
    return list(reversed(branch.values()))
