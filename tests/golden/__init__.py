"""The golden record: what runs did before a change that must not change results."""
