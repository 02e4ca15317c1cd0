"""Score answers with JavaScript in QuickJS, which gives code no files, network, modules or timers.

A judging process imports this module, so its imports must stay small.
"""

import json
from typing import Any, Literal, NamedTuple

from agentv.errors import import_extra, start_of
from agentv.evaluators.base import cut, missed
from agentv.evaluators.code.judge_io import boolean_score, inverted, promptfoo_result, score_in
from agentv.model.evaluator import EvaluatorFailure, Score

INSTALL = "pip install 'agentv[js]'"

_MIB = 1024 * 1024
_STACK_BYTES = 512 * 1024
_LONGEST_ERROR = 200

_HARNESS = """
(function (code, output, context, syntax) {
  const shown = (error) => {
    const isError = error instanceof Error;
    return {threw: isError ? String(error.name) : "", message: String(isError ? error.message : error)};
  };
  const compiled = (body) => new Function("output", "context", "process", "console", body);
  const AsyncFunction = (async () => {}).constructor;
  const lastExpression = (text) => {
    for (let place = text.lastIndexOf(";"); place > 0; place = text.lastIndexOf(";", place - 1)) {
      const statements = text.slice(0, place + 1);
      try {
        compiled(statements);
      } catch (error) {
        continue;  // the semicolon is inside a text or a block
      }
      return statements + " return " + text.slice(place + 1).trim();
    }
    return text;
  };
  const compile = () => {
    if (syntax === "transform") return compiled(code.includes("\\n") ? code : "return " + code);
    const text = code.trim().replace(/;+\\s*$/, "");
    if (syntax === "promptfoo") {
      if (code.trimEnd().includes("\\n")) return compiled(code);
      return compiled(/^(const|let|var)\\s/.test(text) ? lastExpression(text) : "return " + text);
    }
    const attempts = code.trimEnd().includes("\\n")
      ? [() => compiled(code)]
      : [
          () => /^(const|let|var)\\s/.test(text) ? undefined : compiled("return " + text),
          () => /\\breturn\\b/.test(text) ? compiled(code) : undefined,
          () => compiled(text) && compiled("return eval(" + JSON.stringify(text) + ")"),
        ];
    if (/\\bawait\\b/.test(code)) {
      attempts.push(() => new AsyncFunction("output", "context", "process", "console", "return " + text));
      attempts.push(() => new AsyncFunction("output", "context", "process", "console", code));
    }
    let first;
    for (const attempt of attempts) {
      try {
        const made = attempt();
        if (made) return made;
      } catch (error) {
        first = first || error;
      }
    }
    throw first;
  };
  const settle = (found) => { globalThis.__found = found; };
  const give = (value) => settle(
    typeof value === "number" && !Number.isFinite(value) ? {odd: String(value)}
      : value === undefined || typeof value === "function" ? {odd: typeof value}
      : {value: value}
  );
  let made;
  try {
    made = compile();
  } catch (error) {
    return settle({syntax: shown(error).message});
  }
  const hidden = new Proxy({}, {
    get: (_, name) => {
      throw new ReferenceError("process.env." + String(name) + " is not available to inline code");
    },
  });
  const quiet = () => undefined;
  const console = {log: quiet, info: quiet, warn: quiet, error: quiet, debug: quiet};
  try {
    const returned = made(output, context, {env: syntax === "any" ? {} : hidden}, console);
    if (returned && typeof returned.then === "function") {
      settle({odd: "a promise that is never resolved"});
      returned.then(give, (error) => settle(shown(error)));
    } else {
      give(returned);
    }
  } catch (error) {
    settle(shown(error));
  }
})
"""


Syntax = Literal["any", "promptfoo", "transform"]


class EngineLimits(NamedTuple):
    """How much memory code may use, and how long it may run."""

    memory_mb: int = 256
    seconds: float = 10.0


DEFAULT_LIMITS = EngineLimits()


def run_code(
    code: str, output: Any, context: dict[str, Any], limits: EngineLimits = DEFAULT_LIMITS, syntax: Syntax = "any"
) -> dict[str, Any]:
    """Run code in a new engine: `value`, or the reason why there is none. Raises EvaluatorFailure beyond a limit.

    An expression, or lines with a `return`, are valid in every syntax: `promptfoo` is that of its assertions, and
    `transform` that of its transforms. `any` also has `return` in one line, and `await`.
    """
    memory_mb, seconds = limits
    missing = EvaluatorFailure(f"quickjs-ng is not installed. Install it with: {INSTALL}")
    quickjs = import_extra("quickjs", missing)
    engine = quickjs.Context()
    engine.set_memory_limit(memory_mb * _MIB)
    engine.set_max_stack_size(_STACK_BYTES)
    engine.set_time_limit(seconds)
    try:
        start = engine.eval(_HARNESS)
        start(code, _given(engine, output), _given(engine, context), syntax)
        while engine.execute_pending_job():
            pass
        text = engine.eval("JSON.stringify(globalThis.__found)")
    except (quickjs.JSException, quickjs.StackOverflow) as error:
        raise EvaluatorFailure(_limit_text(str(error), memory_mb, seconds)) from None
    except UnicodeError:
        raise EvaluatorFailure("The JavaScript code returned text that is not valid Unicode") from None
    result: dict[str, Any] = json.loads(text)
    if result.get("threw") == "InternalError" or "call stack" in result.get("message", ""):
        raise EvaluatorFailure(_limit_text(f"{result['threw']}: {result['message']}", memory_mb, seconds))
    return result


def _given(engine: Any, value: Any) -> Any:
    return engine.parse_json(json.dumps(value))


def _limit_text(message: str, memory_mb: int, seconds: float) -> str:
    first = message.partition("\n")[0]
    if "interrupted" in first:
        return f"The JavaScript code took longer than {seconds:g} s"
    if "out of memory" in first:
        return f"The JavaScript code needs more than {memory_mb} MB of memory"
    if "call stack" in first:
        return "The JavaScript code calls itself too deeply"
    return f"The JavaScript code failed: {start_of(first, _LONGEST_ERROR)}"


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
    score = _score_of(value, threshold)
    if config.get("out_of_range") == "error" and isinstance(score.details, dict) and "returned" in score.details:
        number = score.details["returned"]
        raise EvaluatorFailure(f"The JavaScript code gave {number:g} as its score, and a mean needs one from 0 to 1")
    return inverted(score, is_boolean=isinstance(value, bool)) if config.get("inverse") else score


def _score_of(value: Any, threshold: float | None) -> Score:
    if isinstance(value, bool):
        return boolean_score(f"returned {str(value).lower()}", is_pass=value)
    if isinstance(value, int | float):
        return _number_score(value, threshold)
    if not isinstance(value, dict):
        raise EvaluatorFailure(_failure_of({"odd": "null" if value is None else type(value).__name__}))
    score = value.get("score")
    if isinstance(score, int | float) and not isinstance(score, bool) and not 0 <= score <= 1:
        details = value.get("details")
        own = details if isinstance(details, dict) else {}
        value = {**value, "score": min(1, max(0, score)), "details": {**own, "returned": score}}
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
