"""Read and write YAML 1.2."""

import threading

from agentv.lazy_regex import lazy_compilation

if threading.active_count() == 1:
    with lazy_compilation():
        import yaml  # noqa: F401  # compiling the patterns of its Python parser takes longer than importing the rest
