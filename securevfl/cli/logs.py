"""The options ``-v`` and ``--log-level``, at any place of a command: a log on standard error."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from securevfl.errors import UnknownNameError

LEVELS = ("debug", "info", "warning", "error")
_SHORT = ("-v", "-vv", "--verbose")


class _Lines(logging.Handler):
    """Log handler that looks up standard error at each line, as a progress bar may replace it."""

    verbose = False

    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(self.format(record) + "\n")


def start_logging(verbose: int, level: str | None) -> None:
    """Write the log on standard error, from INFO on with -v and from DEBUG on with -vv.

    Raises
    ------
    UnknownNameError
        For a level that does not exist.
    """
    if level is not None and level.lower() not in LEVELS:
        raise UnknownNameError("log level", level, LEVELS)
    logger = logging.getLogger("securevfl")
    for handler in [h for h in logger.handlers if isinstance(h, _Lines)]:
        logger.removeHandler(handler)  # of an earlier command of the same process
    if not verbose and level is None:
        logger.setLevel(logging.NOTSET)
        return
    chosen = level or ("debug" if verbose > 1 else "info")
    handler = _Lines()
    handler.verbose = verbose > 0
    handler.setFormatter(
        logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S")
    )
    logger.addHandler(handler)
    logger.setLevel(chosen.upper())


def is_verbose() -> bool:
    """Whether the command was given ``--verbose``."""
    handlers = logging.getLogger("securevfl").handlers
    return any(isinstance(one, _Lines) and one.verbose for one in handlers)


def to_the_front(words: Sequence[str]) -> list[str]:
    """Command line words with the log options moved to the front.

    Examples
    --------
    >>> to_the_front(["run", "NAME", "-v", "--log-level", "debug", "--seed", "1"])
    ['-v', '--log-level', 'debug', 'run', 'NAME', '--seed', '1']
    """
    front: list[str] = []
    rest: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            return [*front, *rest, word, *left]
        if word in _SHORT or word.startswith("--log-level="):
            front.append(word)
        elif word == "--log-level" and left:
            front += [word, left.pop(0)]
        else:
            rest.append(word)
    return front + rest
