"""Transitions in datasets of Minari, episode by episode.

Costs are `infos["cost"]`, of T + 1 entries for T steps: the first is that of the reset, so that
step t has cost `infos["cost"][t + 1]`. `infos["action_mask"]`, of T + 1 entries too, says which
actions are available, if it is there. Minari records no infos unless it is asked to:

    env = minari.DataCollector(gymnasium.make("bmdp/Corridors-v0"), record_infos=True)
    env.reset(seed=0)

Its collector needs `pip install 'minari[create]'`. Give it seeds: those that it draws by itself
have 64 bits, and the environments of this library take 32.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from bmdp.arrays import IntArray
from bmdp.data.columns import Discretise
from bmdp.data.episodes import in_order, numbered_by_ends
from bmdp.data.formats import extra
from bmdp.envs.adapters import why_not_discrete
from bmdp.errors import BmdpError, DataError, MissingDependency, StoreError
from bmdp.storage import one_line

_EXTRAS = {name: f"bmdp_{name}" for name in ("budget", "next_budget", "probability")}
_FLAT_SPACES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


def read_minari(
    dataset: Any, discretise: Discretise | None = None
) -> tuple[dict[str, Any], int | None]:
    """Returns the columns of a dataset, and its number of actions if that is known.

    Args:
        dataset: a `MinariDataset`, or the id or the folder of one.
        discretise: makes whole numbers of actions that are none.

    Raises:
        StoreError: if there is no such dataset.
        DataError: if it has no costs, or spaces that are not supported.
    """
    opened = _opened(dataset) if isinstance(dataset, str | os.PathLike) else dataset
    if not hasattr(opened, "iterate_episodes"):
        raise DataError(
            f"dataset must be of Minari, or the id or folder of one; got {type(opened).__name__}."
        )
    seen, played = opened.observation_space, opened.action_space
    if not isinstance(seen, _FLAT_SPACES):
        raise DataError(
            f"observation_space must be one of arrays; got {seen}. "
            "Record the dataset with gymnasium.wrappers.FlattenObservation."
        )
    fault = why_not_discrete(played)
    if fault is not None and discretise is None:
        raise DataError(f"{fault}. Give discretise, which makes whole numbers from 0 on of others.")
    with _reading(dataset):
        parts = [_episode(episode) for episode in opened.iterate_episodes() if len(episode)]
    if not parts:
        raise DataError("dataset must hold at least one step; got none.")
    shared = set.intersection(*(set(part) for part in parts))
    columns: dict[str, Any] = {
        name: np.concatenate([part[name] for part in parts]) for name in parts[0] if name in shared
    }
    if discretise is None:
        return columns, int(played.n)
    actions = columns["action"]
    return columns | {"action": discretise(actions.reshape(len(actions), -1))}, None


def write_minari(
    columns: Mapping[str, NDArray[Any]], n_actions: int, dataset_id: str, details: dict[str, Any]
) -> Any:
    """Writes whole episodes, and returns the dataset.

    Raises:
        DataError: if rows are not those of whole episodes, or the id is none.
        StoreError: if there is such a dataset already, or it cannot be written.
    """
    minari = extra("minari")
    extra("h5py")
    _require_id(dataset_id)
    state = columns["state"]
    space = spaces.Box(-np.inf, np.inf, state.shape[1:], state.dtype.type)
    buffers = [_buffer(columns, rows) for rows in _whole_episodes(columns)]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of details that were not given
            return minari.create_dataset_from_buffers(
                dataset_id,
                buffers,
                observation_space=space,
                action_space=spaces.Discrete(n_actions),
                **details,
            )
    except (OSError, ValueError) as error:
        raise StoreError(f"{dataset_id} cannot be written: {error}") from error


def local_minari(dataset_id: str) -> Path | None:
    """Returns the folder of a dataset that is on this machine, or None, without loading Minari."""
    root = os.environ.get("MINARI_DATASETS_PATH") or os.path.expanduser("~/.minari/datasets")
    place = Path(root, dataset_id)
    return place if os.path.isfile(place / "data" / "metadata.json") else None


def _opened(name: str | os.PathLike[str]) -> Any:
    minari = extra("minari")
    try:
        if os.path.isdir(name):
            inner = os.path.join(name, "data")
            return minari.MinariDataset(inner if os.path.isdir(inner) else name)
        return minari.load_dataset(str(name))
    except ImportError as error:
        raise MissingDependency(
            f"{name} is of a kind that Minari needs more for: pip install 'bmdp[data]'"
        ) from error
    except Exception as error:  # of Minari, or of what reads its files
        raise StoreError(
            f"{name} is not a Minari dataset that is here: {one_line(error)[:200]}"
        ) from error


@contextmanager
def _reading(dataset: Any) -> Iterator[None]:
    """Says in one line that a dataset cannot be read, whatever Minari raises."""
    try:
        yield
    except BmdpError:
        raise
    except Exception as error:
        name = dataset if isinstance(dataset, str | os.PathLike) else type(dataset).__name__
        raise StoreError(f"{name} cannot be read: {one_line(error)[:200]}") from error


def _episode(episode: Any) -> dict[str, NDArray[Any]]:
    """Returns the columns of one episode."""
    n_steps = len(episode)
    infos = episode.infos or {}
    if "cost" not in infos:
        found = ", ".join(infos) if infos else "none"
        raise DataError(
            f"infos must hold 'cost'; episode {episode.id} has {found}. Minari does not record "
            "infos by default: record them with DataCollector(env, record_infos=True)."
        )
    if np.shape(infos["cost"]) != (n_steps + 1,):
        raise DataError(
            f"infos['cost'] must have shape [T + 1] = [{n_steps + 1}], the first of the reset; "
            f"got {list(np.shape(infos['cost']))} in episode {episode.id}."
        )
    observations, terminal = np.asarray(episode.observations), np.asarray(episode.terminations)
    columns = {
        "state": observations[:-1],
        "action": np.asarray(episode.actions),
        "reward": np.asarray(episode.rewards),
        "cost": np.asarray(infos["cost"])[1:],
        "next_state": observations[1:],
        "terminal": terminal,
        # Gymnasium may say both at once, and then nothing follows.
        "truncated": np.asarray(episode.truncations) & ~terminal,
        "episode": np.full(n_steps, int(episode.id)),
        "step": np.arange(n_steps),
    }
    others = {name: np.asarray(infos[key])[1:] for name, key in _EXTRAS.items() if key in infos}
    if "action_mask" in infos:
        masks = np.asarray(infos["action_mask"])
        if masks.shape[:1] != (n_steps + 1,):
            raise DataError(
                f"infos['action_mask'] must have shape [T + 1, A], T being {n_steps}; "
                f"got {list(masks.shape)} in episode {episode.id}."
            )
        others |= {"available": masks[:-1], "next_available": masks[1:]}
    return columns | others


def _whole_episodes(columns: Mapping[str, NDArray[Any]]) -> list[IntArray]:
    """Returns the rows of each episode, in order.

    Raises:
        DataError: if one begins midway, or a next state is not the state of the next row.
    """
    terminal, step = columns["terminal"], columns.get("step")
    episode = columns.get("episode")
    if episode is None:
        episode = numbered_by_ends(terminal | columns.get("truncated", terminal), step)
    order = in_order(episode, step)
    cuts = np.flatnonzero(np.diff(episode[order])) + 1
    episodes = np.split(order, cuts)
    for rows in episodes:
        follows = (columns["next_state"][rows[:-1]] == columns["state"][rows[1:]]).all(axis=1)
        counts = np.arange(len(rows))
        if not follows.all() or (step is not None and (step[rows] != counts).any()):
            raise DataError(
                "a Minari dataset must hold whole episodes, each next state the state of the next "
                f"row; the episode of row [{rows[0]}] is none. Write another kind of file."
            )
    return episodes


def _buffer(columns: Mapping[str, NDArray[Any]], rows: IntArray) -> Any:
    """Returns an episode as Minari takes it."""
    part = {name: values[rows] for name, values in columns.items()}
    goes_on = np.zeros(len(rows), np.bool_)
    goes_on[-1] = not part["terminal"][-1]
    infos = {"cost": np.append(0.0, part["cost"])}
    for name, key in _EXTRAS.items():
        if name in part:
            infos[key] = np.append(part[name][0], part[name])  # the reset has none of its own
    if "available" in part:
        masks = np.append(part["available"], part["next_available"][-1:], axis=0)
        infos["action_mask"] = masks.astype(np.int8)
    return extra("minari.data_collector.episode_buffer").EpisodeBuffer(
        observations=np.append(part["state"], part["next_state"][-1:], axis=0),
        actions=part["action"],
        rewards=part["reward"],
        terminations=part["terminal"],
        truncations=part.get("truncated", goes_on),
        infos=infos,
    )


def _require_id(dataset_id: str) -> None:
    parse = extra("minari.dataset.minari_dataset").parse_dataset_id
    try:
        parse(dataset_id)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"dataset_id must be like 'corridors/random-v0'; got {dataset_id!r}."
        ) from error
