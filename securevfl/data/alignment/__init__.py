"""Common samples of several parties: private set intersection, joins, partial overlap."""
