"""What `benchmarks.chaos` counts: its plans, and its verdicts on histories and ends."""

import signal
from collections import Counter

from benchmarks.chaos import KINDS, compared, explained, kind_of_end, plan, tally


def history(*losses, **more):
    return [
        {"event": "round", "round": n, "step": n, "time": float(n), "loss": loss} | more
        for n, loss in enumerate(losses, 1)
    ]


def test_a_plan_follows_from_its_number_and_all_kinds_come():
    assert plan(7) == plan(7)
    found = {carrier: set() for carrier in KINDS}
    for n in range(200):
        made = plan(n)
        found[made["carrier"]] |= {kind for _, kind, _ in made["steps"]}
    assert found == {carrier: set(kinds) for carrier, kinds in KINDS.items()}
    assert Counter(plan(n)["carrier"] for n in range(100))["relay"] == 60
    assert {plan(n)["protocol"] for n in range(10)} == {"fedvs", "coded_split"}


def test_every_difference_of_a_history_is_counted():
    wanted = history(0.3, 0.2, 0.1)
    same = {"losses_differ": 0, "rows_differ": 0, "times_fall": 0}
    assert compared(history(0.3, 0.2, 0.1, accuracy=0.5, bytes=7), wanted) == same
    assert compared(history(0.3, 0.2, 0.4), wanted) == same | {"losses_differ": 1, "rows_differ": 1}
    assert compared(history(0.3, 0.2), wanted) == same | {"losses_differ": 1, "rows_differ": 1}
    assert compared(history(0.3, 0.2, 0.1, used=2), wanted)["rows_differ"] == 3
    turned = [wanted[1], wanted[0], wanted[2]]
    found = {"losses_differ": 2, "rows_differ": 2, "times_fall": 1}
    assert compared(turned, wanted) == found
    # A step that a killed server had told to nobody may be missing on a cluster, but not the last.
    assert compared(turned[:0] + wanted[1:], wanted, lossless=False) == same
    assert compared(wanted[:2], wanted, lossless=False)["losses_differ"] == 1


def test_an_end_is_explained_by_a_signal_of_ours_or_a_line():
    assert explained(-signal.SIGKILL, "")
    assert explained(2, "securevfl: party 0: its disk is full")
    assert not explained(2, "")
    assert not explained(1, "Traceback (most recent call last):\n ...")
    assert not explained(-signal.SIGSEGV, "")


def test_ends_of_one_kind_are_counted_together():
    lines = [
        "securevfl: session 'a': party 2 ended with 3",
        "securevfl: session 'b': server ended with 4",
    ]
    assert len({kind_of_end(line) for line in lines}) == 1
    row = {
        "carrier": "relay", "protocol": "fedvs", "done": [["kill", "0"]], "complete": True,
        "hung": {}, "refused": "", "losses_differ": 0, "rows_differ": 2, "files_lost": [],
        "unexplained": [], "ends": [["0", 2, line] for line in lines],
    }  # fmt: skip
    total = tally([row, row | {"hung": {"0": "waits"}, "complete": False}])
    assert (total["runs"], total["complete"], total["hung"], total["rows_differ"]) == (2, 1, 1, 4)
    assert [*total["ends"].values()] == [4]
