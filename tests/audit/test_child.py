"""The child process: its result and errors come back, and it is ended when its time is over."""

import os
import time
from functools import partial

import pytest

from securevfl.audit.child import ChildEndedError, in_child
from securevfl.audit.verify import verify
from securevfl.errors import ConfigurationError, RunError, UnknownNameError
from securevfl.protocols.split import Split
from securevfl.testing.runs import tiny_data

LONG = 120.0


def doubled(value, progress):
    progress(f"doubling {value}")
    return 2 * value


def raises(error, progress):
    raise error


def ends(progress):
    os._exit(3)


def waits(progress):
    progress("waiting")
    time.sleep(LONG)


class Endless(Split):
    """A protocol whose making has no end."""

    name = "endless"

    def __init__(self, *given, **options):
        while True:
            pass


def test_a_result_comes_back_with_its_progress():
    told = []
    assert in_child(partial(doubled, 21), LONG, told.append) == 42
    assert told == ["doubling 21"]


def test_errors_of_the_library_are_raised_here():
    with pytest.raises(RunError, match="no more"):
        in_child(partial(raises, RunError("no more")), LONG, print)


def test_an_error_that_cannot_be_sent_keeps_its_words():
    with pytest.raises(ConfigurationError, match="did you mean split"):
        in_child(partial(unknown), LONG, print)


def unknown(progress):
    raise UnknownNameError("protocol", "splt", ["split"])


def test_a_process_that_ends_by_itself_is_told():
    with pytest.raises(ChildEndedError, match="ended by itself"):
        in_child(ends, LONG, print)


def test_a_process_is_ended_when_its_time_is_over():
    with pytest.raises(ChildEndedError, match=r"more than 0\.01 s, the limit"):
        in_child(waits, 0.01, print)


def test_what_no_other_process_can_import_is_refused():
    with pytest.raises(ConfigurationError, match="limit needs a protocol and data that another"):
        in_child(lambda progress: None, LONG, print)


def test_a_protocol_without_an_end_is_a_verdict():
    report = verify(Endless, tiny_data(), limit=0.5)
    assert [one.verdict for one in report.claims] == ["COULD NOT BE CHECKED"]
    assert "it took more than 0.5 s" in report.claims[0].words
