"""Forecasts of a run, computed before it starts: K, field, bytes, memory, times."""
