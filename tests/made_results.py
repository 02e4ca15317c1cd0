"""Results for tests: a plain one, and others that differ from it in some fields."""

import msgspec

from agentv.model.result import ErrorInfo, EvaluatorResult, Result

PLAIN = Result(
    timestamp="2026-01-02T03:04:05Z",
    run_id="r",
    eval_id="a",
    dataset="d",
    dataset_path="d.jsonl",
    target="t",
    trial=1,
    status="ok",
    score=1.0,
    verdict="pass",
)


def made(**known):
    return msgspec.structs.replace(PLAIN, **known)


def scored(score=1.0, **known):
    """A result with the verdict of its score."""
    return made(score=score, verdict="pass" if score >= 0.8 else "borderline" if score >= 0.6 else "fail", **known)


def unscored(**known):
    return made(**{"status": "unscored", "score": None, "verdict": None, **known})


def failed(error_class="timeout", message="no answer", **known):
    return unscored(status="error", error=ErrorInfo(error_class, message, "target"), **known)


def judged(name, score, **known):
    """The result of one evaluator."""
    return EvaluatorResult(
        **{"name": name, "type": "contains", "score": score, "weight": 1.0, "verdict": None, **known}
    )
