"""Full disks, folders that may not be written, two processes, dead workers, too little memory.

Each case runs a verb of the command line in a process of its own. It must end well, or with exit
code 1 and one line; a run must then go on, once there is room, to the bytes of one that had it.
"""

import ctypes
import multiprocessing
import os
import random
import resource
import signal
import sys
import time
from pathlib import Path

from fuzz import kills
from small_logs import grid

os.environ.setdefault("OMP_NUM_THREADS", "1")

PATIENCE = 600  # seconds for a process to end
ROOM = 2**25  # bytes of a disk that has enough


def cases(seed, folder):
    """Yields the kind of each case, and how it ended."""
    rng = random.Random(seed)
    log, whole = folder / "log.npz", folder / "whole"
    grid(120).to_npz(log)
    grid(120, seed=1).to_npz(folder / "later.npz")
    code, said = ran(folder, ["fit", "--data", log, "--gamma", "0.9", "--out", whole])
    assert code == 0, said
    for number in range(10**9):
        kind = list(KINDS)[number % len(KINDS)]
        place = folder / str(number)
        place.mkdir()
        try:
            ended = KINDS[kind](rng, place, log, whole)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, case {number}, {kind}: {error}") from error
        yield f"{kind}: {ended}"


# Processes


def ran(folder, words, prepare=(), wait=True):
    """Exit code and stderr of a verb, in a process that is forked from one that has imported."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fuzz.disks", "bmdp.cli.main", "bmdp.learn.auto"])
    said = Path(folder, "said.txt")
    said.write_text("")
    args = (list(map(str, words)), str(said), prepare)
    process = context.Process(target=verb, args=args)
    process.start()
    if not wait:
        return process, said
    process.join(PATIENCE)
    assert process.exitcode is not None, f"{words[0]} does not end"
    return process.exitcode, said.read_text()


def verb(words, said, prepare):
    """Runs a verb with its stderr in a file, after some steps by name."""
    from bmdp.cli.main import main

    file = os.open(said, os.O_WRONLY | os.O_TRUNC)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(file, 2)
    sys.stderr = os.fdopen(2, "w", closefd=False)
    sys.argv = ["bmdp", *words]
    for name, value in prepare:
        PREPARED[name](value)
    main()


def _space(n_bytes):
    """Leaves so much address space more than there is."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (used + n_bytes, used + n_bytes))


def _mode(_):
    """Lets modes of folders hold for root, too, by giving up what overrides them (Linux)."""
    libc, head = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; the same for later ones
    assert libc.capget(head, data) == 0
    data[0] &= ~0b110
    assert libc.capset(head, data) == 0


PREPARED = {
    "file": lambda n: resource.setrlimit(resource.RLIMIT_FSIZE, (n, n)),
    "space": _space,
    "mode": _mode,
}


def one_line(code, said, *words):
    """Checks that a verb ended with one line, which has these words."""
    assert code == 1, f"exit code {code}: {said[-1500:]}"
    lines = [line for line in said.splitlines() if is_told(line)]
    assert len(lines) == 1, said[-1500:]
    assert lines[0].startswith("error: "), lines
    for word in words:
        assert word in lines[0], f"{word!r} is not in {lines[0]!r}"


WORKS = ("<jemalloc>", "fitting", "evaluating", "certifying", "report of", "writing", "exporting")


def is_told(line):
    """Whether a line is no note and no progress."""
    return not line.startswith(("note: ", *WORKS))


# Kinds


def goes_on(place, run, whole, log):
    """Checks that a run that stopped goes on to the same bytes, and that nothing is left."""
    begin = ["--resume", run] if run.exists() else ["--data", log, "--gamma", "0.9", "--out", run]
    code, said = ran(place, ["fit", *begin])
    assert code == 0, said[-1500:]
    assert kills.result(run) == kills.result(whole), "the policy is another one"
    left = [path for path in run.parent.rglob(".*")]
    assert not left, f"left {left}"


def full(rng, place, log, whole):
    """A disk without room for the run: a small file system, or else a limit of files."""
    disk, words = place / "disk", ["fit", "--data", log, "--gamma", "0.9", "--out"]
    disk.mkdir()
    n_bytes = rng.choice((rng.randrange(4096, 65536), rng.randrange(4096, 2**18)))
    if not mounted(disk, n_bytes):
        return "no file system to fill here"
    try:
        code, said = ran(place, [*words, disk / "run"])
        if code:
            one_line(code, said, "No space left")
        mounted(disk, ROOM, again=True)
        goes_on(place, disk / "run", whole, log)
    finally:
        ctypes.CDLL(None).umount2(bytes(disk), 2)
    return "one line, and it went on" if code else "there was room"


def limited(rng, place, log, whole):
    """Files that may not be longer than so much."""
    words = ["fit", "--data", log, "--gamma", "0.9", "--out", place / "run"]
    code, said = ran(place, words, [("file", rng.randrange(1, 20_000))])
    if code:
        one_line(code, said, "File too large")
    goes_on(place, place / "run", whole, log)
    return "one line, and it went on" if code else "there was room"


def mounted(disk, n_bytes, *, again=False):
    """Makes a file system of a size, if this process may."""
    pages = f"size={-(-n_bytes // 4096) * 4096}".encode()
    remount = 32 if again else 0
    return ctypes.CDLL(None).mount(b"tmpfs", bytes(disk), b"tmpfs", remount, pages) == 0


def read_only(rng, place, log, whole):
    """A folder that may be read alone."""
    shut = place / "shut"
    shut.mkdir()
    shut.chmod(0o555)
    name = rng.choice(list(WRITERS))
    words = [*WRITERS[name](whole, log), shut / "made"]
    code, said = ran(place, words, [("mode", None)])
    one_line(code, said, "Permission denied")
    assert not list(shut.iterdir())
    return f"one line by {name}"


WRITERS = {
    "fit": lambda whole, log: ["fit", "--data", log, "--gamma", "0.9", "--out"],
    "calibrate": lambda whole, log: [
        "calibrate",
        whole,
        "--data",
        log.parent / "later.npz",
        "--out",
    ],
    "export": lambda whole, log: ["export", whole, "--out"],
    "report": lambda whole, log: ["report", whole, "--no-play", "--out"],
}


def two(rng, place, log, whole):
    """Two processes on one folder."""
    run = place / "run"
    words = ["fit", "--data", log, "--gamma", "0.9", "--out", run]
    first, _ = ran(place, words, wait=False)
    until = time.monotonic() + PATIENCE
    while not (run / "lock.holder").exists() and first.exitcode is None:
        assert time.monotonic() < until
        time.sleep(0.001)
    other = place / "other"
    other.mkdir()
    again = rng.choice((["fit", "--resume", run], [*words, "--force"], words))
    code, said = ran(other, again)
    is_over = (run / "done").exists()
    first.join(PATIENCE)
    assert first.exitcode == 0
    if code:
        one_line(code, said, str(run))
    assert kills.result(run) == kills.result(whole), "the policy is another one"
    if code == 0 or is_over:
        return "one came after the other"
    return "the second is refused"


def dead_worker(rng, place, log, whole):
    """A process that plays is killed."""
    words = ["evaluate", coin(place), "--env", "corridors", "--episodes", 20_000, "--workers", 2]
    process, said = ran(place, words, wait=False)
    until, children = time.monotonic() + PATIENCE, []
    while len(children) < 2 and process.exitcode is None and time.monotonic() < until:
        children = workers_of(process.pid)
        time.sleep(0.01)
    time.sleep(rng.random())
    for child in rng.sample(children, 1) if len(children) == 2 else ():
        os.kill(child, signal.SIGKILL)
    process.join(PATIENCE)
    if process.exitcode == 0:
        return "it was done before"
    one_line(process.exitcode, said.read_text(), "a worker process ended", "SIGKILL")
    assert not any(Path(f"/proc/{child}/cmdline").exists() for child in children)
    return "one line"


def coin(place):
    """A policy for corridors that anyone can make."""
    from bmdp.policies import RandomBudgetedPolicy

    RandomBudgetedPolicy(5, 0.0, 1.0).save(place / "policy")
    return place / "policy"


def workers_of(process):
    """Workers of a process (Linux)."""
    path = Path(f"/proc/{process}/task/{process}/children")
    found = map(int, path.read_text().split()) if path.exists() else ()
    return [one for one in found if b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes()]


def short_of_memory(rng, place, log, whole):
    """Less address space than the work needs."""
    words = ["fit", "--data", log, "--gamma", "0.9", "--out", place / "run"]
    code, said = ran(place, words, [("space", rng.randrange(2**20, 2**28))])
    if code:
        one_line(code, said, "memory")
    goes_on(place, place / "run", whole, log)
    return "one line, and it went on" if code else "there was enough"


KINDS = {
    "disk full": full,
    "file too large": limited,
    "read-only": read_only,
    "two processes": two,
    "worker killed": dead_worker,
    "out of memory": short_of_memory,
}
