"""Sums over a log by workers of a Ray cluster: chunks stay with their worker, sums travel.

A worker is a Ray actor with its own chunks, a copy of the fit without the rows of the batch, and
`Passes` over these chunks. Every request carries all that a pass depends on beside these: the
values of the step that next states are valued by, and of the step that is fitted. Sums are whole
numbers, so any number of workers finds the same ones as one process does. A worker that is lost is
replaced by a new one, which reads its chunks again.

All machines must see the folder of the log under the same name, and have the same versions
installed. Kernels are computed by processors, which may differ in the last bit from one kind to
another; forests and tables are not.
"""

from __future__ import annotations

import copy
import os
import pickle
import uuid
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bmdp.checks import require_count
from bmdp.cluster import environment, joined, reason_of, require_engine
from bmdp.errors import BmdpError, ConfigError
from bmdp.learn.fit import _N_SAMPLE, Fit, NextValues, Order, averager_of
from bmdp.learn.passes import MEMORY, Passes, added
from bmdp.learn.rows import Log, NextStates, Portion, SetRows
from bmdp.models.regressor import Averager, RowSet

_LOSSES = 5  # of a worker that are made good, at each request
_OF_BATCH = ("batch", "starts", "_sample")  # of a fit
_OF_ROWS = (  # of the batch, in a model
    *("_rows", "_actions", "_weights", "_masks", "_positions", "_own", "_parts", "_judged"),
    *("_grams", "_bases", "_turned", "_generator"),
)

_Steps = dict[int, dict[str, NDArray[Any] | None]]
"""Arrays of steps by name; None where all is 0."""


class Crew:
    """Workers on a Ray cluster, each of which adds up sums over chunks of its own.

    They are started once, and serve any number of fits. They take no cores of those that Ray gives
    to jobs, so episodes can be played by the cluster while a crew waits.

    Args:
        workers: number of processes, spread over the machines by their cores.
        threads: of each of them.

    Raises:
        ConfigError: if a setting is out of range.
        MissingDependency: if Ray is not installed.
    """

    def __init__(self, workers: int, *, threads: int = 1) -> None:
        """Joins the cluster of `bmdp.cluster.joined`, and starts the workers."""
        require_count("workers", workers, 1)
        require_count("threads", threads, 1)
        require_engine("ray")
        self._stack = ExitStack()
        self._stack.enter_context(joined(workers, threads))
        import ray

        self._make = ray.remote(
            num_cpus=0,
            max_restarts=0,
            runtime_env=environment(threads),
        )(_Worker)
        self._actors: list[Any] = []
        self._places: list[str] = []  # machines of the workers
        for _ in range(workers):
            self._places.append(_roomiest(self._places))
            self._actors.append(self._started(self._places[-1]))

    def __len__(self) -> int:
        return len(self._actors)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the workers, and leaves the cluster."""
        for actor in self._actors:
            _end(actor)
        self._actors = []
        self._stack.close()

    def actor(self, number: int) -> Any:
        """The process of a worker."""
        return self._actors[number]

    def replace(self, number: int, lost: Any) -> None:
        """Starts another process for a worker, unless that was done for the lost one.

        It is on another machine, if there is one.
        """
        if self._actors[number] is lost:
            _end(lost)
            place = self._places.pop(number)
            self._places.insert(number, _roomiest(self._places, place))
            self._actors[number] = self._started(self._places[number])

    def _started(self, place: str) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        where = NodeAffinitySchedulingStrategy(place, soft=True)  # or elsewhere, if that is lost
        return self._make.options(scheduling_strategy=where).remote(os.getcwd())


class RaySums:
    """Adds up sums over a log by the workers of a cluster; an `Adder`.

    Args:
        log: all transitions, in a folder that every machine sees.
        next_values: what next states are worth.
        workers: a crew, or a number of workers that are started for these sums alone.
        memory: bytes of what a worker keeps between passes that stay in memory.

    Raises:
        ConfigError: if a setting is out of range.
        MissingDependency: if Ray is not installed.
    """

    _crew: Crew | None = None

    def __init__(
        self, log: Log, next_values: NextValues, *, workers: int | Crew, memory: float = MEMORY
    ) -> None:
        """Asks for nothing yet."""
        self._log, self._next_values, self._memory = log, next_values, memory
        self._is_own, self._key = not isinstance(workers, Crew), ""
        self._fit: Fit | None = None
        self._packed: Any = None  # the fit, as it was sent
        self._told: dict[int, Any] = {}  # processes that have it
        self._crew = workers if isinstance(workers, Crew) else Crew(workers)

    def grams(self, fit: Fit, step: int, name: str, scale: float) -> list[Tensor]:
        """Sums of each member that depend on the rows of a set alone."""
        return self._sums(fit, [step], "grams", step, name, scale)

    def moments(self, fit: Fit, order: Order) -> list[Tensor]:
        """Sums of targets of each member, at an iteration."""
        step, source, _ = fit.plan(order.iteration)
        steps = {step} if source is None else {step, source}
        return self._sums(fit, steps, "moments", order)

    def close(self) -> None:
        """Frees the workers, or ends those that were started for these sums."""
        crew, self._crew = self._crew, None
        if crew is None:
            return
        if self._is_own:
            crew.close()
        else:
            self._forget()

    def __del__(self) -> None:
        """Frees the workers."""
        with suppress(Exception):  # workers may be gone already
            self.close()

    def _sums(self, fit: Fit, steps: Iterable[int], what: str, *how: Any) -> list[Tensor]:
        import ray

        assert self._crew is not None, "it is closed"
        if fit is not self._fit:
            self._send(fit)
        values = {step: _arrays(fit.q.step_tensors(step)) for step in steps}
        asked = ray.put(pickle.dumps((values, what, how)))
        numbers = range(min(len(self._crew), self._log.n_chunks))
        refs = [self._ask(number, asked) for number in numbers]
        return added(self._answer(number, refs[number], asked) for number in numbers)

    def _send(self, fit: Fit) -> None:
        """Puts a fit where workers find it."""
        import ray
        from ray import cloudpickle

        if fit.device.type != "cpu":
            raise ConfigError(f"a Ray cluster fits with device='cpu'; got {str(fit.device)!r}.")
        self._forget()
        self._key, self._fit = uuid.uuid4().hex, fit
        held = self._log, self._next_values, _bare(fit)
        self._packed = ray.put(cloudpickle.dumps(held))  # type: ignore[no-untyped-call]

    def _forget(self) -> None:
        """Lets workers forget the fit."""
        told, self._told = self._told, {}
        for actor in told.values() if _is_joined() else ():
            actor.forget.remote(self._key)

    def _ask(self, number: int, asked: Any) -> Any:
        """Asks a worker, which gets the fit if it has not."""
        assert self._crew is not None
        actor: Any = self._crew.actor(number)
        if number in self._told and self._told[number] is actor:
            return actor.sums.remote(self._key, asked)
        self._told[number] = actor
        share = number, min(len(self._crew), self._log.n_chunks)
        return actor.sums.remote(self._key, asked, self._packed, share, self._memory)

    def _answer(self, number: int, ref: Any, asked: Any) -> list[Tensor]:
        """Sums of a worker; if it is lost, those of another in its place."""
        import ray
        from ray.exceptions import RayError, RayTaskError

        assert self._crew is not None
        n_lost = 0
        while True:
            try:
                return [torch.from_numpy(np.array(sums)) for sums in ray.get(ref)]
            except RayTaskError as error:  # in the worker
                cause = error.cause
                if not isinstance(cause, RayError):
                    raise cause from error
                reason = reason_of(cause)
            except RayError as error:
                reason = reason_of(error)
            n_lost += 1
            if n_lost > _LOSSES:
                raise BmdpError(
                    f"worker {number} of the Ray cluster was lost {n_lost} times in a row while it "
                    f"added up sums; the last time by {reason}"
                )
            self._crew.replace(number, self._told[number])
            ref = self._ask(number, asked)


class _Worker:
    """The process of a worker."""

    def __init__(self, folder: str) -> None:
        """Goes to the folder of the process that asks, where relative paths begin."""
        with suppress(OSError):
            os.chdir(folder)
        self._fits: dict[str, tuple[Passes, Fit]] = {}

    def sums(
        self,
        key: str,
        asked: bytes,
        packed: bytes | None = None,
        share: tuple[int, int] = (0, 1),
        memory: float = MEMORY,
    ) -> list[NDArray[np.int64]]:
        """Adds up over the chunks of the worker.

        Args:
            key: of the fit.
            asked: values of steps, which sums, and for what.
            packed: log, next values and fit, if they are new.
            share: number of the worker, and how many there are.
            memory: bytes that stay in memory.
        """
        if packed is not None:
            log, next_values, fit = pickle.loads(packed)
            chunks = range(share[0], log.n_chunks, share[1])
            self._fits[key] = Passes(log, next_values, chunks, memory), _filled(fit)
        passes, fit = self._fits[key]
        values, what, how = pickle.loads(asked)
        for step, arrays in values.items():
            _set_step(fit, step, arrays)
        return [found.numpy() for found in getattr(passes, what)(fit, *how)]

    def forget(self, key: str) -> None:
        """Forgets a fit."""
        self._fits.pop(key, None)


def _roomiest(taken: Iterable[str], avoided: str = "") -> str:
    """The machine of a cluster that has the most cores for each worker, with one more."""
    import ray

    alive = [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    cores: dict[str, float] = {n["NodeID"]: n["Resources"].get("CPU", 0.0) for n in alive}
    counts = Counter(taken)
    others = [place for place in cores if place != avoided] or list(cores)
    return max(others, key=lambda place: cores[place] / (1 + counts[place]))


def _is_joined() -> bool:
    """Whether this process is in a cluster: if it is not, Ray starts one when it is asked."""
    import ray

    return ray.is_initialized()


def _end(actor: Any) -> None:
    import ray

    with suppress(Exception):  # it may be gone already
        if _is_joined():
            ray.kill(actor)


def _bare(fit: Fit) -> Fit:
    """A copy of a fit that is small, and adds up the same sums: without rows, all values 0."""
    found = copy.copy(fit)
    for name in _OF_BATCH:
        vars(found).pop(name, None)
    found.q = _bare_model(averager_of(fit))
    found.whole = _bare_portion(fit)
    return found


def _bare_model(q: Averager) -> Averager:
    found = copy.copy(q)
    for name in _OF_ROWS:
        vars(found).pop(name, None)
    buffers: dict[str, Any] = dict(vars(q)["_buffers"])
    for name in q.step_tensors(0).keys() & buffers.keys():
        tensor = buffers[name]
        buffers[name] = tensor.new_zeros(()).expand(tensor.shape)  # which has one number to pickle
    vars(found)["_buffers"] = buffers
    return found


def _bare_portion(fit: Fit) -> Portion:
    """Next states of the batch, but only those that `Fit.source` looks at."""
    found = copy.copy(fit.whole)
    for name in ("_fit", "held", "follows", "next_actions"):
        vars(found).pop(name, None)
    names = {fit.plan(k)[2] for k in range(fit.n_iterations)}
    nothing = np.zeros(0, np.int64), torch.zeros((0, 1, 2)), torch.zeros(0, dtype=torch.int64)
    found._sets = {name: SetRows(RowSet(name, nothing[0]), *nothing[1:]) for name in names}
    found._next = {  # how rows are merged in chunks, and whether next states repeat, is kept
        name: _thinned(fit.whole.next_states(fit.whole.rows(name))) for name in names - {"last"}
    }
    return found


def _thinned(states: NextStates) -> NextStates:
    every = slice(None, None, max(1, len(states.states) // _N_SAMPLE))
    available = states.available
    return NextStates(
        states=states.states[every].copy(),
        embedded=states.embedded[every].clone(),
        known=states.known[every].clone(),
        which=None if states.which is None else states.which[:0].clone(),
        available=None if available is None else available[every].copy(),
    )


def _filled(fit: Fit) -> Fit:
    """The copy of a fit, with memory for the values of all steps."""
    for name, buffer in fit.q.named_buffers(recurse=False):
        if 0 in buffer.stride():
            fit.q.register_buffer(name, torch.zeros(buffer.shape, dtype=buffer.dtype))
    return fit


def _arrays(tensors: dict[str, Tensor]) -> dict[str, NDArray[Any] | None]:
    """Arrays of a step. Those that were not fitted yet are 0, and need not travel."""
    return {name: tensor.numpy() if tensor.any() else None for name, tensor in tensors.items()}


def _set_step(fit: Fit, step: int, arrays: dict[str, NDArray[Any] | None]) -> None:
    held = fit.q.step_tensors(step)
    fit.q.set_step(
        step,
        {
            name: torch.zeros_like(held[name]) if array is None else torch.from_numpy(array)
            for name, array in arrays.items()
        },
    )
