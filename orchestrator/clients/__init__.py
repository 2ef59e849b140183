"""The clients as an algorithm sees them, and the two planes that run them: in this process, or on
Ray actors.
"""
