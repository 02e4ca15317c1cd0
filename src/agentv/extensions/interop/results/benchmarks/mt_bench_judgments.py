"""Read judgments of MT-bench: grades of single answers from 1 to 10, and comparisons of two models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agentv.extensions.interop.imports.foreign_files import problem, read_rows, row_keys
from agentv.extensions.interop.imports.foreign_values import Fields, error_info
from agentv.extensions.interop.imports.run import ForeignCase, ForeignGrade, ForeignJob, ForeignResults, ForeignRun

_FAILED = -1
"""The score of a judgment without a readable grade. MT-bench leaves it out."""

_BEST = 10
_WINNERS = ("model_1", "model_2", "tie", "error")


class MtBenchJudgments(ForeignResults):
    """Judgments of several models. A comparison gives the winner 1, the loser 0, and both 0.5 in a tie."""

    title = "judgments of MT-bench"
    unit = "judgment"

    def sniff(self, head: bytes, path: Path) -> bool:  # noqa: ARG002
        keys = row_keys(head).keys()
        return {"question_id", "judge", "turn"} <= keys and bool({"score", "g1_winner"} & keys)

    def jobs(self, path: Path, run: ForeignRun) -> Iterator[ForeignJob]:
        with path.open("rb") as stream:
            is_pairs = "g1_winner" in row_keys(stream.read(65536))
        if not is_pairs:
            run.notes.append("Scores are the grades of MT-bench, which are from 1 to 10, divided by 10")
        return _pairs(path, run) if is_pairs else _singles(path, run)


def _singles(path: Path, run: ForeignRun) -> Iterator[ForeignJob]:
    """Yield a job for each question and model, with the grades of both turns."""
    judgments: dict[tuple[str, str], list[Fields]] = {}
    for number, row in read_rows(path):
        if not {"question_id", "score"} <= row.keys():
            raise problem(path, f"Line {number} is not a judgment of one answer")
        judgments.setdefault((row.text("question_id"), row.text("model")), []).append(row)
    for (question, model), rows in judgments.items():
        grades = tuple(map(_grade, rows))
        failures = [grade.error for grade in grades if grade.error]
        yield ForeignJob(
            case=ForeignCase(id=question, dataset="mt-bench"),
            target=run.target(model or "model", "mt-bench"),
            grades=grades if len(failures) < len(grades) else (),
            error=error_info(failures[0], "evaluator") if len(failures) == len(grades) else None,
            place=f"question {question}",
        )


def _grade(row: Fields) -> ForeignGrade:
    score, (judge, prompt) = row.number("score"), _judge(row)
    is_missing = score is None or score == _FAILED
    return ForeignGrade(
        name=f"turn-{row.text('turn') or 1}",
        type="mt-bench:grade",
        value=None if is_missing or score is None else score / _BEST,
        weight=0.0 if is_missing else 1.0,
        reasoning=row.text("judgment") or None,
        details=None if is_missing else {"grade": score},
        error="The judgment has no grade" if is_missing else None,
        settings={"tool": "mt-bench", "prompt": prompt},
        judge=judge,
    )


def _judge(row: Fields) -> tuple[str | None, str]:
    """Return the model of the judge, and the name of its prompt."""
    model, prompt = (*row.texts("judge"), "", "")[:2]
    return model or None, prompt


def _pairs(path: Path, run: ForeignRun) -> Iterator[ForeignJob]:
    """Yield two jobs for each comparison. The judge saw both orders; a tie, or two winners, is a tie."""
    for number, row in read_rows(path):
        winners, (judge, prompt) = [row.get("g1_winner"), row.get("g2_winner")], _judge(row)
        if any(winner not in _WINNERS for winner in winners):
            raise problem(path, f"Line {number} is not a comparison of two models")
        is_tie = winners[0] == "tie" or winners[0] != winners[1]
        for side, other in (("model_1", "model_2"), ("model_2", "model_1")):
            grade = ForeignGrade(
                name="win",
                type="mt-bench:win",
                value=0.5 if is_tie else float(winners[0] == side),
                reasoning="\n\n".join(filter(None, map(row.text, ("g1_judgment", "g2_judgment")))) or None,
                settings={"tool": "mt-bench", "prompt": prompt},
                judge=judge,
            )
            has_failed = "error" in winners
            yield ForeignJob(
                case=ForeignCase(id=f"{row.text('question_id')}-turn-{row.text('turn')}", dataset="mt-bench"),
                target=run.target(row.text(side) or side, "mt-bench"),
                grades=() if has_failed else (grade,),
                error=error_info("The judgment has no winner", "evaluator") if has_failed else None,
                metadata={"against": row.text(other)},
                place=f"line {number}",
            )
