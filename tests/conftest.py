"""Tests repeat themselves; `--hypothesis-profile=explore` draws new examples at every run."""

from hypothesis import settings

settings.register_profile("explore", deadline=None)
settings.register_profile("repeat", deadline=None, derandomize=True, database=None)
settings.load_profile("repeat")
