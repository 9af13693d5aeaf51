"""Slow and obviously right answers, to test the library against."""
