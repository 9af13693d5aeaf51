"""Logged transitions: a checked batch of them, files of several kinds, and what is no number."""

from bmdp.data.batch import TransitionBatch, load_batch, load_batches
from bmdp.data.bins import ActionBins
from bmdp.data.columns import Columns
from bmdp.data.encoder import EncodedPolicy, Encoder, StateColumn
from bmdp.data.limits import cost_so_far, weighed
from bmdp.data.logs import EncodedLog, load_log
from bmdp.data.shop import customers
from bmdp.data.store import StoredLog, log_size, store_log
from bmdp.data.summary import BatchSummary

__all__ = [
    "ActionBins",
    "BatchSummary",
    "Columns",
    "EncodedLog",
    "EncodedPolicy",
    "Encoder",
    "StateColumn",
    "StoredLog",
    "TransitionBatch",
    "cost_so_far",
    "customers",
    "load_batch",
    "load_batches",
    "load_log",
    "log_size",
    "store_log",
    "weighed",
]
