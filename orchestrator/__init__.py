"""Runs federated experiments on Ray; knows nothing of any one algorithm."""
