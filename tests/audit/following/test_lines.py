"""What is taken of what a party writes."""

import atexit
import logging
import os
import socket
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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


def datagram():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM):
        pass


def in_a_thread():
    one = threading.Thread(target=list)
    one.start()
    one.join()


@pytest.mark.parametrize(
    ("act", "name"),
    [
        (datagram, "socket.__new__"),
        (in_a_thread, "threading.Thread.start"),
        (lambda: time.sleep(0), "time.sleep"),
        (lambda: os.mkdir("folder"), "os.mkdir"),
        (lambda: os.utime("."), "os.utime"),
        (lambda: Path("file").write_text("a value"), "a file is written"),
        (lambda: atexit.register(list), "something to be called when the interpreter ends"),
    ],
)
def test_acts_that_reach_beyond_a_step_are_taken(act, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines, taken = Lines(), []
    with lines.watch(), lines.into(taken):
        act()
    atexit.unregister(list)
    assert [one.said.removeprefix("act of the process: ") for one in taken] == [name]


def test_acts_of_other_threads_are_no_partys():
    lines, taken = Lines(), []
    with ThreadPoolExecutor(1) as other:
        other.submit(list).result()  # its thread is there
        with lines.watch(), lines.into(taken):
            other.submit(time.sleep, 0).result()
    assert taken == []


def test_what_was_there_is_there_again():
    before = sys.stdout, os.write, warnings.warn, logging.Logger.handle, time.sleep
    with Lines().watch():
        assert sys.stdout is not before[0]
    assert (sys.stdout, os.write, warnings.warn, logging.Logger.handle, time.sleep) == before


def test_compilers_of_kernels_log_for_nobody():
    lines, taken = Lines(), []
    with lines.watch(), lines.into(taken):
        logging.getLogger("numba.core.byteflow").debug("pages")
    assert taken == []
