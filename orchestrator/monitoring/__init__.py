"""Watching runs on a cluster: Ray metrics, a Grafana dashboard, a live view for the terminal."""
