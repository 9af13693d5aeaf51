"""Networks: shapes, the two readings of the paper's, structure across budgets, storing."""

import numpy as np
import pytest
import torch

import bmdp
from bmdp import ConfigError, load_policy
from bmdp.models import EncoderNet, FrontierNet, NetworkQ, Regression
from bmdp.models.networks import Affine, flat_parameters, load_parameters
from bmdp.policies import HullPolicy

GRID = np.linspace(0, 1, 11)
NETWORKS = {
    "text": EncoderNet((16, 8), (3,)),
    "code": EncoderNet((16, 8), (3,), reading="code"),
    "deep encoder": EncoderNet((16,), (4, 5)),
    "deep encoder, code": EncoderNet((16, 8), (4, 5), "code"),
    "free": FrontierNet((16, 8), "free"),
    "monotone": FrontierNet((16, 8), "monotone"),
}


def normal(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(4))


def stack(network, n_networks=3, state_size=4, n_actions=5, grid=GRID, seed=0):
    generator = torch.Generator().manual_seed(seed)
    made = network.stack((n_networks, state_size, n_actions), grid, generator)
    with torch.no_grad():  # biases are 0 at first, which would hide errors
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return made


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS.keys())
def test_taken_values_are_those_of_the_grid(network):
    made = stack(network)
    states = normal(3, 7, 4)
    actions = torch.tensor(np.random.default_rng(1).integers(5, size=(3, 7)))
    budgets = torch.tensor(GRID, dtype=torch.float32)
    grid = made.grid(states, budgets)
    assert grid.shape == (3, 7, 2, 5, 11)
    taken = made.taken(states, actions, budgets)
    assert taken.shape == (3, 7, 11, 2)
    expected = grid[torch.arange(3)[:, None], torch.arange(7), :, actions].transpose(2, 3)
    assert torch.allclose(taken, expected, atol=1e-6)
    labels = budgets[torch.tensor(np.random.default_rng(2).integers(11, size=(3, 7, 2)))]
    some = made.taken(states, actions, labels)
    places = torch.searchsorted(budgets, labels)
    assert torch.allclose(some, taken.gather(2, places[..., None].expand(-1, -1, -1, 2)), atol=1e-5)


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS.keys())
def test_networks_of_a_stack_do_not_know_of_each_other(network):
    made = stack(network)
    states = normal(3, 7, 4)
    budgets = torch.tensor(GRID, dtype=torch.float32)
    before = made.grid(states, budgets)
    changed = states.clone()
    changed[1] += 1
    after = made.grid(changed, budgets)
    assert torch.equal(before[[0, 2]], after[[0, 2]])
    assert not torch.equal(before[1], after[1])
    alone = network.stack((1, 4, 5), GRID, torch.Generator())
    load_parameters(alone, flat_parameters(made, 2)[None])
    assert torch.allclose(alone.grid(states[2:], budgets)[0], before[2], atol=1e-6)


def plain(network, made, states, budget):
    """The paper's network layer by layer, for one network and one budget."""
    literal = network.reading == "text"
    code = torch.full((len(states), 1), budget)
    for layer in made.encoder:
        code = code @ layer.weight[0] + layer.bias[0]
        code = torch.relu(code) if literal else code
    rows = torch.cat((states, code), dim=1) @ made.first.weight[0] + made.first.bias[0]
    rows = torch.relu(rows) if literal else rows
    for layer in made.others[:-1]:
        rows = torch.relu(rows @ layer.weight[0] + layer.bias[0])
    last = made.others[-1]
    return rows @ last.weight[0] + last.bias[0]


@pytest.mark.parametrize("name", ["text", "code", "deep encoder", "deep encoder, code"])
def test_the_papers_network_is_what_its_layers_say(name):
    network = NETWORKS[name]
    made = stack(network, n_networks=1)
    states = normal(6, 4)
    grid = made.grid(states[None], torch.tensor([0.3, 0.7]))[0]
    for b, budget in enumerate((0.3, 0.7)):
        expected = plain(network, made, states, budget).view(6, 2, 5)
        assert torch.allclose(grid[..., b], expected, atol=1e-5)


def test_by_the_code_the_first_layers_are_one_affine_map():
    """Without an activation: a budget joins by one row of weights, not by one for each code."""
    made, literal = (stack(NETWORKS[name], n_networks=1) for name in ("code", "text"))
    weight, joining, bias = made._first_map()
    assert (weight.shape, joining.shape, bias.shape) == ((1, 4, 8), (1, 1, 8), (1, 1, 8))
    assert literal._first_map()[1].shape == (1, 3, 16)


@pytest.mark.parametrize("structure", ["free", "monotone"])
def test_one_knot_serves_every_budget(structure):
    """As on another device, where the budgets of the grid are not the network's own tensor."""
    made = FrontierNet((8,), structure).stack((1, 4, 5), np.zeros(1), torch.Generator())
    states, actions = normal(1, 6, 4), torch.tensor([[0, 1, 2, 3, 4, 0]])
    own = made.grid(states, made.knots)
    copied, others = made.knots.clone(), torch.tensor([0.2, 0.9])
    assert torch.equal(made.grid(states, copied), own)
    assert torch.equal(made.grid(states, others), own.expand(-1, -1, -1, -1, 2))
    taken = made.taken(states, actions, made.knots)
    assert torch.equal(made.taken(states, actions, copied), taken)
    assert torch.equal(made.taken(states, actions, others), taken.expand(-1, -1, 2, -1))


def test_raw_states_are_left_as_they_are():
    """A number that is rarely not 0 is made large by its deviation, and is left alone if raw."""
    rng = np.random.default_rng(0)
    rare = (rng.random(400) < 0.02).astype(float)
    batch = bmdp.TransitionBatch(
        np.c_[rare, rng.random(400)], np.zeros(400, int), rare, rare, np.zeros((400, 2)), rare >= 0
    )
    found = {}
    for inputs in ("scaled", "raw"):
        model = EncoderNet((8, 8), (2,), inputs=inputs)
        config = bmdp.BFTQConfig(
            gamma=1.0, model=model, iterations=1, regression=Regression(steps=1), valuation="self"
        )
        found[inputs] = bmdp.BFTQ(config).fit(batch, seed=0, device="cpu").q_function
    assert found["scaled"].scale[0] < 0.2
    assert found["raw"].scale.tolist() == [1.0, 1.0]
    assert found["raw"].centre.tolist() == [0.0, 0.0]


def test_monotone_values_rise_with_the_budget_and_costs_by_no_more_than_it():
    made = stack(NETWORKS["monotone"])
    values = made.grid(10 * normal(3, 50, 4), made.knots)
    steps = values.diff(dim=-1)
    assert (steps[:, :, 0] >= 0).all()
    assert (steps[:, :, 1] >= 0).all()
    assert (steps[:, :, 1] <= torch.tensor(np.diff(GRID), dtype=torch.float32) + 1e-6).all()
    free = stack(NETWORKS["free"]).grid(10 * normal(3, 50, 4), made.knots)
    assert (free.diff(dim=-1) < 0).any()


def test_between_knots_values_are_linear():
    made = stack(NETWORKS["free"])
    states = normal(3, 5, 4)
    below, middle, above = made.grid(states, torch.tensor([0.2, 0.23, 0.3])).unbind(-1)
    assert torch.allclose(middle, 0.7 * below + 0.3 * above, atol=1e-5)
    outside = made.grid(states, torch.tensor([-1.0, 2.0]))
    assert torch.allclose(outside[..., 1], made.grid(states, torch.tensor([1.0]))[..., 0])


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS.keys())
def test_a_trained_network_is_stored_and_decides_as_before(network, tmp_path):
    made = stack(network, n_networks=1, state_size=2)
    q = NetworkQ(
        network,
        flat_parameters(made, 0),
        GRID,
        centre=np.array([1.0, -1.0]),
        scale=np.array([2.0, 0.5]),
        reward_scale=100.0,
        n_actions=5,
    )
    policy = HullPolicy(q, GRID)
    states = np.random.default_rng(0).normal(size=(30, 2))
    q_r, q_c = q(states)
    rows = torch.tensor((states - [1, -1]) / [2, 0.5], dtype=torch.float32)
    expected = made.grid(rows[None], torch.tensor(GRID, dtype=torch.float32))[0].detach().numpy()
    assert q_r == pytest.approx(100 * expected[:, 0], abs=1e-3)
    assert q_c == pytest.approx(expected[:, 1], abs=1e-5)
    policy.save(tmp_path / "policy")
    again = load_policy(tmp_path / "policy")
    one = policy.decide(states, 0.5, np.random.default_rng(1))
    other = again.decide(states, 0.5, np.random.default_rng(1))
    assert (one.action == other.action).all()
    assert (one.next_budget == other.next_budget).all()
    assert q(np.empty((0, 2)))[0].shape == (0, 5, 11)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EncoderNet(()), "hidden must be whole numbers from 1 on, at least 1"),
        (lambda: EncoderNet((8,), reading="code"), "at least 2 of them"),
        (lambda: EncoderNet((8, 0)), "hidden must be whole numbers"),
        (lambda: EncoderNet(encoder=()), "encoder must be"),
        (lambda: EncoderNet(reading="poem"), "reading must be one of text, code; got 'poem'"),
        (lambda: FrontierNet(structure="cubic"), "structure must be one of monotone, free"),
        (lambda: FrontierNet((8.5,)), "hidden must be"),
    ],
)
def test_bad_shapes_are_refused(make, message):
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
