"""The connection to Ray: what it leaves of this process's own settings, and how it fails."""

import signal
from types import SimpleNamespace

import pytest

from securevfl.engine.cluster.ray_connection import _connected, _own_handler_of_sigterm
from securevfl.errors import ConfigurationError


def test_ray_does_not_take_sigterm_from_a_run_that_heeds_it():
    """Ray's handler exits at once, without a checkpoint."""

    def own(number, frame):
        raise AssertionError("nobody sends it here")

    before = signal.signal(signal.SIGTERM, own)
    try:
        with _own_handler_of_sigterm():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as ray.init does with its own
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("text", ["The current node timed out during startup.\nMore.", ""])
def test_a_cluster_that_does_not_start_is_told_in_one_line(monkeypatch, text):
    """Ray raises a bare Exception after three minutes on a busy machine."""

    def init(**options):
        raise Exception(text)

    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # so that no token is drawn
    with pytest.raises(ConfigurationError, match="did not start a cluster") as caught:
        _connected(SimpleNamespace(init=init), None)
    assert "\n" not in str(caught.value)
    assert text.partition("\n")[0] in str(caught.value)
