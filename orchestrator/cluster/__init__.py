"""Ray from outside: who answers, and how long we wait; connecting, reserving room for client
actors, submitting jobs.
"""
