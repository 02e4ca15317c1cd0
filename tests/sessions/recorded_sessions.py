"""Small sessions of Claude Code, written for tests."""

import json
from itertools import count
from typing import Any

_ids = count()


def claude_lines(id: str, *exchanges: tuple[str, str, list[str]], cwd: str = "/home/ann/app") -> str:
    """Return a session as JSON Lines; an exchange is a request, an answer, and the tools called in between."""
    lines: list[dict[str, Any]] = []

    def add(kind: str, content: Any, **message: Any) -> None:
        parent = lines[-1]["uuid"] if lines else None
        at = f"2026-03-01T10:{len(lines) // 60:02}:{len(lines) % 60:02}.000Z"
        about = {"parentUuid": parent, "isSidechain": False, "sessionId": id, "cwd": cwd, "timestamp": at}
        inner = {"role": kind, "content": content, **message}
        lines.append({**about, "type": kind, "uuid": f"{id}-{len(lines)}", "message": inner})

    for request, answer, tools in exchanges:
        add("user", request)
        for tool in tools:
            call = f"toolu_{next(_ids)}"
            add("assistant", [{"type": "tool_use", "id": call, "name": tool, "input": {}}], id=f"msg_{next(_ids)}")
            add("user", [{"type": "tool_result", "tool_use_id": call, "content": "ok"}])
        usage = {"input_tokens": 10, "output_tokens": 5}
        add("assistant", [{"type": "text", "text": answer}], id=f"msg_{next(_ids)}", model="claude", usage=usage)
    return "".join(json.dumps(line) + "\n" for line in lines)
