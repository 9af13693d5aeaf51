"""Jobs for other processes, which import this module."""

import os
import signal


def pid_of(_):
    return os.getpid()


def divided(number):
    return 1 / number


def live_or_die(word):
    if word == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return word
