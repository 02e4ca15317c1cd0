"""The HTTP connection to a collector: replies are read up to a limit, and state how many spans were rejected.

Needs the package `requests`, so it is imported late.
"""

from time import monotonic
from typing import Any

import msgspec
import requests
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

_MOST_BYTES = 64 << 10
_READ_S = 5.0


class CollectorSession(requests.Session):
    """Sends exports. `rejected` is how many spans the last reply rejected."""

    def __init__(self) -> None:
        super().__init__()
        self.rejected = 0

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """Send an export and read the start of the reply. A redirect is a failure: no spans were accepted."""
        response = super().send(request, **{**kwargs, "stream": True, "allow_redirects": False})
        body = _start_of_body(response)
        self.rejected = _rejected(body, response.headers.get("Content-Type", ""))
        if response.status_code // 100 == 3:
            response.status_code = 421  # the server cannot answer for this address
        return response


def _start_of_body(response: requests.Response) -> bytes:
    """Return the body of a reply, as far as it arrives within the limits."""
    deadline = monotonic() + _READ_S
    body = bytearray()
    with response:
        try:
            for part in response.iter_content(1):  # larger parts would wait until they are complete
                body += part
                if len(body) >= _MOST_BYTES or monotonic() > deadline:
                    break
        except requests.RequestException:
            pass  # the status arrived, which decides
    return bytes(body)


def _rejected(body: bytes, content_type: str) -> int:
    """Return how many spans a reply rejects; 0 if it has no such number."""
    try:
        if "json" in content_type:
            count = msgspec.json.decode(body)["partialSuccess"]["rejectedSpans"]
        else:
            count = ExportTraceServiceResponse.FromString(body).partial_success.rejected_spans
        return max(0, int(count))
    except Exception:  # other replies: of any content, for example HTML
        return 0
