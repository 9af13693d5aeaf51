"""Random numbers by name and number, whatever the batch size and the number of workers.

`Philox4x64-10` (Salmon et al., 2011; numpy's `Philox`) turns a key and a counter into random bits.
Here the key is made from a seed and a name, and the counter says (block, step, episode): what
episode 17 draws at step 3 is a function of the seed, the name, 17 and 3, whoever asks, in whatever
company. `EpisodeStreams` computes these for many episodes at once; numpy's own generator, which
keeps one counter for each object, is its oracle in the tests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bmdp.arrays import IntArray, read_only
from bmdp.checks import require_count
from bmdp.errors import ConfigError, DataError
from bmdp.kinds import checked

UInt64Array = NDArray[np.uint64]

_MASK_64 = (1 << 64) - 1


def stream_key(seed: int, name: str) -> tuple[int, int]:
    """Returns the key of the stream `name` of `seed`: two numbers of 64 bits.

    >>> stream_key(0, "evaluation") == stream_key(0, "exploration")
    False
    """
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise ConfigError(f"seed must be a whole number from 0 on; got {seed!r}.")
    return _key(f"{seed}/{name}")


def named_generator(seed: int, name: str) -> np.random.Generator:
    """Returns a numpy generator for the stream `name` of `seed`.

    >>> named_generator(3, "network").integers(100, size=3).tolist()
    [90, 54, 65]
    """
    return np.random.Generator(np.random.Philox(key=np.array(stream_key(seed, name), np.uint64)))


@checked
@dataclass(frozen=True, eq=False)
class EpisodeStreams:
    """One random stream for each of `N` episodes."""

    key: tuple[int, int]  # of `stream_key`: two numbers of 64 bits
    episodes: IntArray  # [N], number of each episode, from 0 on

    def __post_init__(self) -> None:
        """Checks the episode numbers and makes them read-only."""
        episodes = np.asarray(self.episodes)
        if episodes.ndim != 1 or episodes.dtype.kind not in "iu" or (episodes < 0).any():
            raise ConfigError(
                "EpisodeStreams.episodes must be whole numbers from 0 on, of shape [N]."
            )
        object.__setattr__(self, "episodes", read_only(episodes))

    @classmethod
    def named(cls, seed: int, name: str, episodes: Iterable[int]) -> EpisodeStreams:
        """Returns the streams `name` of `seed` for the given episodes.

        >>> both = EpisodeStreams.named(0, "policy", range(2)).uniforms(step=5, n_draws=1)
        >>> second = EpisodeStreams.named(0, "policy", [1]).uniforms(step=5, n_draws=1)
        >>> bool(both[1, 0] == second[0, 0])
        True
        """
        try:
            return cls(stream_key(seed, name), np.fromiter(episodes, np.int64))
        except (OverflowError, TypeError, ValueError, np.ma.MaskError) as error:
            raise DataError(f"episodes must be whole numbers of 64 bits: {error}.") from error

    @classmethod
    def from_generator(cls, rng: np.random.Generator, n_episodes: int) -> EpisodeStreams:
        """Returns streams for new episodes, with a key drawn from `rng`."""
        first, second = rng.integers(_MASK_64, size=2, dtype=np.uint64, endpoint=True).tolist()
        return cls((first, second), np.arange(n_episodes))

    def __len__(self) -> int:
        return len(self.episodes)

    def take(self, rows: NDArray[Any]) -> EpisodeStreams:
        """Returns the streams of some of the episodes, chosen by position or mask."""
        try:
            return EpisodeStreams(self.key, self.episodes[rows])
        except IndexError as error:
            raise DataError(f"rows must be positions of episodes, or a mask: {error}.") from error

    def child(self, name: str) -> EpisodeStreams:
        """Returns streams of the same episodes, independent of these and of other children."""
        return EpisodeStreams(_key(f"{self.key}/{name}"), self.episodes)

    def uniforms(self, step: int | IntArray, n_draws: int) -> NDArray[np.float64]:
        """Returns the numbers of a step, uniform in [0, 1), `[N, n_draws]`; steps may be `[N]`."""
        require_count("n_draws", n_draws, 0)
        try:
            steps = np.broadcast_to(np.asarray(step, np.int64), self.episodes.shape)
        except (OverflowError, ValueError) as error:
            raise DataError(
                f"step must be whole numbers of 64 bits, one or [N]: {error}."
            ) from error
        numbers = np.empty((len(self), n_draws))
        _fill(np.array(self.key, np.uint64), steps, self.episodes.astype(np.int64), numbers)
        return numbers


@njit(cache=True)
def _fill(key: UInt64Array, steps: IntArray, episodes: IntArray, numbers: Any) -> None:
    """Writes the numbers of each episode at its step."""
    n_draws = numbers.shape[1]
    for n in range(episodes.shape[0]):
        for block in range((n_draws + 3) // 4):
            words = philox(np.uint64(block), np.uint64(steps[n]), np.uint64(episodes[n]), key)
            for k in range(min(4, n_draws - 4 * block)):
                numbers[n, 4 * block + k] = np.float64(words[k] >> np.uint64(11)) * 2.0**-53


@njit(cache=True)
def philox(c0: Any, c1: Any, c2: Any, key: UInt64Array) -> Any:
    """Returns four random words for the counter (c0, c1, c2, 0), lowest word first, under a key."""
    c3, k0, k1 = np.uint64(0), key[0], key[1]
    for _ in range(10):
        high_0, low_0 = _product(c0, np.uint64(0xD2E7470EE14C6C93))
        high_1, low_1 = _product(c2, np.uint64(0xCA5A826395121157))
        c0, c1, c2, c3 = high_1 ^ c1 ^ k0, low_1, high_0 ^ c3 ^ k1, low_0
        k0, k1 = k0 + np.uint64(0x9E3779B97F4A7C15), k1 + np.uint64(0xBB67AE8584CAA73B)
    return c0, c1, c2, c3


@njit(cache=True)
def _product(x: Any, factor: Any) -> Any:
    """High and low 64 bits of `x * factor`, from the products of their halves."""
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    x1, x0, f1, f0 = x >> half, x & mask, factor >> half, factor & mask
    middle = x1 * f0 + ((x0 * f0) >> half)  # below 2**64: (2**32 - 1)**2 + 2**32 - 1
    carry = x0 * f1 + (middle & mask)
    return x1 * f1 + (middle >> half) + (carry >> half), x * factor


def _key(text: str) -> tuple[int, int]:
    """A key for a text."""
    digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")
