"""Parts of the levels covert and active that methods share."""
