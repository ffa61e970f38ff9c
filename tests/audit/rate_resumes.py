"""Resumes of schedules that go on as they were, and of such that begin anew: how often health/learning-rate accuses them.

  PLUMB=build/dev/bin/plumb python3 tests/audit/rate_resumes.py [RUNS]      # of each schedule; 200 are documented
"""

import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile

PLUMB = os.environ.get("PLUMB", "build/dev/bin/plumb")


def cosine(t, cycle=1.0):
    return 0.5 * (1 + math.cos(math.pi * ((t / cycle) % 1.0)))


def warmed(t, warm, rest):
    return t / warm if t < warm else rest((t - warm) / (1 - warm))


SCHEDULES = {
    "cosine": lambda t, w: warmed(t, w, cosine),
    "linear": lambda t, w: warmed(t, w, lambda d: 1 - d),
    "inverse root": lambda t, w: min(t / w, math.sqrt(w / max(t, 1e-9))),
    "warm-up, stable, decay": lambda t, w: warmed(t, w, lambda d: 1 if d < 0.8 else (1 - d) / 0.2),
    "cosine cycles": lambda t, w: warmed(t, w, lambda d: max(0.01, cosine(d, 0.25))),
    "steps": lambda t, w: warmed(t, w, lambda d: 0.1 ** int(3 * d)),
}


def run(seed, name, anew, points=400):
    rand = random.Random(f"{seed} {name}")
    schedule, warm = SCHEDULES[name], rand.choice((0.01, 0.03, 0.1))
    at, back = rand.randint(points // 5, points - 30), rand.randint(0, 30)
    rows, peak = [], rand.choice((3e-4, 1e-3))
    begin = at - back
    for i in list(range(at)) + list(range(begin, points)):
        resumed = len(rows) >= at
        if len(rows) == at and back == 0:
            rows.append("Resuming training from checkpoint")
        t = (i + 1) / points
        if resumed and anew:
            t = (i - begin + 1) / (points - begin)
        loss = 2 * math.exp(-i / points) * math.exp(0.01 * rand.gauss(0, 1))
        rows.append(f"step {10 * i} loss {loss:.4f} lr {peak * schedule(t, warm):.4e}")
    return "\n".join(rows) + "\n"


def accused(text, folder):
    path = pathlib.Path(folder) / "train.log"
    path.write_text(text)
    out = subprocess.run([PLUMB, "audit", "--quiet", "--format", "json", path], capture_output=True, text=True).stdout
    return [f["title"] for f in json.loads(out)["findings"] if f["rule"] == "health/learning-rate" and f["level"] != "note"]


def main():
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as folder:
        for anew in (False, True):
            for name in SCHEDULES:
                titles = {}
                for seed in range(runs):
                    for title in accused(run(seed, name, anew), folder) or ["nothing"]:
                        titles[title] = titles.get(title, 0) + 1
                print("begins anew" if anew else "goes on", "|", name, "|", titles, flush=True)


if __name__ == "__main__":
    main()
