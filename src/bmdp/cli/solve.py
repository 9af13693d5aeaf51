"""`bmdp solve`: what each budget buys in a known finite model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.text import Text

from bmdp.cli.options import (
    AsJson,
    parse_budgets,
    print_columns,
    print_json,
    require_new_file,
    write_picture,
)
from bmdp.cli.progress import Progress
from bmdp.errors import ConfigError
from bmdp.exact import (
    CMDPSolution,
    FiniteBMDP,
    allocate_budgets,
    budgeted_value_iteration,
    cost_range,
    optimal_frontier,
    solve_cmdp,
    textbook,
)
from bmdp.frontier import Frontier, Mixture, hull_mixture

PICTURES = (".png", ".svg", ".pdf")
COLOURS = {"INFEASIBLE": "red", "TIGHT": "green", "SLACK": "yellow"}


class Method(StrEnum):
    """Solvers of a known model."""

    BVI = "bvi"
    OPTIMAL = "optimal"
    LP = "lp"
    ALLOCATION = "allocation"


@dataclass(frozen=True)
class Answer:
    """Mixtures that budgets buy, and how they were found."""

    bought: dict[float, Mixture | CMDPSolution]  # by budget
    frontier: Frontier | None = None
    converged: bool | None = None  # None where the method does not iterate
    notes: Sequence[str] = ()


def solve(  # noqa: PLR0913
    model: Annotated[
        Path | None, typer.Argument(metavar="MODEL", help="A file that FiniteBMDP.save wrote.")
    ] = None,
    textbook_name: Annotated[
        str | None,
        typer.Option(
            "--textbook",
            metavar="NAME",
            help=f"A problem instead of MODEL: {', '.join(textbook.PROBLEMS)}.",
        ),
    ] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NUMBER|LOW:HIGH:STEP",
            help="Expected cost allowed; may be repeated; a range includes both ends. "
            "Without: the vertices of the frontier (lp, bvi: five budgets from end to end).",
        ),
    ] = None,
    method: Annotated[
        Method,
        typer.Option(
            help="optimal: search over the price of cost; lp: a linear program for each budget; "
            "allocation: frontiers of all states; bvi: the paper's value iteration."
        ),
    ] = Method.OPTIMAL,
    start: Annotated[
        int | None, typer.Option(help="State to start from; without: 0, or the problem's own.")
    ] = None,
    grid: Annotated[
        int, typer.Option(min=2, metavar="N", help="Number of budgets on the grid of bvi.")
    ] = 101,
    as_json: AsJson = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help=f"Draw into FILE: {', '.join(PICTURES)}.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Let --plot overwrite FILE.")] = False,
) -> None:
    """Print what each budget buys: expected reward and cost, from one start, in a known model."""
    if (model is None) == (textbook_name is None):
        raise typer.BadParameter("give MODEL or --textbook NAME, one of the two.")
    if plot is not None:
        if plot.suffix.lower() not in PICTURES:
            raise ConfigError(f"--plot must end in {' or '.join(PICTURES)}; got '{plot}'.")
        require_new_file(plot, force)
    budgets = parse_budgets(budget or ())
    problem = textbook.problem(textbook_name) if textbook_name is not None else None
    known = problem.model if problem else FiniteBMDP.load(model or "")
    own_start = problem.start if problem else 0
    first = own_start if start is None else start
    known.start_distribution(first)  # before any work: is it a state?
    with Progress("solving", unit="budgets" if method is Method.LP else "") as progress:
        answer = _answer(method, known, first, budgets, grid, progress.update)
    for note in answer.notes:
        typer.echo(f"{method}: {note}", err=True)
    rows: list[dict[str, Any]] = [
        {"budget": beta, "reward": bought.reward, "cost": bought.cost, "status": bought.status.name}
        | ({"multiplier": bought.multiplier} if isinstance(bought, CMDPSolution) else {})
        for beta, bought in answer.bought.items()
    ]
    if as_json:
        _print_json(method, known, first, answer, rows)
    else:
        columns: dict[str, list[Any]] = {
            name: [f"{row[name]:.6g}" for row in rows] for name in rows[0] if name != "status"
        }
        columns["status"] = [Text(row["status"], COLOURS[row["status"]]) for row in rows]
        print_columns({name: columns[name] for name in rows[0]}, left=("status",))
    if plot is not None:
        _draw(answer, plot, force)


def _answer(
    method: Method,
    model: FiniteBMDP,
    start: int,
    budgets: Sequence[float],
    n_grid: int,
    update: Callable[..., None],
) -> Answer:
    """Solves; without budgets, for the vertices of the frontier, or for five from end to end."""

    def show(iteration: int, residual: float) -> None:
        total = model.horizon  # else nobody knows when the values will have settled
        update(iteration, total, text=f"iteration {iteration}, residual {residual:.3g}")

    if method is Method.LP:
        asked = budgets or _from_end_to_end(optimal_frontier(model, start=start))
        bought: dict[float, Mixture | CMDPSolution] = {}
        for number, beta in enumerate(asked):
            update(number, len(asked))
            bought[beta] = solve_cmdp(model, start=start, budget=beta)
        return Answer(bought)
    if method is Method.OPTIMAL:
        frontier = optimal_frontier(model, start=start)
        return Answer(_mixtures(frontier, budgets), frontier)
    solution: Any
    if method is Method.ALLOCATION:
        solution = allocate_budgets(model, progress=show)
    else:
        # Where all costs are equal, the grid has one budget.
        beta_grid = np.unique(np.linspace(*cost_range(model), n_grid))
        solution = budgeted_value_iteration(model, beta_grid, progress=show)
    frontier, is_bvi = solution.frontier(start), method is Method.BVI
    if is_bvi and not budgets:
        budgets = _from_end_to_end(frontier)
    notes = [
        f"{'converged' if solution.converged else 'NOT converged'} after "
        f"{len(solution.residuals)} iterations, last residual {solution.residuals[-1]:.3g}",
        "the paper's operator can stay below the optimum; compare --method optimal",
    ]
    shown = notes[: 2 if is_bvi else 0 if solution.converged else 1]
    return Answer(_mixtures(frontier, budgets), frontier, solution.converged, shown)


def _from_end_to_end(frontier: Frontier) -> list[float]:
    """Five budgets, equally spaced."""
    ends = frontier.costs[0], frontier.costs[-1]
    return [float(budget) for budget in np.unique(np.linspace(*ends, 5))]


def _mixtures(frontier: Frontier, budgets: Sequence[float]) -> dict[float, Mixture | CMDPSolution]:
    """Returns what budgets buy on a frontier; without budgets, its vertices."""
    return {beta: hull_mixture(frontier, beta) for beta in budgets or frontier.costs.tolist()}


def _print_json(
    method: Method, model: FiniteBMDP, start: int, answer: Answer, rows: list[dict[str, Any]]
) -> None:
    fields: dict[str, Any] = {
        "method": method.value,
        "start": start,
        "gamma": model.gamma,
        "horizon": model.horizon,
        "states": model.n_states,
        "actions": model.n_actions,
        "converged": answer.converged,
        "rows": rows,
    }
    if answer.frontier is not None:
        costs, rewards = answer.frontier.costs.tolist(), answer.frontier.rewards.tolist()
        fields["frontier"] = {"costs": costs, "rewards": rewards}
    print_json(fields)


def _draw(answer: Answer, path: Path, force: bool) -> None:
    from bmdp.report.figures import curve_figure  # matplotlib takes long to import

    picture = BytesIO()
    figure = curve_figure(answer.frontier, answer.bought)
    figure.savefig(picture, format=path.suffix[1:].lower(), dpi=150)
    write_picture(path, picture.getvalue(), force)
