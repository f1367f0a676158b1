"""A second judgement of the changes that small runs of `verify` did not notice, made from the code.

It was written by somebody who did not write FedVS, and before the first judgement
(`judged_mutants.py`) was read. Its question: does the change alter what a coalition that a claim
speaks about learns beyond the decoded sums? "Tells more" is here also what needs a rare run, as
long as all parties in it are honest: a client crashed, an upload late or lost. Each of these was
shown by a small run, or three by a run of the ledgers alone: it had two sums of the same rows over
other clients, each with K + T uploads, or one sum of T + 1 clients.
"""

from __future__ import annotations

KINDS = {
    "tells": "the view tells more in some run of honest parties",
    "guard": "a guard is weaker that needs a lying server or a lost note on disk",
    "public": "what is sent changes, by public values only",
    "result": "only what is learned changes",
    "none": "the distribution of all that is sent is the same",
}

_NOT_REPORTED = (
    "the server takes late uploads for none, forgets their sum and asks for its rows over other "
    "clients; needs K + T late uploads, and as many clients that did not upload"
)
_CRASHED = (
    "a client that came back forgets, and then does not report, uploads that are not settled; "
    "needs a crash and late uploads"
)
_OTHER_S = (
    "rows that were announced before are announced over other clients; needs a round in which no "
    "row is free, and K + T clients that did not upload before"
)
_UNSURE = (
    "a client that came back does not name rounds since its checkpoint; its note of the upload is "
    "on disk, so the note must be lost as well"
)
_LIE = "clients upload to a second sum; an honest server does not ask for one"
_REFUSES = "clients refuse more than they need"
_SAME = "the server asks for the same clients where it need not"
_WAITS = "more messages are waited for, or for longer"

# Name of a change -> kind, reason.
SECOND: dict[str, tuple[str, str]] = {
    "sums:193:condition dropped:ee63c7": ("tells", _CRASHED),
    "sums:59:argument for call:3ed7dd": ("public", _REFUSES),
    "sums:196:constant:2208bc": ("public", "a client that came back names one round more"),
    "messages:69:comparison:67962d": ("guard", _LIE),
    "algorithm:101:part:268e3b": ("tells", _NOT_REPORTED),
    "sums:116:condition dropped:eaa301": ("public", _SAME),
    "algorithm:336:comparison:f46f44": ("public", "S is repeated where not all of it are there"),
    "algorithm:339:operand:82cb1c": ("tells", _NOT_REPORTED),
    "algorithm:320:repeat:040756": ("public", "the end of the run is announced twice"),
    "parameters:180:operand:e6fe8c": ("public", _WAITS),
    "sums:112:condition dropped:c56aba": ("public", _REFUSES),
    "parameters:180:attribute:525ba4": ("public", _WAITS),
    "algorithm:355:drop an argument:974916": ("public", _WAITS),
    "decoding:54:delete:509175": ("result", "wrong uploads are corrected though it was not asked"),
    "sums:210:delete:130a2b": ("public", _REFUSES),
    "decoding:30:comparison:19be0c": ("result", "wrong uploads are not corrected"),
    "algorithm:355:drop an argument:45a6f1": ("public", _WAITS),
    "algorithm:101:negate:e535b9": ("tells", _NOT_REPORTED),
    "sums:59:drop a sign:cf565c": ("guard", _LIE),
    "sums:112:negate:4d34d0": ("guard", _LIE),
    "algorithm:332:drop an argument:8ca7eb": ("public", _WAITS),
    "sums:177:constant:525e71": ("guard", _UNSURE),
    "algorithm:334:delete:0ef5e2": ("tells", _OTHER_S),
    "sums:183:drop a sign:f7d690": ("guard", _UNSURE),
    "sums:141:and, or:4d29c6": ("tells", _NOT_REPORTED),
    "algorithm:104:drop an argument:5207e3": ("public", _WAITS),
    "sums:184:negate:687063": ("guard", _UNSURE),
    "messages:31:and, or:32b359": ("public", _SAME),
    "algorithm:343:index:3e93bc": (
        "tells",
        "the server notes a sum under the next round, where no report and no upload counts for "
        "it; needs what late uploads need",
    ),
    "algorithm:177:drop a sign:5975be": ("public", _REFUSES),
    "sums:116:negate:57e044": ("tells", _OTHER_S),
    "sums:122:drop a sign:3b6ac3": ("public", "rows of announced sums are asked for first"),
    "lagrange_code:131:operator:d23fa0": ("result", "uploads of which some are wrong never decode"),
    "sums:59:and, or:5ad01a": ("public", _REFUSES),
    "algorithm:378:constant:b9d122": ("result", "half as many steps"),
    "algorithm:90:negate:2340a0": ("guard", _UNSURE),
    "lagrange:82:constant:224c8c": (
        "none",
        "P(alpha) is doubled, and twice a uniform mask is uniform; interpolation cancels it",
    ),
    "decoding:54:drop a sign:309178": ("result", "wrong uploads are corrected where they were not"),
    "algorithm:371:delete:d4843e": ("public", "a run ends after fewer attempts that are given up"),
    "decoding:73:constant:17ba20": ("result", "a run ends in an error after coded inference"),
    "sums:142:negate:607cd4": (
        "tells",
        "one client that did not upload makes the server forget all that may have; then as above",
    ),
    "parameters:160:attribute:b46958": (
        "tells",
        "with T > K a sum may have T + 1 clients, of which T collude: the last one's embedding",
    ),
    "messages:31:drop a sign:e7f67b": (
        "tells",
        "with one batch an epoch rows are summed again over other clients, and nobody refuses",
    ),
    "algorithm:356:attribute:cb00d0": ("result", "with A > 0 too few results are waited for"),
    "sums:177:constant:a50fdd": ("public", "a client that came back names one round more"),
    "sums:177:negate:3e7cd5": ("guard", _UNSURE),
    "sums:210:negate:5f6b6b": (
        "guard",
        "a gradient that moves nothing makes a client forget; a server can send one",
    ),
    "sums:202:comparison:5fe817": ("tells", _NOT_REPORTED),
    "algorithm:91:index:b71840": ("guard", _UNSURE),
    "sums:193:comparison:438ad8": ("tells", _CRASHED),
    "sums:193:negate:ab75ef": ("tells", _CRASHED),
    "sums:184:comparison:7ae7ef": ("guard", _UNSURE),
    "algorithm:338:delete:efcf9e": ("tells", _OTHER_S),
    "sums:142:comparison:947fa8": ("tells", "as `!=` negated: the server forgets what it must not"),
    "sums:127:index:bcdbbf": ("public", "the oldest batch is asked for again, not the newest"),
    "decoding:56:negate:585f3e": ("result", "uploads of which some are wrong never decode"),
}
