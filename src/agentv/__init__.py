"""agentv: evaluate AI agents and prompts from dataset files; the public names, each imported on first use."""

from __future__ import annotations

TYPE_CHECKING = False  # not from `typing`, whose import takes longer than the launcher and the watchdog do

if TYPE_CHECKING:
    from typing import Any

    from agentv.api import Run, assert_passes, compare, evaluate, evaluate_async
    from agentv.datasets.loader import cases, load_cases, stream_cases
    from agentv.errors import (
        AgentvError,
        DatasetError,
        DatasetNotFoundError,
        DatasetParseError,
        DatasetWarning,
        InvalidCaseError,
        InvalidDatasetError,
        UsageError,
    )
    from agentv.model.case import EvalCase
    from agentv.model.evaluator import EvaluatorSpec, Execution, Score, Verdicts
    from agentv.model.message import FilePart, ImagePart, Message, TextPart, ToolCall
    from agentv.model.result import EvaluatorResult, Result
    from agentv.runs.summary import RunSummary
    from agentv.runs.target_summary import TargetSummary
    from agentv.version import __version__

__all__ = [
    "AgentvError",
    "DatasetError",
    "DatasetNotFoundError",
    "DatasetParseError",
    "DatasetWarning",
    "EvalCase",
    "EvaluatorResult",
    "EvaluatorSpec",
    "Execution",
    "FilePart",
    "ImagePart",
    "InvalidCaseError",
    "InvalidDatasetError",
    "Message",
    "Result",
    "Run",
    "RunSummary",
    "Score",
    "TargetSummary",
    "TextPart",
    "ToolCall",
    "UsageError",
    "Verdicts",
    "__version__",
    "assert_passes",
    "cases",
    "compare",
    "evaluate",
    "evaluate_async",
    "load_cases",
    "stream_cases",
]

_HOMES = {
    "__version__": "agentv.version",
    "EvaluatorResult": "agentv.model.result",
    "Result": "agentv.model.result",
    "Run": "agentv.api",
    "RunSummary": "agentv.runs.summary",
    "TargetSummary": "agentv.runs.target_summary",
    "assert_passes": "agentv.api",
    "Score": "agentv.model.evaluator",
    "cases": "agentv.datasets.loader",
    "compare": "agentv.api",
    "evaluate": "agentv.api",
    "evaluate_async": "agentv.api",
    "load_cases": "agentv.datasets.loader",
    "stream_cases": "agentv.datasets.loader",
    "EvalCase": "agentv.model.case",
    "EvaluatorSpec": "agentv.model.evaluator",
    "Execution": "agentv.model.evaluator",
    "Verdicts": "agentv.model.evaluator",
    "FilePart": "agentv.model.message",
    "ImagePart": "agentv.model.message",
    "Message": "agentv.model.message",
    "TextPart": "agentv.model.message",
    "ToolCall": "agentv.model.message",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'agentv' has no attribute {name!r}")
    from importlib import import_module  # late: `agentv --help` imports this package and needs none of it

    value = getattr(import_module(_HOMES.get(name, "agentv.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
