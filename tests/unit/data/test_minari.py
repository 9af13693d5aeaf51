"""Datasets of Minari, recorded by its own collector in the corridors."""

import sys
import types
import warnings

import gymnasium
import minari
import numpy as np
import pytest
from gymnasium import spaces
from minari.data_collector.episode_buffer import EpisodeBuffer

import bmdp  # noqa: F401  (registers the environments)
from bmdp import ConfigError, DataError, MissingDependency, StoreError
from bmdp.data import TransitionBatch
from bmdp.learn.auto import read_source
from logs import assert_same, columns, corridor_log, full, small

SEEDS = range(3, 23)


def tree_map(function, tree, *rest):
    """What Minari's collector needs of `jax.tree_util`, for those who have no jax."""
    if isinstance(tree, dict):
        return {k: tree_map(function, v, *(r[k] for r in rest)) for k, v in tree.items()}
    return function(tree, *rest)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A place for datasets, and a stand-in for jax."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    stand_in = types.ModuleType("jax.tree_util")
    stand_in.tree_map = tree_map
    package = types.ModuleType("jax")
    package.tree_util = stand_in
    monkeypatch.setitem(sys.modules, "jax", package)
    monkeypatch.setitem(sys.modules, "jax.tree_util", stand_in)
    return tmp_path


def play(env, watch=lambda *row: None):
    """Plays episodes of known seeds with actions of known seeds."""
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        state, _ = env.reset(seed=seed)
        over, step = False, 0
        while not over:
            action = int(rng.integers(5))
            after, reward, terminated, truncated, info = env.step(action)
            watch(state, action, reward, info["cost"], after, terminated, truncated, seed, step)
            state, over, step = after, terminated or truncated, step + 1


def record(env, dataset_id="corridors/random-v0", **settings):
    collector = minari.DataCollector(env, **settings)
    play(collector)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no author, and so on; a folder that it does not clean up
        dataset = collector.create_dataset(dataset_id)
    collector._tmp_dir.cleanup()
    return dataset


def dataset_of(*episodes, dataset_id="made/by-hand-v0", **chosen):
    """A dataset of given episodes."""
    given = {
        "observation_space": spaces.Box(-10, 10, (2,), np.float64),
        "action_space": spaces.Discrete(3),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return minari.create_dataset_from_buffers(dataset_id, list(episodes), **given | chosen)


def episode(n_steps=3, **changes):
    ended = np.arange(n_steps) == n_steps - 1
    held = {
        "observations": np.arange(2.0 * n_steps + 2).reshape(-1, 2),
        "actions": np.arange(n_steps) % 3,
        "rewards": np.ones(n_steps),
        "terminations": ended,
        "truncations": np.zeros(n_steps, bool),
        "infos": {"cost": np.linspace(0, 1, n_steps + 1)},
    }
    return EpisodeBuffer(**held | changes)


@pytest.mark.parametrize("data_format", ["hdf5", "arrow"])
def test_a_recorded_dataset_holds_what_was_played(data_format):
    dataset = record(
        gymnasium.make("bmdp/Corridors-v0"), record_infos=True, data_format=data_format
    )
    rows = []
    play(gymnasium.make("bmdp/Corridors-v0"), lambda *row: rows.append(row))
    state, action, reward, cost, after, terminal, truncated, seed, step = zip(*rows, strict=True)
    wanted = TransitionBatch(
        *(np.array(state), action, reward, cost, np.array(after), terminal),
        truncated=truncated,
        episode=np.array(seed) - SEEDS[0],
        step=step,
        n_actions=5,
    )
    assert wanted.cost.any()
    for given in (dataset, "corridors/random-v0"):
        assert_same(TransitionBatch.from_minari(given), wanted)


def test_a_folder_is_a_dataset_too(home):
    dataset = record(gymnasium.make("bmdp/Corridors-v0"), record_infos=True)
    wanted = TransitionBatch.from_minari(dataset)
    folder = home / "corridors" / "random-v0"
    assert_same(TransitionBatch.from_minari(folder), wanted)
    assert_same(TransitionBatch.from_minari(folder / "data"), wanted)


def test_some_of_the_episodes_keep_their_numbers():
    dataset = record(gymnasium.make("bmdp/Corridors-v0"), record_infos=True)
    whole = TransitionBatch.from_minari(dataset)
    part = TransitionBatch.from_minari(dataset.filter_episodes(lambda e: e.id != 1))
    assert_same(part, whole.take(whole.episode != 1))


def test_a_dataset_without_infos_says_how_to_record_them():
    dataset = record(gymnasium.make("bmdp/Corridors-v0"))
    message = (
        r"infos must hold 'cost'; episode 0 has none. Minari does not record infos by default: "
        r"record them with DataCollector\(env, record_infos=True\)"
    )
    with pytest.raises(DataError, match=message):
        TransitionBatch.from_minari(dataset)


def test_infos_without_costs_are_listed():
    dataset = dataset_of(episode(infos={"speed": np.zeros(4), "lane": np.zeros(4)}))
    with pytest.raises(DataError, match="infos must hold 'cost'; episode 0 has lane, speed"):
        TransitionBatch.from_minari(dataset)


def test_costs_without_that_of_the_reset_are_refused():
    dataset = dataset_of(episode(), episode(infos={"cost": np.zeros(3)}))
    with pytest.raises(DataError, match=r"\[T \+ 1\] = \[4\], .*; got \[3\] in episode 1"):
        TransitionBatch.from_minari(dataset)


def test_the_cost_of_the_reset_belongs_to_no_step():
    dataset = dataset_of(episode(infos={"cost": np.array([99.0, 1.0, 2.0, 3.0])}))
    assert TransitionBatch.from_minari(dataset).cost.tolist() == [1.0, 2.0, 3.0]


def test_terminated_and_truncated_are_kept_apart():
    ended, not_yet = np.array([0, 0, 1], bool), np.zeros(3, bool)
    batch = TransitionBatch.from_minari(
        dataset_of(
            episode(terminations=ended, truncations=not_yet),
            episode(terminations=not_yet, truncations=ended),
            episode(terminations=ended, truncations=ended),  # Gymnasium allows it
        )
    )
    assert np.flatnonzero(batch.terminal).tolist() == [2, 8]
    assert np.flatnonzero(batch.truncated).tolist() == [5]


def test_continuous_actions_need_a_function():
    dataset = dataset_of(
        episode(actions=np.array([[-0.9], [0.1], [0.8]], np.float32)),
        action_space=spaces.Box(-1, 1, (1,)),
    )
    with pytest.raises(DataError, match=r"only Discrete actions are .* got Box.* Give discretise"):
        TransitionBatch.from_minari(dataset)
    batch = TransitionBatch.from_minari(dataset, discretise=lambda a: np.digitize(a[:, 0], [0]))
    assert batch.action.tolist() == [0, 1, 1]
    assert batch.n_actions == 2


def test_actions_are_counted_from_0():
    dataset = dataset_of(
        episode(actions=np.array([1, 2, 3])), action_space=spaces.Discrete(3, start=1)
    )
    with pytest.raises(DataError, match=r"counted from 0; .*start=1.* Give discretise"):
        TransitionBatch.from_minari(dataset)


@pytest.mark.parametrize(
    ("space", "seen"),
    [
        (
            spaces.Dict({"x": spaces.Box(0, 9, (1,), np.float64)}),
            {"x": np.zeros((4, 1))},
        ),
        (spaces.Tuple((spaces.Box(0, 9, (1,), np.float64),)), (np.zeros((4, 1)),)),
    ],
    ids=["Dict", "Tuple"],
)
def test_observations_that_are_no_arrays_are_refused(space, seen):
    dataset = dataset_of(episode(observations=seen), observation_space=space)
    with pytest.raises(DataError, match=r"observation_space must be one of arrays; got .*Flatten"):
        TransitionBatch.from_minari(dataset)


def test_numbered_observations_are_states_of_one_number():
    space = spaces.Discrete(10)
    dataset = dataset_of(episode(observations=np.arange(4)), observation_space=space)
    assert TransitionBatch.from_minari(dataset).next_state.tolist() == [[1.0], [2.0], [3.0]]


def test_a_dataset_without_episodes_is_refused():
    with pytest.raises(DataError, match="dataset must hold at least one step; got none"):
        TransitionBatch.from_minari(dataset_of())


@pytest.mark.parametrize("name", ["nowhere/nothing-v0", "nothing"])
def test_a_dataset_that_is_not_here_is_named(name):
    with pytest.raises(StoreError, match=f"{name} is not a Minari dataset that is here"):
        TransitionBatch.from_minari(name)


def test_a_folder_that_is_no_dataset_is_named(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError, match="folder is not a Minari dataset that is here"):
        TransitionBatch.from_minari(tmp_path / "folder")


def test_a_kind_that_needs_more_is_one_line_with_the_command(monkeypatch):
    def needy(_):
        raise ImportError("h5py is not installed")

    monkeypatch.setattr(minari, "load_dataset", needy)
    with pytest.raises(MissingDependency, match=r"by/hand-v0 is .*: pip install 'bmdp\[data\]'"):
        TransitionBatch.from_minari("by/hand-v0")


# Writing.


def test_episodes_come_back_numbered_anew():
    written = full().to_minari("by/hand-v0", description="By hand.", env="bmdp/Corridors-v0")
    assert written.total_episodes == 2
    assert written.env_spec.id == "bmdp/Corridors-v0"
    wanted = full(episode=[0, 0, 0, 1, 1, 1])
    assert_same(TransitionBatch.from_minari("by/hand-v0"), wanted)


def test_minari_reads_costs_with_that_of_the_reset():
    first = full().to_minari("by/hand-v0")[0]
    assert first.infos["cost"].tolist() == [0.0, 0.0, 0.5, 0.0]
    assert first.observations.shape == (4, 2)


def test_single_precision_stays_single():
    seen = {name: columns()[name].astype(np.float32) for name in ("state", "next_state")}
    small(**seen, n_actions=4).to_minari("by/hand-v0")
    batch = TransitionBatch.from_minari("by/hand-v0")
    assert batch.state.dtype == np.float32
    assert batch.n_actions == 4


def test_an_episode_that_does_not_end_is_written_as_truncated():
    small().to_minari("by/hand-v0")
    batch = TransitionBatch.from_minari("by/hand-v0")
    assert batch.truncated.tolist() == [False] * 5 + [True]
    assert batch.episode.tolist() == [0, 0, 0, 1, 1, 1]
    assert batch.step.tolist() == [0, 1, 2, 0, 1, 2]


def test_a_log_of_mixed_episodes_is_sorted_by_them():
    log = corridor_log(n_slots=4)
    log.to_minari("corridors/random-v1")
    found = TransitionBatch.from_minari("corridors/random-v1")
    numbers = dict.fromkeys(log.episode.tolist())
    order = np.concatenate([np.flatnonzero(log.episode == number) for number in numbers])
    np.testing.assert_array_equal(found.state, log.state[order])
    np.testing.assert_array_equal(found.cost, log.cost[order])
    np.testing.assert_array_equal(found.probability, log.probability[order])
    assert not (found.truncated & found.terminal).any()


@pytest.mark.parametrize(
    "batch",
    [
        full().take([0, 2, 3, 4]),  # a step is missing
        full().take([1, 2, 3, 4]),  # begins midway
        full(step=None).take([0, 2, 3, 4]),
        small().take([3, 0, 1, 2]),
    ],
)
def test_only_whole_episodes_are_written(batch):
    with pytest.raises(DataError, match=r"whole episodes, .* of row \[0\] is none"):
        batch.to_minari("by/hand-v0")


def test_an_existing_dataset_is_left_alone():
    full().to_minari("by/hand-v0")
    with pytest.raises(StoreError, match=r"by/hand-v0 cannot be written: .*already exists"):
        small().to_minari("by/hand-v0")
    assert TransitionBatch.from_minari("by/hand-v0").budget is not None


@pytest.mark.parametrize("name", ["", "no version", "by/hand"])
def test_an_id_has_a_version(name, tmp_path):
    with pytest.raises(DataError, match="dataset_id must be like 'corridors/random-v0'; got"):
        small().to_minari(name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dataset", [None, 3, [1], object()])
def test_what_is_no_dataset_is_refused(dataset):
    with pytest.raises(DataError, match="dataset must be of Minari, or the id or folder of one"):
        TransitionBatch.from_minari(dataset)


def test_a_dataset_is_a_source_of_a_fit_by_id_and_by_folder(home):
    log = corridor_log().take(corridor_log().episode < 5)
    whole = log.take(np.isin(log.episode, log.episode[log.terminal]))
    whole.to_minari("corridors/source-v0")
    by_id = read_source("corridors/source-v0").batch
    assert_same(by_id, TransitionBatch.from_minari("corridors/source-v0"))
    for source in (home / "corridors/source-v0", [home / "corridors/source-v0"]):
        assert_same(read_source(source).batch, by_id)


def test_a_name_that_is_neither_an_environment_nor_a_dataset_is_refused():
    with pytest.raises(ConfigError, match="no environment is called 'corridors/nowhere-v0'"):
        read_source("corridors/nowhere-v0")
