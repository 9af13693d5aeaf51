"""The folder of a training run or a policy, and the environment that it is played in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium.envs.registration import EnvSpec

from bmdp.data import StoredLog, TransitionBatch, cost_so_far
from bmdp.data.encoder import without_encoder
from bmdp.envs.slots import find_spec
from bmdp.errors import ConfigError, StoreError
from bmdp.policies import BudgetedPolicy, load_policy
from bmdp.policies.limited import episode_limit_of
from bmdp.policies.portfolio import LogCertificate
from bmdp.storage import POLICY, SPEC, read_sealed

if TYPE_CHECKING:
    from bmdp.learn.runs import RunFolder
    from bmdp.learn.spec import EnvConfig

_MOST_NUMBERS = 5_000_000  # of states of a large log that a page looks at


@dataclass(frozen=True, eq=False)
class Opened:
    """All that a folder holds, and the environment to play in."""

    folder: Path
    policy: BudgetedPolicy | None
    env: EnvSpec | None
    notes: Sequence[str] = ()
    header: dict[str, Any] = field(default_factory=dict)  # spec.json
    gammas: tuple[float, float] | None = None  # of rewards and costs
    batch: TransitionBatch | None = None
    records: Sequence[dict[str, Any]] = ()
    prediction: dict[str, Any] | None = None
    fitted: dict[str, Any] = field(default_factory=dict)  # fitted.json
    action_names: Sequence[str] = ()  # as in the log; none if they are numbers there

    @property
    def title(self) -> str:
        """The name of the folder, and what is in it."""
        name = self.folder.resolve().name
        if self.is_from_log:
            return f"{name}: a policy learned from a log"
        kind = "a calibrated policy" if getattr(self.policy, "certificate", None) else "a policy"
        return f"{name}: {kind} for {self.env.id}" if self.env else f"{name}: {kind}"

    @property
    def is_from_log(self) -> bool:
        """Whether it was learned from a log."""
        kind, source = self.header.get("kind"), self.header.get("source") or {}
        return kind == "data" or (kind == "fit" and "env" not in source)


def is_run(folder: Path) -> bool:
    """Returns whether a folder is that of a training run or of a policy."""
    if (folder / SPEC).is_file():
        try:
            return bool(json.loads((folder / SPEC).read_text()).get("kind") != "experiment")
        except (ValueError, AttributeError):
            return True  # a damaged run: opening it says what is wrong
    return (folder / POLICY).is_file()


def open_folder(folder: Path, env: str | EnvSpec | None, settings: Sequence[str]) -> Opened:
    """Returns what the folder of a run or a policy holds; the rest is as for `environment_of`.

    Raises:
        StoreError: if there is no run and no policy, or it is damaged.
        ConfigError: if an environment that was asked for is not there, or does not take its
            settings. One that only the folder names is done without, with a note.
    """
    if not is_run(folder):
        raise StoreError(
            f"{folder} is no training run and no policy: it has no {SPEC} or {POLICY}."
        )
    own, found = _open_run(folder) if (folder / SPEC).is_file() else (None, {})
    whole = found.pop("policy") if found else load_policy(folder)
    policy, action_names = without_encoder(whole), getattr(whole, "action_names", ())
    notes = found.pop("notes", [])
    try:
        spec = environment_of(policy, own, env, settings)
        if env is None and spec is not None:
            spec, gamma = as_explored(spec, found.get("header") or {})
            cost_gamma = cost_gamma_of(folder, policy)
            own_gammas = gamma and (gamma, gamma if cost_gamma is None else cost_gamma)
            found["gammas"] = found.get("gammas") or own_gammas
    except ConfigError as error:
        if env is not None or settings:
            raise
        notes, spec = [*notes, f"It was not played: {error}"], None
    return Opened(folder, policy, spec, notes, **found, action_names=action_names)


def _open_run(folder: Path) -> tuple[EnvConfig | None, dict[str, Any]]:
    from bmdp.learn.runs import RunFolder, spec_of

    run, notes = RunFolder(folder), list[str]()
    if run.header.get("kind") == "fit":
        return _open_fit(run)
    spec = spec_of(run)  # imports the modules that a policy needs
    places = sorted(folder.glob("round-*"))
    batches = [b for i in range(len(places)) if (b := run.batch(i)) is not None]
    policies = [place for place in (folder, *reversed(places)) if (place / "policy").exists()]
    if not run.is_done:
        last = f" of {policies[0].name}" if policies and policies[0] != folder else ""
        have = f"this is the policy{last}" if policies else "there is no policy yet"
        notes.append(_unfinished(folder, have))
    gamma, cost_gamma = spec.learner.gamma, spec.learner.cost_gamma
    return spec.env, {
        "policy": load_policy(policies[0] / "policy") if policies else None,
        "notes": notes,
        "header": run.header,
        "gammas": (gamma, gamma if cost_gamma is None else cost_gamma),
        "batch": TransitionBatch.concatenate(batches) if batches else None,
        "records": run.records(),
        "prediction": run.prediction(),
    }


def _some_of(log: StoredLog) -> TransitionBatch:
    """As many episodes of a large log as a page can look at."""
    return log.first(max(1, _MOST_NUMBERS // log.state_size))


def _open_fit(run: RunFolder) -> tuple[EnvConfig | None, dict[str, Any]]:
    """Opens a run of `bmdp.fit`, finished or not."""
    from bmdp.learn.natures import completed  # torch takes long to import

    folder, notes, own = run.path, list[str](), environment_of_run(run)
    found, policy = _fitted(folder), folder / "policy"
    rounds = _rounds(folder)
    logs = [TransitionBatch.from_npz(path) for path in folder.glob("steps/log.npz")]
    logs += [_some_of(StoredLog.open(path.parent)) for path in folder.glob("steps/log/log.json")]
    if not run.is_done:
        have = "there is no policy yet"
        tried = sorted(path.parent.name for path in folder.glob("steps/candidates/*/policy"))
        if policy.exists():
            have = "this is its policy"
        elif tried:
            have = f"{have}; candidates that have learned: {'; '.join(tried)}"
        notes.append(_unfinished(folder, have))
    asked = run.header.get("asked") or {}
    gamma, limit = asked.get("gamma"), asked.get("episode_limit")
    cost_gamma = asked.get("cost_gamma") if limit is None else 1.0
    gammas = None if gamma is None else (gamma, gamma if cost_gamma is None else cost_gamma)
    if limit is not None:  # rounds that were explored show it already, and so do chunks
        small = folder.glob("steps/log.npz")
        logs = [cost_so_far(completed(TransitionBatch.from_npz(p)), limit) for p in small] or logs
    notes += found.get("notes", [])
    return own, {
        "policy": load_policy(policy) if policy.exists() else None,
        "notes": notes,
        "header": run.header,
        "gammas": gammas,
        "batch": TransitionBatch.concatenate(batches) if (batches := [*rounds, *logs]) else None,
        "records": [_collection(i, batch, len(rounds)) for i, batch in enumerate(rounds)],
        "prediction": found.get("forecast"),
        "fitted": found,
    }


def _unfinished(folder: Path, have: str) -> str:
    return f"The run is not finished: {have}. `bmdp fit --resume {folder}` goes on."


def _fitted(folder: Path) -> dict[str, Any]:
    """Content of fitted.json; nothing, if it is not there yet.

    Raises:
        StoreError: if it is damaged.
    """
    from bmdp.learn.fitted import FITTED_FORMAT  # torch takes long to import

    path = folder / "fitted.json"
    try:
        return read_sealed(path, FITTED_FORMAT) if path.is_file() else {}
    except StoreError as error:
        raise StoreError(f"{path} is damaged: {error}") from error


def _rounds(folder: Path) -> list[TransitionBatch]:
    """Episodes of the rounds that were explored, in order."""
    files = (folder / "steps" / "rounds").glob("*.npz")
    return [TransitionBatch.from_npz(path) for path in sorted(files, key=lambda p: int(p.stem))]


def _collection(number: int, batch: TransitionBatch, n_rounds: int) -> dict[str, Any]:
    """A record of a round, with sums over episodes that are not discounted."""
    n_episodes = len(batch.starts())
    return {
        "kind": "collection",
        "round": number,
        "n_rounds": n_rounds,
        "episodes": n_episodes,
        "transitions": len(batch),
        "reward": float(batch.reward.sum()) / n_episodes,
        "cost": float(batch.cost.sum()) / n_episodes,
    }


def environment_of_run(run: RunFolder) -> EnvConfig | None:
    """Returns the environment of a run, and imports the modules that its policy needs.

    Raises:
        StoreError: if the settings of the run are wrong.
    """
    from bmdp.learn.runs import spec_of
    from bmdp.learn.spec import EnvConfig

    if run.header.get("kind") != "fit":
        return spec_of(run).env
    try:
        source = run.header["source"]
        return EnvConfig(source["env"], source["settings"]) if "env" in source else None
    except (KeyError, TypeError) as error:
        raise StoreError(f"{run.path}/{SPEC} does not make sense: {error}.") from error


def as_explored(spec: EnvSpec, header: dict[str, Any]) -> tuple[EnvSpec, float | None]:
    """Returns the environment of a run with the end that `bmdp.fit` gave to its episodes.

    Args:
        spec: the environment.
        header: spec.json of the run; of other runs and of policies nothing changes.

    Returns:
        The environment, and the discount of a run of `bmdp.fit`.
    """
    from bmdp.learn.auto import bounded

    if header.get("kind") != "fit":
        return spec, None
    return bounded(spec, (header.get("asked") or {}).get("gamma"))


def cost_gamma_of(
    folder: Path, policy: BudgetedPolicy | None, env: EnvSpec | None = None
) -> float | None:
    """Returns the discount of costs that budgets of a policy are about, if it is one of its own.

    Args:
        folder: of a run, or of a policy.
        policy: the policy; a calibrated one says it in its certificate.
        env: that it is played in, and that may discount otherwise than the run did.

    Raises:
        StoreError: if the run is damaged.
    """
    certificate = getattr(policy, "certificate", None)
    gamma, found = (
        gammas_asked(folder) if certificate is None else (certificate.gamma, certificate.cost_gamma)
    )
    if episode_limit_of(policy) is not None:
        return None
    if found is None and gamma is not None and env is not None:
        from bmdp.learn.auto import bounded  # torch takes long to import

        return gamma if gamma != bounded(env, None)[1] else None
    return found


def gammas_asked(folder: Path) -> tuple[float | None, float | None]:
    """Returns the discounts of rewards and of costs that a run was given, each None if it was not.

    That of rewards is of a run of `bmdp.fit` only: a learner may have any discount, whatever its
    environment is measured by.

    Args:
        folder: of a run, or of a policy, which was given none.

    Raises:
        StoreError: if the run is damaged.
    """
    if not (folder / SPEC).is_file():
        return None, None
    from bmdp.learn.runs import RunFolder  # torch takes long to import

    header = RunFolder(folder).header
    asked = header.get("asked")
    if asked:
        return asked.get("gamma"), asked.get("cost_gamma")
    return None, ((header.get("spec") or {}).get("learner") or {}).get("cost_gamma")


def prediction_of(run: RunFolder) -> dict[str, Any] | None:
    """Returns the forecast that a run made of its policy, if it did."""
    return _fitted(run.path).get("forecast") or run.prediction()


def environment_of(
    policy: BudgetedPolicy | None,
    own: EnvConfig | None,
    env: str | EnvSpec | None,
    settings: Sequence[str],
) -> EnvSpec | None:
    """Returns the environment to play a policy in, if there is one.

    Args:
        policy: a calibrated one names the environment of its certificate.
        own: that of its run.
        env: id or short name of another; None for its own.
        settings: changes of the environment, such as `env.height=5`.

    Raises:
        ConfigError: if there is no such environment, or it does not take its settings, or there are
            settings of none.
    """
    from bmdp.learn.spec import EnvConfig, with_env_setting  # torch takes long to import

    if isinstance(env, EnvSpec):
        return find_spec(env)
    config = own if env is None else EnvConfig(env)
    promise = getattr(policy, "certificate", None)
    if config is None and promise is not None and not isinstance(promise, LogCertificate):
        config = EnvConfig(promise.env)
        for name, value in json.loads(promise.settings).items():
            # Those of the registration, which it has anyway.
            if name != "max_episode_steps" and not str(value).startswith("<"):
                config = with_env_setting(config, f"env.{name}={json.dumps(value)}")
    if config is None:
        if settings:
            raise ConfigError(f"settings need an environment: give --env ENV; got {settings[0]!r}.")
        return None
    for text in settings:
        config = with_env_setting(config, text)
    return config.spec()
