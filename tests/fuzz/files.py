"""Files that were changed at random: each is refused in one line, or is what it was.

A case takes what this library wrote, changes it, and loads it in another process. Two kinds of
changes are made. *Bytes* are flipped, overwritten, cut off or added, as a broken disk does it; what
is loaded then must be equal to what was written. *Edits* change a value and write checksums anew,
as a person might do it, or an attacker; what is loaded may then differ, but it must decide, by
actions that there are. How a case ended:

    refused   by an error of the library, of one line
    equal     what was loaded is what was written
    valid     something else was loaded, after an edit, and it is of use
    unmarked  the mark of the library was lost, so a file was read as anyone's

A case takes 2 seconds of a processor and 500 MB at most. A process that dies, or that does not come
back, is found out, and replaced.
"""

import contextlib
import gc
import json
import multiprocessing
import pickle
import resource
import shutil
import sys
import time
from dataclasses import fields, is_dataclass, replace
from hashlib import sha256
from pathlib import Path

import numpy as np

SECONDS, BYTES = 2.0, 500 * 2**20
PATIENCE = 30.0  # seconds after which a process is taken to hang
FORMATS = ("npz", "parquet", "hdf5", "feather", "csv")


def cases(seed, folder):
    """Changes files for ever; how each case ended.

    Args:
        seed: of all changes.
        folder: in which files are written.
    """
    number, worker = 0, _Worker(folder)
    with contextlib.closing(worker):
        while True:
            yield worker.ask(seed, number)
            number += 1


class _Worker:
    """A process that tries cases, and is begun anew when it died."""

    def __init__(self, folder):
        self.folder, self.process = folder, None

    def ask(self, seed, number):
        if self.process is None:
            self._begin()
        ended = fault = None
        try:
            self.pipe.send((seed, number))
            if self.pipe.poll(PATIENCE):
                ended, fault = self.pipe.recv()
            else:
                fault = "the process hangs"
        except (EOFError, OSError):
            self.process.join()
            fault = f"the process died with {self.process.exitcode}"
        if ended is None:
            self.close()
        assert fault is None, f"{fault}: case {number} of seed {seed} (fuzz.files.repeat)"
        return ended

    def _begin(self):
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_work, args=(other, self.folder), daemon=True)
        self.process.start()
        other.close()
        self.pipe.recv()  # it is ready

    def close(self):
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None
            self.pipe.close()


def repeat(seed, number):
    """Tries one case here, without limits: `python -c "import fuzz.files as f; f.repeat(1, 7)"`."""
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        subjects = _subjects(Path(place) / "own")
        for subject in subjects:
            subject.begin(Path(place) / f"case{subject.path.suffix}")
        print(_try(subjects, Path(place), seed, number, tell=print))


def _work(pipe, folder):
    """Tries the cases that it is asked for."""
    subjects = _subjects(folder / "own")
    for subject in subjects:
        subject.begin(folder / f"case{subject.path.suffix}")
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + 4 * BYTES, resource.RLIM_INFINITY))
    pipe.send("ready")
    with contextlib.suppress(EOFError):
        while True:
            seed, number = pipe.recv()
            try:
                pipe.send((_try(subjects, folder, seed, number), None))
            except Exception as error:
                pipe.send((None, f"{type(error).__name__}: {error}"))


def _try(subjects, folder, seed, number, tell=lambda said: None):
    """How a case ends; an error if a promise is broken."""
    rng = np.random.default_rng((seed, number))
    subject = subjects[rng.integers(len(subjects))]
    place = folder / f"case{subject.path.suffix}"
    subject.copy(place)
    is_edit = subject.edit is not None and rng.random() < 0.6
    change = subject.edit(place, rng) if is_edit else _damage(place, rng, subject.damaged)
    tell(f"{subject.name}: {change}")
    begin, held = time.process_time(), _most_held()
    try:
        ended = _ended(subject, place, is_edit, tell)
    except Exception as error:
        raise AssertionError(
            f"{subject.name}, {change}: {type(error).__name__}: {error}"
        ) from error
    seconds, more = time.process_time() - begin, _most_held() - held
    assert seconds <= SECONDS, f"{subject.name}, {change}: it took {seconds:.1f} s"
    assert more <= BYTES, f"{subject.name}, {change}: it took {more / 2**20:.0f} MB"
    gc.collect(0)
    return ended


def _ended(subject, place, is_edit, tell):
    from bmdp import BmdpError

    refusal = None
    try:
        value = subject.read(place)
        used = subject.use(value)
    except BmdpError as error:
        refusal = str(error)
    if refusal is not None:
        tell(refusal)
        assert len(refusal.splitlines()) == 1, f"an error of several lines: {refusal}"
        return "refused"
    if subject.sign(value, used) == subject.signed:
        return "equal"
    if is_edit or subject.is_foreign:
        return "valid"
    if subject.is_unmarked(place):
        return "unmarked"
    raise AssertionError("silently something else")


def _most_held():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _remove(place):
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


class Subject:
    """Something on disk that is loaded.

    Args:
        name: for messages.
        path: of the file or folder that was written.
        read: from a path to a value.
        use: of a value, which returns plain data; an error, if it is of no use.
        edit: of the copy at a path, by a generator; None if there are no edits.
        damaged: pattern of the files of a folder whose bytes are changed.
        is_judged_by_use: whether a value is equal if what comes of its use is.
        is_foreign: whether there is nothing by which a flipped byte could be found out.
        is_unmarked: whether the copy at a path has lost the mark of the library.
    """

    def __init__(  # noqa: PLR0913
        self,
        name,
        path,
        read,
        use,
        edit=None,
        *,
        damaged="*",
        is_judged_by_use=False,
        is_foreign=False,
        is_unmarked=lambda place: False,
    ):
        self.signed = None
        self.name, self.path, self.read, self.use, self.edit = name, path, read, use, edit
        self.damaged, self.is_judged_by_use = damaged, is_judged_by_use
        self.is_foreign, self.is_unmarked = is_foreign, is_unmarked

    def begin(self, place):
        """Reads it as it is, twice."""
        for _ in range(2):
            self.copy(place)
            value = self.read(place)
            before, self.signed = self.signed, self.sign(value, self.use(value))
        assert before == self.signed, f"{self.name} is not repeatable"

    def copy(self, place):
        """Copies it to a place, where something else may be."""
        _remove(place)
        (shutil.copytree if self.path.is_dir() else shutil.copyfile)(self.path, place)

    def sign(self, value, used):
        """A checksum of all of a value, and of what came of its use."""
        found = sha256()
        _add(found, used if self.is_judged_by_use else value)
        _add(found, used)
        return found.hexdigest()


def _add(found, value):
    """Adds a value to a checksum, by its parts."""
    if hasattr(value, "state_dict"):
        _add(found, (value.settings, tuple(value.sizes)))
        value = {name: tensor.numpy() for name, tensor in value.state_dict().items()}
    if isinstance(value, dict):
        value = sorted(value.items(), key=lambda item: str(item[0]))
    if is_dataclass(value):
        value = [type(value).__name__, *(getattr(value, f.name) for f in fields(value))]
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        found.update(f"{value.dtype}{value.shape}".encode() + value.tobytes())
    elif isinstance(value, list | tuple | np.ndarray):
        found.update(f"({len(value)}".encode())
        for item in value:
            _add(found, item)
    elif hasattr(value, "to_arrays"):
        _add(found, (value.to_arrays(), value.n_actions, value.state_names))
    elif hasattr(value, "transition"):
        rows = value.transition
        _add(found, (rows.data, rows.indices, rows.indptr, value.reward, value.cost, value.gamma))
    else:
        found.update(repr(value).encode())


# Changes of bytes


def _damage(place, rng, pattern):
    """Changes the bytes of a file, as a broken disk does; says how."""
    files = sorted(p for p in place.rglob(pattern) if p.is_file()) if place.is_dir() else [place]
    path = files[rng.integers(len(files))]
    content = bytearray(path.read_bytes())
    size = len(content)
    how = rng.choice(["flip", "flip", "flip", "set", "cut", "add", "move", "empty", "lose"])
    at = int(rng.integers(max(1, size)))
    if how == "flip" and size:
        for _ in range(rng.integers(1, 4)):
            content[rng.integers(size)] ^= 1 << int(rng.integers(8))
    elif how == "set" and size:
        n = int(rng.integers(1, 64))
        content[at : at + n] = rng.choice([bytes(n), b"\xff" * n, rng.bytes(n)])[: size - at]
    elif how == "cut":
        del content[at:]
    elif how == "add":
        content[at:at] = rng.bytes(int(rng.integers(1, 64)))
    elif how == "move":
        n, other = int(rng.integers(1, 64)), int(rng.integers(max(1, size)))
        content[at : at + n] = content[other : other + n]
    elif how == "empty":
        content = bytearray()
    path.write_bytes(content)
    if how == "lose":
        path.unlink()
    return f"{how} of {path.name}"


# Edits, after which checksums are right

STRANGE = (
    *(None, True, False, -1, 0, 1, 2, 7, 10**6, 2**31, 2**40, 2**63, 10**30, -(2**31)),
    *(0.5, -0.5, 1e-300, 1e300, float("inf"), float("nan"), "", "x", "inf", "nan", "é\n"),
    *([], [1], [[]], {}, {"kind": "Encoder"}, {"array": "x"}, {"number": "nan"}, {"kind": None}),
)
NUMBERS = (0, 1, -1, 2, 3, 50, 10**6, 2**31 - 1, -(2**31), np.nan, np.inf, -np.inf, 1e300, 1e-300)


def _places(value, at=()):
    """Paths of all that is inside of plain data."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in inner:
        yield (*at, key)
        if isinstance(item, dict | list):
            yield from _places(item, (*at, key))


def _edit_plain(value, rng):
    """Changes something inside of plain data; says what."""
    places = list(_places(value))
    if not places:
        return "nothing"
    at = places[rng.integers(len(places))]
    owner = value
    for key in at[:-1]:
        owner = owner[key]
    key, how = at[-1], rng.choice(["set", "set", "near", "near", "drop", "copy", "add"])
    if how == "drop":
        del owner[key]
    elif how == "copy":
        other = places[rng.integers(len(places))]
        found = value
        for step in other:
            found = found[step]
        owner[key] = json.loads(json.dumps(found))
    elif how == "add":
        target = owner[key] if isinstance(owner[key], dict | list) else owner
        strange = STRANGE[rng.integers(len(STRANGE))]
        if isinstance(target, dict):
            target["more"] = strange
        else:
            target.append(strange)
    elif how == "near" and type(owner[key]) in (int, float):
        near = (owner[key] + 1, owner[key] - 1, -owner[key], owner[key] / 2, 2 * owner[key])
        owner[key] = near[rng.integers(len(near))]
    elif how == "near" and type(owner[key]) is bool:
        owner[key] = not owner[key]
    else:
        owner[key] = STRANGE[rng.integers(len(STRANGE))]
    return f"{how} at {'.'.join(map(str, at))}"


def _edit_arrays(arrays, rng):
    """Changes one of some arrays; says how."""
    names = sorted(arrays)
    name = names[rng.integers(len(names))]
    array = np.array(arrays[name])
    ways = ["value", "value", "value", "cell", "cut", "shape", "type", "swap", "drop", "copy"]
    how = str(rng.choice(ways))
    if how in ("value", "cell") and array.size and array.dtype.kind in "fiub":
        flat = array.reshape(-1)
        at = rng.integers(flat.size, size=rng.choice([1, 1, 3, flat.size]))
        with np.errstate(all="ignore"):
            if how == "value":
                number = NUMBERS[rng.integers(len(NUMBERS))]
                number = np.nan_to_num(number) if array.dtype.kind != "f" else number
                flat[at] = np.array(number, np.float64).astype(array.dtype)
            else:
                flat[at] = flat[rng.integers(flat.size, size=at.size)] + rng.integers(-2, 3)
        array = flat.reshape(array.shape)
    elif how == "cut" and array.ndim:
        axis = rng.integers(array.ndim)
        array = np.take(array, np.arange(rng.integers(max(1, array.shape[axis]))), axis=int(axis))
    elif how == "shape":
        array = array.reshape(-1) if rng.random() < 0.5 else array[None]
    elif how == "type":
        kinds = (np.float32, np.float64, np.int64, np.int32, np.int8, np.uint8, np.bool_, np.uint64)
        with np.errstate(all="ignore"), contextlib.suppress(ValueError):
            array = array.astype(kinds[rng.integers(len(kinds))])
    elif how == "swap" and array.ndim > 1:
        array = array.swapaxes(0, -1)
    arrays[name] = np.ascontiguousarray(array).reshape(array.shape)
    if how == "drop":
        del arrays[name]
    elif how == "copy":
        arrays[name] = arrays[names[rng.integers(len(names))]]
    return f"{how} of {name}"


def _edit_policy(place, rng):
    """Changes a policy of two files."""
    from safetensors.numpy import load_file, save_file

    from bmdp import storage

    header, weights = json.loads((place / "policy.json").read_text()), place / storage.WEIGHTS
    said = []
    for _ in range(rng.choice([1, 1, 1, 2])):
        arrays = load_file(weights)
        if arrays and rng.random() < 0.6:
            said.append(_edit_arrays(arrays, rng))
            save_file(arrays, weights)
        else:
            said.append(_edit_plain(header["content"], rng))
    header["checksum"] = storage._checksum(header["content"], weights)
    (place / "policy.json").write_text(json.dumps(header))
    return ", ".join(said)


def _edit_npz(place, rng):
    """Changes an npz file."""
    with np.load(place) as file:
        arrays = dict(file)
    said = _edit_arrays(arrays, rng)
    arrays.pop("sha256", None)
    with place.open("wb") as file:
        np.savez(file, **arrays)
    return said


def _edit_hdf5(place, rng):
    """Changes an HDF5 file of flat arrays."""
    import h5py

    with h5py.File(place, "r") as file:
        arrays, notes = {name: file[name][()] for name in file}, dict(file.attrs)
    said = _edit_arrays(arrays, rng)
    if notes and rng.random() < 0.2:
        name = sorted(notes)[rng.integers(len(notes))]
        notes[name] = ("x", -1, 3.5, [1, 2], 10**6)[rng.integers(5)]
    notes.pop("sha256", None)
    with h5py.File(place, "w") as file:
        file.attrs.update(notes)
        for name, values in arrays.items():
            file.create_dataset(name, data=values)
    return said


def _edit_parquet(place, rng):
    """Changes a Parquet file."""
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(place)
    notes = json.loads((table.schema.metadata or {}).get(b"bmdp", b"{}"))
    arrays = {name: np.array(table[name].to_pylist()) for name in table.column_names}
    said = _edit_arrays(arrays, rng)
    notes.pop("sha256", None)
    if notes and rng.random() < 0.2:
        said += f", {_edit_plain(notes, rng)}"
    arrays = {name: list(values) if values.ndim else [values] for name, values in arrays.items()}
    with contextlib.suppress(pyarrow.ArrowException):
        changed = pyarrow.table(arrays)
        changed = changed.replace_schema_metadata({b"bmdp": json.dumps(notes).encode()})
        pyarrow.parquet.write_table(changed, place)
    return said


def _edit_text(place, rng):
    """Changes a JSON file, or lines of JSON."""
    lines = place.read_text().splitlines()
    if place.suffix == ".jsonl":
        at = rng.integers(len(lines))
        content = json.loads(lines[at])
        said = _edit_plain(content, rng)
        lines[at] = json.dumps(content)
        place.write_text("\n".join(lines) + "\n")
        return said
    content = json.loads("\n".join(lines))
    said = _edit_plain(content, rng)
    if isinstance(content, dict) and "checksum" in content:  # of a log in chunks, or sealed
        marks = ("checksum",) if place.name == "spec.json" else ("format", "bmdp", "checksum")
        own = {name: item for name, item in content.items() if name not in marks}
        told = content.get("content") if place.name == "log.json" else own
        content["checksum"] = sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
    place.write_text(json.dumps(content))
    return said


def _edit_kept(place, rng):
    """Changes what a learner that was killed is to go on from."""
    from safetensors.torch import load_file, safe_open, save_file
    from torch import from_numpy

    from bmdp.learn.runs import FitKeeper

    with safe_open(place, "pt") as file:
        marks = file.metadata()
    arrays = {name: tensor.numpy() for name, tensor in load_file(place).items()}
    if rng.random() < 0.3:
        name = ("n_done", "change")[rng.integers(2)]
        strange = ("", "0", "-1", "2", "9", "99999999999", "x", "nan", "0x1p9999", "-0x1p0")
        marks[name] = strange[rng.integers(len(strange))]
        said = name
    else:
        said = _edit_arrays(arrays, rng)
    tensors = {name: from_numpy(np.array(array)) for name, array in arrays.items()}
    marks["sha256"] = FitKeeper(place)._hash(tensors, marks)
    save_file(tensors, place, metadata=marks)
    return said


def _edit_any(*patterns):
    """Changes one of the files of a folder."""

    def edit(place, rng):
        files = sorted(path for pattern in patterns for path in place.glob(pattern))
        path = files[rng.integers(len(files))]
        if path.name == "policy.json":
            return f"{path.parent.name}: {_edit_policy(path.parent, rng)}"
        edits = {".npz": _edit_npz, ".safetensors": _edit_kept}
        change = edits.get(path.suffix, _edit_text)
        return f"{path.name}: {change(path, rng)}"

    return edit


# What is written


def _subjects(folder):
    """All that is changed; written once."""
    import bmdp.models  # noqa: F401

    if not (folder / "whole").exists():
        _remove(folder)
        folder.mkdir(parents=True)
        _write_all(folder)
        (folder / "whole").touch()
    kept = pickle.loads((folder / "seen").read_bytes())
    policies = [_policy(folder / "policies" / name, seen) for name, seen in kept.items()]
    batches = [_batch(folder / f"batch.{suffix}") for suffix in FORMATS]
    return [
        *policies,
        *batches,
        *_foreign(folder),
        *_others(folder),
        *_trackers(folder, kept),
        *_runs(folder),
    ]


def _policy(path, seen):
    from bmdp import load_policy

    def use(policy):
        if type(policy).__name__ == "ReplanningDriver":  # whose plans take longer than a case may
            return policy.price, policy.width, repr(policy.task)
        return _decided(policy, seen)

    return Subject(f"policy {path.name}", path, load_policy, use, _edit_policy)


def _decided(policy, states):
    """What a policy does in a few steps, checked; its budgets are finite, its actions there are."""
    low, high = policy.budget_range
    assert np.isfinite([low, high]).all(), "no finite budgets"
    assert low <= high, "its range falls"
    found = []
    for budget in (low, (low + high) / 2, high):
        tracker = policy.start(states, budget, np.random.default_rng(0))
        for _ in range(3):
            action, next_budget, status = tracker.decide(states)
            assert action.shape == next_budget.shape == status.shape == (len(states),)
            assert action.dtype.kind in "iu", "an action must be a whole number"
            assert (action >= 0).all(), "there is no such action"
            assert (action < 2**16).all(), "there is no such action"
            assert np.isfinite(next_budget).all(), "a budget must be finite"
            assert np.isin(status, (0, 1, 2)).all(), "there is no such status"
            found.append((action, next_budget, status))
            tracker.observe(np.zeros(len(states)), states, _ends(policy))
    return found


def _ends(policy):
    """Whether episodes end after a step: those of a model go on at states that can follow."""
    return type(policy).__name__ == "AllocationPolicy"


def _batch(path):
    from bmdp.data.batch import load_batch

    edits = {".npz": _edit_npz, ".hdf5": _edit_hdf5, ".parquet": _edit_parquet}
    return Subject(
        f"batch{path.suffix}",
        path,
        load_batch,
        _whole_batch,
        edits.get(path.suffix),
        is_foreign=path.suffix in (".csv", ".feather"),
        is_unmarked=_is_unmarked,
    )


def _is_unmarked(place):
    """Whether a file does not say that this library wrote it."""
    from bmdp.data.batch import file_table

    return file_table(place).checksum is None


def _whole_batch(batch):
    assert len(batch) > 0
    assert 1 <= batch.n_actions <= 2**16
    for name in ("state", "reward", "cost", "next_state"):
        assert np.isfinite(getattr(batch, name)).all(), f"{name} must be finite"
    assert ((batch.action >= 0) & (batch.action < batch.n_actions)).all()
    return repr(batch.summary())[:0]


def _foreign(folder):
    """Logs that others wrote, in which nothing tells a flipped byte."""
    from bmdp import TransitionBatch
    from bmdp.data import load_log

    def read_log(path):
        return load_log(path).batch

    known = {
        "dsrl.hdf5": (read_log, _edit_hdf5),
        "log.parquet": (read_log, _edit_parquet),
        "logs": (read_log, None),
        "minari": (TransitionBatch.from_minari, None),
    }
    return [
        Subject(name, folder / name, read, _whole_batch, edit, is_foreign=True)
        for name, (read, edit) in known.items()
    ]


def _others(folder):
    """A model, a log in chunks, a period, and a log of decisions."""
    from bmdp import FiniteBMDP, PeriodBudget
    from bmdp.data import StoredLog
    from bmdp.exact import budgeted_value_iteration

    def solved(model):
        how = {"tol": 1e-3, "max_iterations": 5}
        solution = budgeted_value_iteration(model, np.array([0.0, 1.0]), **how)
        assert np.isfinite(solution.q_r).all()
        return solution.q_r

    def chunks(log):
        return [log.chunk(number).to_arrays() for number in range(log.n_chunks)]

    def period(place):
        return PeriodBudget.resume(_json(place))

    def asked(controller):
        found = controller.budget()
        assert np.isfinite(found)
        controller.observe(0.0)
        return found, repr(controller.status)

    return [
        Subject("model", folder / "model.npz", FiniteBMDP.load, solved, _edit_npz),
        Subject("log in chunks", folder / "stored", StoredLog.open, chunks, _edit_any("log.json")),
        Subject(
            "period",
            folder / "period.json",
            period,
            asked,
            _edit_text,
            is_judged_by_use=True,
            is_foreign=True,
        ),
        Subject(
            "decisions.jsonl",
            folder / "decisions.jsonl",
            _promises,
            lambda kept: [np.isfinite(kept.asked).all()],
            _edit_text,
            is_foreign=True,
        ),
        Subject(
            "decisions.parquet",
            folder / "decisions.parquet",
            _promises,
            lambda kept: [np.isfinite(kept.asked).all()],
            is_foreign=True,
        ),
    ]


def _json(place):
    """Plain data of a file; what is no JSON is refused by whoever reads it."""
    from bmdp import DataError

    try:
        return json.loads(place.read_text())
    except (ValueError, OSError, RecursionError) as error:
        raise DataError("no JSON") from error


def _promises(place):
    """The promises of a log of decisions."""
    from bmdp.deployment.decisions import DecisionLog, Promises

    log, promises = DecisionLog(place), Promises(gamma=0.9)
    for first, rows in log.new():
        promises.add(first, rows)
    promises.add(*log.last())
    return promises.pending()


def _trackers(folder, kept):
    """States of episodes that go on, of several policies."""
    from bmdp import load_policy

    found = []
    for path in sorted((folder / "trackers").iterdir()):
        policy, seen = load_policy(folder / "policies" / path.stem), kept[path.stem]
        ends = _ends(policy)

        def read(place, policy=policy):
            return policy.resume(_json(place))

        def use(tracker, seen=seen, ends=ends):
            n = len(tracker.budgets)
            states = np.resize(seen, (n, *np.shape(seen)[1:]))
            if tracker.state()["has_decided"]:
                tracker.observe(np.zeros(n), states, ends)
            action, *_ = tracker.decide(states)
            assert ((action >= 0) & (action < 2**16)).all()
            return action, tracker.state()

        how = {"is_judged_by_use": True, "is_foreign": True}
        found.append(Subject(f"tracker {path.stem}", path, read, use, _edit_text, **how))
    return found


def _runs(folder):
    """Runs that are finished, and one that was killed."""
    from bmdp import load_policy
    from bmdp.learn import resume
    from bmdp.learn.auto import read_fitted
    from bmdp.learn.runs import RECORDS, RunFolder, last_line, share_done

    def read_fit(place):
        return read_fitted(RunFolder(place)), load_policy(place)

    def use_fit(found):
        fitted, policy = found
        return str(fitted), _decided(policy, FIT_STATES)

    def read_run(place):
        read_records(place)
        return resume(place)

    def read_records(place):
        run = RunFolder(place)
        records = run.records()
        return [last_line(record) for record in records], share_done(place), run.prediction()

    def use_run(found):
        return _decided(found, RUN_STATES)

    fit = Subject(
        "fit",
        folder / "fit",
        read_fit,
        use_fit,
        _edit_any("fitted.json", "spec.json", "policy/policy.json"),
    )
    whole = Subject(
        "run",
        folder / "run",
        read_run,
        use_run,
        _edit_any("spec.json", RECORDS, "policy/policy.json"),
    )
    killed = [
        Subject(
            f"killed {name}",
            folder / name,
            read_run,
            use_run,
            _edit_any("spec.json", RECORDS, "round-000/batch.npz", "round-000/fit/*"),
        )
        for name in KILLED
    ]
    how = {"damaged": RECORDS, "is_foreign": True}
    records = Subject("records", folder / "run", read_records, repr, _edit_any(RECORDS), **how)
    return [fit, whole, *killed, records]


KILLED = ("tables", "steps", "networks")
FIT_STATES, RUN_STATES = np.zeros((4, 1)), np.zeros((4, 2))


def _write_all(folder):
    """Writes all that is changed, and the states that policies are shown."""
    from bmdp import PeriodBudget, load_policy
    from bmdp.data import StoredLog
    from bmdp.exact.textbook import branches

    policies, seen = _policies(), {}
    for name, (policy, states) in policies.items():
        policy.save(folder / "policies" / name)
        seen[name] = states
    (folder / "seen").write_bytes(pickle.dumps(seen))
    (folder / "trackers").mkdir()
    for name in ("hull table", "multiplier", "portfolio", "limited", "exploring", "allocation"):
        policy, states = load_policy(folder / "policies" / name), seen[name]
        tracker = policy.start(states, policy.budget_range[1], np.random.default_rng(0))
        tracker.decide(states)
        if name != "allocation":
            tracker.observe(np.zeros(len(states)), states, False)
        (folder / "trackers" / f"{name}.json").write_text(json.dumps(tracker.state()))
    log = _log()
    for suffix in FORMATS:
        if suffix in ("npz", "parquet", "hdf5"):
            getattr(log, f"to_{suffix}")(folder / f"batch.{suffix}")
    log.to_pandas().to_csv(folder / "batch.csv", index=False)
    log.to_pandas().reset_index(drop=True).to_feather(folder / "batch.feather")
    _write_foreign(folder, log)
    branches().model.save(folder / "model.npz")
    StoredLog.write(folder / "stored", [log])
    controller = PeriodBudget(total=10.0, episodes=100, budget_range=(0.0, 1.0))
    for cost in (0.0, 1.0, 0.0):
        controller.budget(time=0.1)
        controller.observe(cost)
    controller.budget(time=0.2)
    (folder / "period.json").write_text(json.dumps(controller.state()))
    lines = [
        {"format": 1, "episode": f"e{i}", "step": t, "budget": 0.5, "state": [0.0], "action": 0}
        | {"cost": 0.1 * t, "ended": t == 2}
        for i in range(4)
        for t in range(3)
    ]
    (folder / "decisions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(lines), folder / "decisions.parquet")
    _write_runs(folder)


def _log():
    """A small log with all columns."""
    from bmdp import TransitionBatch

    rng, n = np.random.default_rng(0), 24
    state = rng.normal(size=(n, 2)).astype(np.float32)
    step = np.tile(np.arange(4), n // 4)
    available = np.ones((n, 3), np.bool_)
    return TransitionBatch(
        state,
        rng.integers(3, size=n),
        rng.normal(size=n),
        rng.random(n),
        np.roll(state, -1, axis=0),
        step == 3,
        truncated=np.zeros(n, np.bool_),
        episode=np.repeat(np.arange(n // 4), 4),
        step=step,
        budget=rng.random(n),
        next_budget=rng.random(n),
        probability=rng.uniform(0.1, 1, n),
        available=available,
        next_available=available,
        n_actions=3,
        state_names=("x", "y"),
    )


def _write_foreign(folder, log):
    """Logs as others write them."""
    import os

    import h5py
    import pyarrow
    import pyarrow.parquet

    columns = log.to_arrays()
    with h5py.File(folder / "dsrl.hdf5", "w") as file:
        names = ("observations", "actions", "rewards", "costs", "next_observations", "terminals")
        fields_of = ("state", "action", "reward", "cost", "next_state", "terminal")
        for name, field in zip(names, fields_of, strict=True):
            file[name] = columns[field]
        file["timeouts"] = columns["truncated"]
    rows = {"day": ["Mon", "Tue", "Wed"] * 8, "age": columns["state"][:, 0].tolist()}
    rows |= {name: columns[name] for name in ("reward", "cost", "terminal", "episode", "step")}
    rows["action"] = ["go", "wait"] * 12
    table = pyarrow.table(rows)
    table = table.rename_columns(
        [{"day": "state_0", "age": "state_1"}.get(name, name) for name in table.column_names]
    )
    pyarrow.parquet.write_table(table, folder / "log.parquet")
    for k in range(2):
        (folder / "logs" / f"day={k}").mkdir(parents=True)
        table = table.set_column(
            table.column_names.index("episode"), "episode", [columns["episode"] + 100 * k]
        )
        pyarrow.parquet.write_table(table, folder / "logs" / f"day={k}" / "part.parquet")
    os.environ["MINARI_DATASETS_PATH"] = str(folder / "datasets")
    log.to_minari("small/log-v0", author="", description="")
    shutil.copytree(folder / "datasets" / "small" / "log-v0", folder / "minari")


def _write_runs(folder):
    """A fit of a few rows, and runs of a few iterations, one of which is killed."""
    from bmdp import TransitionBatch, fit
    from bmdp.learn import Backward, BFTQConfig, Iterations, train_from_data
    from bmdp.models import FrontierNet, Regression, TableModel
    from training import Killed, kill_after

    hurry, zeros = [0, 1] * 50, [0] * 100
    log = TransitionBatch(zeros, hurry, hurry, hurry, zeros, [True] * 100)
    fit(log, gamma=1.0, out=folder / "fit")
    learner = BFTQConfig(
        gamma=0.9, model=TableModel(), ensemble=2, n_budgets=3, schedule=Iterations(4, settled=0.0)
    )
    columns = _log().to_arrays()
    states = {"state": np.round(columns["state"]), "next_state": np.round(columns["next_state"])}
    few = TransitionBatch(**{**columns, **states}, n_actions=3)
    train_from_data(few, learner, folder / "run", seed=0)
    network = FrontierNet((4,), regression=Regression(steps=2))
    learners = (
        learner,
        replace(learner, schedule=Backward()),
        replace(learner, model=network),
    )
    for name, own in zip(KILLED, learners, strict=True):
        with contextlib.suppress(Killed):
            train_from_data(few, own, folder / name, seed=0, on_record=kill_after(3))


def _policies():
    """Policies of every kind, small, and states that they are shown."""
    sys.path.append(str(Path(__file__).parents[2] / "examples"))  # of a regressor of one's own
    import regressors
    from bmdp.data import ActionBins, EncodedPolicy, Encoder, StateColumn
    from bmdp.envs import ScriptedPolicy
    from bmdp.envs.two_way import ReplanningDriver
    from bmdp.exact import allocate_budgets
    from bmdp.exact.textbook import branches
    from bmdp.models import LearnedQ, Support
    from bmdp.models.actor import ActorModel, SampledActor
    from bmdp.models.regressor import MeanQ, Sizes
    from bmdp.policies import (
        CalibratedPolicy,
        Certificate,
        EpisodeLimitPolicy,
        ExploringPolicy,
        HullPolicy,
        HullRule,
        MultiplierPolicy,
        Portfolio,
        PriceDial,
        PricedPolicy,
        RandomBudgetedPolicy,
        TabularQ,
        UniformPolicy,
    )
    from bmdp.policies.portfolio import LogCertificate

    rng, found = np.random.default_rng(0), {}
    grid = np.array(regressors.GRID)
    problem = regressors.small_problem(n=120)
    seen = problem.states[:5]
    kinds = {name: model for name, model in regressors.ALL.items() if name != "own"}
    shown, taken = np.ones(2, np.bool_), np.ones(3, np.bool_)
    learned = {}
    for name, model in kinds.items():
        q = regressors.prepared(model, problem)
        for step in (1, 0):
            regressors.fit_once(q, problem, step=step)
        members = [0] if name in ("forest", "table") else [0, 1]
        learned[name] = LearnedQ(q.select(members), shown, taken, 2.0, 0.5, 0.25)
        rule = HullRule(costs_from_zero=True, slope=[3.0, 2.0], slack=[0.1, 0.2])
        found[f"q {name}"] = HullPolicy(learned[name], grid, rule), seen
    one = regressors.small_problem(n=120, n_steps=1)
    for name in ("forest", "kernel", "table"):
        q = regressors.fitted(kinds[name], one)
        support = Support.of(
            one.states, one.actions, np.arange(120) // 4, 3, least=1.0, is_table=name == "table"
        )
        own = LearnedQ(q.select([0]), shown, taken, 1.0, 1.0, support=support)
        found[f"supported {name}"] = HullPolicy(own, grid), seen
        dial = PriceDial(own, [np.inf, 4.0, 2.0, 1.0, 0.0], 0.01)
        costs, rewards = np.linspace(0, 1, 5), np.arange(5.0)
        found[f"prices {name}"] = MultiplierPolicy(dial, 0.0, 1.0, costs, rewards), seen
    clocked = LearnedQ(q.select([0]), np.array([True, False, True]), taken, 1.0, 1.0, clock=4)
    found["clock"] = HullPolicy(clocked, grid), seen
    mean = MeanQ((learned["linear"], learned["kernel"]))
    found["mean"] = HullPolicy(mean, grid), seen
    actor = ActorModel(8, 4).empty(Sizes(1, 1, 3, 2, (0.0, 1.0, 2.0)))
    import torch

    actor.start(torch.Generator().manual_seed(0))
    found["actor"] = SampledActor(LearnedQ(actor, shown, taken, 1.0, 1.0)), seen

    def table(*steps, n_heads=3, kind=np.float64):
        return TabularQ(*rng.random((2, *steps, 2, 4, n_heads)).astype(kind))

    states = np.array([0, 1, 1, 0])
    random = RandomBudgetedPolicy(2, 0.0, 1.0, "at_most")
    hull = HullPolicy(table(), [0.0, 0.5, 1.0], HullRule(True, [3.0], [0.1], 1.5))
    steps = HullPolicy(table(5), [0.0, 0.5, 1.0])
    dial = PriceDial(table(5), [np.inf, 1.0, 0.0], 0.01)
    portfolio = Portfolio(
        (hull, dial, random),
        which=np.array([0, 1, 1, 2]),
        budgets=np.array([0.5, 0.0, 2.0, 1.0]),
        costs=np.array([0.1, 0.2, 0.7, 0.9]),
        rewards=np.array([0.0, 1.0, 2.0, 5.0]),
    )
    promise = {
        "confidence": 0.9,
        "n_episodes": 10,
        "seed": 3,
        "env": "Any-v0",
        "settings": "{}",
        "gamma": 0.95,
        "cost_range": (0.0, 1.0),
        "binary_costs": True,
        "cost_mean": portfolio.costs / 2,
        "cost_high": portfolio.costs,
        "reward_mean": portfolio.rewards,
        "reward_low": np.full(4, -np.inf),
    }
    calibrated = CalibratedPolicy(portfolio, Certificate(**promise))
    of_log = ("effective_episodes", "outside_share", "needed_episodes")
    certified = LogCertificate(**promise, **dict.fromkeys(of_log, np.ones(4)), n_refused=1)
    encoder = Encoder(
        (
            StateColumn("day", "text", ("Fr", "Mo"), has_gaps=True),
            StateColumn("age", "numbers", fill=31.5, has_gaps=True),
        ),
        bins=ActionBins(("dose",), ((1 / 3,),), (0, 1), ((0.1,), (0.7,))),
        missing="impute",
        unseen="other",
    )
    rows = [{"day": "Mo", "age": 3.0}, {"day": None, "age": None}]
    inner = HullPolicy(learned["linear"], grid)
    drawn = regressors.problem_of(rng.random((20, 3)), rng.integers(2, size=20), n_actions=2)
    q = regressors.fitted(kinds["linear"], drawn).select([0])
    limited = LearnedQ(q, np.ones(3, np.bool_), np.ones(2, np.bool_), 1.0, 1.0)
    allocation = allocate_budgets(branches().model).policy()
    others = {
        "hull table": (hull, states),
        "steps": (steps, states),
        "one step": (steps.at_step(3), states),
        "single": (HullPolicy(table(kind=np.float32), [0.0, 0.5, 1.0]), states),
        "single steps": (HullPolicy(table(5, kind=np.float32), [0.0, 0.5, 1.0]), states),
        "single prices": (MultiplierPolicy(PriceDial(table(kind=np.float32), [2, 1, 0])), states),
        "dial": (dial, states),
        "priced": (PricedPolicy(table(n_heads=1), np.inf, high=2.5), states),
        "multiplier": (MultiplierPolicy(dial, -1.0, 2.0), states),
        "portfolio": (portfolio, states),
        "calibrated": (calibrated, states),
        "certified": (CalibratedPolicy(portfolio, certified), states),
        "limited": (EpisodeLimitPolicy(HullPolicy(limited, grid), 2.5), rng.random((4, 1))),
        "exploring": (ExploringPolicy(steps, random, 0.5, 0.25, 3, 0.125, 7.5, True), states),
        "random": (random, states),
        "uniform": (UniformPolicy(3, 0.0, 1.0), states),
        "scripted": (ScriptedPolicy("corridors/safe", high=2.0), rng.random((3, 2))),
        "encoded": (EncodedPolicy(random, encoder), rows),
        "coin": (Portfolio.coin(portfolio, steps, 0.2, 1.0), states),
        "mixed": (Portfolio.coin(inner, found["q forest"][0], 0.2, 1.0), seen),
        "allocation": (allocation, np.zeros(3, np.int64)),
        "driver": (ReplanningDriver(7.5, width=1), states),
    }
    return found | others
