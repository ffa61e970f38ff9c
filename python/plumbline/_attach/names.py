"""The name of a run that has none: the launcher's, else that of `plumb run`, else the script's and the time."""

import os
import sys
import time

_LAUNCHERS = (("TORCHELASTIC_RUN_ID", ""), ("SLURM_JOB_ID", "slurm-"), ("WANDB_RUN_ID", ""), ("MLFLOW_RUN_ID", ""))
_NO_NAME = ("", "none")  # torchrun without --rdzv-id


def script():
    """Returns the name of the trainer's script, without its folder and ending."""
    main = getattr(sys.modules.get("__main__"), "__file__", None) or sys.argv[0] or "python"
    name = os.path.splitext(os.path.basename(main))[0]
    return os.path.basename(os.path.dirname(os.path.abspath(main))) if name == "__main__" else name


def _started():
    """Returns the time at which the trainer began. Ranks that one process has started must agree: it is that process's start."""
    if int(os.environ.get("WORLD_SIZE") or 1) < 2 and getattr(sys.modules.get("multiprocessing"), "parent_process", int)() is None:
        return time.time()
    with open(f"/proc/{os.getppid()}/stat", "rb") as stat:
        ticks = int(stat.read().rpartition(b")")[2].split()[19])
    with open("/proc/stat", "rb") as stat:
        boot = next(int(line.split()[1]) for line in stat if line.startswith(b"btime"))
    return boot + ticks // os.sysconf("SC_CLK_TCK")


def run_name(environment=os.environ):
    """Returns the name of the run. None: init reads it from PLUMBLINE_RUN."""
    if environment.get("PLUMBLINE_RUN"):
        return None
    for variable, prefix in _LAUNCHERS:
        value = environment.get(variable, "")
        if value.lower() not in _NO_NAME:
            return prefix + value
    return environment.get("PLUMBLINE_ATTACH_RUN") or f"{script()}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(_started()))}"
