"""Estimators for scikit-learn: a protocol behind `fit` and `predict`."""

from securevfl.errors import needs

needs("estimators", "sklearn", "sklearn")
