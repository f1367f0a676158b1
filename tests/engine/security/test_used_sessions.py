"""The list of used sessions, by two processes at once."""

import threading
import time

import pytest

from securevfl.engine.security import used_sessions
from securevfl.engine.security.used_sessions import refuse_used, use_session
from securevfl.errors import ConfigurationError


@pytest.mark.parametrize("sessions", [("one", "two"), ("one", "one")])
def test_two_that_begin_at_once_miss_nothing(tmp_path, monkeypatch, sessions):
    path, write, refused = tmp_path / "sessions", used_sessions.write_durably, []

    def slowly(*arguments, **options):
        time.sleep(0.1)
        write(*arguments, **options)

    def begin(session, run):
        try:
            use_session(path, session, run)
        except ConfigurationError as error:
            refused.append(str(error))

    monkeypatch.setattr(used_sessions, "write_durably", slowly)
    both = [threading.Thread(target=begin, args=pair) for pair in zip(sessions, "ab", strict=True)]
    for each in both:
        each.start()
    for each in both:
        each.join()
    assert len(refused) == len(sessions) - len(set(sessions))
    assert all("was used in another run" in text for text in refused)
    for session in sessions:
        with pytest.raises(ConfigurationError, match="was used in another run"):
            refuse_used(path, session)
    assert path.stat().st_mode & 0o777 == 0o600
