"""Networks among the candidates: on a GPU, where states are many numbers."""

from dataclasses import replace

import numpy as np
import pytest

import bmdp
from bmdp import TransitionBatch
from bmdp.learn import candidates
from bmdp.learn.candidates import Lesson, Recipe, learned, recipes
from bmdp.learn.fit import Iterations
from bmdp.learn.natures import nature_of
from bmdp.models import Regression
from devices import each_device, needs_gpu

N, D = 8_000, 60


def log(seed=0):
    """Sixty numbers: the first says what a risk earns, the second what it costs."""
    rng = np.random.default_rng(seed)
    states, actions = rng.normal(size=(N, D)), rng.integers(2, size=N)
    rewards, costs = actions * (states[:, 0] + 1), actions * (1 + (states[:, 1] > 0)) / 2
    steps = np.zeros(N, np.int64)
    return TransitionBatch(
        states, actions, rewards, costs, states, steps == 0, episode=np.arange(N), step=steps
    )


@pytest.mark.parametrize(
    ("n_numbers", "on_gpu", "is_there"), [(60, True, True), (60, False, False), (10, True, False)]
)
def test_networks_are_tried_on_a_gpu_where_states_are_many_numbers(n_numbers, on_gpu, is_there):
    nature = nature_of(log(), 1.0)
    for schedule, practises in ((nature.schedule, False), (Iterations(), True)):
        found = recipes(
            replace(nature, schedule=schedule), n_numbers, practises=practises, on_gpu=on_gpu
        )
        assert ("network" in [recipe.name for recipe in found]) == is_there


@each_device
def test_a_network_learns_what_prices_are_worth_paying(device):
    """A risk is best taken where x + 1 > price * cost."""
    batch = log()
    quick = replace(
        candidates.NETWORK, hidden=(32,), regression=Regression(300, 512, learning_rate=5e-3)
    )
    lesson = Lesson(batch, nature_of(batch, 1.0), 1.0, 0, device)
    prices = np.array([2.0, 1.0, 0.0])
    dial = learned(Recipe("network", quick), lesson, prices)
    states = log(seed=1).state
    costs = (1 + (states[:, 1] > 0)) / 2
    best = states[:, :1] + 1 > prices * costs[:, None]
    found = dial.policy.at_step(0).points(states).actions == 1
    assert (found == best).mean() > 0.85


@needs_gpu
def test_the_front_door_tries_a_network_on_a_gpu():
    found = bmdp.fit(log(), gamma=1.0, device="cuda")
    assert "network" in [candidate.name for candidate in found.candidates]
