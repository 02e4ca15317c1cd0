"""Models of Amazon Bedrock in promptfoo: the API that an id is sent to, and settings with other names."""

from __future__ import annotations

import re
from typing import Any

from agentv.datasets.foreign.foreign_format import Lose
from agentv.datasets.foreign.values import is_blank, object_at

_NO_CHAT = re.compile(r"bedrock:(?:(?:api|nova-sonic)(?::|$)|.*(?:amazon\.nova-(?:sonic|reel)|luma\.ray))")
_MANTLE = re.compile(
    r"(?P<mode>mantle|responses):(?P<model>.+)"
    r"|(?:(?:converse|completion):)?(?P<frontier>(?:openai\.(?!.*gpt-oss)|xai\.grok-).+)"
)
"""Models behind an address with the API of OpenAI: of an engine that the id names, or of OpenAI and xAI."""

_GROK, _GEMMA = "xai.grok-", "google.gemma-4"


def is_no_chat(id: str) -> bool:
    """Whether an id names a model of speech or video of Bedrock, or a request in the form of the service."""
    return _NO_CHAT.match(id) is not None


def routed(id: str, config: dict[str, Any], lose: Lose) -> tuple[str, dict[str, Any]]:
    """Return the id and the config with usual names; those of a provider of OpenAI for a model with that API."""
    rest = id.removeprefix("bedrock:")
    match = _MANTLE.fullmatch(rest)
    if match is None:
        return id, _common_settings(rest, config)
    model = match["model"] or match["frontier"]
    is_frontier, is_grok = match["frontier"] is not None, model.startswith(_GROK)
    default = "us-west-2" if is_grok else "us-east-2" if is_frontier else "us-east-1"
    if is_blank(config.get("region")) and is_blank(config.get("apiBaseUrl")):
        lose(f"the region of '{rest}' in AWS_REGION, if it is set: {default} is used. Set `region` in its config")
    route = "openai/v1" if is_frontier or is_grok or model.startswith(_GEMMA) else "v1"
    own = {
        "apiBaseUrl": f"https://bedrock-mantle.{config.get('region') or default}.api.aws/{route}",
        "apiKey": "${{ AWS_BEARER_TOKEN_BEDROCK }}",
        **({"omitDefaults": True} if is_frontier or is_grok else {}),
    }
    mode = "chat" if match["mode"] == "mantle" else "responses"
    settings = {key: value for key, value in config.items() if key != "region" and not is_blank(value)}
    return f"openai:{mode}:{model}", {**own, **settings}


def _common_settings(rest: str, config: dict[str, Any]) -> dict[str, Any]:
    names = {"maxTokens": "max_tokens"} if rest.startswith("converse:") else {"max_gen_len": "max_tokens"}
    common = {names.get(key, key): value for key, value in config.items()}
    nova = object_at(config, "interfaceConfig")
    if nova.keys() & {"max_new_tokens", "temperature"} and nova.keys() <= {"max_new_tokens", "temperature"}:
        del common["interfaceConfig"]
        common |= {"max_tokens" if key == "max_new_tokens" else key: value for key, value in nova.items()}
    return common
