"""How long estimators train in the checks of scikit-learn."""

from sklearn.base import clone

# These want a model that has learnt; the others, of which each trains several times, only a fit.
_LEARNING = (
    "check_class_weight_classifiers",
    "check_classifiers_train",
    "check_regressors_train",
)


def as_short_as_it_may_be(estimator, check):
    """The estimator, with two rounds where the check looks at no score."""
    name = getattr(check, "func", check).__name__
    return estimator if name in _LEARNING else clone(estimator).set_params(rounds=2)
