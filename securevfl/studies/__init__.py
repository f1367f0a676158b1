"""Many runs: TOML files of studies, comparisons side by side, means and intervals."""
