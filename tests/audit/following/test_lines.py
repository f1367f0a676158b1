"""What is taken of what a party writes."""

import logging
import os
import sys
import warnings

import pytest

from securevfl.audit.following.lines import Lines

LOG = logging.getLogger("securevfl.somewhere")


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda: sys.stdout.write("a value"), "screen: a value"),
        (lambda: sys.stderr.write("a value"), "screen: a value"),
        (lambda: sys.stdout.writelines(["a value"]), "screen: a value"),
        (lambda: sys.stdout.buffer.write(b"a value"), "screen: b'a value'"),
        (lambda: LOG.debug("a %s", "value"), "log: DEBUG securevfl.somewhere: a value"),
        (lambda: LOG.error("a value"), "log: ERROR securevfl.somewhere: a value"),
    ],
)
def test_what_is_written_is_taken_once_and_only_while_it_is_asked_for(write, words, capsys):
    lines, taken = Lines(), []
    with lines.watch():
        write()
        capsys.readouterr()
        with lines.into(taken):
            write()
            with lines.into(None):
                write()
    assert [one.said for one in taken] == [words]


def test_warnings_are_taken_and_given():
    lines, taken = Lines(), []
    with lines.watch(), lines.into(taken), pytest.warns(UserWarning, match="a value"):
        warnings.warn("a value", stacklevel=1)
    assert [one.said for one in taken] == ["warning: a value"]


def test_bytes_to_a_descriptor_are_taken_and_written():
    lines, taken = Lines(), []
    reader, writer = os.pipe()
    with lines.watch(), lines.into(taken):
        os.write(writer, b"a value")
    assert os.read(reader, 100) == b"a value"
    assert "b'a value'" in taken[0].said


def test_what_was_there_is_there_again():
    before = sys.stdout, os.write, warnings.warn, logging.Logger.handle
    with Lines().watch():
        assert sys.stdout is not before[0]
    assert (sys.stdout, os.write, warnings.warn, logging.Logger.handle) == before


def test_compilers_of_kernels_log_for_nobody():
    lines, taken = Lines(), []
    with lines.watch(), lines.into(taken):
        logging.getLogger("numba.core.byteflow").debug("pages")
    assert taken == []
