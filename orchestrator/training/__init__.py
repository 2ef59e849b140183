"""Local training and evaluation: the same code in an actor and in the driver's process."""
