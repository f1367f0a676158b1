"""Verification of protocols whose results are masked from keys (`Prss`)."""
