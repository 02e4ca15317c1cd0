"""Embeddings from a local model, using the optional package sentence-transformers."""

import asyncio
import os
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from agentv.errors import UsageError, import_extra
from agentv.model.response import Request, Responder, Response, TargetFailure
from agentv.settings.addresses import host_of
from agentv.targets.apis.model_api import embedding_response, embedding_texts
from agentv.targets.target import Target, missing_keys
from agentv.trust.inventory import NamedUse
from agentv.trust.policy import load_policy

_EXTRA = "embeddings"
INSTALL = f"pip install 'agentv[{_EXTRA}]'"

_DOWNLOADS = "https://huggingface.co"
"""Where the package downloads models from."""


class SentenceTransformers(Target, frozen=True, kw_only=True):
    """A local embedding model, for `similarity`. `model` is a folder, or the name of a model to download."""

    extra: ClassVar[str] = _EXTRA

    model: str
    """Folder, or name of a model to download."""

    device: str | None = None
    """Device for the model: `cpu`, `cuda`."""

    @classmethod
    def uses(cls, settings: Mapping[str, Any]) -> Iterable[NamedUse]:  # noqa: ARG003
        """Return where the package downloads models from, unless `model` is a folder, and the key that it sends."""
        return ("host", host_of(_DOWNLOADS)), ("variable", "HF_TOKEN")

    def complaints(self) -> list[str]:
        """Check that the model is set."""
        return missing_keys(self, "model")

    def open(self, home: str) -> Responder:  # noqa: ARG002
        """Raise UsageError: the provider only computes embeddings."""
        message = f"Target '{self.name}': provider '{self.provider}' computes embeddings and cannot answer prompts"
        raise UsageError(message, hint="Use it as the `target` of a `similarity` evaluator with `method: embedding`")

    def open_embeddings(self, home: str) -> Responder:
        """Load the model, which takes seconds."""
        missing = UsageError(f"Target '{self.name}' needs a package that is not installed", hint=INSTALL)
        package = import_extra("sentence_transformers", missing)  # late: it takes seconds, and few runs need it
        folder = os.path.join(home, os.path.expanduser(self.model))
        if not os.path.isdir(folder):
            load_policy().check_host(_DOWNLOADS)
        try:
            model = package.SentenceTransformer(folder if os.path.isdir(folder) else self.model, device=self.device)
        except Exception as error:
            raise UsageError(f"Target '{self.name}': the model '{self.model}' cannot be loaded", str(error)) from None
        return _LocalModel(model, f"sentence-transformers:{self.model}")


class _LocalModel:
    """A loaded model. Calls run one at a time because each uses all cores."""

    def __init__(self, model: Any, endpoint: str) -> None:
        self.endpoint = endpoint
        self._model = model
        self._lock = asyncio.Lock()

    async def respond(self, request: Request) -> Response:
        """Compute the vectors in a thread."""
        async with self._lock:
            try:
                vectors = await asyncio.to_thread(self._model.encode, embedding_texts(request), show_progress_bar=False)
            except Exception as error:
                raise TargetFailure("process", f"The model failed: {type(error).__name__}: {error}") from error
        return embedding_response([[float(number) for number in vector] for vector in vectors])

    async def aclose(self) -> None:
        """Do nothing: no connection is open."""
