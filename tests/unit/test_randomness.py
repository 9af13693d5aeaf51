import numpy as np
import pytest
from scipy import stats

from bmdp import BmdpError, ConfigError, EpisodeStreams
from bmdp.randomness import named_generator, stream_key


def numpy_numbers(key, episode, step, n):
    """What numpy's Philox gives for the counter (0, step, episode); it first adds one."""
    counter = (episode << 128) + (step << 64) - 1
    words = [(counter >> (64 * i)) & (2**64 - 1) for i in range(4)]
    bits = np.random.Philox(key=np.array(key, np.uint64), counter=np.array(words, np.uint64))
    return np.random.Generator(bits).random(n)


@pytest.mark.parametrize("step", [1, 2, 10**6])
@pytest.mark.parametrize("n_draws", [1, 4, 5, 11])
def test_streams_are_numpys_philox(step, n_draws):
    episodes = [0, 3, 2**40]
    streams = EpisodeStreams.named(12, "test", episodes)
    expected = [numpy_numbers(streams.key, e, step, n_draws) for e in episodes]
    assert (streams.uniforms(step, n_draws) == expected).all()


def test_numbers_are_uniform_and_do_not_repeat():
    streams = EpisodeStreams.named(0, "test", range(2000))
    numbers = np.stack([streams.uniforms(step, 5) for step in range(10)])
    assert stats.kstest(numbers.ravel(), "uniform").pvalue > 1e-3
    assert len(np.unique(numbers)) == numbers.size


def test_an_episode_draws_the_same_in_any_company():
    together = EpisodeStreams.named(7, "test", range(100)).uniforms(3, 2)
    some = EpisodeStreams.named(7, "test", [41, 5]).uniforms(3, 2)
    assert (some == together[[41, 5]]).all()


def test_names_seeds_and_children_are_independent():
    base = EpisodeStreams.named(1, "a", range(5000))
    others = [
        EpisodeStreams.named(2, "a", range(5000)),
        EpisodeStreams.named(1, "b", range(5000)),
        base.child("x"),
        base.child("y"),
    ]
    columns = np.stack([s.uniforms(0, 1)[:, 0] for s in (base, *others)])
    correlation = np.corrcoef(columns) - np.eye(5)
    assert abs(correlation).max() < 4 / np.sqrt(5000)


def test_streams_from_a_generator_follow_it():
    first, second = (
        EpisodeStreams.from_generator(np.random.default_rng(0), 3).uniforms(0, 1) for _ in range(2)
    )
    assert (first == second).all()
    rng = np.random.default_rng(0)
    assert EpisodeStreams.from_generator(rng, 3).key != EpisodeStreams.from_generator(rng, 3).key


def test_named_generators_are_reproducible_and_distinct():
    assert named_generator(4, "a").random() == named_generator(4, "a").random()
    assert named_generator(4, "a").random() != named_generator(4, "b").random()


@pytest.mark.parametrize("seed", [-1, 0.5, "7"])
def test_seeds_are_whole_numbers(seed):
    with pytest.raises(ConfigError, match="seed must be a whole number from 0 on"):
        stream_key(seed, "a")


@pytest.mark.parametrize("episodes", [[-1], [0.5], [[0]]])
def test_episodes_are_whole_numbers(episodes):
    with pytest.raises(BmdpError, match=r"episodes must be (an array of )?whole numbers"):
        EpisodeStreams((0, 0), np.array(episodes))


def test_episodes_may_be_at_different_steps():
    streams = EpisodeStreams.named(1, "x", range(3))
    together = streams.uniforms(np.array([4, 0, 9]), 6)
    for i, step in enumerate((4, 0, 9)):
        assert (together[i] == streams.uniforms(step, 6)[i]).all()
