"""Messages per second of the simulation: all parties send to all, round after round.

Prints one JSON object. Run it as ``python benchmarks/engine.py [PARTIES] [ROUNDS]``; the design
asks for at least 100,000 messages a second at 28 parties.
"""

from __future__ import annotations

import json
import sys
from time import perf_counter, process_time
from typing import Any

import numpy as np

from securevfl.engine.conditions import paper
from securevfl.engine.party import Party
from securevfl.engine.simulation.simulator import Simulation

REQUIRED = 100_000


class Talker(Party):
    """Sends an array to everyone and collects one from everyone, `wanted` times."""

    def __init__(self, index: int, peers: range, wanted: int) -> None:
        super().__init__(index, peers)
        self.wanted = wanted
        self.array = np.zeros(64, np.uint64)

    async def run(self) -> None:
        for number in range(1, self.wanted + 1):
            self.round = number
            self.broadcast("model", self.array, to=self.peers)
            await self.collect("model")


def messages_per_second(parties: int = 28, rounds: int = 200) -> dict[str, Any]:
    """Run all to all under the paper's delays and bandwidth; messages to oneself do not count."""
    talkers = {n: Talker(n, range(parties), rounds) for n in range(parties)}
    simulation = Simulation(talkers, conditions=paper(parties, batch_rows=64))
    start, cpu_start = perf_counter(), process_time()
    simulation.run()
    seconds, cpu_seconds = perf_counter() - start, process_time() - cpu_start
    messages = simulation.transcript.messages
    return {
        "benchmark": "engine, all to all",
        "parties": parties,
        "rounds": rounds,
        "messages": messages,
        "seconds": round(seconds, 3),
        "messages_per_second": round(messages / seconds),
        "messages_per_cpu_second": round(messages / cpu_seconds),
        "required": REQUIRED,
    }


if __name__ == "__main__":
    print(json.dumps(messages_per_second(*map(int, sys.argv[1:])), indent=2))
