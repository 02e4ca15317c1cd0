"""Read simulations of tau2: the tasks, the conversations, and the reward of each with its parts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentv.extensions.interop.imports.foreign_files import problem, read_document
from agentv.extensions.interop.imports.foreign_values import (
    Fields,
    chat_messages,
    dict_of,
    error_info,
    number_or_none,
    text_of,
)
from agentv.extensions.interop.imports.run import ForeignCase, ForeignGrade, ForeignJob, ForeignResults, ForeignRun
from agentv.support.json_keys import top_level

_MOST_BYTES = 512 * 1024 * 1024


class Tau2Simulations(ForeignResults):
    """Simulations of one agent in one domain. The reward is the score."""

    title = "simulations of tau2"
    unit = "simulation"

    def sniff(self, head: bytes, path: Path) -> bool:  # noqa: ARG002
        return {"info", "tasks"} <= top_level(head).keys() and b'"user_scenario"' in head

    def jobs(self, path: Path, run: ForeignRun) -> Iterator[ForeignJob]:
        document = dict_of(read_document(path, _MOST_BYTES))
        if not isinstance(document.get("simulations"), list):
            raise problem(path, "It has no simulations")
        info = document.object("info")
        domain = info.object("environment_info").text("domain_name") or "tau2"
        target = run.target(info.object("agent_info").text("llm") or "agent", "tau2")
        run.started_at = document.text("timestamp")
        tasks = {task.text("id"): task for task in document.objects("tasks")}
        for number, simulation in enumerate(document.objects("simulations"), 1):
            yield _job(simulation, tasks.get(simulation.text("task_id"), Fields()), domain, target, number)


def _job(simulation: Fields, task: Fields, domain: str, target: str, number: int) -> ForeignJob:
    reward, trial = simulation.object("reward_info"), simulation.number("trial")
    items = simulation.objects("messages")
    # Calls of the simulated user are not those of the agent.
    own = [item if item.get("role") == "assistant" else {**item, "tool_calls": None} for item in items]
    messages = chat_messages(own)
    texts = [message.text for message in messages if message.role == "assistant" and message.text]
    parts = {"reward": reward.get("reward"), **reward.object("reward_breakdown")}
    question = task.object("user_scenario").text("instructions")
    return ForeignJob(
        case=ForeignCase(id=simulation.text("task_id") or text_of(number), dataset=domain, input=question),
        target=target,
        trial=None if trial is None else int(trial) + 1,
        answer=texts[-1] if texts else None,
        messages=messages,
        grades=tuple(_grades(parts)) if reward else (),
        score=reward.number("reward"),
        error=None if reward else error_info(simulation.get("termination_reason") or "The simulation has no reward"),
        cost_usd=simulation.number("agent_cost"),
        duration_ms=simulation.milliseconds("duration"),
        place=f"simulation {number}",
    )


def _grades(parts: dict[str, Any]) -> Iterator[ForeignGrade]:
    for name, value in parts.items():
        weight, settings = float(name == "reward"), {"tool": "tau2"}
        score = number_or_none(value)
        yield ForeignGrade(name=name, type=f"tau2:{name}", value=score, weight=weight, settings=settings)
