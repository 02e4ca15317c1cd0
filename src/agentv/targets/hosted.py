"""Model APIs that are reached through an extra package: Bedrock, Mistral, Cohere."""

from __future__ import annotations

from typing import ClassVar

from agentv.targets.base import ModelApi, address_complaints, without


class Bedrock(ModelApi, frozen=True, kw_only=True):
    """AWS Bedrock; credentials come from where AWS's own tools take them."""

    aliases: ClassVar[dict[str, str]] = {
        **ModelApi.aliases,
        "aws_region": "region",
        "region_name": "region",
        "aws_profile": "profile",
    }

    region: str | None = None
    profile: str | None = None

    def complaints(self) -> list[str]:
        """No model."""
        return without(self, "model")


class _KeyedApi(ModelApi, frozen=True, kw_only=True):
    base_url: str | None = None
    api_key: str | None = None

    def complaints(self) -> list[str]:
        """No model, or an address that is none."""
        return without(self, "model") + address_complaints("base_url", self.base_url)


class Cohere(_KeyedApi, frozen=True, kw_only=True):
    """Cohere's API."""
