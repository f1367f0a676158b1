"""Games that tell two secrets apart by the views of runs: their rules, and the runs played on."""
