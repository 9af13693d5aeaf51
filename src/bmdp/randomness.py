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
from numpy.typing import NDArray

from bmdp.arrays import IntArray, read_only
from bmdp.errors import ConfigError

UInt64Array = NDArray[np.uint64]

_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_KEY_STEPS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_MASK_64, _MASK_32 = (1 << 64) - 1, np.uint64(0xFFFFFFFF)
_N_ROUNDS = 10
_WORDS = 4  # numbers in a block


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


@dataclass(frozen=True, eq=False)
class EpisodeStreams:
    """One random stream for each of `N` episodes."""

    key: tuple[int, int]
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
        return cls(stream_key(seed, name), np.fromiter(episodes, np.int64))

    @classmethod
    def from_generator(cls, rng: np.random.Generator, n_episodes: int) -> EpisodeStreams:
        """Returns streams for new episodes, with a key drawn from `rng`."""
        first, second = rng.integers(_MASK_64, size=2, dtype=np.uint64, endpoint=True).tolist()
        return cls((first, second), np.arange(n_episodes))

    def __len__(self) -> int:
        """Number of episodes."""
        return len(self.episodes)

    def take(self, rows: NDArray[Any]) -> EpisodeStreams:
        """Returns the streams of some of the episodes, chosen by position or mask."""
        return EpisodeStreams(self.key, self.episodes[rows])

    def child(self, name: str) -> EpisodeStreams:
        """Returns streams of the same episodes, independent of these and of other children."""
        return EpisodeStreams(_key(f"{self.key}/{name}"), self.episodes)

    def uniforms(self, step: int, n_draws: int) -> NDArray[np.float64]:
        """Returns the numbers of a step, uniform in [0, 1), `[N, n_draws]`."""
        n_blocks = -(-n_draws // _WORDS)
        shape = (len(self), n_blocks)
        block = np.broadcast_to(np.arange(n_blocks, dtype=np.uint64), shape)
        episode = np.broadcast_to(self.episodes.astype(np.uint64)[:, None], shape)
        zero = np.zeros(shape, np.uint64)
        words = philox((block, zero + np.uint64(step), episode, zero), self.key)
        bits = np.stack(words, axis=-1).reshape(len(self), n_blocks * _WORDS)[:, :n_draws]
        return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def philox(
    counter: tuple[UInt64Array, UInt64Array, UInt64Array, UInt64Array], key: tuple[int, int]
) -> tuple[UInt64Array, UInt64Array, UInt64Array, UInt64Array]:
    """Returns four random words for each counter (lowest word first) under one key."""
    c0, c1, c2, c3 = counter
    for i in range(_N_ROUNDS):
        k0, k1 = (np.uint64((k + i * s) & _MASK_64) for k, s in zip(key, _KEY_STEPS, strict=True))
        high_0, low_0 = _product(c0, _MULTIPLIERS[0])
        high_1, low_1 = _product(c2, _MULTIPLIERS[1])
        c0, c1, c2, c3 = high_1 ^ c1 ^ k0, low_1, high_0 ^ c3 ^ k1, low_0
    return c0, c1, c2, c3


def _key(text: str) -> tuple[int, int]:
    """A key for a text."""
    digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")


def _product(x: UInt64Array, factor: int) -> tuple[UInt64Array, UInt64Array]:
    """High and low 64 bits of `x * factor`, from the products of their halves."""
    half = np.uint64(32)
    f1, f0 = np.uint64(factor >> 32), np.uint64(factor) & _MASK_32
    x1, x0 = x >> half, x & _MASK_32
    middle = x1 * f0 + ((x0 * f0) >> half)  # below 2**64: (2**32 - 1)**2 + 2**32 - 1
    carry = x0 * f1 + (middle & _MASK_32)
    return x1 * f1 + (middle >> half) + (carry >> half), x * np.uint64(factor)
