"""Tests of evaluation, with problems that others play, too."""
