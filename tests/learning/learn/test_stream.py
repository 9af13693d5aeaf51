"""Networks from a log in chunks: they learn what is known, by a seed, in little memory."""

import numpy as np
import pytest
import torch
from tests.devices import each_device

from bmdp import TransitionBatch
from bmdp.data import StoredLog
from bmdp.errors import ConfigError
from bmdp.learn import BFTQ, FTQ, BFTQConfig, FTQConfig, LagrangianConfig, LagrangianFTQ
from bmdp.learn.fit import Backward, Ensemble, Fit, Heads, Iterations, fit_q
from bmdp.learn.next_values import priced_values
from bmdp.learn.stream import Stream, _Frozen, _Order
from bmdp.models import EncoderNet, FrontierNet
from bmdp.models.networks import Regression, mixed

PRICES = np.array([4.0, 0.0])
HEADS = Heads(np.arange(2.0), False)


def regression(**how) -> Regression:
    return Regression(**{"steps": 500, "batch_size": 256, "learning_rate": 0.01, **how})


def net(**how) -> FrontierNet:
    return FrontierNet((32, 32), structure="free", regression=regression(**how))


def batch_of(n_episodes: int, seed: int = 0) -> TransitionBatch:
    """Two steps at a place x from 0 to 1, which stays. Work earns x, and costs 1 half of the time.

    Whatever the price, a step is worth max(0, x - price / 2) at best.
    """
    rng = np.random.default_rng(seed)
    place = np.repeat(rng.random((n_episodes, 1), np.float32), 2, axis=0)
    n = 2 * n_episodes
    action = rng.integers(2, size=n)
    return TransitionBatch(
        place,
        action,
        3 * action * place[:, 0],
        action * (rng.random(n) < 0.5),
        place,
        np.tile([False, True], n_episodes),
        episode=np.repeat(np.arange(n_episodes), 2),
        step=np.tile([0, 1], n_episodes),
        n_actions=2,
    )


class Parts:
    """A log in memory, in chunks of a thousand rows."""

    def __init__(self, batch: TransitionBatch) -> None:
        self.batch, self.n_chunks = batch, len(batch) // 1000
        self.largest = float(np.abs(batch.reward).max()), float(np.abs(batch.cost).max())
        self.counts, self.least_cost = np.bincount(batch.action), float(batch.cost.min())
        self.read: list[int] = []

    def __len__(self) -> int:
        return len(self.batch)

    def chunk(self, number: int) -> TransitionBatch:
        self.read.append(number)
        return self.batch.take(np.arange(1000 * number, 1000 * (number + 1)))


def fitted(batch, model, log=None, *, device="cpu", schedule=None, seed=0, **how) -> Fit:
    """The last of all iterations."""
    values = priced_values(PRICES)
    *_, last = fit_q(
        batch,
        model,
        values,
        heads=HEADS,
        gammas=(1.0, 1.0),
        schedule=schedule or Backward("shared"),
        ensemble=Ensemble(),
        seed=seed,
        device=device,
        log=log,
        adder=None if log is None else Stream(log, values, **how),
    )
    return last.fit


def mistake(fit: Fit) -> float:
    """Largest error of the first step, against the closed form, in units of values."""
    place = np.linspace(0.05, 0.95, 19)[:, None]
    found = fit.q.read(fit.embedded(place), 0)[0].cpu().numpy()  # [n, 2, A, H]
    at, works = 3 * place, 3 * place - PRICES / 2 > 0  # [n, 1] and [n, H]
    after = np.stack((at * works, 0.5 * works), axis=1)  # [n, 2, H]
    now = np.stack((np.zeros_like(place), np.zeros_like(place)), axis=1)
    work = np.stack((at, np.full_like(place, 0.5)), axis=1)
    known = np.stack((now + after, work + after), axis=2)  # [n, 2, A, H]
    units = np.array(fit.units)[:, None, None]
    far = np.abs(3 * place - PRICES / 2).min(axis=1) > 0.4  # where one action is clearly best
    return float((np.abs(found * units - known) / units)[far].max())


@each_device
def test_network_from_a_stream_learns_what_is_known(device, tmp_path):
    batch = batch_of(10_000)
    log = StoredLog.write(tmp_path / "log", [batch])
    streamed = fitted(log.first(2000), net(), log, device=device)
    in_memory = fitted(batch, net(), device=device)
    assert mistake(streamed) < 0.1
    assert mistake(streamed) < mistake(in_memory) + 0.03


@pytest.mark.parametrize("memory", [0, 2**29])
@pytest.mark.parametrize("window", [1, 50_000, 2**30])
def test_it_learns_whatever_is_kept_and_shuffled(memory, window):
    log = Parts(batch_of(5000))
    fit = fitted(log.chunk(0), net(), log, memory=memory, window=window)
    assert mistake(fit) < 0.12
    assert set(log.read) == set(range(10))


@each_device
def test_same_seed_same_network(device):
    log = Parts(batch_of(3000))
    how = {"device": device, "window": 50_000}
    one, same, other = (
        fitted(log.chunk(0), net(steps=60), log, seed=seed, **how) for seed in (0, 0, 1)
    )
    states = one.q.state_dict()
    assert all(torch.equal(states[name], value) for name, value in same.q.state_dict().items())
    assert any(not torch.equal(states[name], value) for name, value in other.q.state_dict().items())


def test_chunks_come_in_an_order_of_their_own_at_every_pass():
    log = Parts(batch_of(5000))
    fitted(log.chunk(0), net(steps=60), log, memory=0, window=1)  # 3 of a chunk
    first, second = log.read[1:11], log.read[11:21]
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second


def test_what_is_shuffled_does_not_grow_with_the_log():
    sizes = []
    for n_episodes in (3000, 9000):
        log = Parts(batch_of(n_episodes))
        values = priced_values(PRICES)
        stream = Stream(log, values, memory=0, window=40_000)
        fit = fitted(log.chunk(0), net(steps=1))
        regress = stream.regression(fit)
        told = _Order(fit, None, None, "all", fit.q.labels(0, fit.device))
        windows = regress._windows(told, [(k,) for k in range(log.n_chunks)])
        sizes.append(max(len(window.actions) for window in windows))
    assert sizes[0] == sizes[1] < 3000


def test_models_before_stay_as_they_are_while_others_are_trained():
    fit = fitted(batch_of(500), net(steps=5))
    embedded = fit.embedded(np.array([[0.3], [0.6]]))
    before, frozen = fit.q.read(embedded, 1), _Frozen(fit)
    for parameter in fit.q.parameters():
        parameter.data.zero_()
    assert torch.equal(frozen.q.read(embedded, 1), before)
    assert not torch.equal(fit.q.read(embedded, 1), before)


def test_one_network_of_all_steps_learns_from_a_stream():
    log = Parts(batch_of(2000))
    config = FTQConfig(gamma=0.0, model=net(), schedule=Iterations(2), ensemble=1)
    q = FTQ(config).fit(log.chunk(0), seed=0, log=log).q_function
    q_r, q_c = q(np.array([[0.2], [0.8]]))
    assert q_r[:, 1, 0].tolist() == pytest.approx([0.6, 2.4], abs=0.15)
    assert q_c[:, 1, 0].tolist() == pytest.approx([0.5, 0.5], abs=0.1)


def test_learners_train_networks_on_a_log():
    log = Parts(batch_of(5000))
    config = FTQConfig(gamma=1.0, price=4.0, model=net(), schedule=Backward(), ensemble=1)
    policy = FTQ(config).fit(log.chunk(0), seed=0, log=log)
    tracker = policy.start(np.array([[0.2], [0.95]]), 0.5, np.random.default_rng(0))
    assert tracker.decide(np.array([[0.2], [0.95]])).action.tolist() == [0, 1]


def test_a_small_loss_ends_the_regression():
    log, records = Parts(batch_of(2000)), []
    config = FTQConfig(gamma=1.0, model=net(stop_loss=10.0), schedule=Backward(), ensemble=1)
    FTQ(config).fit(log.chunk(0), seed=0, log=log, on_record=records.append)
    assert [record.n_steps for record in records] == [50, 50]


def test_batches_are_of_a_few_thousand_rows_if_nothing_is_said():
    log = Parts(batch_of(3000))
    assert mistake(fitted(log.chunk(0), net(batch_size=None), log)) < 0.12


def test_several_networks_are_refused():
    log = Parts(batch_of(1000))
    config = LagrangianConfig(gamma=1.0, model=net(), schedule=Backward(), ensemble=3)
    with pytest.raises(ConfigError, match="trains one network; got ensemble=3"):
        LagrangianFTQ(config).fit(log.chunk(0), seed=0, log=log)


def test_networks_that_take_budgets_in_are_refused():
    log = Parts(batch_of(1000))
    config = BFTQConfig(gamma=1.0, model=EncoderNet(), schedule=Backward(), ensemble=1)
    with pytest.raises(ConfigError, match="a network of all heads; got EncoderNet"):
        BFTQ(config).fit(log.chunk(0), seed=0, log=log)


@each_device
def test_products_of_less_precision_teach_the_same(device):
    log = Parts(batch_of(5000))
    with mixed():
        assert mistake(fitted(log.chunk(0), net(), log, device=device)) < 0.12
