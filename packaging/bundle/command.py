"""Runs a program to its end, and says what it said where it fails."""

import subprocess


def run(*command, **options):
    """What it printed. RuntimeError where its status is not 0. `options`: as subprocess.run's."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, **options
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    return done.stdout
