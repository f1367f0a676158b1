"""Estimators for scikit-learn: a protocol behind `fit` and `predict`."""
