"""Experiments in their folders: what is to do, who does it, and how far it is."""
