"""Translate the JavaScript that promptfoo applies to an answer, and that which reads the body of a response."""

from __future__ import annotations

import re
from typing import Any

from agentv.datasets.foreign.values import is_blank
from agentv.extensions.promptfoo.functions.calls import FUNCTION_FILE

_FUNCTION = re.compile(r"(\(.*?\)\s*=>|function\s*\(.*?\))")


def transforms_of(*codes: Any) -> Any:
    """Return the transform for JavaScript that is applied one after another, such as a test's and an assertion's.

    It is None if nothing changes, an object, or a list of objects. Raises ValueError for code that is not text.
    """
    steps = [_step(code) for code in codes if code]
    return steps if len(steps) > 1 else steps[0] if steps else None


def _step(code: Any) -> dict[str, Any]:
    """Return the step for a step, or for JavaScript. As in promptfoo, an empty text is a result, and null an error."""
    if isinstance(code, dict):
        return code
    if not isinstance(code, str):
        raise ValueError(f"A transform must be text, got {type(code).__name__}")
    if code.startswith("file://"):
        match = FUNCTION_FILE.match(code)
        if match is None:
            raise ValueError(f"The transform {code} is not a file of JavaScript or Python")
        file, name = match["file"], match["name"] or ("get_transform" if match["file"].endswith(".py") else "")
        return {"function": f"{file}:{name}" if name else file, "allow_empty": True}
    return {"javascript": code, "allow_empty": True}


def response_code(code: Any) -> str:
    """Return JavaScript that reads the text of a response: an object with the answer as its `output`.

    Without code, the answer is all data, also if these have an `output`. Raises ValueError for code in a file.
    """
    source = "{output: json || text}" if is_blank(code) else str(code).strip()
    if source.startswith("file://"):
        raise ValueError(f"the response is read by a file that is not JavaScript: `{source[:80]}`")
    function = source if _FUNCTION.match(source) else f"(json, text, context) => ({source})"
    return (
        f"const read = {function};\nlet json = null;\ntry {{ json = JSON.parse(output) || null; }} catch {{}}\n"
        "const result = read(json, output, context.metadata ?? {});\n"
        "const isObject = result !== null && typeof result === 'object' && !Array.isArray(result);\n"
        "return isObject && ('output' in result || 'error' in result) ? result : {output: result};"
    )


def request_code(code: Any) -> str:
    """Return JavaScript that makes another prompt of a prompt. Raises ValueError for code in a file."""
    source = str(code).strip()
    if source.startswith("file://"):
        raise ValueError(f"the prompt is replaced by a file that is not JavaScript: `{source[:80]}`")
    is_function = _FUNCTION.match(source) is not None
    body = f"return ({source})(prompt, vars, {{}});" if is_function else f"return ({source});"
    body = source if re.search(r"\breturn\b", source) and not is_function else body
    return f"const prompt = output, vars = context.vars;\n{body}"
