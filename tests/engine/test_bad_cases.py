"""Cases that always fail, among healthy ones: they are errors after their retries, and do not look like an outage."""

import time
from collections import Counter

import pytest

from agentv_testing import FaultyServer, RawReply

RETRIES = 2
REPLIES = {
    "500": RawReply(b"{}", 500),
    "503": RawReply(b"{}", 503),
    "429": RawReply(b"{}", 429),
    "429, wait": RawReply(b"{}", 429, headers={"Retry-After": "1"}),
    "page": RawReply(b"<html>Error</html>", 200),
}
