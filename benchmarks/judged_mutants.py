"""What became of the changes that `verify` did not notice, as their authors judge them.

A change is judged by what it does to the views of the server and of coalitions.
"""

from __future__ import annotations

KINDS = {
    "view": "the view is another one",
    "control": "control messages say something else, and no secret is in them",
    "liveness": "only who is asked, when, or whether the run goes on",
    "result": "only what is learned",
    "": "not judged",
}

JUDGED: dict[str, tuple[str, str]] = {}
