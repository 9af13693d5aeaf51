"""Logged transitions: a checked batch of them, and files of several kinds."""

from bmdp.data.batch import TransitionBatch, load_batch, load_batches
from bmdp.data.columns import Columns
from bmdp.data.summary import BatchSummary

__all__ = ["BatchSummary", "Columns", "TransitionBatch", "load_batch", "load_batches"]
