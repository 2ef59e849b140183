"""FedAA's agents on RLlib."""
