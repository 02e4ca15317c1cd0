"""The HTTP target: any endpoint that takes a templated request and returns text or JSON."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from urllib.parse import parse_qsl, quote, urlsplit

import minijinja
import msgspec

from agentv.errors import UsageError
from agentv.model.call_trace import TRACE_WAIT_S, trace_headers
from agentv.model.diagnostics import did_you_mean
from agentv.model.message import Message, message_to_data
from agentv.model.response import Request, Responder, Response
from agentv.model.values import to_json
from agentv.settings.addresses import address_complaints, host_of
from agentv.settings.environment import REFERENCE
from agentv.support.json_values import MISSING, steps_of, value_at
from agentv.support.templates import TemplateProblem, as_text, environment, names_in, render
from agentv.targets.target import COMMON_ALIASES, OTHER_TOOLS, NonNegative, Target
from agentv.targets.targets_file import iter_texts
from agentv.trust.inventory import ANY_HOST, NamedUse

if TYPE_CHECKING:
    from agentv.targets.apis.http_client import HttpResponse


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
"""The variables of a template and how to get them from a request."""

_ONE_NAME = re.compile(r"\{\{\s*([A-Za-z_]\w*(?:\.\w+)*)\s*\}\}")


def is_template(text: str) -> bool:
    """Whether a text contains template syntax."""
    return "{{" in text or "{%" in text


def render_text(template: str, names: Mapping[str, Any]) -> str:
    """Render a text. Null becomes empty, and data becomes compact JSON. Raises TemplateProblem."""
    return render(template, names) if is_template(template) else template


def render_data(value: Any, names: Mapping[str, Any]) -> Any:
    """Render every string in JSON data. A string that is just `{{ name }}` becomes the value itself, of any type."""
    if isinstance(value, str):
        if (name := _ONE_NAME.fullmatch(value.strip())) is None:
            return render_text(value, names)
        if (result := value_at(names, name[1])) is MISSING:
            raise TemplateProblem(f"'{name[1]}' is undefined")
        return result
    if isinstance(value, dict):
        return {key: render_data(item, names) for key, item in value.items()}
    return [render_data(item, names) for item in value] if isinstance(value, list) else value


def _templates(value: Any) -> Iterator[str]:
    """Yield the strings of a setting that are templates, without environment variables."""
    return (text for _, raw in iter_texts(value) if is_template(text := REFERENCE.sub("", raw)))


def _text_complaints(field: str, text: str) -> list[str]:
    """Return the problem in a template: invalid syntax or an unknown variable."""
    try:
        unknown = sorted(names_in(text) - NAMES.keys())
    except TemplateProblem as error:
        return [f"'{field}' is not a valid template: {error}"]
    hint = did_you_mean(unknown[0], NAMES) or f"Available: {', '.join(NAMES)}" if unknown else ""
    return [f"'{field}' uses the unknown variable '{unknown[0]}'. {hint}"] if unknown else []


def _quoted(value: Any) -> Any:
    text = as_text(value)
    return quote(text, safe="") if isinstance(text, str) else text


@cache
def _address_environment() -> minijinja.Environment:
    """Return an environment that percent-encodes values, so that each stays within a path segment or query value."""
    env = environment(_quoted)
    env.factory = _address_environment
    # All values are encoded anyway; encoding them twice would be wrong.
    env.add_filter("urlencode", lambda value: value)
    return env


_VALUE = re.compile(r"\0([jt])(.*?)\0", re.DOTALL)
"""A value in a rendered JSON body: JSON (`j`) or a text (`t`) as JSON, which contains no null character."""


def _marked(value: Any) -> Any:
    if isinstance(value, str):
        is_json = value.startswith("\0j")
        return value if is_json else f"\0t{to_json(value).decode()}\0"
    text = as_text(value)
    return text if text is NotImplemented else f"\0j{to_json(value).decode()}\0"


@cache
def _json_environment() -> minijinja.Environment:
    """Return an environment that marks values, so that `_fill_json` can insert them."""
    env = environment(_marked)
    env.factory = _json_environment
    env.add_filter("tojson", lambda value, *_, **__: f"\0j{to_json(value).decode()}\0")
    return env


def _fill_json(rendered: str) -> str:
    """Insert the marked values into a JSON text: escaped inside a string, as JSON elsewhere."""
    parts: list[str] = []
    end, in_string = 0, False
    for match in _VALUE.finditer(rendered):
        literal = rendered[end : match.start()]
        in_string ^= len(_QUOTES.findall(literal)) % 2 == 1
        parts += (literal, _in_string(*match.groups()) if in_string else match[2])
        end = match.end()
    return "".join((*parts, rendered[end:]))


def _in_string(kind: str, value: str) -> str:
    if kind == "t":
        return value[1:-1]
    return "" if value == "null" else to_json(value).decode()[1:-1]


_QUOTES = re.compile(r'(?<!\\)(?:\\\\)*"')
_CHARSET = re.compile(r"charset=[\"']?([\w.:-]+)", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


class Http(Target, frozen=True, kw_only=True):
    """Any HTTP endpoint.

    `body` is a template: text, or JSON with templates in its strings. In a text that starts with `{` or `[`, values are
    escaped as JSON. `response_path` is the path of the answer in a JSON response. With `traces`, the spans that the
    system exports to agentv become the messages and tool calls of its answers; see `trace_wait`.
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
    """URL, as a template."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "POST"
    """HTTP method."""

    headers: dict[str, str] = {}
    """Headers of every call."""

    body: str | dict[str, Any] | list[Any] | None = None
    """Request body, as a template."""

    response_path: str | None = None
    """Path of the answer in the JSON response (default: the whole body)."""

    traces: bool = False
    """Receive the spans of the agent, and use its [tool calls](../how-to/traces.md)."""

    trace_wait: NonNegative = TRACE_WAIT_S
    """Seconds to wait for the spans of a call."""

    @classmethod
    def uses(cls, settings: Mapping[str, Any]) -> Iterable[NamedUse]:
        """Return the host of the endpoint."""
        return (("host", host_of(str(settings["url"])) if settings.get("url") else ANY_HOST),)

    def complaints(self) -> list[str]:
        """Check the address, the body, the templates and the response path."""
        complaints = address_complaints("url", self.url)
        if self.method == "GET" and self.body is not None:
            complaints.append("A GET request cannot have a 'body'; use another 'method'")
        try:
            steps_of(self.response_path or "$")
        except ValueError as error:
            complaints.append(f"'response_path': {error}")
        for field in ("url", "headers", "body"):
            for text in _templates(getattr(self, field)):
                complaints += _text_complaints(field, text)
        return complaints

    def open(self, home: str) -> Responder:  # noqa: ARG002
        """Open the endpoint."""
        if complaints := self.complaints():
            raise UsageError(f"Target '{self.name}': {complaints[0]}")
        return HttpResponder(self)


class HttpResponder:
    """Calls an HTTP endpoint."""

    def __init__(self, settings: Http) -> None:
        from agentv.targets.apis.http_client import HttpClient  # late: aiohttp takes a quarter of a second to import

        parts = urlsplit(settings.url)
        self.endpoint = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._method, self._url = settings.method, settings.url
        self._body = settings.body
        if self._body is None and settings.method not in ("GET", "DELETE") and not is_template(settings.url):
            self._body = {"prompt": "{{ prompt }}"}
        self._path = settings.response_path
        self._wants_html = any("html" in value for name, value in settings.headers.items() if name.lower() == "accept")
        self._rendered_headers = {name: value for name, value in settings.headers.items() if is_template(value)}
        templates = _templates([self._url, self._body, self._rendered_headers])
        self._names = frozenset(name for text in templates for name in names_in(text))
        fixed = {name: value for name, value in settings.headers.items() if name not in self._rendered_headers}
        given_type = next((value for name, value in settings.headers.items() if name.lower() == "content-type"), None)
        looks_like_json = not isinstance(self._body, str) or self._body.lstrip().startswith(("{", "["))
        self._is_json = looks_like_json and "json" in (given_type or "json").lower()
        if self._body is not None and given_type is None:
            fixed = {"Content-Type": "application/json" if looks_like_json else "text/plain; charset=utf-8", **fixed}
        # An address may contain a password or a key in its query, and servers may repeat it in errors.
        secrets = [parts.password or "", *(value for _, value in parse_qsl(parts.query) if not is_template(value))]
        self._client = HttpClient(settings.url, fixed, secrets)

    async def respond(self, request: Request) -> Response:
        """Send one request. Raises TargetFailure."""
        url, headers, body = self._rendered(request)
        headers |= trace_headers(request.trace)
        start = time.perf_counter()
        http_response = await self._client.send(self._method, url, body, request.timeout_s, headers)
        duration_ms = (time.perf_counter() - start) * 1000
        message = Message("assistant", self._answer(http_response))
        return Response(messages=(message,), duration_ms=duration_ms, calls_unknown=True)

    def sends(self, request: Request) -> dict[str, Any]:
        """Return the request: its address without a password, its rendered headers, and its body as text."""
        url, headers, body = self._rendered(request)
        scheme, _, rest = url.partition("://")
        place, slash, path = rest.partition("/")
        data = {"method": self._method, "url": f"{scheme}://{place.rpartition('@')[2]}{slash}{path}"}
        return {**data, "headers": headers, "body": None if body is None else body.decode(errors="replace")}

    def _rendered(self, request: Request) -> tuple[str, dict[str, str], bytes | None]:
        names = {name: NAMES[name](request) for name in self._names}
        try:
            url = render(self._url, names, _address_environment()) if is_template(self._url) else self._url
            # A line break would start another header.
            headers = {
                name: _CONTROL.sub(" ", render_text(text, names)) for name, text in self._rendered_headers.items()
            }
            body = self._rendered_body(names)
        except TemplateProblem as error:
            raise self._client.failure("invalid_response", f"Cannot build the request: {error}") from None
        return url, headers, None if body is None else body.encode() if isinstance(body, str) else to_json(body)

    def _rendered_body(self, names: dict[str, Any]) -> Any:
        if not isinstance(self._body, str):
            return render_data(self._body, names)
        if not self._is_json or not is_template(self._body):
            return render_text(self._body, names)
        return _fill_json(render(self._body, names, _json_environment()))

    def _answer(self, http_response: HttpResponse) -> Any:
        if self._path is None:
            if (page := http_response.page) is not None and not self._wants_html:
                message = f"{page}. If pages are the answers, set the header 'Accept: text/html'"
                failure = self._client.failure("invalid_response", message, status=http_response.status)
                failure.is_page = True
                raise failure
            charset = _CHARSET.search(http_response.headers.get("content-type", ""))
            try:
                return http_response.body.decode(charset[1] if charset else "utf-8", errors="replace")
            except LookupError:
                return http_response.body.decode(errors="replace")
        try:
            data = msgspec.json.decode(http_response.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._client.unreadable(http_response, f"The response is not valid JSON: {error}") from None
        value = value_at(data, self._path)
        if value is MISSING or value is None:
            what = "nothing" if value is MISSING else "null"
            keys = f"; its keys: {', '.join(list(data)[:10])}" if isinstance(data, dict) and data else ""
            raise self._client.unreadable(http_response, f"The response has {what} at '{self._path}'{keys}")
        return value

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()
