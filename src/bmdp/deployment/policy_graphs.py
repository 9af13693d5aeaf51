"""Policies as graphs of ONNX.

A policy in one-step form is a function of states, budgets and uniform numbers. One that carries
something through an episode (a price, or a member of a portfolio) takes it as one more input,
`carried`, and gives what to carry next: columns whose first is -1 at the start of an episode, and
-2 where the dial has just been moved.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from onnx import GraphProto

from bmdp.data.encoder import without_encoder
from bmdp.deployment.frontiers import (
    INFEASIBLE,
    SLACK,
    TIGHT,
    MixtureValues,
    mixture_values,
    ruled_points,
)
from bmdp.deployment.graph import Graph, Value, info
from bmdp.deployment.q_graphs import q_graph, state_shape
from bmdp.errors import PolicyError
from bmdp.policies.hull import HullPolicy
from bmdp.policies.policy import QPolicy, steps_of
from bmdp.policies.portfolio import CalibratedPolicy, Portfolio
from bmdp.policies.prices import MultiplierPolicy, PriceDial, PricedPolicy, raised

OUTPUTS = ("actions", "next_budgets", "statuses")

Columns = tuple[Value, ...]
"""Columns `[n, 1]`, float64."""


class Given(NamedTuple):
    """All that a policy decides by. Budgets are not below its range."""

    states: Value  # [n, D], or numbers of states [n]
    budgets: Value  # [n, 1]
    uniforms: Columns
    step: Value | int  # of the episode
    carried: Columns


class Decided(NamedTuple):
    """A policy's decisions, in columns `[n, 1]`."""

    action: Value
    next_budget: Value
    status: Value
    carried: Columns


class Form(NamedTuple):
    """All that a policy takes."""

    state_shape: tuple[Any, ...]
    n_draws: int
    n_steps: int
    carried: tuple[str, ...]  # what the columns are that it carries


def form_of(policy: Any) -> Form:
    """Returns what a policy takes.

    Raises:
        PolicyError: if there is no graph of it.
    """
    if isinstance(policy, HullPolicy | PriceDial | PricedPolicy):
        return Form(state_shape(policy.q_function), policy.n_draws, policy.n_steps, ())
    if isinstance(policy, MultiplierPolicy):
        inner = form_of(policy.dial)
        return inner._replace(n_draws=1, carried=("number of the price", "status"))
    if isinstance(policy, Portfolio):
        forms = [form_of(part) for part in policy.policies]
        shapes = {form.state_shape for form in forms}
        if len(shapes) == 1:
            longest = max((form.carried for form in forms), key=len)
            own = "number of the member", "status", "budget of the member"
            return Form(
                shapes.pop(),
                1 + max(form.n_draws for form in forms),
                max(form.n_steps for form in forms),
                own + tuple(f"its {column}" for column in longest),
            )
    raise PolicyError(
        f"{type(policy).__name__} cannot be written as ONNX: HullPolicy, PriceDial, PricedPolicy, "
        "MultiplierPolicy and a Portfolio of these can. Play it with bmdp instead."
    )


def plain(policy: Any) -> Any:
    """The policy that decides by numbers, without a certificate."""
    inner = without_encoder(policy)
    return inner.portfolio if isinstance(inner, CalibratedPolicy) else inner


def decided(policy: Any, given: Given) -> Decided:
    """Returns what a policy decides, as it does itself."""
    policy = plain(policy)
    if isinstance(policy, MultiplierPolicy):
        return _carrying(policy, given)
    if isinstance(policy, Portfolio):
        return _member_of(policy, given)
    graph, (_, highest) = given.budgets.graph, policy.budget_range
    within = given._replace(budgets=given.budgets.at_most(highest))
    found = _hull(policy, within) if isinstance(policy, HullPolicy) else _priced(policy, within)
    status = graph.where(given.budgets > highest, graph.constant(SLACK), found.status)
    return found._replace(status=status)


def _own_step(policy: QPolicy, step: Value | int) -> Value | int:
    """The step that a policy plays, as `QPolicy.at_step`: its only one, or at most its last."""
    if policy.step is not None:
        return policy.step
    return (
        min(step, policy.n_steps - 1) if isinstance(step, int) else step.at_most(policy.n_steps - 1)
    )


def _hull(policy: HullPolicy, given: Given) -> Decided:
    """As `HullPolicy.choose`."""
    graph = given.budgets.graph
    grid = graph.constant(policy.beta_grid)
    step = _own_step(policy, given.step)
    q_r, q_c = q_graph(policy.q_function, given.states, step)
    points = ruled_points(policy.rule, q_r.flat(), q_c.flat(), step)
    held, first, least = (
        v.cast(np.float64) for v in (given.budgets, points.first_cost, points.least_budget)
    )
    raised = graph.where((held >= least) & (held < first), first, held)
    found = mixture_values(points.costs, points.rewards, raised)
    point = _drawn(found, given.uniforms[0])
    is_infeasible = found.status.equals(INFEASIBLE)
    point = graph.where(is_infeasible, points.cheapest, point)
    n_budgets = len(policy.beta_grid)
    return Decided(point // n_budgets, grid.take(point % n_budgets), found.status, ())


class Priced(NamedTuple):
    """Actions, costs and rewards of `M` prices, as `bmdp.policies.prices.PricedPoints`."""

    actions: Value  # [n, M]
    costs: Value  # [n, M]
    rewards: Value  # [n, M]


def _points(policy: PriceDial | PricedPolicy, given: Given) -> Priced:
    """As `PriceDial.points`."""
    graph = given.budgets.graph
    prices = np.asarray(policy.prices if isinstance(policy, PriceDial) else [policy.price])
    tolerance = policy.tolerance if isinstance(policy, PriceDial) else 0.0
    step = _own_step(policy, given.step)
    q_r, q_c = q_graph(policy.q_function, given.states, step)
    is_infinite = prices == np.inf
    factors = [raised(policy.growth, t) for t in range(steps_of(policy.q_function))]
    finite = graph.constant(np.where(is_infinite, 0.0, prices) * np.array(factors)[:, None])
    finite = finite.take(step)  # [M], the prices of the step
    least = q_c.reduce("Min", 1)
    above = _finite(q_c) - _finite(least)  # what all cost makes no difference
    worth = q_r.cast(np.float64) - above.cast(np.float64) * finite
    if is_infinite.any():
        is_dear = (q_c > least + tolerance) & graph.constant(is_infinite)
        worth = graph.where(is_dear, -np.inf, worth)
    actions = worth.place("ArgMax", 1)  # [n, 1, M]
    costs, rewards = (q.at(actions, 1).flat() for q in (q_c, q_r))
    return Priced(actions.flat(), costs, rewards)


def _finite(costs: Value) -> Value:
    return costs.graph.where(costs.equals(np.inf), 0.0, costs)


def _priced(policy: PriceDial | PricedPolicy, given: Given) -> Decided:
    """As `choose` of both."""
    graph, actions = given.budgets.graph, _points(policy, given).actions
    if isinstance(policy, PriceDial):
        actions = actions.at(given.budgets.one("Round").cast(np.int64))
    slack = graph.constant([[SLACK]]).rows_like(given.budgets)
    return Decided(actions, given.budgets, slack, ())


def _carrying(policy: MultiplierPolicy, given: Given) -> Decided:
    """As `MultiplierTracker`."""
    graph, code = given.budgets.graph, given.carried[0]
    priced = _points(policy.dial, given)
    within = given.budgets.at_most(policy.high)
    found = mixture_values(priced.costs, priced.rewards, within)
    number, status = _drawn(found, given.uniforms[0]), found.status
    if len(policy.costs):  # measured, which holds at the start
        costs, rewards = (
            graph.constant(v[None]).rows_like(within) for v in (policy.costs, policy.rewards)
        )
        first = mixture_values(costs, rewards, within)
        is_start = code.equals(-1.0)
        number = graph.where(is_start, _drawn(first, given.uniforms[0]), number)
        status = graph.where(is_start, first.status, status)
    status = graph.where(given.budgets > policy.high, graph.constant(SLACK), status)
    is_new = code < 0.0
    n_last = len(policy.dial.prices) - 1
    number = graph.where(is_new, number, code.cast(np.int64).at_least(0).at_most(n_last))
    status = graph.where(is_new, status, given.carried[1].cast(np.int64))
    carried = number.cast(np.float64), status.cast(np.float64)
    cost = priced.costs.at(number).cast(np.float64)
    return Decided(priced.actions.at(number), cost, status, carried)


def _member_of(policy: Portfolio, given: Given) -> Decided:
    """As `PortfolioTracker`: `given.budgets` choose a member, which is then followed."""
    graph, code = given.budgets.graph, given.carried[0]
    found = _members(policy, given.budgets.at_most(policy.budget_range[1]))
    is_new, n_last = code < 0.0, len(policy.which) - 1
    kept = code.cast(np.int64).at_least(0).at_most(n_last)
    member = graph.where(is_new, _drawn(found, given.uniforms[0]), kept)
    status = graph.where(is_new, found.status, given.carried[1].cast(np.int64))
    inner = graph.constant(policy.budgets).take(member)
    followed = Given(
        given.states,
        graph.where(is_new, inner, given.carried[2]),
        given.uniforms[1:],
        given.step,
        tuple(graph.where(is_new, code, column) for column in given.carried[3:]),
    )
    which = graph.constant(policy.which).take(member)
    every = [decided(part, followed) for part in policy.policies]
    n_carried = len(followed.carried)
    chosen = every[0]
    for number, other in enumerate(every):
        filled = other.carried + followed.carried[len(other.carried) :]
        other = other._replace(carried=filled[:n_carried])
        own = which.equals(number)
        chosen = other if number == 0 else _either(own, other, chosen)
    carried = member.cast(np.float64), status.cast(np.float64), chosen.next_budget
    held = graph.where(
        graph.constant(policy.members_take_budgets).take(member),
        chosen.next_budget,
        graph.constant(policy.costs).take(member),
    )
    return chosen._replace(next_budget=held, status=status, carried=(*carried, *chosen.carried))


def _either(mask: Value, one: Decided, other: Decided) -> Decided:
    graph = mask.graph
    columns = zip((*one[:3], *one.carried), (*other[:3], *other.carried), strict=True)
    action, budget, status, *carried = (graph.where(mask, a, b) for a, b in columns)
    return Decided(action, budget, status, tuple(carried))


def _members(policy: Portfolio, within: Value) -> MixtureValues:
    """As `Portfolio.mixtures`."""
    graph = within.graph
    if policy.mixes:
        assert policy.curve.index is not None
        costs, rewards = (
            graph.constant(v[None]).rows_like(within)
            for v in (policy.curve.costs, policy.curve.rewards)
        )
        found = mixture_values(costs, rewards, within)
        index = graph.constant(policy.curve.index.astype(np.int64))
        return found._replace(lower=index.take(found.lower), upper=index.take(found.upper))
    order = np.lexsort((-policy.rewards, policy.costs))
    best_before = np.maximum.accumulate(policy.rewards[order])
    steps = order[np.append(True, policy.rewards[order][1:] > best_before[:-1])]
    n_within = (within >= policy.costs[steps][None]).cast(np.int64).reduce("Sum", 1)
    member = graph.constant(steps.astype(np.int64)).take((n_within - 1).at_least(0))
    status = graph.where(n_within.equals(len(steps)), graph.constant(SLACK), graph.constant(TIGHT))
    status = graph.where(n_within.equals(0), graph.constant(INFEASIBLE), status)
    never = graph.constant([[0.0]]).rows_like(within)
    return MixtureValues(member, member, never, status)


def _drawn(found: MixtureValues, uniforms: Value) -> Value:
    return uniforms.graph.where(uniforms < found.p_upper, found.upper, found.lower)


def split(columns: Value, n: int) -> Columns:
    """The columns of an array `[n, C]`."""
    return tuple(columns.take([i], 1) for i in range(n))


def policy_graph(policy: Any, form: Form) -> GraphProto:
    """Returns the graph of a policy.

    A row whose budget is no number or below the range, or whose state is none, is refused: its
    action and status are -1, its next budget is not a number, and what it carries stays.
    """
    graph, low, inputs = Graph(), policy.budget_range[0], []

    def given_as(name: str, kind: str, *shape: int | str) -> Value:
        inputs.append(info(name, kind, shape))
        return graph.input(name, kind)

    is_numbered = len(form.state_shape) == 1
    states = given_as("states", "int64" if is_numbered else "float64", *form.state_shape)
    budgets = given_as("budgets", "float64", "N").reshape(-1, 1)
    n_draws, n_carried = form.n_draws, len(form.carried)
    uniforms = split(given_as("uniforms", "float64", "N", n_draws), n_draws) if n_draws else ()
    step = given_as("step", "int64").at_least(0) if form.n_steps > 1 else 0
    carried = split(given_as("carried", "float64", "N", n_carried), n_carried) if n_carried else ()
    if is_numbered:
        n_states = n_states_of(policy)
        is_state = ((states >= 0) & (states < n_states)).reshape(-1, 1)
        states = states.at_least(0).at_most(n_states - 1)
    elif form.state_shape[1] == 0:
        is_state = graph.constant([[True]])
    else:
        is_state = states.one("Abs").reduce("Max", 1) < np.inf
        states = graph.where(is_state, states, 0.0)
    is_good = is_state & (budgets >= low)
    held = graph.where(is_good, budgets, low)
    found = decided(policy, Given(states, held, uniforms, step, carried))
    columns = (found.action, -1), (found.next_budget, np.nan), (found.status, -1)
    outputs = {
        name: graph.where(is_good, value, refused).reshape(-1)
        for name, (value, refused) in zip(OUTPUTS, columns, strict=True)
    }
    if n_carried:
        both = zip(found.carried, carried, strict=True)
        after = [graph.where(is_good, one, other) for one, other in both]
        outputs["next_carried"] = graph.concat(after, 1)
    told = [
        info(graph.renamed(value, name), value.dtype, ("N", n_carried)[: 1 + (name not in OUTPUTS)])
        for name, value in outputs.items()
    ]
    return graph.whole(type(policy).__name__, inputs, told)


def n_states_of(policy: Any) -> int:
    """Number of states of a policy by a `TabularQ`, the least of several."""
    policy = plain(policy)
    if isinstance(policy, Portfolio):
        return min(map(n_states_of, policy.policies))
    q: Any = policy.dial.q_function if isinstance(policy, MultiplierPolicy) else policy.q_function
    return int(q.q_r.shape[-3])
