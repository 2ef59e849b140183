"""Datasets, partitions over clients, and the server's held-out and test sets."""

from orchestrator.data import datasets, features, own, partitioners, text_datasets
from orchestrator.data.federated import FederatedData
from orchestrator.data.samples import Dataset, Samples

__all__ = [
    "Dataset",
    "FederatedData",
    "Samples",
    "datasets",
    "features",
    "own",
    "partitioners",
    "text_datasets",
]
