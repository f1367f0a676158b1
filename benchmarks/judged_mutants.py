"""Effects on the views of server and coalitions of the changes that `verify` did not notice.

Judged by reading; the sums of `mutations.sums_that_tell_more` were counted.
"""

from __future__ import annotations

KINDS = {
    "leak": "the view tells more in the runs that were made, a defect of the verifier",
    "guard": "a guard is weaker that needs a crash, a lying server or a zero gradient to be missed",
    "control": "control messages say something else, which follows from no secret",
    "liveness": "only who is asked, when, or whether the run goes on",
    "result": "only what is learned",
    "": "not judged",
}

_REFUSES = "clients or the server see conflicts where there are none"
_FORGETS = (
    "the server forgets sums too early or too late; clients refuse second sums, but after a crash"
    " they believe its word"
)
_RETURNS = "a client that came back says or counts another range of rounds than it is unsure of"
_LARGE = "the step of a client has another length"

JUDGED: dict[str, tuple[str, str]] = {
    "algorithm:328:index:5a64e1": ("guard", _FORGETS),
    "algorithm:103:constant:d14f1d": (
        "guard",
        "clients remember uploads after steps and refuse; after a gradient that moves nothing they"
        " forget, and upload to a second sum of the same models",
    ),
    "sums:206:negate:c711ae": (
        "guard",
        "clients remember uploads after steps and refuse; after a gradient that moves nothing they"
        " forget, and upload to a second sum of the same models",
    ),
    "sums:61:and, or:be748c": ("liveness", _REFUSES),
    "sums:110:condition dropped:81740e": ("liveness", _REFUSES),
    "sums:114:condition dropped:abcb27": ("liveness", _REFUSES),
    "messages:30:and, or:62e31a": ("liveness", _REFUSES),
    "algorithm:319:slice dropped:ff6f12": ("control", "all dealers that dealt are used, not T + 1"),
    "sums:120:drop a sign:0a2dd7": ("liveness", "the server asks for rows again, of the same sums"),
    "sums:148:condition dropped:b4d641": ("guard", _FORGETS),
    "sums:138:negate:15a761": ("guard", _FORGETS),
    "sums:138:and, or:4a5ee6": ("guard", _FORGETS),
    "sums:199:negate:08edbb": ("guard", "clients do not say that they uploaded; " + _FORGETS),
    "parameters:201:operand:6c5cfa": (
        "liveness",
        "more results are asked for than are needed",
    ),
    "algorithm:88:part:1337ae": ("guard", "clients do not say that they uploaded; " + _FORGETS),
    "decoding:38:comparison:577be9": (
        "liveness",
        "with tolerate_corrupt sound uploads are refused",
    ),
    "decoding:40:negate:196802": ("liveness", "with tolerate_corrupt sound uploads are refused"),
    "lagrange_code:128:operator:8edc82": ("liveness", "more results are asked for than are needed"),
    "terms:30:part:eb2956": ("liveness", "with absent=last clients refuse stale models"),
    "algorithm:366:delete:ca8ae1": ("control", "absent=last does what omit does"),
    "algorithm:320:comparison:4e8152": ("control", "absent=last does what omit does"),
    "terms:92:comparison:6a54ea": ("control", "absent=last takes in other stale models"),
    "algorithm:106:operand:71d816": ("liveness", "clients lack the shares of stale models"),
    "algorithm:159:operator:1566e8": ("result", _LARGE),
    "algorithm:159:attribute:0e5110": ("result", _LARGE),
    "parameters:186:operand:e6c944": ("control", "the same clients deal in every round"),
    "parameters:186:operator:e6f45c": ("control", "clients deal in another turn"),
    "algorithm:163:drop a sign:3eedb2": ("liveness", _REFUSES),
    "algorithm:320:part:aed25c": ("control", "absent=last does what omit does"),
    "terms:91:delete:350657": ("control", "absent=last does what omit does"),
    "terms:30:comparison:c1a444": ("liveness", "with absent=last clients refuse stale models"),
    "algorithm:318:condition dropped:d0bac7": (
        "liveness",
        "dealers are named that have not dealt in time, and their masks are waited for",
    ),
    "algorithm:78:index:71a6b0": ("guard", _RETURNS),
    "algorithm:75:negate:494ae1": ("guard", _RETURNS),
    "sums:180:drop a sign:58c320": ("guard", _RETURNS),
    "terms:114:delete:eeacfa": ("liveness", "the server waits for an attempt that it did not name"),
    "algorithm:340:drop an argument:89ccca": ("liveness", "the server waits without an end"),
}
