"""What is read out of finished runs: comparisons, energy, time over a link, landscapes."""
