"""How long estimators train in the checks of scikit-learn."""

from sklearn.base import clone

# These want a model that has learnt; the others, of which each trains several times, only a fit.
_LEARNING = (
    "check_class_weight_classifiers",
    "check_classifiers_train",
    "check_regressors_train",
)


# Weights of 0 are refused: a row that is not to count is to be left out.
ZERO_WEIGHTS = dict.fromkeys(
    (
        "check_sample_weight_equivalence_on_dense_data",
        "check_sample_weight_equivalence_on_sparse_data",
        "check_classifiers_one_label_sample_weights",
    ),
    "it has weights of 0, which are refused",
)


def as_short_as_it_may_be(estimator, check):
    """The estimator, with two rounds where the check looks at no score."""
    name = getattr(check, "func", check).__name__
    return estimator if name in _LEARNING else clone(estimator).set_params(rounds=2)
