"""The HTTP target: any endpoint that takes a request made from a template and answers with text or JSON."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from urllib.parse import parse_qsl, quote, urlsplit

import minijinja
import msgspec

from agentv.errors import UsageError
from agentv.model.message import Message, message_to_data
from agentv.model.response import Request, Responder, Response
from agentv.model.values import to_json
from agentv.settings.diagnostics import did_you_mean
from agentv.settings.environment import REFERENCE
from agentv.support.json_values import MISSING, steps_of, value_at
from agentv.support.templates import TemplateProblem, as_text, environment, names_in, render
from agentv.targets.target import COMMON_ALIASES, OTHER_TOOLS, Target, address_complaints
from agentv.targets.targets_file import iter_texts

if TYPE_CHECKING:
    from agentv.targets.apis.http_client import HttpReply


NAMES: dict[str, Callable[[Request], Any]] = {
    "prompt": lambda request: request.prompt,
    "messages": lambda request: [message_to_data(message) for message in request.messages],
    "id": lambda request: request.case.id,
    "variables": lambda request: request.case.variables or {},
    "metadata": lambda request: request.case.metadata,
    "conversation_id": lambda request: request.case.conversation_id,
    "trial": lambda request: request.trial,
    "attempt": lambda request: request.attempt,
}
"""What a template can use, and how it is made from a request."""

_ONE_NAME = re.compile(r"\{\{\s*([A-Za-z_]\w*(?:\.\w+)*)\s*\}\}")


def is_template(text: str) -> bool:
    """Whether anything in a text is to be rendered."""
    return "{{" in text or "{%" in text


def template_complaints(field: str, value: Any) -> list[str]:
    """What is wrong with the templates in a setting: text that is none, names that no request has."""
    return [complaint for text in _texts(value) for complaint in _text_complaints(field, text)]


def names_used(value: Any) -> frozenset[str]:
    """The names that the templates in a setting use."""
    return frozenset(name for text in _texts(value) for name in names_in(text))


def render_text(template: str, names: Mapping[str, Any]) -> str:
    """Strings go in as they are, null as nothing, everything else as compact JSON. Raises TemplateProblem."""
    return render(template, names) if is_template(template) else template


def render_address(template: str, names: Mapping[str, Any]) -> str:
    """The same, percent-encoded: what is put in can be one part of a path or one value of a query, and no more."""
    return render(template, names, _address_environment()) if is_template(template) else template


def render_data(value: Any, names: Mapping[str, Any]) -> Any:
    """JSON with every string rendered. One that is nothing but `{{ name }}` becomes the value itself, of any type."""
    if isinstance(value, str):
        alone = _ONE_NAME.fullmatch(value.strip())
        return _looked_up(alone[1], names) if alone else render_text(value, names)
    if isinstance(value, dict):
        return {key: render_data(item, names) for key, item in value.items()}
    return [render_data(item, names) for item in value] if isinstance(value, list) else value


def _texts(value: Any) -> Iterator[str]:
    """The templates among the strings of a setting, keys not among them; variables of the environment taken out."""
    return (text for _, written in iter_texts(value) if is_template(text := REFERENCE.sub("", written)))


def _text_complaints(field: str, text: str) -> list[str]:
    try:
        unknown = sorted(names_in(text) - NAMES.keys())
    except TemplateProblem as error:
        return [f"'{field}' is no valid template: {error}"]
    hint = did_you_mean(unknown[0], NAMES) or f"It can use: {', '.join(NAMES)}" if unknown else ""
    return [f"'{field}' uses '{unknown[0]}', which no request has. {hint}"] if unknown else []


def _looked_up(path: str, names: Mapping[str, Any]) -> Any:
    value: Any = names
    for step in path.split("."):
        if not isinstance(value, Mapping) or step not in value:
            raise TemplateProblem(f"'{path}' is undefined")
        value = value[step]
    return value


def _quoted(value: Any) -> Any:
    text = as_text(value)
    return quote(text, safe="") if isinstance(text, str) else text


@cache
def _address_environment() -> minijinja.Environment:
    made = environment(_quoted)
    # Everything is encoded on its way out; encoded twice it would arrive wrong.
    made.add_filter("urlencode", lambda value: value)
    return made


_CHARSET = re.compile(r"charset=[\"']?([\w.:-]+)", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


class Http(Target, frozen=True, kw_only=True):
    """Any address.

    `body` is a template, as text or as JSON with templates in its strings; `response_path` leads to the answer.
    """

    aliases: ClassVar[dict[str, str]] = {**COMMON_ALIASES, "endpoint": "url"}
    unsupported: ClassVar[dict[str, str]] = {
        **OTHER_TOOLS,
        "transform_response": "Use `response_path`, or a target of provider `python`",
        "transform_request": "Use `body`, or a target of provider `python`",
        "query_params": "Write them into `url`",
    }
    is_api: ClassVar[bool] = True

    url: str
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "POST"
    headers: dict[str, str] = {}
    body: str | dict[str, Any] | list[Any] | None = None
    response_path: str | None = None

    def complaints(self) -> list[str]:
        """An address that is none, a body on a request that has none, a template or a path that cannot be read."""
        complaints = address_complaints("url", self.url)
        if self.method == "GET" and self.body is not None:
            complaints.append("A GET request has no 'body'; use another 'method'")
        try:
            steps_of(self.response_path or "$")
        except ValueError as error:
            complaints.append(f"'response_path': {error}")
        for field in ("url", "headers", "body"):
            complaints += template_complaints(field, getattr(self, field))
        return complaints

    def open(self, home: str) -> Responder:  # noqa: ARG002  # the signature of the seam
        """The endpoint, ready to be asked."""
        complaints = self.complaints()
        if complaints:
            raise UsageError(f"Target '{self.name}': {complaints[0]}")
        return HttpResponder(self)


class HttpResponder:
    """An HTTP endpoint that is alive."""

    def __init__(self, settings: Http) -> None:
        from agentv.targets.apis.http_client import HttpClient  # late: aiohttp takes a quarter of a second to import

        parts = urlsplit(settings.url)
        self.endpoint = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._method, self._url = settings.method, settings.url
        self._body = _body(settings)
        self._path = settings.response_path
        self._rendered_headers = {name: value for name, value in settings.headers.items() if is_template(value)}
        self._names = names_used([self._url, self._body, self._rendered_headers])
        fixed = {name: value for name, value in settings.headers.items() if name not in self._rendered_headers}
        is_typed = "content-type" in {name.lower() for name in settings.headers}
        if self._body is not None and not is_typed:
            is_text = isinstance(self._body, str) and not self._body.lstrip().startswith(("{", "["))
            fixed = {"Content-Type": "text/plain; charset=utf-8" if is_text else "application/json", **fixed}
        # An address may hold a password or a key in its query, and a server may repeat what it was sent.
        secrets = [parts.password or "", *(value for _, value in parse_qsl(parts.query) if not is_template(value))]
        self._client = HttpClient(settings.url, fixed, secrets)

    async def respond(self, request: Request) -> Response:
        """One request. Raises TargetFailure."""
        url, headers, body = self._rendered(request)
        start = time.perf_counter()
        reply = await self._client.send(self._method, url, body, request.timeout_s, headers)
        duration_ms = (time.perf_counter() - start) * 1000
        return Response(messages=(Message("assistant", self._answer(reply)),), duration_ms=duration_ms)

    def sends(self, request: Request) -> dict[str, Any]:
        """The call: its address without a password, the headers that are made for it, its body as text."""
        url, headers, body = self._rendered(request)
        scheme, _, rest = url.partition("://")
        place, slash, path = rest.partition("/")
        sent = {"method": self._method, "url": f"{scheme}://{place.rpartition('@')[2]}{slash}{path}"}
        return {**sent, "headers": headers, "body": None if body is None else body.decode(errors="replace")}

    def _rendered(self, request: Request) -> tuple[str, dict[str, str], bytes | None]:
        names = {name: NAMES[name](request) for name in self._names}
        try:
            url = render_address(self._url, names)
            # A line break in a header would begin another one.
            headers = {
                name: _CONTROL.sub(" ", render_text(text, names)) for name, text in self._rendered_headers.items()
            }
            body = render_text(self._body, names) if isinstance(self._body, str) else render_data(self._body, names)
        except TemplateProblem as error:
            raise self._client.failure("invalid_response", f"The request cannot be made: {error}") from None
        return url, headers, None if body is None else body.encode() if isinstance(body, str) else to_json(body)

    def _answer(self, reply: HttpReply) -> Any:
        if self._path is None:
            return _text(reply)
        try:
            data = msgspec.json.decode(reply.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._client.unreadable(reply, f"The answer is no JSON: {error}") from None
        value = value_at(data, self._path)
        if value is MISSING or value is None:
            what = "nothing" if value is MISSING else "null"
            keys = f"; its keys are: {', '.join(list(data)[:10])}" if isinstance(data, dict) and data else ""
            raise self._client.unreadable(reply, f"The answer has {what} at '{self._path}'{keys}")
        return value

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._client.aclose()


def _body(settings: Http) -> str | dict[str, Any] | list[Any] | None:
    """The body that is written, else the prompt in an object, unless the address is where the question goes."""
    if settings.body is not None or settings.method in ("GET", "DELETE") or is_template(settings.url):
        return settings.body
    return {"prompt": "{{ prompt }}"}


def _text(reply: HttpReply) -> str:
    charset = _CHARSET.search(reply.headers.get("content-type", ""))
    try:
        return reply.body.decode(charset[1] if charset else "utf-8", errors="replace")
    except LookupError:
        return reply.body.decode(errors="replace")
