"""Watching runs on a cluster: Ray metrics and a Grafana dashboard of them, and a live view for the
terminal.
"""
