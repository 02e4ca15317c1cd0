"""Translate the HTTP providers of promptfoo to entries of a targets file."""

from __future__ import annotations

import os
import re
from typing import Any

from agentv.datasets.foreign.foreign_format import Lose
from agentv.datasets.foreign.values import is_blank, object_at, text_of
from agentv.extensions.promptfoo.functions.calls import FUNCTION_FILE
from agentv.extensions.promptfoo.transform_code import request_code, response_code

_HTTP_KEYS = (
    *("url", "method", "headers", "body", "queryParams", "request", "useHttps", "auth", "basePath"),
    *("transformRequest", "transformResponse", "responseParser", "sessionParser", "session", "stateful"),
)
_FIRST_LINE = re.compile(r"([A-Z]+) (\S.*) HTTP/[\d.]+")


def http_entry(id: str, config: dict[str, Any], folder: str, lose: Lose) -> dict[str, Any]:
    """Return the target for an HTTP provider, without a name. Raises ValueError."""
    request = _raw_request(id, config) if isinstance(config.get("request"), str) else _request(id, config)
    for key in ("session", "signatureAuth", "tls", "multipart"):
        if not is_blank(config.get(key)):
            raise ValueError(f"'{key}' is not supported; use a target of provider `python`")
    for key in sorted(config.keys() - {*_HTTP_KEYS}):
        lose(f"'{key}' in the config of a provider")
    parser = config.get("transformResponse") or config.get("responseParser")
    entry = {**request, **_authorization(request, config)}
    if code := text_of(config.get("transformRequest")):
        function = _function_file(code, folder)
        entry |= {"prompt_function": function} if function else {"prompt_javascript": request_code(code)}
    function = _function_file(text_of(parser), folder)
    own = {"response_function": function} if function else {"javascript": response_code(text_of(parser))}
    return {**entry, **own}


def _function_file(code: str, folder: str) -> str:
    """Return the JavaScript file of a function, with its name; empty for other code."""
    file = FUNCTION_FILE.match(code) if code.startswith("file://") else None
    is_script = file is not None and not file["file"].endswith(".py")
    return os.path.abspath(os.path.join(folder, code.removeprefix("file://"))) if is_script else ""


def _request(id: str, config: dict[str, Any]) -> dict[str, Any]:
    url = config.get("url", id)
    if not isinstance(url, str) or "://" not in url:
        raise ValueError("it has no `url`")
    entry: dict[str, Any] = {"provider": "promptfoo_http", "url": url}
    entry["method"] = text_of(config.get("method")).upper() or "GET"
    if isinstance(config.get("queryParams"), dict):
        entry["query"] = {key: text_of(value) for key, value in config["queryParams"].items()}
    return entry | {key: config[key] for key in ("headers", "body") if not is_blank(config.get(key))}


def _raw_request(id: str, config: dict[str, Any]) -> dict[str, Any]:
    """Return the request in a text as it is sent: a first line, headers, and a body after an empty line."""
    head, _, body = config["request"].strip().replace("\r\n", "\n").partition("\n\n")
    first, *lines = head.split("\n")
    match = _FIRST_LINE.fullmatch(first.strip())
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if match is None or not headers.get("host"):
        raise ValueError("its `request` needs a first line such as `POST /path HTTP/1.1`, and the header `Host`")
    is_secure = config.get("useHttps") or text_of(config.get("url", id)).startswith("https")
    url = f"{'https' if is_secure else 'http'}://{headers.pop('host')}{match[2]}"
    own = {key: value for key, value in headers.items() if key != "content-length"}
    entry = {"provider": "promptfoo_http", "method": match[1], "url": url, "headers": own, "raw": True}
    return {**entry, "body": body.strip()} if body.strip() else entry


def _authorization(request: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Return the headers or the query with the key of `auth`. Raises ValueError."""
    auth = object_at(config, "auth")
    if is_blank(config.get("auth")):
        return {}
    kind, place = auth.get("type"), auth.get("placement")
    name = "query" if kind == "api_key" and place == "query" else "headers"
    own = request.get(name, {})
    if not isinstance(own, dict):
        raise ValueError(f"its `{name}` must be an object")
    if kind == "bearer" and "token" in auth:
        return {name: {**own, "authorization": f"Bearer {auth['token']}"}}
    if kind == "api_key" and place in ("header", "query") and {"keyName", "value"} <= auth.keys():
        return {name: {**own, auth["keyName"]: auth["value"]}}
    raise ValueError(
        f"'auth' of type '{kind}' is not supported, or it is incomplete; use a target of provider `python`"
    )
