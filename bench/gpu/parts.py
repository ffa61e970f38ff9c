"""The parts that tools/gpu_check runs on a machine with a GPU, and their results.

A part is a function of a Bench that returns plain data for gpu.json. If the machine lacks something, the part does not
raise, but returns {"skipped": why}. If a program exceeds its time limit, its part reports that too.
"""

import concurrent.futures
import csv
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
EXAMPLE = ROOT / "examples" / "moe_pytorch" / "train.py"
TEXT = ROOT / "docs" / "rules" / "*" / "*.md"
SKIPPED = 77
TESTS = ("kernels_batch_gpu_test", "kernels_routing_gpu_test", "kernels_logit_gpu_test",
         "probes_device_gpu_test")
PROGRAMS = ("gpu_kernels", "gpu_ring", "gpu_step", "gpu_gemm")
LIBRARIES = ("libplumbline_cuda.so",)
GUEST = ("libplumbline.so", "libplumbline_agent.so")  # libraries that a trainer opens
SANITIZER = "sanitizer"  # folder of a bundle with compute-sanitizer and its libraries
SANITIZERS = ("memcheck", "racecheck", "initcheck", "synccheck")
# Kernel, and the benchmark that launches it once over data larger than any cache.
PROFILED = (
    ("TensorStatsKernel", "Stats/bf16/268435456/manual_time"),
    ("TensorStatsKernel", "Stats/f32/268435456/manual_time"),
    ("UpdateCheckKernel", "Updates/268435456/manual_time"),
    ("LogitKernel", "Pair/bf16/1024/151936/manual_time"),
    ("RowsKernel", "Routing/bf16/1048576/128/manual_time"),
)
METRICS = (
    "smsp__inst_executed.sum", "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "smsp__inst_executed_pipe_alu.sum", "smsp__inst_executed_pipe_fma.sum",
    "smsp__inst_executed_pipe_fp64.sum", "smsp__inst_executed_pipe_xu.sum",
    "smsp__inst_executed_pipe_lsu.sum", "smsp__inst_executed_pipe_uniform.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__warps_active.avg.pct_of_peak_sustained_active", "launch__registers_per_thread",
    "launch__occupancy_limit_registers", "launch__occupancy_limit_shared_mem",
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_lg_throttle_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_mio_throttle_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_math_pipe_throttle_per_issue_active.ratio",
)


class Bench:
    """The folder of the bundle, the folder of the results, and the deadline."""

    def __init__(self, bundle, out, seconds):
        self.bundle = pathlib.Path(bundle).resolve()
        self.out = pathlib.Path(out).resolve()
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="gpu_check."))
        self.logs = self.work / "logs"
        self.data = self.work / "data"
        self.last = self.ends = time.monotonic() + seconds
        for folder in (self.logs, self.data):
            folder.mkdir(parents=True, exist_ok=True)
        self.blas = cublas_folder()

    def left(self):
        return self.ends - time.monotonic()

    def part(self, seconds):
        """Starts the time limit of one part, within that of all parts."""
        self.ends = min(self.last, time.monotonic() + seconds)

    def run(self, name, command, limit, **environment):
        """Returns (status, output); status is None if it did not finish. The output is stored as logs/NAME.txt."""
        limit = min(limit, self.left())
        if limit <= 1:
            return None, "no time was left"
        log = self.logs / f"{name}.txt"
        try:
            status = _run(command, limit, {**os.environ, **environment}, log)
        except OSError as why:
            status = 127
            log.write_text(str(why))
        return status, log.read_text(errors="replace")

    def program(self, name):
        return self.bundle / "bin" / name

    def run_program(self, name, limit, *arguments, log=None):
        """Runs a program of the bundle, which needs to find cuBLAS. PyTorch has its own and must not find it."""
        found = {"LD_LIBRARY_PATH": search_path(self.blas)} if self.blas else {}
        return self.run(log or name, [self.program(name), *arguments], limit, **found)

    def keep(self, of=""):
        """Packs logs and recordings, one file each. `of`: the parts that were requested alone; their files are stored
        next to those of others."""
        for folder in (self.logs, self.data):
            with tarfile.open(self.out / f"{folder.name}{of}.tar.gz", "w:gz") as archive:
                archive.add(folder, folder.name)

    def close(self):
        shutil.rmtree(self.work, ignore_errors=True)


def _run(command, limit, environment, log):
    """Returns the status; None if it was terminated, with all its children. The output goes to a file, because a pipe
    would block as long as any process holds it."""
    with open(log, "wb") as output:
        process = subprocess.Popen([str(c) for c in command], stdout=output,
                                   stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                   env=environment, start_new_session=True)
    try:
        return process.wait(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        pass  # it is blocked in the driver
    return None


def search_path(folder):
    """Returns LD_LIBRARY_PATH with one more folder at its end."""
    return os.pathsep.join(filter(None, [os.environ.get("LD_LIBRARY_PATH"), str(folder)]))


def tool(name, carried=()):
    """Returns a tool of the machine's toolkit, wherever it is installed; otherwise one of the `carried` paths that exists."""
    places = [*pathlib.Path("/usr/local").glob(f"cuda*/bin/{name}"),
              *pathlib.Path("/usr/local").glob(f"cuda*/{name}/{name}"),
              *pathlib.Path("/opt/nvidia").glob(f"nsight-compute/*/{name}"), *carried]
    return shutil.which(name) or next((str(p) for p in places if p.exists()), name)


def cublas_folder():
    """Returns the folder of libcublas.so.13 or .12, for the programs that open it; None if not found."""
    roots = [pathlib.Path(p) for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p]
    roots += sorted(pathlib.Path("/usr/local").glob("cuda*/lib64"))
    roots += [pathlib.Path(p) / "nvidia" / kind / "lib" for p in site_folders()
              for kind in ("cu13", "cublas")]
    for version in ("13", "12"):
        for root in roots:
            if (root / f"libcublas.so.{version}").exists():
                return root
    return None


def site_folders():
    requested = subprocess.run(["python3", "-c", "import site; print(*site.getsitepackages(), sep='\\n')"],
                           capture_output=True, text=True, check=False)
    return requested.stdout.split()


# Messages of the profiler and the sanitizers if the machine does not permit them.
REFUSALS = re.compile(r"^.*(ERR_NVGPUCTRPERM|Device not supported|not supported on this|"
                      r"[Pp]rofiling is not supported|insufficient privileges).*$", re.M)


def skipped(status, output):
    """Returns the reason if a program was skipped or a tool was not permitted; otherwise None."""
    refused = REFUSALS.search(output) if status not in (0, None) else None
    if refused:
        return refused.group(0).strip()
    if status == SKIPPED:
        return output.strip().rsplit("skipped: ", 1)[-1] or "no reason given"
    if status == 127:
        return output.strip()
    return None


def outcome(status, output):
    """Returns the common result fields of a program."""
    why = skipped(status, output)
    if why:
        return {"skipped": why}
    if status is None:
        return {"failed": "not to the end in its time", "tail": output[-2000:]}
    if status != 0:
        return {"failed": f"exit status {status}", "tail": output[-2000:]}
    return {}


# ---- the parts ----------------------------------------------------------------------------------

DEVICE = ("name", "driver_version", "memory.total", "clocks.sm", "clocks.mem", "clocks.max.sm",
          "clocks.max.mem", "power.draw", "power.limit", "temperature.gpu")


def device(bench):
    status, output = bench.run("nvidia_smi", ["nvidia-smi", f"--query-gpu={','.join(DEVICE)}",
                                              "--format=csv,noheader"], 30)
    if status != 0:
        return {"skipped": f"nvidia-smi: {output.strip() or 'not found'}"}
    return dict(zip(DEVICE, (v.strip() for v in output.strip().split("\n", 1)[0].split(","))))


def tests(bench):
    found = {}
    for name in TESTS:
        status, output = bench.run(name, [bench.program(name), "--gtest_brief=1"], 90)
        count = re.search(r"\[  PASSED  \] (\d+) test", output)
        found[name] = {"passed": int(count.group(1)) if count else 0, **outcome(status, output)}
    return found


def _benchmark(bench, name, *arguments, limit=240):
    result = bench.logs / f"{name}.json"
    status, output = bench.run_program(
        name, limit, f"--benchmark_out={result}", "--benchmark_out_format=json",
        "--benchmark_repetitions=5", "--benchmark_enable_random_interleaving=true", *arguments)
    ended = outcome(status, output)
    if ended:
        return ended
    rows = json.loads(result.read_text())["benchmarks"]
    refused = [r["name"] for r in rows if r.get("error_occurred")]
    if refused:
        return {"failed": f"refused: {', '.join(sorted(set(refused)))}"}
    return {r["run_name"]: {"nanoseconds": r["real_time"] * NANOSECONDS[r["time_unit"]],
                            "bytes_per_second": r.get("bytes_per_second"),
                            **{name: r[name] for name in COUNTERS if name in r}}
            for r in rows if r.get("aggregate_name") == "median"}


COUNTERS = ("items_per_second", "besides_ns", "besides_low_ns", "besides_high_ns", "besides_pairs")


NANOSECONDS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}


def first(bench):
    """Measures what the kernels' budgets depend on, in a minute: bandwidth, atomics, a graph's empty node."""
    found = _benchmark(bench, "gpu_kernels", "--benchmark_min_time=0.02",
                       "--benchmark_filter=^(ReadOnce|Copy|SharedAtomics|EmptyNodes)/", limit=90)
    return found


def speed(bench):
    return _benchmark(bench, "gpu_kernels", "--benchmark_min_time=0.05")


def host(bench):
    # The minimum is of the reported time, that of one of 64 calls: two seconds in total.
    return _benchmark(bench, "gpu_ring", "--benchmark_min_time=0.003", limit=120)


def step(bench, *options, log=None):
    status, output = bench.run_program("gpu_step", 180, *options, log=log)
    ended = outcome(status, output)
    return ended or json.JSONDecoder().raw_decode(output, output.index("{"))[0]


def step_graph(bench):
    return step(bench, "--graph", "1", log="gpu_step_graph")


def step_copies(bench):
    return step(bench, "--copies", "1", log="gpu_step_copies")


def peers(bench):
    """Measures PyTorch's own operations over the same inputs as our kernels'."""
    status, output = bench.run("pytorch_peers", ["python3", HERE / "pytorch_peers.py"], 240)
    stated = [line for line in output.splitlines() if line.startswith("{")]
    return outcome(status, output) or (json.loads(stated[-1]) if stated else {"failed": output[-500:]})


def products(bench):
    folder = bench.data / "gemm"
    folder.mkdir(exist_ok=True)
    seconds = max(20, min(90, int(bench.left() - 60)))
    status, output = bench.run_program("gpu_gemm", seconds + 40, "--out", folder, "--seconds",
                                       str(seconds))
    ended = outcome(status, output)
    if not (folder / "gemm.json").exists():
        return ended or {"failed": "no gemm.json"}
    found = json.loads((folder / "gemm.json").read_text())  # complete after every product
    return {**found, "broke": ended["failed"]} if "failed" in ended else found


# Tests of failing API calls report errors on purpose. A tool that waits for each launch would block forever in tests
# that hold a stream from the host.
SANITIZER_OPTIONS = {"memcheck": ("--report-api-errors", "no")}
HELD_UP = "*NothingWaits*:*Spoil*"
FOUND_ERRORS = 86  # a status that no test uses


def sanitizers(bench):
    """Runs all at once: nothing is timed, and in sequence they would take minutes. Without a driver the tool crashes in
    the program."""
    there = device(bench)
    if "skipped" in there:
        return there
    sanitizer = tool("compute-sanitizer", [bench.bundle / SANITIZER / "compute-sanitizer"])

    def sanitize(check, name):
        status, output = bench.run(
            f"{check}_{name}",
            [sanitizer, "--tool", check, *SANITIZER_OPTIONS.get(check, ()),
             "--error-exitcode", str(FOUND_ERRORS), bench.program(name), "--gtest_brief=1",
             f"--gtest_filter=-{HELD_UP}"], 150, PLUMB_SHORT="1")
        summary = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (.*)", output)
        return {"summary": summary[-1] if summary else "", **outcome(status, output)}
    with concurrent.futures.ThreadPoolExecutor(max(2, (os.cpu_count() or 2) // 2)) as pool:
        requested = {f"{check} {name}": pool.submit(sanitize, check, name)
                 for check in SANITIZERS for name in TESTS}
    return {name: future.result() for name, future in requested.items()}


def profile(bench):
    """Profiles each kernel. If this profiler does not know a metric, it is left out and the others are requested again."""
    found, metrics = {}, list(METRICS)
    for kernel, benchmark in PROFILED:
        log = f"ncu_{benchmark.replace('/', '_')}"
        while True:
            status, output = bench.run(
                log, [tool("ncu"), "--clock-control", "none", "--csv", "--metrics", ",".join(metrics),
                      "-k", f"regex:{kernel}", "--launch-count", "1", bench.program("gpu_kernels"),
                      f"--benchmark_filter=^{benchmark}$", "--benchmark_min_time=0"], 60)
            rows = _ncu_rows(output)
            unknown = [m for m in metrics if re.search(rf"[Ff]ailed to find metric.*{re.escape(m)}\b|"
                                                       rf"{re.escape(m)}.*(not found|unknown)", output)]
            if rows or not unknown or unknown == metrics:
                break
            metrics = [m for m in metrics if m not in unknown]
        found[benchmark] = rows if rows else (outcome(status, output) or {"failed": output[-500:]})
    left_out = [m for m in METRICS if m not in metrics]
    return {**found, "unknown": {"metrics": left_out}} if left_out else found


def trainer(bench):
    """Runs the example on the GPU, watched by the bundled agent. Losses must not change by a bit; the records are for
    plumb audit (tools/gpu_check report)."""
    status, output = bench.run("torch", ["python3", "-c", "import torch; print(torch.cuda."
                                         "is_available(), torch.__version__)"], 150)
    if status is None:
        return outcome(status, output)
    sees = re.search(r"^True (\S+)$", output, re.M)
    if sees is None:
        return {"skipped": "no PyTorch with a CUDA GPU: " + output.strip()[-200:]}
    return {"torch": sees.group(1),
            **{router: train(bench, router) for router in ("dropless", "score-drop")}}


def train(bench, router):
    losses = {}
    for probes in ("on", "off"):
        log = bench.logs / f"train_{router}_{probes}.jsonl"
        command = ["python3", EXAMPLE, "--device", "cuda", "--router", router, "--steps", "60",
                   "--text", TEXT, "--probes", probes, "--record",
                   bench.data / "records" / router, "--run", router, "--log", log, "--quiet"]
        status, output = bench.run(f"train_{router}_{probes}", command, 90, **guest(bench.bundle),
                                   CUBLAS_WORKSPACE_CONFIG=":4096:8")
        ended = outcome(status, output)
        if ended:
            return ended
        losses[probes] = [json.loads(line)["loss"] for line in log.read_text().splitlines()]
    return {"steps": len(losses["on"]), "same_losses": losses["on"] == losses["off"]}


def guest(bundle):
    """Returns the environment in which the bundled agent observes a trainer."""
    folder = bundle / "guest"
    return {"PLUMBLINE_LIBRARY": str(folder / "libplumbline.so"),
            "PLUMBLINE_CUDA_LIBRARY": str(bundle / "lib" / "libplumbline_cuda.so"),
            "PYTHONPATH": str(ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1",
            "LD_LIBRARY_PATH": search_path(folder)}


def _ncu_rows(output):
    """Returns {metric: [value, unit]} of ncu's CSV, which follows the program's output."""
    lines = [line for line in output.splitlines() if line.startswith('"')]
    return {row["Metric Name"]: [row["Metric Value"], row["Metric Unit"]]
            for row in csv.DictReader(lines) if row.get("Metric Name") in METRICS}


def recordings(bench):
    status, output = bench.run("record_pytorch", ["python3", HERE / "record_pytorch.py", bench.data],
                               120)
    stated = [line for line in output.splitlines() if line.startswith("{")]
    return outcome(status, output) or (json.loads(stated[-1]) if stated else {"failed": output[-500:]})


# First the parts that decide, then those that explain; the slowest come last.
PARTS = (device, tests, first, speed, host, step, step_graph, step_copies, peers, products, profile,
         sanitizers, recordings, trainer)
PART_SECONDS = 8 * 60
TIMED = ("first", "speed", "host", "step", "step_graph", "step_copies", "peers")
CLOCKS = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw")


def clocks(bench):
    """Returns the current clocks of the device; {} if unknown."""
    status, output = bench.run("clocks", ["nvidia-smi", f"--query-gpu={','.join(CLOCKS)}",
                                          "--format=csv,noheader"], 10)
    return dict(zip(CLOCKS, map(str.strip, output.split("\n", 1)[0].split(",")))) if status == 0 else {}


def run_all(bench, only, keep, report=lambda text: print(text, file=sys.stderr, flush=True), found=None):
    """Runs the parts and returns {part: result}, in addition to `found` from earlier calls. Reports parts for which
    there was no time. Calls keep(found) after each part, so that a later failure does not lose results."""
    found = dict(found or {})
    for part in (p for p in PARTS if not only or p.__name__ in only):
        name = part.__name__
        began = time.monotonic()
        bench.part(PART_SECONDS)
        before = clocks(bench) if name in TIMED else {}
        if bench.left() <= 1:
            found[name] = {"skipped": "no time was left"}
        else:
            try:
                found[name] = part(bench)
            except Exception as error:  # the results of other parts must not be lost
                found[name] = {"failed": repr(error)}
        if before:
            found.setdefault("clocks", {})[name] = {"before": before, "after": clocks(bench)}
        keep(found)
        report(f"gpu_check: {name}: {time.monotonic() - began:.0f} s")
    return found
