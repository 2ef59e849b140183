"""The clients as an algorithm sees them, and the planes that run them: here, or on Ray actors."""
