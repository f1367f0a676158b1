"""Verdicts with few settings, on what shows in each of them.

All settings of the methods are run in test_followed_runs.py, test_verify.py and test_traffic.py.
"""

from securevfl.audit.settings import settings_of
from securevfl.audit.subject import Subject
from securevfl.audit.verifiers.registry import VERIFIERS
from securevfl.audit.verify import judge


def few(protocol):
    """The first setting, and one with late clients."""
    return [one for one in settings_of(protocol) if one.name in ("resumed", "clients late")]


def verdicts(protocol, claims):
    """Verdicts on claims of a protocol, in their order, from small runs in few settings."""
    subject = Subject(protocol, settings=few)
    verifiers = tuple(VERIFIERS.all().values())
    return [judge(claim, subject, verifiers).verdict for claim in claims]
