"""Tests of securevfl; each worker of pytest computes on one thread, and children keep bytecode.

The workers share the cores. Threads of theirs would wait for each other while they keep the cores
busy: tests of small networks took up to a hundred times the time. Who tests threads asks for them.
Processes that tests start, parties on Ray and commands, take 0.3 s less each where compiled modules
are kept.
"""

import os

for _library in ("OMP", "OPENBLAS", "MKL"):  # before any of them is loaded; for subprocesses too
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
