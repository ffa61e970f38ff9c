"""plumb run on programs that know nothing of Plumbline: their calls are counted, their results are the same."""

import os
import re
import signal
import subprocess
import time

import interposing
import pytest

pytestmark = pytest.mark.skipif(not interposing.READY, reason="plumb is not built")
JEMALLOC = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    return interposing.build(tmp_path_factory.mktemp("programs"))


def same(command, tmp_path, **more):
    """Runs the command plainly and watched; returns the watched one. Ranks print in any order."""
    bare, done = interposing.plain(command, tmp_path, **more), interposing.watched(command, tmp_path, **more)
    assert sorted(done.stdout.splitlines()) == sorted(bare.stdout.splitlines()), done.stderr
    assert done.returncode == bare.returncode, done.stderr
    return done


def by_plumb(done):
    return [line for line in done.stderr.splitlines() if line.startswith("plumb: run: ")]


@pytest.mark.parametrize("case,calls", [("calls", 100), ("nested", 10), ("threads", 8000), ("fork", 13), ("exec", 103), ("exit", 4), ("kill", 4), ("errno", 1)])
@pytest.mark.parametrize("program", ["caller", "no_plt_caller"])
def test_calls_of_blas_are_counted(made, tmp_path, program, case, calls):
    done = same([made[program], case], tmp_path)
    assert interposing.counts(done) == {"cblas_sgemm" if case == "nested" else "sgemm_": calls}, done.stderr
    if case == "errno":
        assert done.stdout == "42 none\n"
    if case == "kill":
        assert done.returncode == -signal.SIGKILL


def test_each_caller_reaches_the_library_that_it_reaches_without_plumb(made, tmp_path):
    plugins = [made["plugin1.so"], made["plugin10.so"]]
    done = same([made["caller"], "plugins", *plugins], tmp_path)  # the program's BLAS comes first
    assert done.stdout.split() == ["6", "6", "6"] and interposing.counts(done) == {"sgemm_": 21}
    done = same([made["caller"], "deep", *plugins], tmp_path)  # bound deeply: not seen
    assert done.stdout.split() == ["6", "60"] and interposing.counts(done) == {}
    done = same([made["late_caller"], *plugins], tmp_path)  # each plugin has its own
    assert done.stdout.split() == ["6", "60"] * 3 and interposing.counts(done) == {"sgemm_": 6}


def test_without_a_folder_or_with_a_full_one_the_program_runs_uncounted(made, tmp_path):
    for folder in ("/nonexistent", "relative", "/proc", ""):
        bare = interposing.plain([made["caller"], "calls"], tmp_path, LD_PRELOAD=interposing.LIBRARY, PLUMBLINE_CALLS=folder)
        assert (bare.returncode, bare.stdout, bare.stderr) == (0, "", "")
    command = f"ulimit -f 8; exec {made['caller']} threads"
    done = interposing.watched(["bash", "-c", command], tmp_path)
    assert done.returncode == 0 and interposing.counts(done) == {}, done.stderr


def test_a_shell_and_children_are_followed(made, tmp_path):
    done = same(["bash", "-c", f"{made['caller']} calls; {made['caller']} exit; tail -n 1 /etc/hostname >/dev/null; env -i {made['caller']} calls"], tmp_path)
    assert interposing.counts(done) == {"sgemm_": 104}
    assert not (tmp_path / "rec").exists()


def test_preloaded_libraries_of_the_trainer_stay_first(made, tmp_path):
    if not os.path.exists(JEMALLOC):
        pytest.skip("no jemalloc")
    script = f"echo $LD_PRELOAD; {made['caller']} calls"
    done = interposing.watched(["bash", "-c", script], tmp_path, LD_PRELOAD=JEMALLOC)
    assert done.stdout == f"{JEMALLOC}:{interposing.LIBRARY.resolve()}\n" and interposing.counts(done) == {"sgemm_": 100}


def test_programs_with_address_sanitizer_are_refused_and_children_with_it_start(made, tmp_path):
    try:
        program = interposing.compile_one(tmp_path, "sanitized", ["late_caller.cc"], "-fsanitize=address", "-ldl")
    except subprocess.CalledProcessError:
        pytest.skip("no AddressSanitizer")
    done = interposing.watched([program], tmp_path)
    assert done.returncode == 0 and "is linked with AddressSanitizer" in done.stderr
    done = interposing.watched(["bash", "-c", f"{program} && echo started"], tmp_path)
    assert done.stdout == "started\n", done.stderr


def test_it_can_be_turned_off(made, tmp_path):
    done = interposing.watched(["bash", "-c", f"echo [$LD_PRELOAD$PLUMBLINE_CALLS]; {made['caller']} calls"], tmp_path, PLUMBLINE_INTERPOSE="0")
    assert done.stdout == "[]\n" and interposing.counts(done) == {}


def test_nothing_is_left_in_the_folder_of_temporary_files(made, tmp_path):
    (tmp_path / "tmp").mkdir()
    for case in ("calls", "kill", "fork"):
        interposing.watched([made["caller"], case], tmp_path, TMPDIR=tmp_path / "tmp")
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_clean_trainer_is_silent(made, tmp_path):
    done = same([made["trainer"], 2, 50, "none"], tmp_path)
    found = interposing.counts(done)
    assert found["ncclAllReduce"] == 100 and found["ncclBroadcast"] == 2 and found["cublasLtMatmul"] == 100
    assert interposing.findings(tmp_path) == set(), interposing.report(tmp_path)["findings"]
    report = interposing.report(tmp_path)
    assert not any(i["problems"] for i in report["inputs"])
    passed = {v["rule"] for v in report["verdicts"] if v["verdict"] == "pass"}
    assert "precision/collective-mismatch" in passed


MISMATCH = "precision/collective-mismatch"
FAULTS = {
    "counts": {(MISMATCH, "different-count")},
    "dtype": {(MISMATCH, "different-dtype")},
    "order": {(MISMATCH, "different-operation")},
    "accumulate": {("precision/gemm-accumulator", "narrow-accumulator-requested")},
    "tf32": {("precision/silent-tf32", "tf32-requested")},
    "split": {("precision/split-k", "16-bit-parts-requested")},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found_and_printed_at_the_end(made, tmp_path, fault):
    done = same([made["trainer"], 2, 8, fault], tmp_path) if fault not in ("dtype", "order") else interposing.watched([made["trainer"], 2, 8, fault], tmp_path)
    assert interposing.findings(tmp_path) == FAULTS[fault], done.stderr
    assert next(iter(FAULTS[fault]))[0] in done.stderr


@pytest.mark.parametrize("seed", range(12 if os.environ.get("PLUMB_LONG") else 3))
def test_a_rank_that_differs_is_named_wherever_it_does(made, tmp_path, seed):
    random = __import__("random").Random(seed)
    ranks, steps, fault = random.randint(2, 6), random.choice((5, 100, 700)), random.choice(("counts", "dtype", "order"))
    odd, step = random.randrange(ranks), random.choice((0, random.randrange(min(steps, 256)), steps - 1))
    interposing.watched([made["trainer"], ranks, steps, f"{fault}:{odd}:{step}"], tmp_path)
    assert interposing.findings(tmp_path) == FAULTS[fault]
    (one,) = interposing.report(tmp_path)["findings"]
    assert one["site"]["step_first"] == step and (ranks == 2 or one["site"]["ranks"] == [odd]), one


def test_half_precision_sums_over_many_ranks_are_predicted(made, tmp_path):
    command = [made["trainer"], 4096, 3, "half"]
    same(command, tmp_path, TEST_LOCAL_RANKS=2)
    assert interposing.findings(tmp_path) == {("precision/collective-sum", "predicted")}
    assert interposing.findings_of_twin(made, tmp_path / "twin", 4096) == set()


def test_tf32_that_the_environment_forbids_is_none(made, tmp_path):
    same([made["trainer"], 2, 8, "tf32"], tmp_path, NVIDIA_TF32_OVERRIDE="0")
    assert interposing.findings(tmp_path) == set()


@pytest.mark.parametrize("fault,status", [("exits", 3), ("killed", 128 + signal.SIGKILL)])
def test_calls_before_a_death_are_judged(made, tmp_path, fault, status):
    done = same([made["trainer"], 2, 8, fault], tmp_path)
    assert done.returncode == status and interposing.counts(done)["ncclAllReduce"] == 12, done.stderr
    assert interposing.findings(tmp_path) == set()


def test_a_lone_trainer_that_dies_is_reported(made, tmp_path):
    done = interposing.watched([made["trainer"], 1, 8, "killed"], tmp_path)
    assert done.returncode == -signal.SIGKILL and interposing.counts(done)["ncclAllReduce"] == 6
    assert "health/run-died" in {rule for rule, _ in interposing.findings(tmp_path)}


def hang(made, tmp_path, seconds):
    """Ends a job of three ranks, of which rank 1 stopped in step 5, after some seconds; returns its verdicts on hangs."""
    command = [interposing.PLUMB, "run", "--record", "rec", "--", str(made["trainer"]), "3", "100", "hangs:1:5"]
    with subprocess.Popen(command, cwd=tmp_path, env=interposing.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
        time.sleep(seconds)
        job.send_signal(signal.SIGTERM)
        _, stderr = job.communicate(timeout=60)
    assert job.returncode == -signal.SIGTERM, stderr
    assert "ncclAllReduce 17" in stderr, stderr
    return [v for v in interposing.report(tmp_path)["verdicts"] if v["rule"] == "performance/hang"]


def test_ranks_that_waited_shortly_are_no_hang(made, tmp_path):
    (one,) = hang(made, tmp_path, 3)
    assert one["verdict"] == "inconclusive" and one["reason"].startswith("on-demand: "), one


@pytest.mark.skipif(not os.environ.get("PLUMB_LONG"), reason="waits for half a minute")
def test_a_rank_that_hangs_is_named(made, tmp_path):
    (one,) = hang(made, tmp_path, 36)
    assert one["verdict"] == "finding" and one["site"]["ranks"] == [1], one
    assert ("performance/hang", "not-launched") in interposing.findings(tmp_path)


def coverage(tmp_path):
    return [one for one in interposing.report(tmp_path)["findings"] if one["rule"] == "meta/probe-coverage" and one["cause"]["id"] == "not-hooked"]


def test_programs_that_contain_the_libraries_are_reported(made, tmp_path):
    done = same([made["static_trainer"], 2, 4, "none"], tmp_path)
    assert "is linked statically" in done.stderr and interposing.counts(done) == {}
    assert {one["site"]["layer"] for one in coverage(tmp_path)} == {"NCCL in static_trainer", "cuBLAS in static_trainer"}
    (tmp_path / "inner").mkdir()
    done = same([made["inner_trainer"], 2, 4, "none"], tmp_path / "inner")
    assert {one["site"]["layer"] for one in coverage(tmp_path / "inner")} == {"NCCL in inner_trainer", "cuBLAS in inner_trainer"}
    assert all("linked statically" in one["fix"] for one in coverage(tmp_path / "inner"))


def test_calls_by_dlsym_are_not_seen_and_that_is_reported(made, tmp_path):
    done = same([made["user"], made["libnccl.so.2"]], tmp_path)
    assert done.stdout == "1\n" and interposing.counts(done) == {}
    (one,) = coverage(tmp_path)
    assert one["site"]["layer"] == "NCCL in user" and "dlsym" in one["fix"] and one["level"] == "note"


def test_programs_without_these_libraries_are_left_alone(tmp_path):
    done = same(["true"], tmp_path)
    assert len(by_plumb(done)) == 1 and "nothing was recorded" in done.stderr and not (tmp_path / "rec").exists()


def test_calls_of_the_real_libraries_are_decoded(tmp_path):
    """Without a GPU their descriptors work, and their products and sums return errors."""
    libraries = [path for path in os.environ.get("REAL_LIBRARIES", "").split(":") if os.path.exists(path)]
    if len(libraries) != 3:
        pytest.skip("no CUDA toolkit")
    program = interposing.compile_one(tmp_path, "real", ["real.cc"], *libraries, *(f"-Wl,-rpath,{os.path.dirname(path)}" for path in libraries))
    done = same([program], tmp_path)
    assert done.stdout.startswith("descriptor 0\n")
    assert interposing.counts(done) == {"ncclAllReduce": 1, "cublasGemmEx": 1, "cublasLtMatmul": 1, "kinds": 1}, done.stderr
    sites = {v["site"]["op"] for v in interposing.report(tmp_path)["verdicts"] if v["site"]["layer"] == "cuBLAS"}
    assert sites == {"cublasGemmEx f16 x f16 -> f16, 16F", "cublasLtMatmul e4m3 x e4m3 -> e4m3, 32F, fast accumulation"}


def test_the_library_exports_the_watched_functions_and_needs_libc_alone():
    lines = subprocess.run(["nm", "-D", interposing.LIBRARY], capture_output=True, text=True, check=True).stdout.splitlines()
    defined = {line.split()[2] for line in lines if " T " in line}
    header = (interposing.HERE.parents[2] / "base/call_table.h").read_text()
    watched = {name for name in re.findall(r"X\((\w+)\)", header) if not name.startswith("gloo_") and name != "symbol"}
    assert {name for name in defined if not name.startswith("_ZN4gloo")} == watched and len(defined) == len(watched) + 5
    needed = subprocess.run(["readelf", "-d", interposing.LIBRARY], capture_output=True, text=True, check=True).stdout
    assert re.findall(r"NEEDED.*\[(.*)\]", needed) == ["libc.so.6"]
    assert re.search(r"INIT_ARRAYSZ\) +8 ", needed)  # the compiler's own entry: there is no constructor


SCRIPT = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(10):
    x = torch.randn(32, 64)
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
print(torch.ones(4, 4, dtype=torch.float64).mm(torch.ones(4, 4, dtype=torch.float64)).sum().item())
"""


def test_an_untouched_script_of_pytorch(tmp_path):
    if interposing.plain(["/usr/bin/python3", "-c", "import torch"], tmp_path).returncode != 0:
        pytest.skip("no torch")
    (tmp_path / "train.py").write_text(SCRIPT)
    done = same(["/usr/bin/python3", "train.py"], tmp_path, OMP_NUM_THREADS=1)
    found = interposing.counts(done)
    # Per step: forward and the gradient of the weights of both layers, and the gradient of the second layer's input.
    assert found["sgemm_"] + found.get("sgemv_", 0) >= 40 and found["dgemm_"] == 1, done.stderr
    assert {one["rule"] for one in interposing.report(tmp_path)["findings"]} <= {"performance/launch-bound", "meta/probe-coverage"}
