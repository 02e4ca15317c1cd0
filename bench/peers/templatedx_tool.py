"""Record the messages that AgentMark's engine renders for each prompt."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peer_tools import DATA, npm_package, npm_version, run_tool

VERSION = "0.4"


def records() -> Iterator[dict[str, Any]]:
    """Yield a record for each message, or one with the error of the prompt."""
    package = npm_package("@agentmark-ai/templatedx", "TEMPLATEDX_PACKAGE", VERSION)
    file = DATA / "agentmark" / "prompts.json"
    program = Path(__file__).with_name("templatedx.mjs")
    outcome = run_tool(["node", str(program), str(package), str(file)], package)
    for line in outcome.stdout.splitlines():
        prompt = json.loads(line)
        common = {"tool": "agentmark", "version": npm_version(package), "file": file.name, "case": prompt["case"]}
        if "error" in prompt:
            yield {**common, "evaluator": "prompt", "answer": "", "passed": None, "error": prompt["error"]}
        for message in prompt.get("messages", ()):
            yield {**common, "evaluator": message["role"], "answer": message["content"], "passed": True}
