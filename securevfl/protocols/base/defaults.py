"""Default protocols, and other words for options.

Packages above `protocols` discover protocols and read their properties. Default names are only in
this module, so that no other module names a protocol.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

#: Protocol of `plan`, `keys manifest`, the benchmarks and the scikit-learn classifier.
DEFAULT = "fedvs"

#: Protocols in the examples of help pages: the default one, its unprotected baseline, an
#: asynchronous one, and one that adds noise.
SHOWN: Mapping[str, str] = {
    "default": DEFAULT,
    "baseline": "split",
    "asynchronous": "vafl",
    "noisy": "wait_dp",
}

#: Protocols of `bench scale`: those that share, and their unprotected baseline.
SCALED = (DEFAULT, "coded_split", "split")

#: Names of options in other programs, and ours.
ALIASES: Mapping[str, str] = {
    "learning_rate": "lr",
    "client_learning_rate": "client_lr",
    "batch_size": "batch",
    "num_rounds": "rounds",
    "n_rounds": "rounds",
    "num_parties": "parties",
    "n_parties": "parties",
    "dataset": "data",
    "class_weight": "class_weights",
    "random_state": "seed",
    "output": "out",
    "output_dir": "out",
}

#: Options of other programs that have no equal here, and what to do.
NO_OPTION: Mapping[str, str] = {
    "epochs": "a run counts rounds, of one batch each. E epochs of M rows in batches of B are "
    "E * M / B rounds: set rounds",
    "certificate": "certificates are of protocols that are written with protected values "
    "(docs/proof.md); the others have verdicts alone",
    **dict.fromkeys(
        ("gpu", "cuda", "device"),
        "networks are computed on the CPU, but by methods that have the option device: set "
        "device = cuda there, and leave it out elsewhere",
    ),
    **dict.fromkeys(
        ("parties", "strips", "test_fraction", "scaling"),
        "it is an option of the data: in the table [data] of a study, in load_dataset(NAME, ...) "
        "in Python, and beside --data on the command line",
    ),
}

_ADVANCED = """
momentum weight_decay optimizer lr_decay hidden centre device own_centre own_loss class_weights
client_lr_decay client_weight_decay client_step own_client weight_bound layers
aggregation embedding prime data_bits model_bits gradient_bits bits key_bits rounding prepare
tolerate_corrupt release result_timeout ask_timeout max_attempts cohorts quorum threshold
consistency amplify_at_most patience timeout staleness temperature corruption projection predictor
memory ema pretrain_batch pretrain_lr pretrain_optimizer pretrain_stop pretrain_held_out
guest_activation guest_hidden host_activation host_hidden host_width buffer replay stop_after
held_out interval reassign beta1 beta2 tau gradient_clip
"""
#: Options that a first run leaves alone. Help pages show them with ``--help-all``.
ADVANCED = frozenset(_ADVANCED.split())


def is_advanced(name: str, extra: object = None) -> bool:
    """Whether help pages hide an option by default.

    Parameters
    ----------
    name : str
        Name of the option.
    extra : object
        ``json_schema_extra`` of the field; ``{"advanced": True}`` marks an advanced option.
    """
    return name in ADVANCED or (isinstance(extra, dict) and extra.get("advanced") is True)


def our_name(name: str, known: Collection[str]) -> str:
    """This library's name for another program's option; an unknown name stays unchanged.

    A name in `known` is also unchanged.

    Examples
    --------
    >>> our_name("learning_rate", {"lr", "rounds"}), our_name("epochs", {"epochs"})
    ('lr', 'epochs')
    """
    ours = ALIASES.get(name, name)
    return ours if name not in known and ours in known else name
