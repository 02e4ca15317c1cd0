"""Run the command of a `cli` target, for one case or a batch, and read the answer it writes or prints."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from agentv.errors import end_of
from agentv.model.call_trace import trace_variables
from agentv.model.message import message_to_data, messages_as_json
from agentv.model.response import Arrived, Request, Response, TargetFailure, answer
from agentv.model.result import ErrorClass
from agentv.model.values import to_json
from agentv.sandbox.availability import sandbox_of
from agentv.sandbox.subprocesses import (
    MAX_OUTPUT_BYTES,
    ProcessFailure,
    ProcessOutput,
    ProcessSpec,
    ending_of,
    run_process,
)
from agentv.settings.child_environment import child_environment
from agentv.support.byte_gate import hold_bytes
from agentv.support.hashes import short
from agentv.support.json_values import json_or
from agentv.support.private_files import TooLarge, read_file
from agentv.support.temporary_folders import temporary_folder
from agentv.targets.answers import is_answer_object, response_from_object, response_from_text
from agentv.targets.cli import Cli, CommandTemplate, Healthcheck
from agentv.trust.env_file import environment_of
from agentv.trust.policy import load_policy

_NOT_FOUND = ending_of(127)
_FOLLOW_S = 0.2
"""How often the file that a batch writes is read."""


async def run_command(command: ProcessSpec) -> ProcessOutput:
    """Run a command. Raises TargetFailure unless it exits with code 0 within the timeout."""
    try:
        return await run_process(command)
    except ProcessFailure as failure:
        kind: ErrorClass = "timeout" if failure.ending == "timeout" else "process"
        raise TargetFailure(kind, _message(failure, command.cwd)) from None


def _message(failure: ProcessFailure, cwd: str) -> str:
    cause = failure.cause
    if isinstance(cause, OSError) and cause.errno == errno.E2BIG:
        return "Cannot start the command: it is too long; use {PROMPT_FILE} instead of {PROMPT}"
    if isinstance(cause, ValueError):
        return f"Cannot start the command: {cause}; use {{PROMPT_FILE}} instead of {{PROMPT}}"
    # If a shell does not find a file, it usually runs in another folder than the user expects.
    return failure.message.replace(_NOT_FOUND, f"{_NOT_FOUND} in {short(cwd)}", 1)


HEALTHCHECK_TIMEOUT_S = 30.0

Outcome = Response | TargetFailure

_log = logging.getLogger(__name__)


class CommandResponder:
    """Runs the command of a `cli` target. With `provider_batching`, one call answers several cases."""

    def __init__(self, settings: Cli, home: str) -> None:
        self.endpoint = f"cli:{settings.name}"
        self.batching = settings.provider_batching
        self._settings = settings
        self._home = home
        self._template = CommandTemplate(settings.command_template, settings.files_format)
        self._env = child_environment(settings.pass_env, settings.env, environment_of(home))
        self._sandbox = sandbox_of(f"Target '{settings.name}'", settings.sandbox, environment_of(home))
        self._health: asyncio.Task[str] | None = None

    async def respond(self, request: Request) -> Response:
        """Answer one request."""
        if self.batching:
            outcome = (await self.respond_many([request]))[request.case.id]
            if isinstance(outcome, TargetFailure):
                raise outcome
            return outcome
        await self._healthy(request)
        text, is_file = await self._run([request]), "OUTPUT_FILE" in self._template.names
        if not is_file:  # trailing newlines are removed, as in a shell's `$(command)`
            text = text.rstrip("\r\n")
        if not text.strip():
            where = "an empty {OUTPUT_FILE}" if is_file else "no output"
            raise TargetFailure(
                "invalid_response", f'The command succeeded with {where}; an empty answer is {{"text": ""}}'
            )
        return answer(text, calls_unknown=True) if self._settings.plain_output else response_from_text(text)

    def sends(self, request: Request) -> dict[str, Any]:
        """Return the command template and the values of its placeholders."""
        return {"command_template": self._settings.command_template, **_request_data(request)}

    async def respond_many(
        self, requests: Sequence[Request], arrived: Arrived = lambda _id, _response: None
    ) -> dict[str, Outcome]:
        """Answer cases of one dataset and trial with one command. `{PROMPT_FILE}` has a line for each case."""
        await self._healthy(requests[0])
        started = time.perf_counter()
        try:
            text = await self._run(requests, _LineReader(arrived))
        except TargetFailure as failure:
            # A new exception for each case: raising the same one repeatedly would extend its traceback.
            return {item.case.id: TargetFailure(failure.error_class, failure.message) for item in requests}
        share_ms = (time.perf_counter() - started) * 1000 / len(requests)
        answers, complaints = _read_lines(text, share_ms)
        why = f" ({'; '.join(complaints[:3])})" if complaints else ""
        missing = "The command's output has no line for "
        return {
            id: answers.get(id) or TargetFailure("invalid_response", f"{missing}'{id}'{why}")
            for id in (request.case.id for request in requests)
        }

    async def aclose(self) -> None:
        """Cancel a running health check. Commands end with their calls."""
        health, self._health = self._health, None
        if health is not None:
            health.cancel()
            await asyncio.wait([health])

    async def _run(self, requests: Sequence[Request], reader: _LineReader | None = None) -> str:
        """Run the command for some requests and return its output. The longest of their timeouts applies."""
        first, names = requests[0], self._template.names
        is_json = self._settings.chat_format == "json"
        prompt = "" if self.batching else messages_as_json(first.messages) if is_json else first.prompt_with_references
        id = "batch" if self.batching else first.case.id
        values = {"PROMPT": prompt, "GUIDELINES": first.guidelines, "EVAL_ID": id, "ATTEMPT": str(first.attempt - 1)}
        if "VARIABLES" in names:
            values["VARIABLES"] = to_json(first.case.variables or {}).decode()
        files = tuple(dict.fromkeys(path for request in requests for path in request.files))
        cwd, timeout_s = self._cwd(first), max(request.timeout_s for request in requests)
        with self._scratch() as scratch:
            if "PROMPT_FILE" in names:
                lines = b"".join(to_json(_request_data(request)) + b"\n" for request in requests if self.batching)
                values["PROMPT_FILE"] = os.path.join(scratch, "prompts.jsonl" if self.batching else "prompt.txt")
                Path(values["PROMPT_FILE"]).write_bytes(lines if self.batching else prompt.encode())
            values["OUTPUT_FILE"] = os.path.join(scratch, "output.jsonl" if self.batching else "output.json")
            command, variables = self._template.render(values, files)
            if self._settings.verbose:
                _log.info("%s, in %s: %s", id, cwd, self._settings.command_template)
            env = {**self._env, **variables, **trace_variables(first.trace)}
            spec = ProcessSpec(command=command, cwd=cwd, env=env, timeout_s=timeout_s)
            spec = self._confined(spec, first.workspace, scratch, *files)
            if "OUTPUT_FILE" in names:
                async with _followed(values["OUTPUT_FILE"], reader):
                    ended = await run_command(spec)
                if reader is None:
                    with suppress(OSError):  # `_read_output` reports a missing file
                        await hold_bytes(os.path.getsize(values["OUTPUT_FILE"]))
                return _read_output(values["OUTPUT_FILE"], ended)
            if reader is None:
                return (await run_command(spec)).stdout
            await run_command(msgspec.structs.replace(spec, take=reader.take))
            return bytes(reader.output).decode(errors="replace")

    def _confined(self, spec: ProcessSpec, workspace: str | None = None, scratch: str = "", *files: str) -> ProcessSpec:
        """Isolate a command, if the target or the run has a sandbox."""
        if self._sandbox is None:
            return spec
        writable = [folder for folder in (workspace, scratch) if folder]
        return self._sandbox.confine(spec, writable, (self._home, *files), self._settings.pass_env)

    def _cwd(self, request: Request) -> str:
        return request.workspace or self._folder(request, self._settings.cwd)

    def _folder(self, request: Request, cwd: str | None) -> str:
        """Return a folder of the settings, relative to the dataset's folder, or else that folder itself."""
        return os.path.abspath(
            os.path.join(request.case.place.origin.program_dir or self._home, os.path.expanduser(cwd or ""))
        )

    @contextmanager
    def _scratch(self) -> Iterator[str]:
        """Yield a private folder if the template needs one."""
        if not self._template.names & {"PROMPT_FILE", "OUTPUT_FILE"}:
            yield ""
            return
        if self._settings.keep_temp_files:
            folder = tempfile.mkdtemp(prefix="agentv-")
            yield folder
            _log.info("kept %s", folder)
            return
        with temporary_folder("agentv-") as folder:
            yield folder

    async def _healthy(self, request: Request) -> None:
        """Wait for the health check, which runs once. If it fails, every call fails."""
        if self._settings.healthcheck is None:
            return
        if self._health is None:
            self._health = asyncio.ensure_future(self._check(self._settings.healthcheck, request))
        # Shielded, because other calls wait for the same check if this one is cancelled.
        if problem := await asyncio.shield(self._health):
            raise TargetFailure("process", f"The health check failed: {problem}")

    async def _check(self, check: Healthcheck, request: Request) -> str:
        """Return why the check failed, or an empty string."""
        timeout_s = check.timeout_seconds or HEALTHCHECK_TIMEOUT_S
        if check.url is not None:
            return await asyncio.to_thread(_get, check.url, timeout_s)
        template = CommandTemplate(check.command_template or "")
        values = dict.fromkeys(template.names, "") | {"EVAL_ID": "healthcheck", "ATTEMPT": "0"}
        command, variables = template.render(values)
        cwd = self._folder(request, check.cwd or self._settings.cwd)
        env = {**self._env, **variables}
        try:
            await run_command(self._confined(ProcessSpec(command=command, cwd=cwd, env=env, timeout_s=timeout_s)))
        except TargetFailure as failure:
            return failure.message
        return ""


class _LineReader:
    """Reads the output of a batch while it is written. `arrived` receives the answers in complete lines."""

    def __init__(self, arrived: Arrived) -> None:
        self._arrived = arrived
        self._started = time.perf_counter()
        self._count = 0
        self._read = 0
        self.output = bytearray()

    def take(self, data: bytes) -> bool:
        """Add output. Return False if there is too much."""
        self.output += data
        if len(self.output) > MAX_OUTPUT_BYTES:
            return False
        end = self.output.rfind(b"\n") + 1
        lines, self._read = bytes(self.output[self._read : end]) if end > self._read else b"", max(end, self._read)
        for line in lines.split(b"\n"):
            self._take_line(line)
        return True

    def _take_line(self, line: bytes) -> None:
        data = json_or(line, None) if line.strip() else None
        if isinstance(data, dict) and isinstance(data.get("id"), str):
            self._count += 1
            share_ms = (time.perf_counter() - self._started) * 1000 / self._count
            if isinstance(outcome := _outcome(data, share_ms), Response):
                self._arrived(data["id"], outcome)


@asynccontextmanager
async def _followed(path: str, reader: _LineReader | None) -> AsyncIterator[None]:
    """Read a file while a command writes it."""
    if reader is None:
        yield
        return
    following = asyncio.create_task(_follow(path, reader))
    try:
        yield
    finally:
        following.cancel()
        await asyncio.wait([following])


async def _follow(path: str, reader: _LineReader) -> None:
    while True:
        with suppress(OSError), open(path, "rb") as file:
            file.seek(len(reader.output))
            if not reader.take(file.read(MAX_OUTPUT_BYTES)):
                return
        await asyncio.sleep(_FOLLOW_S)


def _request_data(request: Request) -> dict[str, Any]:
    return {
        "id": request.case.id,
        "prompt": request.prompt_with_references,
        "messages": [message_to_data(message) for message in request.messages],
        "guidelines": request.guidelines,
        "files": request.files,
    }


def _read_output(path: str, ended: ProcessOutput) -> str:
    try:
        return read_file(path, MAX_OUTPUT_BYTES).decode(errors="replace")
    except TooLarge:
        limit = f"{MAX_OUTPUT_BYTES / 1024 / 1024:g} MiB"
        raise TargetFailure("process", f"The command wrote more than {limit} to {{OUTPUT_FILE}}") from None
    except FileNotFoundError:
        printed = end_of(ended.stderr.strip(), 500) or end_of(ended.stdout.strip(), 500)
        message = "The command succeeded but did not write {OUTPUT_FILE}"
        raise TargetFailure("invalid_response", f"{message}: {printed}" if printed else message) from None
    except OSError as error:
        raise TargetFailure("invalid_response", f"{{OUTPUT_FILE}} was not read: {error.strerror}") from None


def _read_lines(text: str, share_ms: float) -> tuple[dict[str, Outcome], list[str]]:
    """Return the answers by id, and the problems in lines without an id."""
    answers: dict[str, Outcome] = {}
    complaints = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            data = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError):
            complaints.append(f"line {number} of the output is not valid JSON")
            continue
        id = data.get("id") if isinstance(data, dict) else None
        if not isinstance(id, str):
            complaints.append(f"line {number} of the output has no 'id'")
        elif id in answers:
            answers[id] = TargetFailure("invalid_response", f"The output has two lines for '{id}'")
        else:
            answers[id] = _outcome(data, share_ms)
    return answers, complaints


def _outcome(data: dict[str, Any], share_ms: float) -> Outcome:
    if not is_answer_object(data):
        return TargetFailure(
            "invalid_response", f"The line for '{data['id']}' has no 'output_messages', 'output' or 'text'"
        )
    try:
        response = response_from_object(data)
    except TargetFailure as failure:
        return failure
    if response.duration_ms is None:
        return msgspec.structs.replace(response, duration_ms=round(share_ms, 3))
    return response


def _get(url: str, timeout_s: float) -> str:
    """Send a GET request. Return why it failed, or an empty string for a status from 200 to 299."""
    from urllib.request import urlopen  # late: only this kind of health check needs it

    try:
        load_policy().check_host(url)
        with urlopen(url, timeout=timeout_s) as response:  # noqa: S310  # the user's own address, http or https
            return "" if 200 <= response.status < 300 else f"{url} returned {response.status}"
    except Exception as error:
        return f"{url}: {error}"
