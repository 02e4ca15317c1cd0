"""An evaluator as a dataset names it: type, name, weight and the type's own settings. Not the thing that scores."""

from __future__ import annotations

from typing import Any

import msgspec

from agentv.model.values import FrozenDict, digest

DEFAULT_TYPE = "llm_judge"


class EvaluatorSpec(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Plain data from which an evaluator is built where it runs; equal by content, safe to pickle."""

    type: str
    name: str
    weight: float = 1.0
    required: bool | float = False
    negate: bool = False
    transform: FrozenDict | None = None
    target: str | tuple[str, ...] | None = None
    settings: FrozenDict = FrozenDict()

    def to_data(self) -> dict[str, Any]:
        """The entry as a dataset would write it: defaults left out, then the type's own settings."""
        data: dict[str, Any] = {"type": self.type, "name": self.name}
        if self.weight != 1:
            data["weight"] = self.weight
        for key in ("required", "negate", "transform", "target"):
            value = getattr(self, key)
            if value is not None and value is not False:
                data[key] = value
        return data | self.settings

    @property
    def fingerprint(self) -> str:
        """A hash of everything that shapes its scores, as far as the entry itself says it."""
        return digest({key: value for key, value in self.to_data().items() if key not in ("name", "weight")})


DEFAULT_EVALUATOR = EvaluatorSpec(type=DEFAULT_TYPE, name=DEFAULT_TYPE)
