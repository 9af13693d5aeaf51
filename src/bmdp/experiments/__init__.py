"""Experiments: what is run, with which settings, and what is kept of it."""
