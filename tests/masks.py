"""Problems in which some actions are not available: exact ones, and an environment."""

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from batches import exhaustive_batch, fraction_model
from bmdp import FiniteBMDP, TransitionBatch

MASKS = np.array(  # [2 S, A]: chance says which of the two holds at a state
    [[1, 1, 0], [0, 1, 1], [1, 0, 0], [1, 1, 1], [0, 0, 1], [1, 1, 0], [1, 1, 1], [1, 1, 1]], bool
)


def masked_model(seed, gamma, **settings):
    """A model whose state is a number and a mask, 2 s + m: forbidden actions do what others do."""
    plain = fraction_model(seed, gamma, **settings)
    chances = plain.transition.toarray().reshape(4, 3, 4)
    allowed = np.where(MASKS, np.arange(3), MASKS.argmax(axis=1)[:, None])  # [8, 3]
    number = np.arange(8)[:, None] // 2
    return FiniteBMDP(
        transition=np.repeat(chances, 2, axis=2)[number, allowed] / 2,
        reward=plain.reward[number, allowed],
        cost=plain.cost[number, allowed],
        gamma=gamma,
        terminal=np.arange(8) >= 6,
        **settings,
    )


def masked_log(model, *, n_copies=1):
    """All transitions of such a model as they are logged: states without masks, masks aside."""
    whole = exhaustive_batch(model, parts=8, n_copies=n_copies)
    now, after = (s[:, 0].astype(int) for s in (whole.state, whole.next_state))
    columns = whole.to_arrays() | {
        "state": now // 2,
        "next_state": after // 2,
        "available": MASKS[now],
        "next_available": MASKS[after],
    }
    rows = MASKS[now, whole.action]
    return TransitionBatch(**{name: values[rows] for name, values in columns.items()})


class Clinic(gymnasium.Env):
    """Three visits: wait (0), treat (1), or operate (2), which is not always possible.

    Treating earns 1, operating 3 at cost 1. One can operate if the patient is fit, a coin at each
    visit, which is not seen but in the mask; and one cannot wait at the last visit.
    """

    metadata = {"render_modes": [], "gamma": 1.0, "horizon": 3, "cost_range": (0.0, 3.0)}  # noqa: RUF012
    observation_space, action_space = spaces.Discrete(4), spaces.Discrete(3)

    def _info(self, cost=0.0):
        is_fit = self.np_random.random() < 0.5
        self.mask = np.array([self.visit < 2, True, is_fit], np.int8)
        return {"cost": cost, "action_mask": self.mask}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.visit = 0
        return 0, self._info()

    def step(self, action):
        if not self.mask[action]:
            raise ValueError(f"action {action} is not available")
        self.visit += 1
        info = self._info(float(action == 2))
        return self.visit, (0.0, 1.0, 3.0)[action], self.visit == 3, False, info


class Clinics(gymnasium.vector.VectorEnv):
    """Several of them, as a batch; an ended one begins anew at the next step."""

    metadata = Clinic.metadata | {"autoreset_mode": AutoresetMode.NEXT_STEP}
    single_observation_space = Clinic.observation_space
    single_action_space = Clinic.action_space

    def __init__(self, num_envs=1):
        self.num_envs, self.envs = num_envs, [Clinic() for _ in range(num_envs)]

    def reset(self, *, seed=None, options=None):
        if not isinstance(seed, list):
            raise ValueError("one seed for each")
        found = [env.reset(seed=s) for env, s in zip(self.envs, seed, strict=True)]
        self.over = np.zeros(self.num_envs, bool)
        states, infos = zip(*found, strict=True)
        return np.array(states), self._joined(infos)

    def _joined(self, infos):
        return {name: np.stack([info[name] for info in infos]) for name in infos[0]}

    def step(self, actions):
        rows = []
        for env, action, over in zip(self.envs, actions, self.over, strict=True):
            if over:
                state, info = env.reset()
                rows.append((state, 0.0, False, False, info))
            else:
                rows.append(env.step(int(action)))
        *columns, infos = zip(*rows, strict=True)
        states, rewards, terminated, truncated = map(np.array, columns)
        self.over = terminated
        return states, rewards, terminated, truncated, self._joined(infos)


SINGLE, BATCHED = "tests/Clinic-v0", "tests/Clinics-v0"


def register():
    if SINGLE not in gymnasium.registry:
        gymnasium.register(SINGLE, Clinic)
        gymnasium.register(BATCHED, Clinic, vector_entry_point=Clinics)
