"""The ``fedorch`` command: its words, and what it prints that belongs to no other room."""
