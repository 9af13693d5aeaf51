"""Exact solvers for known finite BMDPs and CMDPs."""
