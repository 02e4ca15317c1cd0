"""The command target alive: one command per case, or one for many; what it writes or prints is the answer."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from agentv.model.message import message_to_data
from agentv.model.response import Request, Response, TargetFailure
from agentv.model.result import ErrorClass
from agentv.model.values import to_json
from agentv.settings.environment import child_environment, environment_of
from agentv.support.hashes import short
from agentv.support.subprocesses import (
    MAX_OUTPUT_BYTES,
    Ended,
    ProcessFailure,
    ProcessSpec,
    ending_of,
    run_process,
    temporary_folder,
)
from agentv.targets.answers import is_answer_object, response_from_object, response_from_text
from agentv.targets.cli import Cli, CommandTemplate, Healthcheck

_NOT_FOUND = ending_of(127)


async def run_command(command: ProcessSpec) -> Ended:
    """Run a command. Raises TargetFailure for any other end than code 0 in time."""
    try:
        return await run_process(command)
    except ProcessFailure as failure:
        kind: ErrorClass = "timeout" if failure.ending == "timeout" else "process"
        raise TargetFailure(kind, _message(failure, command.cwd)) from None


def _message(failure: ProcessFailure, cwd: str) -> str:
    cause = failure.cause
    if isinstance(cause, OSError) and cause.errno == errno.E2BIG:
        hint = "a text in it is too long for a command line; use {PROMPT_FILE} instead of {PROMPT}"
        return f"The command cannot be started: {hint}"
    if isinstance(cause, ValueError):
        return f"The command cannot be started: {cause}; use {{PROMPT_FILE}}"
    # What a shell does not find is mostly looked for in another folder than the user thinks.
    return failure.message.replace(_NOT_FOUND, f"{_NOT_FOUND} in {short(cwd)}", 1)


HEALTHCHECK_TIMEOUT_S = 30.0

Outcome = Response | TargetFailure

_log = logging.getLogger(__name__)


class CommandResponder:
    """Runs the command of a `cli` target. With `provider_batching`, `respond_many` makes one call for many cases."""

    def __init__(self, settings: Cli, home: str) -> None:
        self.endpoint = f"cli:{settings.name}"
        self.batching = settings.provider_batching
        self._settings = settings
        self._home = home
        self._template = CommandTemplate(settings.command_template, settings.files_format)
        self._env = child_environment(settings.pass_env, settings.env, environment_of(home))
        self._health: asyncio.Task[str] | None = None

    async def respond(self, request: Request) -> Response:
        """Answers one case."""
        if self.batching:
            outcome = (await self.respond_many([request]))[request.case.id]
            if isinstance(outcome, TargetFailure):
                raise outcome
            return outcome
        await self._healthy()
        values = {
            "PROMPT": request.prompt_with_references,
            "GUIDELINES": request.guidelines,
            "EVAL_ID": request.case.id,
            "ATTEMPT": str(request.attempt),
        }
        with self._scratch() as scratch:
            if "PROMPT_FILE" in self._template.names:
                values["PROMPT_FILE"] = os.path.join(scratch, "prompt.txt")
                Path(values["PROMPT_FILE"]).write_bytes(values["PROMPT"].encode())
            text = await self._run(values, scratch, request.files, self._cwd(request), request.timeout_s)
        # A shell takes the newlines at the end off what a command prints; so do we.
        return response_from_text(text.rstrip("\r\n"))

    def sends(self, request: Request) -> dict[str, Any]:
        """What the command is given: its template, and what is put in for placeholders."""
        return {"command_template": self._settings.command_template, **_question(request)}

    async def respond_many(self, requests: Sequence[Request]) -> dict[str, Outcome]:
        """Answers cases of one dataset and one trial with one command, by id. `{PROMPT_FILE}` has a line for each.

        The limit of time is the longest that one of them has.
        """
        await self._healthy()
        started = time.perf_counter()
        first = requests[0]
        files = tuple(dict.fromkeys(path for request in requests for path in request.files))
        values = {"PROMPT": "", "GUIDELINES": first.guidelines, "EVAL_ID": "batch", "ATTEMPT": str(first.attempt)}
        with self._scratch() as scratch:
            if "PROMPT_FILE" in self._template.names:
                values["PROMPT_FILE"] = os.path.join(scratch, "prompts.jsonl")
                lines = b"".join(to_json(_question(request)) + b"\n" for request in requests)
                Path(values["PROMPT_FILE"]).write_bytes(lines)
            longest = max(request.timeout_s for request in requests)
            try:
                text = await self._run(values, scratch, files, self._cwd(first), longest)
            except TargetFailure as failure:
                # One for each case: an exception that is raised many times would gather the traceback of each.
                return {each.case.id: TargetFailure(failure.error_class, failure.message) for each in requests}
        share_ms = (time.perf_counter() - started) * 1000 / len(requests)
        answers, complaints = _read_lines(text, share_ms)
        why = f" ({'; '.join(complaints[:3])})" if complaints else ""
        missing = "The output of the command has no line for "
        return {
            id: answers.get(id) or TargetFailure("invalid_response", f"{missing}'{id}'{why}")
            for id in (request.case.id for request in requests)
        }

    async def aclose(self) -> None:
        """Ends a health check that is still running; commands end with the calls that wait for them."""
        health, self._health = self._health, None
        if health is not None:
            health.cancel()
            await asyncio.wait([health])

    async def _run(self, values: dict[str, str], scratch: str, files: Sequence[str], cwd: str, timeout_s: float) -> str:
        output_file = os.path.join(scratch, "output.jsonl" if self.batching else "output.json")
        values["OUTPUT_FILE"] = output_file
        command, variables = self._template.render(values, files)
        if self._settings.verbose:
            _log.info("%s, in %s: %s", values["EVAL_ID"], cwd, self._settings.command_template)
        ended = await run_command(
            ProcessSpec(command=command, cwd=cwd, env={**self._env, **variables}, timeout_s=timeout_s)
        )
        return _read(output_file, ended) if "OUTPUT_FILE" in self._template.names else ended.stdout

    def _cwd(self, request: Request) -> str:
        if request.workspace is not None:
            return request.workspace
        if self._settings.cwd is not None:
            return os.path.join(self._home, self._settings.cwd)
        return os.path.abspath(request.case.place.origin.base_dir or self._home)

    @contextmanager
    def _scratch(self) -> Iterator[str]:
        """A folder that only this user can read, for the files that the template asks for."""
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

    async def _healthy(self) -> None:
        """Waits for the one health check; its failure is the failure of every case."""
        if self._settings.healthcheck is None:
            return
        if self._health is None:
            self._health = asyncio.ensure_future(self._check(self._settings.healthcheck))
        # Shielded: the others wait for the same check when this case is cancelled.
        wrong = await asyncio.shield(self._health)
        if wrong:
            raise TargetFailure("process", f"The health check failed: {wrong}")

    async def _check(self, check: Healthcheck) -> str:
        """What is wrong with what the target needs; nothing when all is well."""
        timeout_s = check.timeout_seconds or HEALTHCHECK_TIMEOUT_S
        if check.url is not None:
            return await asyncio.to_thread(_get, check.url, timeout_s)
        template = CommandTemplate(check.command_template or "")
        values = dict.fromkeys(template.names, "") | {"EVAL_ID": "healthcheck", "ATTEMPT": "0"}
        command, variables = template.render(values)
        cwd = os.path.join(self._home, check.cwd or self._settings.cwd or "")
        try:
            await run_command(
                ProcessSpec(command=command, cwd=cwd, env={**self._env, **variables}, timeout_s=timeout_s)
            )
        except TargetFailure as failure:
            return failure.message
        return ""


def _question(request: Request) -> dict[str, Any]:
    return {
        "id": request.case.id,
        "prompt": request.prompt_with_references,
        "messages": [message_to_data(message) for message in request.messages],
        "guidelines": request.guidelines,
        "files": request.files,
    }


def _read(path: str, ended: Ended) -> str:
    try:
        if os.path.getsize(path) > MAX_OUTPUT_BYTES:
            limit = f"{MAX_OUTPUT_BYTES / 1024 / 1024:g} MiB"
            raise TargetFailure("process", f"The command wrote more than {limit} to {{OUTPUT_FILE}}")
        return Path(path).read_bytes().decode(errors="replace")
    except OSError:
        said = ended.stderr.strip()[-500:] or ended.stdout.strip()[-500:]
        message = "The command ended well, but wrote no {OUTPUT_FILE}"
        raise TargetFailure("invalid_response", f"{message}: {said}" if said else message) from None


def _read_lines(text: str, share_ms: float) -> tuple[dict[str, Outcome], list[str]]:
    """Answers by id, and what is wrong with lines that belong to no case."""
    answers: dict[str, Outcome] = {}
    complaints = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            data = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError):
            complaints.append(f"line {number} of the output is no JSON")
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
        return TargetFailure("invalid_response", f"The line for '{data['id']}' has no 'output_messages' and no 'text'")
    try:
        response = response_from_object(data)
    except TargetFailure as failure:
        return failure
    if response.duration_ms is None:
        return msgspec.structs.replace(response, duration_ms=round(share_ms, 3))
    return response


def _get(url: str, timeout_s: float) -> str:
    """Asks an address: what is wrong when the answer is not one of 200 to 299."""
    from urllib.request import urlopen  # late: only this kind of health check needs it

    try:
        with urlopen(url, timeout=timeout_s) as answered:  # noqa: S310  # the user's own address, http or https
            status = answered.status
    except Exception as error:
        return f"{url}: {error}"
    return "" if 200 <= status < 300 else f"{url} answered {status}"
