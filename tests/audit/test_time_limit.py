"""A check that never ends has a verdict after its time."""

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from securevfl.audit.beside.time_limit import TimeLimitError, time_limit
from securevfl.audit.subject import Subject
from securevfl.audit.verdicts import Evidence
from securevfl.audit.verify import judge
from securevfl.privacy.claims import Claim
from securevfl.testing.runs import make

SHORT = 0.2  # seconds
CLAIM = Claim("server", "features", "perfect", "")


def loops():
    while True:
        pass


def catches_all():
    for _ in range(1):
        try:
            loops()
        except BaseException:
            loops()


def in_a_thread(what):
    with ThreadPoolExecutor(1) as other:
        other.submit(what).result()


@pytest.mark.parametrize(
    "what",
    [
        loops,
        catches_all,
        threading.Event().wait,
        lambda: time.sleep(1e6),
        lambda: in_a_thread(loops),
    ],
    ids=["a loop", "a loop that catches all", "waiting", "sleep", "a loop in a thread"],
)
def test_what_never_ends_is_ended(what):
    ended = pytest.raises(TimeLimitError, match=r"more than 0\.2 s, the limit of one check")
    with ended, time_limit(SHORT):
        what()


def test_a_loop_is_ended_where_it_does_not_run_in_the_main_thread():
    def limited():
        with time_limit(SHORT):
            loops()

    with pytest.raises(TimeLimitError):
        in_a_thread(limited)


ANOTHER_THREAD = """
import sys
from concurrent.futures import ThreadPoolExecutor
from securevfl.audit.beside.time_limit import time_limit

def limited():
    with time_limit(1e6):
        pass

with ThreadPoolExecutor(1) as one:
    one.submit(limited).result()
sys.setprofile(lambda *_: None)
limited()
"""


def test_a_limit_of_another_thread_leaves_no_error_that_nobody_takes():
    """The interpreter would look for it at every call, and loop where a profile function is set."""
    subprocess.run([sys.executable, "-c", ANOTHER_THREAD], check=True, timeout=60)


def test_what_ends_in_time_is_not_disturbed_afterwards():
    with time_limit(1e6):
        pass
    assert not [one for one in threading.enumerate() if one.name == "time limit"]


class Endless:
    """A verifier whose run never ends."""

    name = "endless"

    def __init__(self):
        self.began = 0

    def applies(self, claim, protocol):
        """All."""
        return True

    def examine(self, claim, subject, *, seed, level):
        """Loop in what verifiers share."""
        yield Evidence(self.name, "supports", str(subject.shared("endless", self.run)), "proof")

    def run(self):
        """Loop."""
        self.began += 1
        loops()


def test_the_verdict_names_the_limit_and_no_verifier_begins_the_same_again():
    subject, verifier = Subject(make("fedvs")), Endless()
    for _ in range(2):
        found = judge(CLAIM, subject, [verifier], limit=SHORT)
        assert found.verdict == "COULD NOT BE CHECKED"
        assert "endless ended in TimeLimitError: it took more than 0.2 s" in found.words
    assert verifier.began == 1
