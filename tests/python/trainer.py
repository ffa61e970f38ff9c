"""Runs a piece of trainer code in a separate process, since a process loads the agent once."""

import os
import subprocess
import sys
import textwrap

import warm as warm_process

BUILD = os.environ["PLUMBLINE_BUILD_DIR"]
TEST_AGENT = os.environ["TEST_AGENT"]
_LAUNCHERS = ("PLUMBLINE_", "SLURM_", "OMPI_", "TORCHELASTIC_")

# Opens a run in which every step is due. The code of a test continues with it.
OPEN = """
    import plumbline, warnings
    warnings.simplefilter("always")
    run = plumbline.init(run="exp1", record="runs", every=1)
"""


class Outcome:
    def __init__(self, code, out, err, calls):
        # The line that ends each recorded run is left out (tests/agent/core/printed_test.cc tests it).
        rest = [line for line in err.splitlines(keepends=True) if not line.startswith("plumbline: recorded in ")]
        self.code, self.out, self.err, self.calls = code, out, "".join(rest), calls

    def ok(self):
        assert self.code == 0, self.err
        return self

    def only(self, prefix):
        """Returns the agent's calls that begin with `prefix`."""
        return [c for c in self.calls if c.startswith(prefix)]


def run_warm(code, tmp_path, **more):
    return run(code, tmp_path, warm=True, **more)


def run(code, tmp_path, agent=TEST_AGENT, arguments=(), warm=False, **environment):
    """Runs `code` and returns its Outcome. agent None: the real one, next to the library. warm: torch is already imported (warm.py)."""
    log = tmp_path / "calls.log"
    env = {k: v for k, v in os.environ.items() if not k.startswith(_LAUNCHERS)}
    env.pop("RANK", None)
    env.pop("WORLD_SIZE", None)
    if agent is not None:
        env["PLUMBLINE_AGENT_LIBRARY"] = agent
    env["PLUMBLINE_TEST_LOG"] = str(log)
    env["PLUMBLINE_BUILD_DIR"] = BUILD
    env.update(environment)
    command = ["-c", textwrap.dedent(code), *arguments]
    if warm:
        done = warm_process.run(command, tmp_path, env, 250)
    else:
        done = subprocess.run([sys.executable, *command], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=250)
    calls = log.read_text().splitlines() if log.exists() else []
    return Outcome(done.returncode, done.stdout, done.stderr, calls)
