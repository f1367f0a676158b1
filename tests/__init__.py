"""Tests of securevfl; each worker of pytest computes on one thread.

The workers share the cores. Threads of theirs would wait for each other while they keep the cores
busy: tests of small networks took up to a hundred times the time. Who tests threads asks for them.
"""

import os

for _library in ("OMP", "OPENBLAS", "MKL"):  # before any of them is loaded; for subprocesses too
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")
