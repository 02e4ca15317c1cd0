"""A fake Claude Code that loads skills: one whose name is in the prompt is read, and its last line is the answer."""

import json
import os
import pathlib
import sys


def emit(**event):
    print(json.dumps(event), flush=True)


def skills():
    home = os.environ.get("CLAUDE_CONFIG_DIR") or os.path.expanduser("~/.claude")
    roots = map(pathlib.Path, (home, ".claude", os.environ.get("FINDS", ".claude")))
    return {path.parent.name: path for root in roots for path in sorted(root.glob("skills/*/SKILL.md"))}


def files():
    """Return the texts of instruction files in the working folder."""
    return [path.read_text() for name in ("AGENTS.md", "CLAUDE.md") if (path := pathlib.Path(name)).exists()]


def main():
    prompt, text = sys.stdin.read(), "I do not know."
    arguments = sys.argv[1:]
    if "--append-system-prompt" in arguments:
        text = arguments[arguments.index("--append-system-prompt") + 1]
    text = next(iter(files()), text).strip().splitlines()[-1]
    for name, path in skills().items():
        if name in prompt:
            call = {"type": "tool_use", "id": "t1", "name": "Skill", "input": {"skill": name, "path": str(path)}}
            emit(type="assistant", message={"id": "m1", "content": [call]})
            emit(type="user", message={"content": [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}]})
            text = path.read_text().strip().splitlines()[-1]
    if "crash" in prompt:
        sys.exit(7)
    emit(type="assistant", message={"id": "m2", "content": [{"type": "text", "text": text}]})
    emit(type="result", subtype="success", result=text, usage={}, total_cost_usd=0.01, session_id="s")


main()
