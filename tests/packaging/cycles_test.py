"""Opens, observes and closes 1,000 times in one process: no memory, thread or file leaks."""

import json
import tempfile

from support import Case, PYTHON, UNPACKED, clean_environment, main, run

CYCLES = 1000
CODE = """
import gc, json, os, sys, plumbline, shutil
def state():
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return {"rss": int(status["RssAnon"].split()[0]) * 1024, "threads": int(status["Threads"]),
            "files": len(os.listdir("/proc/self/fd"))}
def cycle(n):
    folder = os.path.join(sys.argv[1], "record")
    run = plumbline.init(run="cycle", record=folder, every=1)
    with run.step(n):
        run.observe_routing("a", [[0.5, 0.25], [0.1, 0.2]], topk_indices=[[0], [1]], top_k=1)
        run.scalar("loss", 1.0)
    run.finish(30)
    shutil.rmtree(folder)
states = []
for n in range(int(sys.argv[2])):
    cycle(n)
    if (n + 1) % 100 == 0:
        gc.collect()
        states.append(state())
print(json.dumps(states))
"""


class Cycles(Case):
    def test_nothing_is_left(self):
        package = next(UNPACKED.iterdir()) / "lib/python3/dist-packages"
        with tempfile.TemporaryDirectory(prefix="plumb-cycles-") as folder:
            environment = clean_environment(PYTHONPATH=package)
            done = self.ok(run(PYTHON, "-c", CODE, folder, CYCLES, environment=environment))
        states = json.loads(done.stdout)
        first, last = states[1], states[-1]  # the first hundred fill caches
        print(f"  {first} after 200, {last} after {CYCLES}")
        self.assertEqual(first["threads"], last["threads"])
        self.assertEqual(first["files"], last["files"])
        self.assertLess(last["rss"] - first["rss"], 4 << 20, "5 KB a cycle")


if __name__ == "__main__":
    main()
