"""Networks: the two readings of the paper's, structure across heads, and gradient descent."""

import numpy as np
import pytest
import torch

from batches import bandit
from bmdp import BFTQ, BFTQConfig, ConfigError, DataError
from bmdp.learn.fit import Iterations
from bmdp.models import EncoderNet, FrontierNet, Regression, networks
from bmdp.models.networks import Affine
from devices import each_device, needs_gpu
from regressors import every_row, fit_once, prepared, problem_of, random_targets, values

GRID = np.linspace(0, 1, 5)
NETWORKS = {
    "text": EncoderNet((16, 8), (3,), n_labels=3),
    "code": EncoderNet((16, 8), (3,), reading="code", n_labels=3),
    "deep encoder": EncoderNet((16,), (4, 5), n_labels=3),
    "deep encoder, code": EncoderNet((16, 8), (4, 5), "code", n_labels=3),
    "free": FrontierNet((16, 8), "free"),
    "monotone": FrontierNet((16, 8), "monotone"),
}
each_network = pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS.keys())


def problem(n=60, n_members=2, n_actions=3, **settings):
    """Random states; rows differ by member."""
    rng = np.random.default_rng(0)
    members = rng.integers(n_members, size=n) == np.arange(n_members)[:, None]
    actions = rng.integers(n_actions, size=n)
    return problem_of(
        rng.normal(size=(n, 2)), actions, members=members, n_actions=n_actions, **settings
    )


def targets_of(q, given, noise=0.1):
    """Labels, and targets that are linear in the state, with a little noise."""
    labels, drawn = random_targets(q, given)
    base = (given.states * (given.actions[:, None] + 1)).sum(1)[:, None] / 5
    held = np.broadcast_to(labels, (len(base), labels.shape[-1]))
    clean = np.stack((base + held, 0 * base + held / 2), axis=-1)
    return labels, torch.tensor(clean).float() + noise * drawn


def shaken(network, given, seed=0):
    """Networks whose biases are not 0, which would hide errors."""
    q = prepared(network, given)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in q.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return q


# Values


@each_network
def test_values_at_labels_are_those_of_the_grid(network):
    given = problem()
    q, n = shaken(network, given), 60
    places = np.random.default_rng(1).integers(5, size=(n, 3))
    labels = torch.tensor(GRID[places]).float()
    if isinstance(network, FrontierNet):
        labels, places = q.labels(0, torch.device("cpu")), np.tile(np.arange(5), (n, 1))
    found = values(q, given.states)[0]
    taken = found[np.arange(n)[:, None], :, given.actions[:, None], places]  # [n, L, 2]
    own = q.select([0])
    own.prepare(problem_of(given.states, given.actions, n_actions=3))
    own.load_tensors(q.select([0]).state_dict())
    assert own.error(0, every_row(given), labels, torch.tensor(taken)) < 1e-9


def plain(network, arrays, states, budget):
    """The paper's network layer by layer, for the first member and one budget."""
    literal = network.reading == "text"

    def layer(name, rows):
        return rows @ arrays[f"stacks.0.{name}.weight"][0] + arrays[f"stacks.0.{name}.bias"][0]

    code = torch.full((len(states), 1), budget)
    for i in range(len(network.encoder)):
        code = layer(f"encoder.{i}", code)
        code = torch.relu(code) if literal else code
    rows = layer("first", torch.cat((states, code), dim=1))
    rows = torch.relu(rows) if literal else rows
    for i in range(len(network.hidden) - 1):
        rows = torch.relu(layer(f"others.{i}", rows))
    return layer(f"others.{len(network.hidden) - 1}", rows)


@pytest.mark.parametrize("name", ["text", "code", "deep encoder", "deep encoder, code"])
def test_the_papers_network_is_what_its_layers_say(name):
    given = problem()
    q = shaken(NETWORKS[name], given)
    arrays = q.state_dict()
    states = torch.tensor(given.states)
    scaled = ((states - arrays["centre"]) / arrays["scale"]).float()
    found = q(states)[0]
    for head, budget in enumerate(GRID):
        expected = plain(NETWORKS[name], arrays, scaled, budget).view(60, 2, 3)
        torch.testing.assert_close(found[..., head], expected, atol=1e-5, rtol=1e-5)


def test_by_the_code_the_first_layers_are_one_affine_map():
    """Before the first activation a budget has one row of weights, and not one for each code."""
    given = problem(heads=(0.0, 0.5, 1.0))
    q = shaken(NETWORKS["code"], given)
    with torch.no_grad():
        for name, parameter in q.named_parameters():
            if ".bias" in name and "encoder" not in name:
                parameter += 100.0  # all later activations are on
    below, middle, above = (values(q, given.states)[..., i] for i in range(3))
    np.testing.assert_allclose(middle, (below + above) / 2, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("inputs", ["scaled", "raw"])
def test_raw_states_are_left_as_they_are(inputs):
    """A number that is rarely not 0 is made large by its deviation, and is left alone if raw."""
    rare = (np.random.default_rng(0).random((400, 2)) < 0.02).astype(float)
    arrays = prepared(FrontierNet((8,), inputs=inputs), problem_of(rare)).state_dict()
    if inputs == "scaled":
        assert (arrays["scale"] < 0.2).all()
    else:
        assert (arrays["centre"].tolist(), arrays["scale"].tolist()) == ([0, 0], [1, 1])


def test_the_code_reads_raw_states():
    arrays = prepared(NETWORKS["code"], problem_of(np.full((9, 2), 7.0))).state_dict()
    assert (arrays["centre"].tolist(), arrays["scale"].tolist()) == ([0, 0], [1, 1])


def test_monotone_values_rise_with_the_budget_and_costs_by_no_more_than_it():
    given = problem()
    found = values(shaken(NETWORKS["monotone"], given), 10 * given.states)
    steps = np.diff(found)
    assert (steps >= 0).all()
    assert (steps[:, :, 1] <= np.diff(GRID) + 1e-6).all()
    assert (np.diff(values(shaken(NETWORKS["free"], given), 10 * given.states)) < 0).any()


# Labels


def labels_of(network, given, iteration):
    return prepared(network, given).labels(iteration, torch.device("cpu")).numpy()


def test_uniform_labels_are_new_at_every_iteration_and_within_the_range():
    given = problem(heads=(1.0, 2.0, 3.0))
    network = EncoderNet((8,), n_labels=50)
    first, second = (labels_of(network, given, iteration) for iteration in (0, 1))
    assert first.shape == (60, 50)
    assert (first >= 1).all()
    assert (first <= 3).all()
    assert first.mean() == pytest.approx(2, abs=0.05)
    assert (first != second).all()
    assert (labels_of(network, given, 0) == first).all()


def holding(budgets, **changes):
    given = problem(**changes)
    return type(given)(**{**vars(given), "budgets": np.asarray(budgets)})


def test_stored_labels_are_those_of_the_data():
    held = np.linspace(0, 1, 60)
    found = labels_of(EncoderNet((8,), labels="stored"), holding(held), 3)
    np.testing.assert_allclose(found, held[:, None], atol=1e-6)


@pytest.mark.parametrize("heads", [(0.0, 0.5, 1.0), (1.0, 3.0)])
def test_fixed_labels_are_shares_of_the_range_without_its_top(heads):
    network = EncoderNet((8,), labels="fixed", n_labels=10)
    found = labels_of(network, holding(np.full(60, 0.3), heads=heads), 3)
    expected = heads[0] + (heads[-1] - heads[0]) * np.arange(0, 1, 0.1)
    np.testing.assert_allclose(found, np.tile(expected, (60, 1)), atol=1e-6)


def test_labels_that_are_products_are_shares_of_the_budget_held_or_of_the_range_without_one():
    held = np.where(np.arange(60) < 5, 0.0, np.linspace(0, 1, 60))
    network = EncoderNet((8,), labels="products", n_labels=10)
    found = labels_of(network, holding(held), 3)
    tops = np.where(np.arange(60) < 5, 1.0, held)
    np.testing.assert_allclose(found, tops[:, None] * np.arange(0, 1, 0.1), atol=1e-6)


@pytest.mark.parametrize("labels", ["stored", "products"])
def test_budgets_that_labels_are_made_of_must_be_there(labels):
    with pytest.raises(DataError, match=f"labels='{labels}' needs a batch with budgets"):
        labels_of(EncoderNet((8,), labels=labels), problem(), 0)


def test_a_frontier_net_is_fitted_on_all_heads():
    assert labels_of(FrontierNet((8,)), problem(), 3) == pytest.approx(GRID)


# Gradient descent


def descended(regression, network=EncoderNet, given=None, **settings):
    """Networks after one fit, and how it went."""
    given = problem() if given is None else given
    q = prepared(network((32, 16), regression=regression, **settings), given)
    labels, targets = targets_of(q, given)
    loss = q.fit(0, every_row(given), labels, targets, "iteration-0")
    return q, loss, q.error(0, every_row(given), labels, targets)


def parameters(q):
    return torch.cat([p.detach().cpu().flatten() for p in q.parameters()])


def test_a_linear_network_reaches_least_squares():
    """One hidden layer that stays active is linear: its optimum is that of numpy."""
    given = problem(n=200, n_members=1, heads=(0.0,))
    how = Regression(steps=1500, learning_rate=0.02)
    q = prepared(FrontierNet((4,), "free", regression=how), given)
    with torch.no_grad():
        q.get_parameter("stacks.0.layers.0.bias").add_(10.0)  # far from the kink
    labels, targets = targets_of(q, given)
    q.fit(0, every_row(given), labels, targets, "iteration-0")
    least = 0.0
    for action in range(3):
        rows = given.actions == action
        x, y = np.c_[np.ones(rows.sum()), given.states[rows]], targets[rows, 0].numpy()
        least += ((x @ np.linalg.lstsq(x, y, rcond=None)[0] - y) ** 2).sum() / 200
    found = q.error(0, every_row(given), labels, targets)
    assert found == pytest.approx(least, rel=0.05)
    assert found >= least * 0.999


def test_more_steps_fit_better_and_the_loss_tells():
    _, few, loss_few = descended(Regression(steps=5))
    _, many, loss_many = descended(Regression(steps=300))
    assert loss_many < 0.5 * loss_few
    assert (few.n_steps, many.n_steps) == (5, 300)
    assert many.first == pytest.approx(few.first)
    assert many.last < few.last


def test_it_ends_at_the_stop_loss():
    _, told, loss = descended(Regression(steps=2000, stop_loss=0.1))
    assert told.n_steps < 2000
    assert loss < 0.12


@pytest.mark.parametrize("stop_loss", [0.1, 1e-9, 1e9])
def test_running_ahead_ends_at_the_same_step(stop_loss, monkeypatch):
    """What a GPU does, on a CPU: losses are looked at after many steps, some of them taken back."""
    how = Regression(steps=330, stop_loss=stop_loss, weight_decay=0.01)
    one, told, _ = descended(how)
    optimisers = []
    adam = torch.optim.Adam
    monkeypatch.setattr(
        torch.optim, "Adam", lambda *a, **k: optimisers.append(adam(*a, **k)) or optimisers[-1]
    )
    monkeypatch.setattr(
        networks, "_walking", lambda step, how: networks._running(step, how, optimisers[-1])
    )
    ahead, same, _ = descended(how)
    assert same == told
    assert told.n_steps == {0.1: told.n_steps, 1e-9: 330, 1e9: 1}[stop_loss]
    assert torch.equal(parameters(ahead), parameters(one))


def test_weight_decay_makes_parameters_smaller():
    one, _, _ = descended(Regression(steps=300))
    decayed, _, _ = descended(Regression(steps=300, weight_decay=0.1))
    assert parameters(decayed).abs().sum() < 0.8 * parameters(one).abs().sum()


def test_clipping_limits_every_element_of_the_gradient():
    q, _, _ = descended(Regression(steps=1, clip=1e-3))
    largest = max(float(p.grad.abs().max()) for p in q.parameters())
    assert largest == pytest.approx(1e-3)


def test_parts_of_the_rows_are_random_but_repeatable():
    how = Regression(steps=50, batch_size=8)
    one, same = (parameters(descended(how)[0]) for _ in range(2))
    assert torch.equal(one, same)
    assert not torch.equal(one, parameters(descended(Regression(steps=50))[0]))


def again(start, keep_moments):
    """Losses of two fits to the same targets, and the parameters after them."""
    given = problem()
    how = Regression(steps=100, learning_rate=0.01, start=start, keep_moments=keep_moments)
    q = prepared(FrontierNet((8,), "free", regression=how), given)
    labels, targets = targets_of(q, given)
    losses = [q.fit(0, every_row(given), labels, targets, f"iteration-{k}") for k in range(2)]
    return losses, parameters(q)


def test_a_warm_start_goes_on_and_a_restart_begins_anew():
    warm, _ = again("warm", True)
    anew, _ = again("restart", True)
    assert warm[1].first < 1.1 * warm[0].last
    assert anew[1].first > 2 * anew[0].last


@pytest.mark.parametrize("start", ["warm", "restart"])
def test_it_matters_whether_moments_are_kept(start):
    kept, forgotten = (again(start, keep)[1] for keep in (True, False))
    assert not torch.equal(kept, forgotten)


def test_the_networks_of_a_step_begin_where_those_of_the_step_after_ended():
    given = problem(n_steps=2)
    how = Regression(steps=200, learning_rate=0.01)
    q = prepared(FrontierNet((16,), "free", regression=how), given)
    labels, targets = targets_of(q, given)
    last = q.fit(1, every_row(given), labels, targets, "iteration-0")
    first = q.fit(0, every_row(given), labels, targets, "iteration-1")
    assert first.first < 1.1 * last.last


@needs_gpu
@pytest.mark.parametrize("network", [EncoderNet, FrontierNet])
def test_on_a_gpu_the_recorded_steps_are_those_of_the_cpu(network):
    given, found = problem(), []
    for device in ("cpu", "cuda"):
        q = prepared(network((32, 16), regression=Regression(steps=60)), given, device)
        labels, targets = targets_of(prepared(network((32, 16)), given), given)
        q.fit(0, every_row(given), labels.to(device), targets.to(device), "iteration-0")
        found.append(parameters(q))
    torch.testing.assert_close(*found, atol=1e-3, rtol=0)


@each_device
def test_few_steps_are_taken_on_any_device(device):
    given = problem()
    q = prepared(FrontierNet((8,), regression=Regression(steps=3)), given, device)
    assert fit_once(q, given).n_steps == 3


# Learning


@pytest.mark.parametrize("reading", ["text", "code"])
def test_bftq_learns_a_bandit_with_the_papers_network(reading):
    how = Regression(steps=300, learning_rate=0.01)
    network = EncoderNet((16, 8), (4,), reading, n_labels=2, regression=how)
    schedule = Iterations(2, settled=0.0)
    config = BFTQConfig(gamma=0.9, model=network, schedule=schedule, ensemble=1, n_budgets=5)
    policy = BFTQ(config).fit(bandit(), seed=0, device="cpu")
    assert policy.frontier([0.0, 0.0]).reward_at(0.5) == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EncoderNet(()), "hidden must be whole numbers from 1 on, at least 1"),
        (lambda: EncoderNet((8,), reading="code"), "at least 2 of them"),
        (lambda: EncoderNet((8, 0)), "hidden must be whole numbers"),
        (lambda: EncoderNet(encoder=()), "encoder must be"),
        (lambda: EncoderNet(reading="poem"), "reading must be one of text, code; got 'poem'"),
        (lambda: EncoderNet(labels="none"), "labels must be one of uniform, stored, fixed"),
        (lambda: EncoderNet(n_labels=0), "n_labels must be a whole number from 1 on"),
        (lambda: FrontierNet(structure="cubic"), "structure must be one of monotone, free"),
        (lambda: FrontierNet(inputs="both"), "inputs must be one of scaled, raw"),
        (lambda: FrontierNet((8.5,)), "hidden must be"),
        (lambda: Regression(steps=0), "steps must be a whole number from 1 on"),
        (lambda: Regression(batch_size=0), "batch_size must be above 0, or None"),
        (lambda: Regression(learning_rate=0.0), "learning_rate must be above 0"),
        (lambda: Regression(weight_decay=-1.0), "weight_decay from 0 on"),
        (lambda: Regression(start="cold"), "start must be one of warm, restart"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize("n", [512, 1300])
@pytest.mark.parametrize("has_bias", [True, False])
def test_gradients_in_parts_are_those_of_all_rows(n, has_bias):
    rng = torch.Generator().manual_seed(0)
    shapes = ((2, 1, 4), (2, n, 3), (2, 3, 4))
    bias, *others = (torch.randn(s, generator=rng, requires_grad=True) for s in shapes)
    inputs = [bias, *others] if has_bias else others
    weights = torch.randn((2, n, 4), generator=rng)
    found = Affine.apply(bias if has_bias else None, *others)
    expected = torch.bmm(*others) + (bias if has_bias else 0)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad((v * weights).sum(), inputs) for v in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)
