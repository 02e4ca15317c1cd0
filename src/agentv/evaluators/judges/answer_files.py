"""Files in an answer, converted to text for a judge by the entry's `preprocessors`."""

import mimetypes
import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import ClassVar

import msgspec

from agentv.evaluators.base import Seconds, program_complaints, script_problems
from agentv.model.diagnostics import Problems
from agentv.model.evaluator import EvaluatorFailure, FileReference, FindFile
from agentv.model.job import Judgement
from agentv.model.message import FilePart, ImagePart, Message, TextPart
from agentv.model.values import to_json
from agentv.support.media_types import media_type_named
from agentv.support.private_files import TooLarge, read_file

MAX_TEXT_BYTES = 4 * 1024 * 1024
_IMAGE_ADDRESSES = ("https://", "data:image/")
_UNKNOWN_TYPE = "application/octet-stream"


class Preprocessor(msgspec.Struct, frozen=True, kw_only=True):
    """A program that converts files of one type to text.

    `type` is a media type or a file extension, such as `application/pdf` or `xlsx`. `command` runs in the dataset's
    folder. It reads an object with `path`, `original_path` and `media_type` from stdin and prints the text.
    """

    aliases: ClassVar[dict[str, str]] = {"script": "command"}

    type: str
    command: str | list[str]
    timeout_seconds: Seconds = 60.0


def preprocessor_complaints(preprocessors: Sequence[Preprocessor]) -> list[str]:
    """Return problems of an entry's preprocessors: a blank type or program, or a type that is handled twice."""
    complaints: list[str] = []
    kinds: set[str] = set()
    for index, preprocessor in enumerate(preprocessors):
        place, kind = f"preprocessors[{index}]", media_type_named(preprocessor.type)
        complaints += program_complaints(f"{place}.command", preprocessor.command)
        if not kind:
            complaints.append(f"'{place}.type' is blank")
        elif kind in kinds:
            complaints.append(f"'{place}.type' repeats the type '{preprocessor.type}'")
        kinds.add(kind)
    return complaints


def preprocessor_references(preprocessors: Sequence[Preprocessor]) -> Iterator[FileReference]:
    """Yield the programs. A script that does not exist is a warning, as for a code judge."""
    for index, preprocessor in enumerate(preprocessors):
        check = partial(_script_problems, preprocessor.command)
        yield FileReference(("preprocessors", index, "command"), preprocessor.command, check, executes="command")


def _script_problems(command: str | list[str], _: FindFile, folder: str) -> Problems:
    return script_problems(command, folder)


async def with_file_texts(preprocessors: Sequence[Preprocessor], judgement: Judgement) -> Judgement:
    """Return the judgement with the text of the answer's files in the answer. Raises EvaluatorFailure.

    Without preprocessors, only text files in the workspace are read. Text files need none of their own.
    """
    message = judgement.response.answer_message if preprocessors or judgement.workspace_path else None
    parts = () if message is None else message.parts
    if not any(isinstance(part, FilePart) for part in parts):
        return judgement
    is_transformed = judgement.candidate_answer != judgement.response.text
    if is_transformed and preprocessors:
        raise EvaluatorFailure("'preprocessors' cannot be combined with 'transform': both replace the answer's text")
    if is_transformed:
        return judgement
    read = _file_text if preprocessors else _workspace_text
    texts = [
        part.value if isinstance(part, TextPart) else await read(part, preprocessors, judgement)
        for part in parts
        if isinstance(part, TextPart | FilePart)
    ]
    return msgspec.structs.replace(judgement, candidate_answer="\n".join(texts))


def with_images(messages: tuple[Message, ...], judgement: Judgement) -> tuple[Message, ...]:
    """Return a judge's prompt with the images of the answer that have an address, as AgentV (TypeScript) shows them."""
    parts = [part for message in judgement.response.messages if message.role == "assistant" for part in message.parts]
    images = [part for part in parts if isinstance(part, ImagePart) and part.value.startswith(_IMAGE_ADDRESSES)]
    return (*messages, Message("user", tuple(images))) if images else messages


async def _workspace_text(part: FilePart, preprocessors: Sequence[Preprocessor], judgement: Judgement) -> str:
    """Return the text of a file in the workspace, or why there is none."""
    try:
        return await _file_text(part, preprocessors, judgement)
    except EvaluatorFailure as failure:
        return f"[[ file: {part.value} ]]\n(not shown: {failure})"


async def _file_text(part: FilePart, preprocessors: Sequence[Preprocessor], judgement: Judgement) -> str:
    path = _located(part, judgement, with_dataset=bool(preprocessors))
    media_type = part.media_type or mimetypes.guess_type(path)[0] or _UNKNOWN_TYPE
    kinds = {media_type_named(media_type), media_type_named(os.path.splitext(path)[1])}
    preprocessor = next((item for item in preprocessors if media_type_named(item.type) in kinds), None)
    if preprocessor is None:
        text = _plain_text(part, path, media_type)
    else:
        file = to_json({"path": path, "original_path": part.value, "media_type": media_type})
        text = await _printed(preprocessor, file, judgement)
    return f"[[ file: {part.value} ]]\n{text}"


def _located(part: FilePart, judgement: Judgement, *, with_dataset: bool) -> str:
    """Return the path of a file that an answer names. An answer is not trusted: other folders are not read."""
    value = part.value.removeprefix("file://")
    if "://" in value:
        raise EvaluatorFailure(f"The answer's file '{value}' is not a local file")
    own = (judgement.case.place.origin.base_dir or judgement.workdir) if with_dataset else None
    folders = [os.path.realpath(root) for root in (judgement.workspace_path, own) if root]
    path = os.path.realpath(os.path.join(folders[0], value))
    if not any(path.startswith(os.path.join(folder, "")) for folder in folders):
        names = ("the workspace" if judgement.workspace_path else "", "the dataset's folder" if own else "")
        where = " and ".join(filter(None, names))
        raise EvaluatorFailure(f"The answer's file '{value}' is outside {where} and was not read")
    if not os.path.isfile(path):
        raise EvaluatorFailure(f"The answer's file '{value}' was not found: looked for {path}")
    return path


def _plain_text(part: FilePart, path: str, media_type: str) -> str:
    try:
        data = read_file(path, MAX_TEXT_BYTES)
    except TooLarge:
        raise EvaluatorFailure(f"The answer's file '{part.value}' is larger than {MAX_TEXT_BYTES:,} bytes") from None
    except OSError as error:
        raise EvaluatorFailure(f"Cannot read the answer's file '{part.value}': {error.strerror or error}") from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        hint = f"Add a preprocessor for '{media_type}'"
        raise EvaluatorFailure(f"The answer's file '{part.value}' is not text. {hint}")
    return text.replace("\r\n", "\n")


async def _printed(preprocessor: Preprocessor, stdin: bytes, judgement: Judgement) -> str:
    from agentv.evaluators.code.program import Program, confinement_for  # late: settings are read without asyncio

    program = Program(
        script=preprocessor.command,
        cwd=os.path.abspath(judgement.workdir),
        timeout_s=preprocessor.timeout_seconds,
        environment=judgement.environment,
        confinement=confinement_for("limits", judgement),
        noun=f"The preprocessor for '{preprocessor.type}'",
    )
    if not (text := (await program.run(stdin)).strip()):
        raise EvaluatorFailure(f"{program.noun} printed no text")
    return text
