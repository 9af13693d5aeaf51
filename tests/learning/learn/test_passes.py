"""Sums over the chunks of a log: those of memory, whatever is kept where."""

import numpy as np
import pytest
import torch
from tests.devices import needs_gpu

from bmdp import TransitionBatch
from bmdp.learn.fit import Backward, Ensemble, Fit, Heads, Iterations, Order, fit_q
from bmdp.learn.next_values import priced_values
from bmdp.learn.passes import Chunks, Passes, Scratch, added, ahead
from bmdp.models import ForestModel, KernelModel, LinearModel, TableModel

PRICES = np.array([np.inf, 3.0, 0.0])
HEADS = Heads(np.arange(3.0), False)
N_STEPS = 3


def batch_of(n_episodes: int, seed: int = 0, *, is_whole: bool = False) -> TransitionBatch:
    """Episodes of random actions on a walk; on a grid of few states, if they are to be whole."""
    rng = np.random.default_rng(seed)
    n = n_episodes * N_STEPS
    step = np.tile(np.arange(N_STEPS), n_episodes)
    action = rng.integers(3, size=n)
    state = np.empty((n, 2), np.float32)
    after = np.empty_like(state)
    at = rng.integers(4, size=(n_episodes, 2)) if is_whole else rng.random((n_episodes, 2))
    for k in range(N_STEPS):
        rows = step == k
        state[rows] = at
        moved = rng.integers(2, size=at.shape) if is_whole else rng.normal(size=at.shape)
        at = (at + moved * action[rows, None] / (1 if is_whole else 4)) % 4
        after[rows] = at
    return TransitionBatch(
        state,
        action,
        state[:, 0] + action,
        (rng.random(n) < action / 4).astype(float),
        after,
        step == N_STEPS - 1,
        episode=np.repeat(np.arange(n_episodes), N_STEPS),
        step=step,
        n_actions=3,
    )


class Parts:
    """A log that is in memory, in chunks of some episodes."""

    def __init__(self, batch: TransitionBatch, n_chunks: int) -> None:
        number = batch.episode * n_chunks // (int(batch.episode.max()) + 1)
        self.parts = [batch.take(number == k) for k in range(n_chunks)]
        self.n_chunks, self._n = n_chunks, len(batch)
        self.largest = float(np.abs(batch.reward).max()), float(np.abs(batch.cost).max())
        self.counts = np.bincount(batch.action, minlength=batch.n_actions)
        self.least_cost = float(batch.cost.min())
        self.n_read = 0

    def __len__(self) -> int:
        return self._n

    def chunk(self, number: int) -> TransitionBatch:
        self.n_read += 1
        return self.parts[number]


def fitted(  # noqa: PLR0913
    batch, model, log=None, *, schedule=None, ensemble=None, device="cpu", gamma=1.0, **how
) -> Fit:
    """The last of all iterations."""
    values = priced_values(PRICES)
    *_, last = fit_q(
        batch,
        model,
        values,
        heads=HEADS,
        gammas=(gamma, gamma),
        schedule=schedule or Backward(),
        ensemble=ensemble or Ensemble(),
        seed=0,
        device=device,
        log=log,
        adder=None if log is None else Passes(log, values, **how),
    )
    return last.fit


def tensors(fit: Fit) -> dict:
    return {name: value.cpu() for name, value in fit.q.state_dict().items()}


def assert_same(one: Fit, other: Fit) -> None:
    """To the last bit."""
    mine, others = tensors(one), tensors(other)
    assert mine.keys() == others.keys()
    for name, value in mine.items():
        assert torch.equal(value, others[name]), name


@pytest.mark.parametrize("model", [TableModel(), ForestModel(5)])
@pytest.mark.parametrize("n_chunks", [1, 2, 5])
def test_log_in_chunks_teaches_what_memory_does(model, n_chunks):
    batch = batch_of(400)
    assert_same(fitted(batch, model), fitted(batch, model, Parts(batch, n_chunks)))


@pytest.mark.parametrize("model", [TableModel(), ForestModel(5)])
def test_equal_rows_of_chunks_are_one_row(model):
    batch = batch_of(2000, is_whole=True)
    whole, from_log = fitted(batch, model), fitted(batch, model, Parts(batch, 3))
    assert whole.whole.is_merged
    one, other = tensors(whole), tensors(from_log)
    for name, value in one.items():  # means of fewer rows are rounded elsewhere
        assert torch.allclose(value.double(), other[name].double(), atol=1e-6), name


@pytest.mark.parametrize("model", [LinearModel(), KernelModel(20)])
def test_sums_of_floats_in_chunks_are_close(model):
    batch = batch_of(300)
    one, other = fitted(batch, model), fitted(batch, model, Parts(batch, 4))
    embedded = one.embedded(batch.state[:50])
    assert torch.allclose(one.q.read(embedded, 0), other.q.read(embedded, 0), atol=1e-3)


def test_means_of_a_log_are_of_all_its_rows():
    batch = batch_of(2000, is_whole=True)
    some = batch.take(batch.episode < 400)
    from_log = fitted(some, TableModel(), Parts(batch, 5), schedule=Backward("shared"))
    last = from_log.q(torch.from_numpy(np.array([[1.0, 2.0]])), N_STEPS - 1)[0, 0, 1, :, 0]
    at = (batch.state == [1.0, 2.0]).all(axis=1)
    for action in range(3):
        rows = at & (batch.action == action)
        assert float(last[action]) == pytest.approx(batch.cost[rows].mean())


@pytest.mark.parametrize("model", [TableModel(), ForestModel(5)])
def test_a_file_in_place_of_memory_changes_nothing(model):
    batch = batch_of(300, is_whole=isinstance(model, TableModel))
    ensemble = Ensemble(2, pooled=True)
    logs = [Parts(batch, 4) for _ in range(3)]
    in_memory, some, none = (
        fitted(batch, model, log, ensemble=ensemble, memory=memory)
        for log, memory in zip(logs, (2**29, 2000, 0), strict=True)
    )
    assert_same(in_memory, some)
    assert_same(in_memory, none)
    assert [log.n_read for log in logs] == [4, 4, 4]  # read once, whatever the number of passes


def test_iterations_follow_episodes_in_chunks():
    batch = batch_of(300)
    how = {"schedule": Iterations(60, settled=1e-6, traces=True), "gamma": 0.7}
    one = fitted(batch, TableModel(), **how)
    other = fitted(batch, TableModel(), Parts(batch, 3), **how)
    assert other.whole.follows is not None
    assert torch.allclose(one.q.table, other.q.table, atol=1e-4)


def test_sums_of_workers_add_up():
    batch, values = batch_of(300), priced_values(PRICES)
    log, fit = Parts(batch, 4), fitted(batch, ForestModel(5))
    order = Order(1, 10.0, 2.0**30)
    all_of_it = Passes(log, values).moments(fit, order)
    shares = [Passes(log, values, chunks).moments(fit, order) for chunks in ([0, 3], [2], [1])]
    assert all(map(torch.equal, all_of_it, added(shares)))


def test_chunks_that_find_no_room_are_read_again():
    batch = batch_of(200)
    log, fit = Parts(batch, 4), fitted(batch, ForestModel(5))
    chunks = Chunks(log, memory=0, spills=False)
    sizes = [[len(r.paid) for r in chunks.ready(fit, "others", [(2,), (0, 3)])] for _ in range(2)]
    assert sizes == [[100, 200]] * 2
    assert log.n_read == 6


@pytest.mark.parametrize("n", [0, 1, 3, 20])
def test_ahead_keeps_the_order(n):
    assert list(ahead(lambda k: k * k, range(10), n)) == [k * k for k in range(10)]


def test_ahead_raises_what_work_raises():
    def work(k: int) -> int:
        if k == 2:
            raise ValueError("two")
        return k

    with pytest.raises(ValueError, match="two"):
        list(ahead(work, range(5), 2))


# Of several lengths, devices may choose different ones that are as good.
ONE_LENGTH = KernelModel(20, lengths=(1.0,), ridges=(0.1,))


@needs_gpu
def test_arrays_beyond_the_gpu_come_back_to_it():
    scratch = Scratch(memory=100, gpu_memory=100)
    given = {k: torch.arange(10, device="cuda") + k for k in range(3)}
    for k, tensor in given.items():
        scratch.put(k, {"x": tensor})
    assert (scratch.n_gpu_bytes, scratch.n_bytes) == (80, 160)
    for k, tensor in given.items():
        found = scratch.get(k)["x"]
        assert found.is_cuda
        assert torch.equal(found, tensor)


@needs_gpu
@pytest.mark.parametrize(("model", "is_whole"), [(TableModel(), True), (ForestModel(5), False)])
def test_sums_of_the_gpu_are_those_of_the_cpu(model, is_whole):
    batch = batch_of(1000, is_whole=is_whole)
    fits = [fitted(batch, model, Parts(batch, 3), device=d) for d in ("cpu", "cuda")]
    one, other = map(tensors, fits)
    for name, value in one.items():
        if name in ("values", "table"):  # of the last step: its targets are what was paid
            assert torch.equal(value[:, -1], other[name][:, -1])
            assert torch.allclose(value, other[name], atol=1e-5)
        else:
            assert torch.equal(value, other[name]), name


@needs_gpu
@pytest.mark.parametrize("model", [ForestModel(5), ONE_LENGTH, LinearModel(), TableModel()])
@pytest.mark.parametrize("ensemble", [Ensemble(), Ensemble(2, pooled=True)])
def test_every_averager_learns_from_a_log_on_the_gpu(model, ensemble):
    batch = batch_of(500, is_whole=isinstance(model, TableModel))
    on_cpu, on_gpu = (
        fitted(batch, model, Parts(batch, 3), device=d, ensemble=ensemble) for d in ("cpu", "cuda")
    )
    values = [f.q.read(f.embedded(batch.state[:100]), 0).cpu() for f in (on_cpu, on_gpu)]
    assert torch.allclose(*values, atol=1e-3)
