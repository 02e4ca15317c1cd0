"""Score answers with JavaScript in QuickJS. A judging process imports this module, so its imports must stay small."""

from typing import Any

from agentv.evaluators.base import cut, missed, passed
from agentv.evaluators.code.judge_io import promptfoo_result, score_in
from agentv.extensions.javascript.quickjs_engine import EngineLimits, run_code
from agentv.model.evaluator import EvaluatorFailure, Score

_LONGEST_REASON = 1000


def javascript_score(data: dict[str, Any]) -> Score:
    """Score an answer with the code in `config`. Raises EvaluatorFailure if the code gives no verdict."""
    config = data["config"]
    limits = EngineLimits(config["memory_mb"], config["seconds"])
    result = run_code(config["code"], config["output"], config["context"], limits, config["syntax"])
    return score_of_value(result, config)


def _failure_of(result: dict[str, Any]) -> str:
    if "syntax" in result:
        return f"The JavaScript code is not valid: {cut(result['syntax'])}"
    if "odd" in result:
        hint = ". Code of several lines needs a `return`" if result["odd"] == "undefined" else ""
        return (
            f"The JavaScript code must return a boolean, a number or {{pass, score, reason}}, got {result['odd']}{hint}"
        )
    text = _thrown(result)
    hint = ""
    if result["threw"] == "ReferenceError":
        hint = ". Inline code has no modules, files or network; use `file:` to run it with Node.js"
    return f"The JavaScript code threw {cut(text)}{hint}"


def _thrown(result: dict[str, Any]) -> str:
    return f"{result['threw']}: {result['message']}" if result["threw"] else str(result["message"])


def score_of_value(result: dict[str, Any], config: dict[str, Any]) -> Score:
    """Convert what the code returned to a score. A boolean passes or fails; so does a number, by `threshold`."""
    if "value" not in result:
        if config.get("on_throw") == "fail" and result.get("threw", "ReferenceError") != "ReferenceError":
            return missed(cut(f"threw {_thrown(result)}", _LONGEST_REASON))
        raise EvaluatorFailure(_failure_of(result))
    value, threshold = result["value"], config.get("threshold")
    if config.get("syntax") == "promptfoo":
        value = promptfoo_result(value, "The JavaScript code")
    if isinstance(value, bool):
        return passed("returned true") if value else missed("returned false")
    if isinstance(value, int | float):
        return _number_score(value, threshold)
    if not isinstance(value, dict):
        raise EvaluatorFailure(_failure_of({"odd": "null" if value is None else type(value).__name__}))
    score = value.get("score")
    if isinstance(score, int | float) and not isinstance(score, bool) and not 0 <= score <= 1:
        value = {**value, "score": min(1, max(0, score)), "details": {"returned": score}}
    return score_in(value, "The JavaScript code", "returned")


def _number_score(value: float, threshold: float | None) -> Score:
    is_pass = value > 0 if threshold is None else value >= threshold
    limit = "above 0" if threshold is None else f"at least {threshold:g}"
    sentence = f"returned {value:g}; must be {limit}"
    return Score(
        min(1.0, max(0.0, float(value))),
        hits=(sentence,) if is_pass else (),
        misses=() if is_pass else (sentence,),
        details=None if 0 <= value <= 1 else {"returned": value},
        verdict="pass" if is_pass else "fail",
    )
