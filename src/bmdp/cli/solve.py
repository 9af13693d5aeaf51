"""`bmdp solve`: what each budget buys in a known finite model."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bmdp.cli.pictures import require_place, write_picture
from bmdp.cli.values import AsJson, parse_budgets
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
from bmdp.frontier import BudgetStatus, Frontier, Mixture, hull_mixture

PICTURES = (".png", ".svg", ".pdf")
COLOURS = {
    BudgetStatus.INFEASIBLE: "red",
    BudgetStatus.TIGHT: "green",
    BudgetStatus.SLACK: "yellow",
}


class Method(StrEnum):
    """How to solve."""

    BVI = "bvi"
    OPTIMAL = "optimal"
    LP = "lp"
    ALLOCATION = "allocation"


@dataclass(frozen=True)
class Question:
    """What was asked."""

    model: FiniteBMDP
    start: int
    method: Method
    budgets: list[float]  # none: the vertices of the frontier
    n_grid: int  # of bvi


@dataclass(frozen=True)
class Answer:
    """What was found."""

    outcomes: dict[float, Mixture | CMDPSolution]  # by budget
    frontier: Frontier | None = None
    converged: bool | None = None  # None where the method does not iterate


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
        _check_picture(plot, force)
    budgets = parse_budgets(budget or ())
    known, own_start = _load(model, textbook_name)
    question = Question(known, own_start if start is None else start, method, budgets, grid)
    answer = _answer(question)
    print_answer = _print_json if as_json else _print_table
    print_answer(question, answer)
    if plot is not None:
        _draw(answer, plot, force)


def _load(path: Path | None, textbook_name: str | None) -> tuple[FiniteBMDP, int]:
    """Returns a model and its own start."""
    if path is not None:
        return FiniteBMDP.load(path), 0
    problem = textbook.problem(str(textbook_name))
    return problem.model, problem.start


def _answer(question: Question) -> Answer:
    """Solves, by the method asked for."""
    question.model.start_distribution(question.start)  # before any work: is it a state?
    solvers = {
        Method.BVI: _by_bvi,
        Method.OPTIMAL: _by_optimal,
        Method.LP: _by_lp,
        Method.ALLOCATION: _by_allocation,
    }
    return solvers[question.method](question)


def _by_optimal(question: Question) -> Answer:
    frontier = optimal_frontier(question.model, start=question.start)
    return Answer(_mixtures(frontier, question.budgets), frontier)


def _by_lp(question: Question) -> Answer:
    budgets = question.budgets
    if not budgets:
        budgets = _from_end_to_end(optimal_frontier(question.model, start=question.start))
    return Answer({b: solve_cmdp(question.model, start=question.start, budget=b) for b in budgets})


def _by_allocation(question: Question) -> Answer:
    with _progress("allocation") as progress:
        solution = allocate_budgets(question.model, progress=progress)
    if not solution.converged:
        _note(
            f"allocation: NOT converged, residual {solution.residuals[-1]:.3g} after "
            f"{len(solution.residuals)} iterations"
        )
    frontier = solution.frontier(question.start)
    return Answer(_mixtures(frontier, question.budgets), frontier, solution.converged)


def _by_bvi(question: Question) -> Answer:
    low, high = cost_range(question.model)
    beta_grid = np.unique(np.linspace(low, high, question.n_grid))  # one budget if low is high
    with _progress("bvi") as progress:
        solution = budgeted_value_iteration(question.model, beta_grid, progress=progress)
    _note(
        f"bvi: {'converged' if solution.converged else 'NOT converged'} after "
        f"{len(solution.residuals)} iterations, last residual {solution.residuals[-1]:.3g}"
    )
    _note("bvi: the paper's operator can stay below the optimum; compare --method optimal")
    frontier = solution.frontier(question.start)
    budgets = question.budgets or _from_end_to_end(frontier)
    return Answer(_mixtures(frontier, budgets), frontier, solution.converged)


def _from_end_to_end(frontier: Frontier) -> list[float]:
    """Five budgets, equally spaced."""
    ends = frontier.costs[0], frontier.costs[-1]
    return [float(budget) for budget in np.unique(np.linspace(*ends, 5))]


def _mixtures(frontier: Frontier, budgets: Sequence[float]) -> dict[float, Mixture | CMDPSolution]:
    """Returns what budgets buy on a frontier; without budgets, its vertices."""
    return {beta: hull_mixture(frontier, beta) for beta in budgets or frontier.costs.tolist()}


def _note(text: str) -> None:
    typer.echo(text, err=True)


@contextmanager
def _progress(name: str) -> Iterator[Callable[[int, float], None] | None]:
    """Shows iterations on stderr if that is a terminal; gives None if it is not."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    with console.status(f"{name} ...") as status:
        yield lambda iteration, residual: status.update(
            f"{name}: iteration {iteration}, residual {residual:.3g}"
        )


def _print_table(question: Question, answer: Answer) -> None:
    table = Table()
    multiplier = ("multiplier",) if question.method is Method.LP else ()
    for name in ("budget", "reward", "cost", "status", *multiplier):
        table.add_column(name, justify="left" if name == "status" else "right", overflow="fold")
    for budget, bought in answer.outcomes.items():
        status = Text(bought.status.name, COLOURS[bought.status])
        numbers = [f"{value:.6g}" for value in (budget, bought.reward, bought.cost)]
        price = (f"{bought.multiplier:.6g}",) if isinstance(bought, CMDPSolution) else ()
        table.add_row(*numbers, status, *price)
    Console().print(table)


def _print_json(question: Question, answer: Answer) -> None:
    known, frontier = question.model, answer.frontier
    fields: dict[str, Any] = {
        "method": question.method.value,
        "start": question.start,
        "gamma": known.gamma,
        "horizon": known.horizon,
        "states": known.n_states,
        "actions": known.n_actions,
        "converged": answer.converged,
        "rows": [_row(budget, bought) for budget, bought in answer.outcomes.items()],
    }
    if frontier is not None:
        fields["frontier"] = {
            "costs": frontier.costs.tolist(),
            "rewards": frontier.rewards.tolist(),
        }
    typer.echo(json.dumps(fields, indent=2, allow_nan=False))


def _row(budget: float, bought: Mixture | CMDPSolution) -> dict[str, Any]:
    row: dict[str, Any] = {
        "budget": budget,
        "reward": bought.reward,
        "cost": bought.cost,
        "status": bought.status.name,
    }
    if isinstance(bought, CMDPSolution):
        row["multiplier"] = bought.multiplier if math.isfinite(bought.multiplier) else None
    return row


def _check_picture(path: Path, force: bool) -> None:
    """Finds out what is wrong with a picture's name before any work is done."""
    if path.suffix.lower() not in PICTURES:
        raise ConfigError(f"--plot must end in {' or '.join(PICTURES)}; got '{path}'.")
    require_place(path, force)


def _draw(answer: Answer, path: Path, force: bool) -> None:
    from bmdp.report.figures import curve_figure  # matplotlib takes long to import

    picture = BytesIO()
    figure = curve_figure(answer.frontier, answer.outcomes)
    figure.savefig(picture, format=path.suffix[1:].lower(), dpi=150)
    write_picture(path, picture.getvalue(), force)
