"""Read predictions of SWE-bench, which have no scores, and the reports of its harness."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentv.extensions.interop.imports.foreign_files import problem, read_document, read_rows, row_keys
from agentv.extensions.interop.imports.foreign_values import Fields, dict_of, error_info, list_of, text_of
from agentv.extensions.interop.imports.run import ForeignCase, ForeignGrade, ForeignJob, ForeignResults, ForeignRun
from agentv.support.json_keys import top_level

_TOOL = "swe-bench"
_MOST_BYTES = 256 * 1024 * 1024
_PREDICTION = {"instance_id", "model_patch"}
_REPORT = {"resolved_instances", "submitted_instances"}
_OLD_REPORT = {"resolved", "no_generation"}
_NO_TOTAL = "It lists the instances that were resolved, and not all instances of the run"
_UNSCORED = "Predictions have no scores: run the harness of SWE-bench on them, and open its report"


class SweBenchResults(ForeignResults):
    """Predictions (a list, lines, or an object by id), or the report of a run or of instances."""

    title = "results of SWE-bench"
    unit = "instance"

    def sniff(self, head: bytes, path: Path) -> bool:  # noqa: ARG002
        keys = row_keys(head)
        if any(marks <= keys.keys() for marks in (_PREDICTION, _REPORT, _OLD_REPORT)):
            return True
        first = next(iter(keys), "").encode()
        inner = top_level(head[head.find(b"{", head.find(first)) :]) if first else {}
        return {"instance_id", "model_patch"} <= inner.keys() or {"resolved", "patch_exists"} <= inner.keys()

    def jobs(self, path: Path, run: ForeignRun) -> Iterator[ForeignJob]:
        with path.open("rb") as stream:
            keys = row_keys(stream.read(65536))
        if "model_patch" in keys:
            yield from _predictions(path, run)
            return
        document = dict_of(read_document(path, _MOST_BYTES))
        values = list(map(dict_of, document.values()))
        if document.keys() >= _OLD_REPORT:
            if "generated" not in document:
                raise problem(path, _NO_TOTAL, "Read the report of the harness, or the reports of the instances")
            yield from _report(path, _from_old(document), run)
        elif "submitted_ids" in document:
            yield from _report(path, document, run)
        elif values and all("resolved" in value for value in values):
            target = run.target(_model_of(path, document), _TOOL)
            for id, value in document.items():
                yield _job(id, target, (value["resolved"] is True, ""), dict_of(value))
        else:
            yield from _predictions(path, run)


def _model_of(path: Path, report: Fields) -> str:
    """Return the model of a report: in the harness's logs, the folder above that of the instance."""
    folder = path.absolute().parent
    return folder.parent.name if folder.name in report else "model"


def _predictions(path: Path, run: ForeignRun) -> Iterator[ForeignJob]:
    run.notes.append(_UNSCORED)
    for number, row in read_rows(path):
        if not isinstance(row.get("instance_id"), str):
            raise problem(path, f"Entry {number} has no 'instance_id'")
        target = run.target(row.text("model_name_or_path") or "model", _TOOL)
        case = ForeignCase(id=row["instance_id"], dataset=_TOOL)
        yield ForeignJob(case=case, target=target, answer=row.text("model_patch"), place=f"entry {number}")


def _from_old(document: Fields) -> Fields:
    """Return a report of the first harness with the keys of the later ones."""
    lists = {name: list(document.texts(name)) for name in document}
    generated, empty, failed = (lists.get(name, []) for name in ("generated", "no_generation", "test_timeout"))
    return Fields(
        submitted_ids=[*generated, *empty],
        resolved_ids=lists["resolved"],
        unresolved_ids=[id for id in lists.get("applied", generated) if id not in failed],
        empty_patch_ids=empty,
    )


def _report(path: Path, document: Fields, run: ForeignRun) -> Iterator[ForeignJob]:
    target = run.target(path.name.split(".")[0], _TOOL)
    names = ("resolved_ids", "unresolved_ids", "empty_patch_ids")
    resolved, unresolved, empty = (set(document.texts(name)) for name in names)
    for id in map(text_of, list_of(document["submitted_ids"])):
        reason = "The patch is empty" if id in empty else ""
        yield _job(id, target, (id in resolved, reason), {}, is_error=id not in resolved | unresolved | empty)


def _job(
    id: str, target: str, verdict: tuple[bool, str], details: dict[str, Any], *, is_error: bool = False
) -> ForeignJob:
    resolved, reason = verdict
    grade = ForeignGrade(
        name="resolved",
        type="swe-bench:resolved",
        value=resolved,
        passed=resolved,
        reasoning=reason or None,
        settings={"tool": _TOOL},
    )
    return ForeignJob(
        case=ForeignCase(id=id, dataset=_TOOL),
        target=target,
        grades=() if is_error else (grade,),
        error=error_info("The harness of SWE-bench could not run the tests") if is_error else None,
        metadata={"report": details} if details else {},
        place=f"instance {id}",
    )
