"""Two processes of torch.multiprocessing.spawn, which sets no RANK. Each writes its agent's calls to N.log
and its stderr to N.err.

    spawned_trainer.py CASE
"""

import os
import sys

CASE = sys.argv[1] if len(sys.argv) > 1 else ""
RANKS = 2


def meet(rank, meeting):
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)


def step(run, number):
    with run.step(number):
        run.scalar("loss", 1.0)


def work(rank, case, place):
    os.environ["PLUMBLINE_TEST_LOG"] = f"{rank}.log"
    sys.stderr = open(f"{rank}.err", "w")
    import torch

    import plumbline

    if case == "environment":
        os.environ.update(RANK="0", WORLD_SIZE="2")
    if case == "group-first":  # one task per node that spawns its ranks is not a contradiction
        os.environ.update(SLURM_PROCID="0", SLURM_NTASKS="1")
    reported = {"rank": 0, "world_size": 2} if case == "given" else {"rank": rank} if case == "half-given" else {}
    early = case in ("late-watch", "too-late", "strict")
    if not early:
        meet(rank, f"{place}/meeting")
    run = plumbline.init(run="exp1", record="runs", every=1, strict=case == "strict", **reported)
    if case in ("too-late", "strict"):
        step(run, 0)
    if early:
        meet(rank, f"{place}/meeting")
    if early or case == "given":
        model = torch.nn.Linear(2, 2)
        try:
            run.watch(model, torch.optim.SGD(model.parameters(), lr=0.1))
        except plumbline.PlumblineError as error:
            print(f"raised: {error}", file=sys.stderr)
    step(run, 1)
    run.finish()
    sys.stderr.close()


if __name__ == "__main__":
    import torch.multiprocessing as mp

    mp.spawn(work, (CASE, os.getcwd()), RANKS)
