"""Ray Tune over experiments: the papers' grids and tables."""
