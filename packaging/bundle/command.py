"""Runs a program to its end. If it fails, raises an error with its output."""

import subprocess


def run(*command, **options):
    """Returns the output. If the status is not 0, raises RuntimeError. `options`: as for subprocess.run."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, **options
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    return done.stdout
