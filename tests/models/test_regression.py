"""Regression against least squares, and each of its settings by what it does."""

from functools import partial

import numpy as np
import pytest
import torch

from bmdp import ConfigError
from bmdp.models import EncoderNet, FrontierNet, Regression, regression
from bmdp.models.networks import Samples, losses, make_optimiser, regress
from bmdp.models.networks import flat_parameters


def problem(n=60, n_networks=2, n_labels=3, seed=0):
    """Targets that are linear in the state, with a little noise; rows differ by network."""
    rng = torch.Generator().manual_seed(seed)
    states = torch.randn(n_networks, n, 2, generator=rng)
    actions = torch.randint(3, (n_networks, n), generator=rng)
    budgets = torch.rand(n_networks, n, n_labels, generator=rng)
    slope = actions[..., None].float() + 1
    base = (states * slope).sum(-1)[..., None] / 5
    noise = 0.1 * torch.randn(n_networks, n, n_labels, 2, generator=rng)
    targets = torch.stack((base + budgets, 0 * base + budgets / 2), dim=-1) + noise
    return Samples(states, actions, budgets, targets, torch.ones(n_networks, n))


def networks(network=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (network or EncoderNet((32, 16), (4,))).stack((2, 2, 3), np.linspace(0, 1, 5), generator)


def fitted(settings, samples=None, seed=0):
    stack = networks(seed=seed)
    samples = problem() if samples is None else samples
    optimiser = make_optimiser(stack, settings)
    record = regress(stack, samples, settings, optimiser, torch.Generator().manual_seed(1))
    return stack, record, float(losses(stack, samples).detach().mean())


def test_the_loss_is_the_squared_error_of_both_on_the_actions_taken():
    stack, samples = networks(), problem(n=4)
    found = losses(stack, samples)
    grid = stack.taken(samples.states, samples.actions, samples.budgets).detach().numpy()
    error = (grid - samples.targets.numpy()) ** 2
    expected = error.mean(axis=2).sum(axis=-1).mean(axis=1)
    assert found.detach().numpy() == pytest.approx(expected, rel=1e-5)
    half = samples._replace(weights=torch.tensor([[1.0, 1, 0, 0]] * 2))
    expected = error.mean(axis=2).sum(axis=-1)[:, :2].mean(axis=1)
    assert losses(stack, half).detach().numpy() == pytest.approx(expected, rel=1e-5)


def test_a_linear_network_reaches_least_squares():
    """One hidden layer that stays active is linear: its optimum is that of numpy."""
    samples = problem(n=200, n_networks=1, n_labels=1)
    network = FrontierNet((4,), "free")
    stack = network.stack((1, 2, 3), np.array([0.0]), torch.Generator().manual_seed(0))
    with torch.no_grad():
        stack.layers[0].bias += 10.0  # far from the kink
    samples = samples._replace(budgets=stack.knots)
    settings = Regression(steps=1500, learning_rate=0.02)
    regress(stack, samples, settings, make_optimiser(stack, settings), torch.Generator())
    least = 0.0
    for action in range(3):
        rows = (samples.actions[0] == action).numpy()
        x = np.c_[np.ones(rows.sum()), samples.states[0].numpy()[rows]]
        for k in range(2):
            y = samples.targets[0, :, 0, k].numpy()[rows]
            least += ((x @ np.linalg.lstsq(x, y, rcond=None)[0] - y) ** 2).sum() / 200
    found = float(losses(stack, samples)[0].detach())
    assert found == pytest.approx(least, rel=0.05)
    assert found >= least * 0.999


def test_more_steps_fit_better_and_the_record_tells():
    _, few, loss_few = fitted(Regression(steps=5))
    _, many, loss_many = fitted(Regression(steps=300))
    assert loss_many < 0.5 * loss_few
    assert many.n_steps == 300
    assert many.first_loss == pytest.approx(few.first_loss)
    assert many.last_loss < few.last_loss


def test_it_ends_at_the_stop_loss():
    _, record, loss = fitted(Regression(steps=2000, stop_loss=0.1))
    assert record.n_steps < 2000
    assert loss < 0.12


@pytest.mark.parametrize("stop_loss", [0.1, 1e-9, 1e9])
def test_running_ahead_ends_at_the_same_step(stop_loss, monkeypatch):
    """What a GPU does, on a CPU: losses are looked at after many steps, some of them taken back."""
    settings = Regression(steps=330, stop_loss=stop_loss, weight_decay=0.01)
    plain, record, _ = fitted(settings)
    ahead = networks()
    optimiser = make_optimiser(ahead, settings)
    running = partial(regression._running, optimiser=optimiser)
    monkeypatch.setattr(regression, "_walking", running)
    same = regress(ahead, problem(), settings, optimiser, torch.Generator())
    assert same == record
    assert record.n_steps == {0.1: record.n_steps, 1e-9: 330, 1e9: 1}[stop_loss]
    assert record.n_steps % regression._CHECK_EVERY > 1 or stop_loss != 0.1  # within a block
    assert (flat_parameters(ahead, 1) == flat_parameters(plain, 1)).all()


def test_weight_decay_makes_parameters_smaller():
    plain, _, _ = fitted(Regression(steps=300))
    decayed, _, _ = fitted(Regression(steps=300, weight_decay=0.1))
    sizes = [np.abs(flat_parameters(s, 0)).sum() for s in (plain, decayed)]
    assert sizes[1] < 0.8 * sizes[0]


def test_clipping_limits_every_element_of_the_gradient():
    samples = problem()
    samples = samples._replace(targets=samples.targets * 1e4)
    stack = networks()
    settings = Regression(steps=1, clip=1e-3)
    regress(stack, samples, settings, make_optimiser(stack, settings), torch.Generator())
    assert max(float(p.grad.abs().max()) for p in stack.parameters()) <= 1e-3 + 1e-9


def test_parts_of_the_rows_are_random_but_repeatable():
    settings = Regression(steps=50, batch_size=8)
    one, _, _ = fitted(settings)
    same, _, _ = fitted(settings)
    assert (flat_parameters(one, 0) == flat_parameters(same, 0)).all()
    whole, _, _ = fitted(Regression(steps=50))
    assert (flat_parameters(one, 0) != flat_parameters(whole, 0)).any()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_the_recorded_steps_are_those_of_the_cpu():
    settings = Regression(steps=60)
    results = []
    for device in ("cpu", "cuda"):
        stack = networks().to(device)
        samples = Samples(*(t.to(device) for t in problem()))
        regress(stack, samples, settings, make_optimiser(stack, settings), torch.Generator())
        results.append(flat_parameters(stack, 1))
    assert results[0] == pytest.approx(results[1], abs=1e-3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "steps must be a whole number from 1 on"),
        ({"batch_size": 0}, "batch_size must be above 0, or None"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"weight_decay": -1.0}, "weight_decay from 0 on"),
        ({"start": "cold"}, "start must be one of warm, restart"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        Regression(**settings)
