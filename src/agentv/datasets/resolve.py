"""A case with the contents of its files put in: what `--resolve` prints and a run keeps."""

from __future__ import annotations

from typing import Any

from agentv.datasets.files import FileError, is_address, is_guideline, read_image, read_text
from agentv.errors import DatasetError
from agentv.model.case import EvalCase, case_to_data
from agentv.model.message import FilePart, ImagePart, Message


def resolved_data(case: EvalCase) -> dict[str, Any]:
    """As `case_to_data`, each file part with its `text`, each image with its data URI, guidelines marked."""
    data = case_to_data(case)
    if not case.names_files:
        return data
    _fill(case, case.input, data.get("input", []))
    _fill(case, case.expected_output, data.get("expected_output", []))
    for prompt, written in zip(case.prompts, data.get("prompts", []), strict=True):
        _fill(case, prompt.input, written["input"])
    for turn, written in zip(case.turns, data.get("turns", []), strict=True):
        _fill(case, turn.input, written["input"])
        _fill(case, turn.expected_output, written.get("expected_output", []))
    return data


def _fill(case: EvalCase, messages: tuple[Message, ...], written: list[dict[str, Any]]) -> None:
    for message, data in zip(messages, written, strict=True):
        for part, part_data in zip(message.parts, data["content"] if message.parts else (), strict=True):
            if isinstance(part, FilePart | ImagePart) and part.path:
                part_data.update(_contents(case, part))


def _contents(case: EvalCase, part: FilePart | ImagePart) -> dict[str, Any]:
    try:
        if isinstance(part, ImagePart):
            return {} if is_address(part.value) else {"data": read_image(part.path, part.value)}
        contents: dict[str, Any] = {"text": read_text(part.path, part.value)}
    except FileError as error:
        headline = f"Invalid eval case at line {case.line} in {case.path}"
        raise DatasetError(headline, error.message, error.hint, path=case.path, line=case.line) from None
    origin = case.place.origin
    if is_guideline(part.path, origin.root, origin.guideline_patterns):
        contents["guideline"] = True
    return contents
