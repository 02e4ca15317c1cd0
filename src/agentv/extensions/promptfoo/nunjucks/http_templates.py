"""HTTP endpoints whose requests are templates of promptfoo."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlencode

import msgspec

from agentv.errors import UsageError
from agentv.extensions.promptfoo.nunjucks.json_values import script_value
from agentv.extensions.promptfoo.nunjucks.prompt import filled
from agentv.model.message import ChatFormat, messages_as_json
from agentv.model.response import Request, Responder, Response
from agentv.registry import service
from agentv.settings.addresses import address_complaints
from agentv.settings.transform import apply_transform, script_file
from agentv.support.javascript.values import stringify
from agentv.support.templates import TemplateProblem
from agentv.targets.http import Http, HttpResponder, is_template
from agentv.trust.inventory import NamedUse

if TYPE_CHECKING:
    from agentv.targets.apis.http_client import HttpResponse

_FORM = "application/x-www-form-urlencoded"
_JSON = "application/json"


class PromptfooHttp(Http, frozen=True, kw_only=True):
    """An HTTP endpoint as promptfoo calls it: templates have `prompt` and the variables of the case.

    A text in a JSON body that is a JSON object or list is sent as such. `query` is added to the address. `javascript`
    returns the answer for the text of a response, `output`, or an object with it as its `output`, and optionally
    `error`, `cost`, `tokenUsage`, `metadata` and `guardrails`; `context.metadata.response` has its status and headers.
    `response_function` is a function of a JavaScript file that does. `prompt_javascript` and `prompt_function` return
    what replaces the prompt. With `raw`, values are inserted as in a JSON text, and the body is sent as it is. With
    `chat_format: json`, the prompt is the JSON list of the messages.
    """

    aliases: ClassVar[dict[str, str]] = {}

    query: dict[str, str] = {}
    """Parameters that are added to the URL, as templates."""

    javascript: str = "output"
    """Code that returns the answer for `output`, the text of a response, or an object with it as its `output`."""

    response_function: str | None = None
    """Function that returns the answer, `file.js` or `file.js:name`, called with the data, the text and a context."""

    prompt_javascript: str | None = None
    """Code that returns what replaces the prompt, for `output`, the prompt, and `context.vars`."""

    prompt_function: str | None = None
    """Function that does, `file.js` or `file.js:name`, called with the prompt, the variables and a context."""

    raw: bool = False
    """Insert values as in a JSON text, and send the body as it is."""

    chat_format: ChatFormat = "text"
    """Form of a prompt with several messages: `text` with a heading for each, or `json`, the list of all messages."""

    @classmethod
    def uses(cls, settings: Mapping[str, Any]) -> Iterable[NamedUse]:
        """Return the host, and the code."""
        yield from super().uses(settings)
        reads, replaces = settings.get("response_function"), settings.get("prompt_function")
        yield from (("command", f"node {function}") for function in (reads, replaces) if function)
        codes = (None if reads else settings.get("javascript", "output"), settings.get("prompt_javascript"))
        yield from (("script", str(code)) for code in codes if code)

    def files_named(self, home: str, folders: Sequence[str]) -> Iterable[str]:  # noqa: ARG002
        """Return the files of the functions."""
        functions = (self.response_function, self.prompt_function)
        return [os.path.join(home, (script_file(each) or (each,))[0]) for each in functions if each]

    def complaints(self) -> list[str]:
        """Check the address."""
        return address_complaints("url", self.url)

    def open(self, home: str) -> Responder:
        """Open the endpoint. Raises UsageError without the engine that runs its JavaScript."""
        if find_spec("_quickjs") is None:
            message = "HTTP providers of promptfoo need quickjs-ng, which is not installed"
            raise UsageError(message, hint="Install it with: pip install 'agentv[js]'")
        return _Responder(self, home)


class _Responder(HttpResponder):
    def __init__(self, settings: PromptfooHttp, home: str) -> None:
        self._home = home
        fixed = {name: value for name, value in settings.headers.items() if not is_template(value)}
        super().__init__(msgspec.structs.replace(settings, headers=fixed, body=None, method="GET"))
        self._settings, self._method = settings, settings.method

    async def respond(self, request: Request) -> Response:
        """Send one request, and read what the code returns for its response. Raises TargetFailure."""
        response = await super().respond(request)
        value = response.messages[0].content
        if not isinstance(value, dict) or value.get("output") in (None, False, 0, ""):  # as in JavaScript: [] is true
            return response
        figures: Response = service("promptfoo-response", "An HTTP provider of promptfoo")(value)
        duration = response.duration_ms if figures.duration_ms is None else figures.duration_ms
        return msgspec.structs.replace(figures, duration_ms=duration, calls_unknown=True)

    def _rendered(self, request: Request) -> tuple[str, dict[str, str], bytes | None]:
        settings = self._settings
        prompt = messages_as_json(request.messages) if settings.chat_format == "json" else request.prompt
        variables = {**(request.case.variables or {}), "prompt": prompt}
        if settings.prompt_javascript or settings.prompt_function:
            variables["prompt"] = self._replaced(prompt, variables)
        variables = _escaped(variables) if settings.raw else variables
        default = {} if settings.body is None else {"content-type": _FORM if isinstance(settings.body, str) else _JSON}
        try:
            url, query = filled(settings.url, variables), filled(settings.query, variables)
            headers = default | {name.lower(): filled(text, variables) for name, text in settings.headers.items()}
            is_json = _JSON in headers.get("content-type", "") and not settings.raw
            body = settings.body and (_json_body if is_json else filled)(settings.body, variables)
            if is_json and isinstance(variables["prompt"], dict):
                body = {**(body if isinstance(body, dict) else {}), **variables["prompt"]}
        except (TemplateProblem, ValueError) as problem:
            raise self._client.failure("invalid_response", f"Cannot build the request: {problem}") from None
        url += f"{'&' if '?' in url else '?'}{urlencode(query)}" if query else ""
        headers = {name: " ".join(text.splitlines()) for name, text in headers.items()}
        text = body if isinstance(body, str | None) else str(stringify(body))
        return url, headers, None if text is None or settings.method == "GET" else text.encode()

    def _replaced(self, prompt: str, variables: dict[str, Any]) -> Any:
        """Return what the code makes of a prompt: a text, or data. Raises TargetFailure."""
        steps = {"javascript": self._settings.prompt_javascript, "allow_empty": True}
        try:
            if function := self._settings.prompt_function:
                return self._called(function, prompt, variables, {"vars": variables})
            return apply_transform(prompt, steps, str, variables)
        except ValueError as failure:
            raise self._client.failure("invalid_response", f"Cannot build the request: {failure}") from None

    def _answer(self, http_response: HttpResponse) -> Any:
        text = super()._answer(http_response)
        response = {"status": http_response.status, "headers": dict(http_response.headers), "data": text}
        try:
            if function := self._settings.response_function:
                value = self._called(function, _json_or_none(text) or None, text, {"response": response})
                return value if isinstance(value, dict) and {"output", "error"} & value.keys() else {"output": value}
            steps = {"javascript": self._settings.javascript, "allow_empty": True}
            return apply_transform(text, steps, metadata={"response": response})
        except ValueError as failure:
            raise self._client.unreadable(http_response, str(failure)) from None

    def _called(self, function: str, *arguments: Any) -> Any:
        """Return what a function of a file returns. Raises ValueError."""
        file, name = script_file(function) or (function, "")
        call = service("javascript-files", f"'{function}'")
        return call(os.path.abspath(os.path.join(self._home, file)), name, list(arguments))


def _escaped(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return variables whose texts can be inserted between the quotation marks of JSON."""
    return {key: json.dumps(item)[1:-1] if isinstance(item, str) else item for key, item in variables.items()}


def _json_body(body: Any, variables: dict[str, Any]) -> Any:
    """Return the data of a body; a text if it is not JSON."""
    template = _json_or_none(body) if isinstance(body, str) else body
    if template is not None:
        return _parsed(filled(template, variables))
    texts = [filled(body, values) for values in (variables, _escaped(variables))]
    return next((data for data in map(_json_or_none, texts) if data is not None), texts[0])


def _json_or_none(text: str) -> Any:
    try:
        return script_value(text)
    except ValueError:
        return None


def _parsed(value: Any) -> Any:
    """Return data whose texts that are JSON objects or lists are parsed."""
    if isinstance(value, dict):
        return {key: _parsed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_parsed(item) for item in value]
    data = _json_or_none(value) if isinstance(value, str) and value.strip()[:1] in ("{", "[") else None
    return value if data is None else data
