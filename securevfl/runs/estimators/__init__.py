"""Estimators for scikit-learn: any protocol behind `fit` and `predict`."""

from securevfl.errors import needs

needs("estimators", "sklearn", "sklearn")
