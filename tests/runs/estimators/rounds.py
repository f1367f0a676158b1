"""How long estimators train in the checks of scikit-learn."""

from sklearn.base import clone

# These want a model that has learnt; the others, of which each trains several times, only a fit.
_LEARNING = (
    "check_class_weight_classifiers",
    "check_classifiers_train",
    "check_regressors_train",
)


# Weights of 0 are refused: a row that is not to count is to be left out.

# Of repeated rows float32 adds the terms of a sum in another order: 3e-7 of a score, and 1e-7 are
# asked. The tests of weights here ask 1e-3 of trained models, and rows of weight 0 bit by bit.
ROUNDED = {"check_sample_weight_equivalence_on_dense_data": "sums of float32 in another order"}


def as_short_as_it_may_be(estimator, check):
    """The estimator, with two rounds where the check looks at no score."""
    name = getattr(check, "func", check).__name__
    return estimator if name in _LEARNING else clone(estimator).set_params(rounds=2)
