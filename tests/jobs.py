"""Jobs for other processes, which import this module."""

import os
import signal

from bmdp import BudgetError
from bmdp.envs.episodes import environment_seeds


def pid_of(_):
    return os.getpid()


def divided(number):
    return 1 / number


def live_or_die(word):
    if word == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return word


def first_states(policy, slots, part):
    return slots.reset(environment_seeds(0, part)).sum()


def refuse(policy, slots, part):
    raise BudgetError(f"no budget for {part.start}")
