"""A fake Claude Code that loads skills: one whose name is in the prompt is read, and its last line is the answer.

It starts hundreds of times, so it imports no module that takes long, such as `json` or `pathlib`.
"""

import os
import sys
from _json import encode_basestring_ascii as quoted


def emit(**event):
    print(json_of(event), flush=True)


def json_of(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(key)}: {json_of(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(json_of, value)) + "]"
    return quoted(value) if isinstance(value, str) else repr(value)


def skills():
    home = os.environ.get("CLAUDE_CONFIG_DIR") or os.path.expanduser("~/.claude")
    roots = [f"{root}/skills" for root in (home, ".claude", os.environ.get("FINDS", ".claude"))]
    names = [(root, name) for root in roots if os.path.isdir(root) for name in sorted(os.listdir(root))]
    return {name: path for root, name in names if os.path.isfile(path := f"{root}/{name}/SKILL.md")}


def files():
    """Return the texts of instruction files in the working folder."""
    return [text_of(name) for name in ("AGENTS.md", "CLAUDE.md") if os.path.exists(name)]


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def main():
    prompt, text = sys.stdin.read(), "I do not know."
    arguments = sys.argv[1:]
    if "--append-system-prompt" in arguments:
        text = arguments[arguments.index("--append-system-prompt") + 1]
    text = next(iter(files()), text).strip().splitlines()[-1]
    for name, path in skills().items():
        if name in prompt:
            call = {"type": "tool_use", "id": "t1", "name": "Skill", "input": {"skill": name, "path": path}}
            emit(type="assistant", message={"id": "m1", "content": [call]})
            emit(type="user", message={"content": [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}]})
            text = text_of(path).strip().splitlines()[-1]
    if "crash" in prompt:
        sys.exit(7)
    emit(type="assistant", message={"id": "m2", "content": [{"type": "text", "text": text}]})
    emit(type="result", subtype="success", result=text, usage={}, total_cost_usd=0.01, session_id="s")


main()
