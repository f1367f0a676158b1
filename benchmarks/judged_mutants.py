"""Effects on the views of server and coalitions of the changes that `verify` did not notice.

Judged by reading alone, by those who wrote FedVS. `judged_again.py` has the judgement of another;
where they differ, runs say that the other is right.
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
_UNSAID = "clients do not say that they uploaded; " + _FORGETS
_STILL = (
    "clients remember uploads after steps and refuse; after a gradient that moves nothing they"
    " forget, and upload to a second sum of the same models"
)
_MORE = "more results are asked for than are needed"
_WAITS = "the server, or a client, waits for more messages than it needs"
_UNSEEN = (
    "neither server nor clients see a second sum of the same rows and other models; the server"
    " asks for none, since it takes other rows, or the same models"
)

JUDGED: dict[str, tuple[str, str]] = {
    "sums:193:condition dropped:ee63c7": ("guard", _RETURNS),
    "sums:193:comparison:438ad8": ("guard", _RETURNS),
    "sums:193:negate:ab75ef": ("guard", _RETURNS),
    "sums:59:argument for call:3ed7dd": ("liveness", _REFUSES),
    "sums:196:constant:2208bc": ("guard", _RETURNS),
    "messages:69:comparison:67962d": ("guard", _UNSEEN),
    "algorithm:101:part:268e3b": ("guard", _UNSAID),
    "algorithm:101:negate:e535b9": ("guard", _UNSAID),
    "sums:202:comparison:5fe817": ("guard", _UNSAID),
    "sums:116:condition dropped:eaa301": (
        "liveness",
        "the server takes the clients of an earlier sum of other rows, who are not all there",
    ),
    "sums:116:negate:57e044": ("guard", _UNSEEN),
    "sums:112:condition dropped:c56aba": ("liveness", _REFUSES),
    "sums:112:negate:4d34d0": ("guard", _UNSEEN),
    "sums:59:drop a sign:cf565c": ("guard", _UNSEEN),
    "sums:59:and, or:5ad01a": ("liveness", _REFUSES),
    "messages:31:and, or:32b359": ("liveness", _REFUSES),
    "messages:31:drop a sign:e7f67b": ("guard", _UNSEEN),
    "algorithm:336:comparison:f46f44": (
        "liveness",
        "the server names clients that did not share, and waits for them",
    ),
    "algorithm:334:delete:0ef5e2": (
        "liveness",
        "attempts on rows of an earlier sum have other clients, and are given up",
    ),
    "algorithm:338:delete:efcf9e": (
        "liveness",
        "attempts on rows of an earlier sum have other clients, and are given up",
    ),
    "algorithm:339:operand:82cb1c": ("guard", _FORGETS),
    "algorithm:343:index:3e93bc": ("guard", _FORGETS),
    "sums:141:and, or:4d29c6": ("guard", _FORGETS),
    "sums:142:negate:607cd4": ("guard", _FORGETS),
    "sums:142:comparison:947fa8": ("guard", _FORGETS),
    "algorithm:320:repeat:040756": ("control", "the end of the run is announced twice"),
    "parameters:180:operand:e6fe8c": ("liveness", _MORE),
    "parameters:180:attribute:525ba4": ("liveness", _MORE),
    "lagrange_code:131:operator:d23fa0": ("liveness", _MORE),
    "algorithm:356:attribute:cb00d0": (
        "liveness",
        "with tolerate_corrupt too few results are awaited, and the attempt is given up",
    ),
    "parameters:160:attribute:b46958": (
        "liveness",
        "an attempt needs K + 2 clients, here more than T + 2",
    ),
    "algorithm:355:drop an argument:974916": ("liveness", _WAITS),
    "algorithm:355:drop an argument:45a6f1": ("liveness", _WAITS),
    "algorithm:332:drop an argument:8ca7eb": ("liveness", _WAITS),
    "algorithm:104:drop an argument:5207e3": ("liveness", _WAITS),
    "algorithm:371:delete:d4843e": (
        "liveness",
        "attempts that are given up are counted over the whole run, which ends sooner",
    ),
    "sums:122:drop a sign:3b6ac3": ("liveness", "the server asks for rows again, of the same sums"),
    "sums:127:index:bcdbbf": (
        "liveness",
        "the server asks for the rows of an older sum again, with its clients",
    ),
    "algorithm:177:drop a sign:5975be": (
        "liveness",
        "clients remember uploads after steps, and refuse",
    ),
    "sums:210:delete:130a2b": ("liveness", "clients remember uploads after steps, and refuse"),
    "sums:210:negate:5f6b6b": ("guard", _STILL),
    "sums:177:constant:525e71": ("guard", _RETURNS),
    "sums:177:constant:a50fdd": ("guard", _RETURNS),
    "sums:177:negate:3e7cd5": ("guard", _RETURNS),
    "sums:183:drop a sign:f7d690": ("guard", _RETURNS),
    "sums:184:negate:687063": ("guard", _RETURNS),
    "sums:184:comparison:7ae7ef": ("guard", _RETURNS),
    "algorithm:90:negate:2340a0": ("guard", _RETURNS),
    "algorithm:91:index:b71840": ("guard", _RETURNS),
    "decoding:54:delete:509175": (
        "result",
        "uploads are decoded as if some could be wrong, to the same sums",
    ),
    "decoding:54:drop a sign:309178": (
        "result",
        "wrong uploads are not corrected, and sound ones are decoded as if some could be wrong",
    ),
    "decoding:30:comparison:19be0c": ("result", "wrong uploads are not corrected"),
    "decoding:73:constant:17ba20": (
        "result",
        "padded rows count as rows, and the run ends in an error",
    ),
    "algorithm:378:constant:b9d122": (
        "result",
        "every step counts twice, and the run has half as many",
    ),
    "lagrange:82:constant:224c8c": (
        "result",
        "P is doubled at every point: masks are 2 P rho, as uniform as P rho",
    ),
    "decoding:56:negate:585f3e": ("liveness", "with tolerate_corrupt every attempt is given up"),
}
