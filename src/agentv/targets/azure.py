"""Azure OpenAI: a model deployed under the user's own endpoint."""

from __future__ import annotations

import re
from typing import ClassVar, Literal, NamedTuple
from urllib.parse import parse_qs, quote

from agentv.environment import environment_of
from agentv.errors import UsageError
from agentv.model.response import Responder
from agentv.targets.base import ModelApi, address_complaints, without
from agentv.targets.chat_completions import Dialect
from agentv.targets.model_api import WireApi, open_api, overlaid
from agentv.targets.openai import PATHS, Logprobs, wire_of

NEW_VERSIONS = frozenset({"v1", "preview", "latest"})
"""The versions of the address without a date, in which a deployment is named in the body alone."""

_KEY, _TOKEN = "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN"
_OLD_NAME_UNTIL = "2024-09"
_RESOURCE = re.compile(r"[\w-]+(?:\.[\w.-]+(?:[:/?]\S*)?)?")
"""The name of a resource, or its address without the scheme."""


class _Place(NamedTuple):
    """An endpoint taken apart: scheme and host, and the version that is asked for; empty for none."""

    base: str
    version: str


class Azure(ModelApi, frozen=True, kw_only=True):
    """Models deployed on Azure OpenAI.

    `endpoint` is an address or the name of a resource; `model` is the deployment. With a date as `version` calls go
    to the older address, which has the deployment and `api-version` in it; without one, or as `v1`, to `/openai/v1`.
    Where no `api_key` is written, `AZURE_OPENAI_API_KEY` is taken, else `AZURE_OPENAI_AD_TOKEN`, a token of Entra.
    """

    aliases: ClassVar[dict[str, str]] = {
        **ModelApi.aliases,
        "resource": "endpoint",
        "resource_name": "endpoint",
        "base_url": "endpoint",
        "deployment": "model",
        "deployment_name": "model",
        "api_version": "version",
        "api_format": "api",
    }

    endpoint: str | None = None
    api_key: str | None = None
    version: str | None = None
    api: Literal["chat", "responses"] = "chat"
    logprobs: Logprobs = None

    def complaints(self) -> list[str]:
        """No endpoint or no model, or an endpoint that is neither an address nor the name of a resource."""
        found = without(self, "endpoint", "model")
        endpoint = self.endpoint or ""
        if endpoint.startswith(("http://", "https://")):
            return found + address_complaints("endpoint", endpoint)
        if endpoint.strip() and "{{" not in endpoint and not _RESOURCE.fullmatch(endpoint):
            found.append(f"'endpoint' must be an address or the name of a resource, got '{endpoint}'")
        return found

    def open(self, home: str) -> Responder:
        """The deployment, ready to be asked."""
        version = self._place.version
        # Old versions know the limit of tokens by its old name only, new models by its new one only.
        is_old = version[:1].isdigit() and version < _OLD_NAME_UNTIL
        dialect = Dialect(output_limit="max_tokens" if is_old else "max_completion_tokens")
        return self._open_at(home, PATHS[self.api], wire_of(self, self.api, self.logprobs, dialect))

    def open_embeddings(self, home: str) -> Responder:
        """Embeddings of the deployment, ready to be asked for."""
        from agentv.targets.embeddings import embeddings_wire  # late: few runs need any

        return self._open_at(home, "/embeddings", embeddings_wire(self.model))

    @property
    def _place(self) -> _Place:
        place = _place(str(self.endpoint))
        return _Place(place.base, (self.version or place.version or "v1").removeprefix("api-version="))

    def _open_at(self, home: str, path: str, wire: WireApi) -> Responder:
        headers = self._credentials(home)
        key = next(iter(headers.values()))
        base, version = self._place
        return open_api(base + self._path(path, version), key, overlaid(headers, self.headers), wire, base=base)

    def _path(self, path: str, version: str) -> str:
        if version in NEW_VERSIONS:
            return f"/openai/v1{path}" + ("?api-version=preview" if version == "preview" else "")
        deployment = "" if path == PATHS["responses"] else f"/deployments/{quote(str(self.model), safe='')}"
        return f"/openai{deployment}{path}?api-version={quote(version)}"

    def _credentials(self, home: str) -> dict[str, str]:
        known = environment_of(home).variables
        key, token = self.api_key or known.get(_KEY), known.get(_TOKEN)
        if key:
            return {"api-key": key}
        if token:
            return {"Authorization": f"Bearer {token}"}
        raise UsageError(
            f"Target '{self.name}' has no 'api_key'",
            hint=f"Set {_KEY}, or {_TOKEN} to a token of Entra, in the environment or in .env",
        )


def _place(endpoint: str) -> _Place:
    """The place of an endpoint: a resource's name, its address, or an address copied with its path and version."""
    if not endpoint.startswith(("http://", "https://")):
        if "." not in endpoint:
            return _Place(f"https://{endpoint}.openai.azure.com", "")
        endpoint = f"https://{endpoint}"
    address, _, query = endpoint.partition("?")
    base = re.split(r"/openai(?:/|$)", address.rstrip("/"), maxsplit=1)[0]
    return _Place(base, next(iter(parse_qs(query).get("api-version", ())), ""))
