"""A small shop with customers, from which a log comes in one line.

Each customer is contacted four times, a week apart: not at all, by mail, or by a call. A call sells
more than mail, and ends in a complaint more often. A complaint is the cost. A customer who has
complained before complains sooner again, and one who has not bought for long buys less.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bmdp.arrays import FloatArray, IntArray
from bmdp.checks import require_count
from bmdp.data.batch import TransitionBatch
from bmdp.kinds import checked
from bmdp.randomness import named_generator

ACTIONS = ("nothing", "mail", "call")
"""What can be done, by the number of the action."""

STATE = ("days_since_purchase", "basket", "complaints")
"""The three numbers that are known of a customer. A basket is the usual worth of a purchase."""

SALES = (0.05, 0.12, 0.3)
"""Chance that a contact sells, `[A]`, if the customer has just bought. It falls by a factor e in 60
days without a purchase."""

PRICES = (0.0, 0.5, 4.0)
"""Price of a contact, `[A]`."""

COMPLAINTS = (0.0, 0.03, 0.15)
"""Chance of a complaint, `[A]`, if there was none before. Each earlier one adds as much again."""

N_CONTACTS = 4
"""Contacts of a customer."""


class Contacts(NamedTuple):
    """Contacts with `n` customers, and the customers after them."""

    earned: FloatArray  # [n], the basket if it was bought, less the price of the contact
    complained: FloatArray  # [n], 1 for a complaint, else 0
    states: FloatArray  # [n, 3]


def new_customers(n_customers: int, rng: np.random.Generator) -> FloatArray:
    """Returns the states of customers who were not contacted yet, `[n, 3]`.

    >>> new_customers(2, np.random.default_rng(0)).shape
    (2, 3)
    """
    days = rng.exponential(20, n_customers)
    return np.stack((days, rng.gamma(2, 30, n_customers), np.zeros(n_customers)), axis=1)


def contact(
    states: FloatArray, actions: IntArray, rng: np.random.Generator, anger: float = 1.0
) -> Contacts:
    """Returns the result of contacting `n` customers once, a week before the next contact.

    Args:
        states: of the customers, `[n, 3]`, in the order of `STATE`.
        actions: `[n]`, numbers of `ACTIONS`.
        rng: of chance.
        anger: factor on all chances of a complaint.

    >>> states = np.array([[0.0, 60.0, 0.0]])
    >>> contact(states, np.array([0]), np.random.default_rng(0)).complained
    array([0.])
    """
    days, basket, complaints = np.asarray(states, np.float64).T
    buys = rng.random(len(days)) < np.take(SALES, actions) * np.exp(-days / 60)
    chance = anger * np.take(COMPLAINTS, actions) * (1 + complaints)
    complains = (rng.random(len(days)) < chance).astype(np.float64)
    following = (
        np.where(buys, 0.0, days + 7),
        0.8 * basket + 0.2 * rng.gamma(2, 30, len(days)),
        complaints + complains,
    )
    earned = basket * buys - np.take(PRICES, actions)
    return Contacts(earned, complains, np.stack(following, axis=1))


@checked
def customers(n_customers: int = 2_000, seed: int = 0) -> TransitionBatch:
    """Returns a log of a shop that contacted its customers at random: four rows for each customer.

    The state is the days since the last purchase, the usual basket, and the complaints so far.
    Actions are 0, no contact; 1, mail; 2, a call. The reward is what was earned, and the cost is 1
    for a complaint. `bmdp.data.shop` has all chances, so that a policy can be tried on the same
    customers.

    Args:
        n_customers: customers of the log, each an episode of four rows.
        seed: of chance; the same seed gives the same log.

    Raises:
        ConfigError: if the number or the seed is no whole number, or too small.

    >>> from bmdp.data import customers
    >>> log = customers(n_customers=100)
    >>> print(log)
    TransitionBatch(400 transitions, states of 3 numbers, 3 actions)
    >>> log.state_names
    ('days_since_purchase', 'basket', 'complaints')
    """
    require_count("n_customers", n_customers, 1)
    rng = named_generator(seed, "customers")
    states = new_customers(n_customers, rng)
    seen, actions, contacts = [], [], []
    for _ in range(N_CONTACTS):
        action = rng.integers(len(ACTIONS), size=n_customers)
        seen.append(states)
        actions.append(action)
        contacts.append(contact(states, action, rng))
        states = contacts[-1].states
    earned, complained, after = (np.stack(parts, axis=1) for parts in zip(*contacts, strict=True))
    number = np.arange(n_customers * N_CONTACTS)
    return TransitionBatch(
        np.stack(seen, axis=1).reshape(-1, len(STATE)),
        np.stack(actions, axis=1).ravel(),
        earned.ravel(),
        complained.ravel(),
        after.reshape(-1, len(STATE)),
        number % N_CONTACTS == N_CONTACTS - 1,
        episode=number // N_CONTACTS,
        step=number % N_CONTACTS,
        probability=np.full(len(number), 1 / len(ACTIONS)),
        state_names=STATE,
    )
