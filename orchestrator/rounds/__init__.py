"""The rounds of a run: stepping them, judging models, and the process that drives them."""
