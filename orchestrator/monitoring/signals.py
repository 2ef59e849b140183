"""What of a run is exported as Ray metrics: names, meanings, and their keys in a round's record."""

from __future__ import annotations

from dataclasses import dataclass

LABELS = ("experiment", "trial")
"""Labels of every metric. ``trial`` is empty but in sweeps; both have few values."""
PHASES = ("train", "transfer", "aggregate", "evaluate")


@dataclass(frozen=True)
class Signal:
    """A number of each round; Prometheus knows it as ``ray_`` + name."""

    name: str
    key: str
    """Key of a round's record."""
    about: str
    unit: str = "short"
    """Grafana's unit."""


SIGNALS = (
    Signal("fedorch_round", "round", "Rounds done"),
    Signal("fedorch_round_seconds", "seconds", "Duration of the last round", "s"),
    Signal(
        "fedorch_client_seconds", "seconds_client", "Computing of a client in the last round", "s"
    ),
    Signal("fedorch_test_accuracy", "test_accuracy", "Accuracy on the test set", "percentunit"),
    Signal("fedorch_test_loss", "test_loss", "Loss on the test set"),
    Signal("fedorch_train_loss", "train_loss", "Mean loss of the cohort's local training"),
    Signal(
        "fedorch_accuracy_mean", "client_accuracy_mean", "Mean accuracy over clients", "percentunit"
    ),
    Signal(
        "fedorch_accuracy_worst",
        "client_accuracy_worst",
        "Accuracy of the worst client",
        "percentunit",
    ),
    Signal("fedorch_cohort", "cohort", "Clients of the last round"),
    Signal(
        "fedorch_dropped",
        "dropped",
        "Clients of the last round that were lost, too late, or sent NaN",
    ),
    Signal(
        "fedorch_dual_max",
        "dual_max",
        "Largest entry of the dual variable (DRDM, DRFA, AFL, SCAFF-PD)",
    ),
    Signal(
        "fedorch_dual_effective",
        "dual_effective",
        "Clients that the dual variable is spread over, exp(entropy)",
    ),
    Signal(
        "fedorch_variance", "variance_estimate", "Variance monitor H at the end of the round (FDA)"
    ),
    Signal("fedorch_theta", "theta", "Threshold of the variance monitor (FDA)"),
    Signal("fedorch_agent_reward", "reward", "Reward of the last action (FedAA)"),
    Signal(
        "fedorch_malicious_weight",
        "malicious_weight",
        "Malicious clients' share in the aggregate",
        "percentunit",
    ),
    Signal("fedorch_actors", "actors", "Client actors that can work"),
    Signal(
        "fedorch_actors_replaced",
        "actors_replaced",
        "Client actors replaced since the server process began",
    ),
    Signal(
        "fedorch_calls_repeated",
        "calls_repeated",
        "Calls made again because their actor was lost or too slow",
    ),
)
PHASE_SECONDS = "fedorch_phase_seconds"
BYTES = "fedorch_bytes_total"
