"""Call functions of a Python file: a request on each line of the input, and a reply with a mark on the output."""

import asyncio
import importlib.util
import inspect
import json
import os
import sys
from typing import Any


def _called(module: Any, request: dict[str, Any]) -> Any:
    function = module
    for part in request["name"].split("."):
        function = getattr(function, part)
    result = function(*request["arguments"])
    return asyncio.run(result) if inspect.iscoroutine(result) else result


def _imported(path: str) -> Any:
    sys.path.insert(0, os.path.dirname(path))
    spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3], path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def main(path: str, mark: str) -> None:
    """Reply to requests until the input ends. What the functions print is dropped."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    module = None
    for line in sys.stdin:
        request = json.loads(line)
        call = {"call": request["call"]}
        try:
            module = module or _imported(path)
            reply = json.dumps({**call, "value": _called(module, request)}, allow_nan=False)
        except BaseException as error:  # also `sys.exit` of the file
            reply = json.dumps({**call, "error": f"{type(error).__name__}: {error}"})
        replies.write(f"{mark}{reply}\n")
        replies.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
