"""Files that commands of pages read, and that none of them has written.

Logs (`.parquet`, `.csv`, `.h5`, `.npz`), models (`.npz`, for `bmdp solve`), and modules with an
environment of the page's own (`module:Name-v0`).
"""

import doctest
import re
import sys
from glob import glob
from pathlib import Path

import numpy as np
import pandas as pd

import bmdp
from bmdp.exact import textbook
from pages.rules import require


def make_input(word, page, *, is_model):
    """Makes the file that a word names, in the current folder, unless it is there.

    Args:
        word: of a command, or a string of a program.
        page: text of the page.
        is_model: whether an `.npz` is a model, and no log.
    """
    environment = re.fullmatch(r"(\w+):((\w+)-v\d+)", word)
    if environment:
        module, env_id, name = environment.groups()
        _write_module(Path(f"{module}.py"), name, env_id, page)
        sys.modules.pop(module, None)
    path = Path(word.replace("*", "0"))
    if path.suffix not in WRITERS or glob(word):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if is_model and path.suffix == ".npz":
        textbook.problem("branches").model.save(path)
    else:
        WRITERS[path.suffix](ferry_log(), path)


def ferry_log(n_days=100):
    """The ferry of the pages: waits, leaves soon or at once; nobody ever stayed (action 2)."""
    rng, n_rows = np.random.default_rng(0), 3 * n_days
    step, action = np.arange(n_rows) % 3, rng.choice([0, 1, 3], size=n_rows)
    return bmdp.TransitionBatch(
        state=step,
        action=action,
        reward=1.0 + action,
        cost=1.0 * (rng.random(n_rows) < 0.1 * action),
        next_state=step + 1,
        terminal=step == 2,
        episode=np.arange(n_rows) // 3,
        step=step,
        probability=np.full(n_rows, 1 / 3),
    )


def _write_as_users_do(batch, path):
    """Without episodes, steps and next states, which follow from the order of rows."""
    names = ("action", "reward", "cost", "terminal", "probability")
    columns = {name: getattr(batch, name) for name in names}
    pd.DataFrame({"state": batch.state[:, 0], **columns}).to_parquet(path)


def _write_trips(batch, path):
    """With text, and names of the page's own."""
    step = batch.step
    trips = {
        "weather": np.where(batch.episode % 2 == 0, "calm", "storm"),
        "crossing": step,
        "hurry": np.where(batch.action > 0, "yes", "no"),
        "fare": batch.reward,
        "damage": batch.cost,
        "done": batch.terminal,
        "day": batch.episode,
    }
    pd.DataFrame(trips).to_csv(path, index=False)


WRITERS = {
    ".parquet": _write_as_users_do,
    ".csv": _write_trips,
    ".npz": bmdp.TransitionBatch.to_npz,
    ".h5": bmdp.TransitionBatch.to_hdf5,
    ".hdf5": bmdp.TransitionBatch.to_hdf5,
}


def _write_module(path, name, env_id, page):
    """A module with the imports of a page and its class of this name, which it registers."""
    sources = [example.source for example in doctest.DocTestParser().get_examples(page)]
    kept = [source for source in sources if re.match(rf"(from|import) |class {name}\(", source)]
    require(any(s.startswith("class") for s in kept), f"the page has no class {name}.")
    path.write_text("".join(kept) + f"\ngymnasium.register({env_id!r}, {name})\n")
