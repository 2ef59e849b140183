"""Ray from outside: connecting, reserving room for client actors, submitting jobs."""
