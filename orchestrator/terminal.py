"""The terminal: where everything is printed, and the metrics that a person looks at first."""

from __future__ import annotations

from rich.console import Console

console = Console()
errors = Console(stderr=True)

HEADLINES = {  # metric -> what a person calls it, in this order
    "test_accuracy": "test accuracy",
    "test_loss": "test loss",
    "heldout_accuracy": "held-out accuracy",
    "client_accuracy_mean": "client accuracy, mean",
    "client_accuracy_worst": "client accuracy, worst",
    "client_accuracy_worst10": "client accuracy, worst 10 %",
    "client_accuracy_std": "client accuracy, std",
    "personal_accuracy_mean": "personal accuracy, mean",
    "personal_accuracy_worst": "personal accuracy, worst",
    "train_loss": "local training loss",
}
