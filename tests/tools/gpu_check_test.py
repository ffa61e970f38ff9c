"""Tests tools/gpu_check without a GPU: how it judges figures and failing programs, and its bundle, built, moved and run
as far as possible without a GPU."""

import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["PLUMBLINE_BUILD_DIR"])
sys.path.insert(0, str(ROOT / "bench" / "gpu"))

import parts  # noqa: E402
import report  # noqa: E402

COPY = "Copy/268435456/manual_time"  # reads and writes the bytes that STATS reads
STATS = "Stats/bf16/268435456/manual_time"


def gpu_check(*arguments):
    return subprocess.run([ROOT / "tools" / "gpu_check", *map(str, arguments)], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)


def number(text):
    """Parses C++: "5" or "1 << 28"."""
    value, _, shift = text.partition("<<")
    return int(value) << int(shift or 0)


def named(figures, text):
    return next(f for f in figures if text in f.name)


def rows(**rates):
    return {name: {"bytes_per_second": rate, "nanoseconds": 1e12 / rate}
            for name, rate in rates.items()}


class Figures(unittest.TestCase):
    def share(self, stats, copy=1000.0):
        part = rows(**{STATS: stats, COPY: copy})
        return named(report.speed_figures(part), "statistics of bf16, share")

    def test_a_share_is_held_to_its_limit(self):
        self.assertTrue(self.share(850.0).met)
        self.assertIs(self.share(849.0).met, False)
        self.assertIn("missed", self.share(849.0).row())
        self.assertIs(self.share(float("nan")).met, False)

    def test_what_is_not_there_is_not_met(self):
        part = rows(**{COPY: 1.0})
        figure = named(report.speed_figures(part), "statistics of bf16, share")
        self.assertIsNone(figure.met)
        self.assertIn(STATS, figure.row())
        for part in ({"skipped": "no CUDA GPU: none"}, {"failed": "exit status 1"}, None):
            for figure in report.speed_figures(part):
                self.assertIsNone(figure.met)
                self.assertIn("not measured: ", figure.row())

    def test_the_step_is_judged_by_median_and_by_all_time(self):
        def step(with_probes, late=0.0, pairs=20, lost=0):
            blocks = []
            for i in range(pairs):
                slow = with_probes + (late if i == 0 else 0)
                blocks += [{"probes": True, "milliseconds": [slow] * 5},
                           {"probes": False, "milliseconds": [10.0] * 5}]
            return report.step_figure({"blocks": blocks, "taken": 9, "lost": lost})
        self.assertTrue(step(10.04).met)
        self.assertIs(step(10.06).met, False)
        self.assertIs(step(10.0, late=2.0).met, False)  # one block alone has all of it
        self.assertIsNone(step(10.0, pairs=9).met)
        self.assertIsNone(step(10.0, lost=1).met)  # lost calls cost nothing

    def test_kernels_are_held_against_a_copy_of_as_many_bytes(self):
        part = rows(**{STATS: 900.0, COPY: 1000.0, "Copy/536870912/manual_time": 2000.0})
        self.assertIn("90.0%", named(report.speed_figures(part), "statistics of bf16, share").row())

    def test_a_copy_of_as_many_bytes_is_measured_for_each(self):
        """Every figure's copy is among the benchmarks, and moves the bytes that the kernel reads."""
        source = (ROOT / "bench" / "gpu" / "stats_bench.cu").read_text()
        block = source[source.index("BENCHMARK(Copy)"):source.index("BENCHMARK(ReadOnce)")]
        moved = {2 * number(n) for n in re.findall(r"->Arg\(([\d <]+)\)", block)}  # reads and writes
        reads = {size * report.LARGE for size in (4, 2, 1)}
        reads |= {report.OF_MANY, 2 * report.PAIR, 4 * report.PAIR}
        self.assertLessEqual(reads, moved)
        for figure in report.speed_figures({}):
            self.assertIsNone(figure.met)
        # The sizes of StatsOfMany and of pairs are those of the benchmarks.
        layer = [4096, 4096, 4096 * 4096, 4096 * 4096, 1024 * 4096, 3 * 4096]
        self.assertEqual(report.OF_MANY, 2 * 8 * sum(layer))
        self.assertEqual(report.PAIR, 2 * 1024 * 151936)
        self.assertEqual(sorted(moved & {2 << 20, 1 << 29, 1 << 30}), sorted(
            number(n) for n in re.findall(r"->Arg\(([\d <]+)\)", source.split("BENCHMARK(ReadOnce)")[1]
                                        .split(";")[0])))  # reads as many bytes

    def test_the_hosts_time_is_of_neighbours(self):
        def besides(middle, pairs=60.0):
            return report.host_figure({"Besides/sampled:0/manual_time": {
                "nanoseconds": 5000.0, "bytes_per_second": None, "besides_ns": middle,
                "besides_low_ns": middle - 50, "besides_high_ns": middle + 50,
                "besides_pairs": pairs}})
        self.assertTrue(besides(900.0).met)
        self.assertIn("0.90 µs [0.85, 0.95] of 5.00", besides(900.0).row())
        self.assertIs(besides(1001.0).met, False)
        self.assertIsNone(besides(900.0, pairs=19.0).met)
        self.assertIsNone(report.host_figure({"Observe/sampled:0/manual_time": {}}).met)
        self.assertIsNone(report.host_figure({"skipped": "no CUDA GPU"}).met)

    def test_pytorch_is_the_peer(self):
        pair = "Pair/bf16/1024/151936/manual_time"
        speed = {pair: {"nanoseconds": 100.0}}
        def against(nanoseconds):
            peers = {"torch": "2", "peers": {pair: {"nanoseconds": nanoseconds,
                                                    "operations": {"a": 1.0, "b": 2.0}}}}
            return named(report.peer_figures(speed, peers), "logit pair of bf16")
        self.assertTrue(against(800.0).met)
        self.assertIs(against(790.0).met, False)
        self.assertIn("8.0 × of 2 of PyTorch 2", against(800.0).row())
        for peers in ({"skipped": "no module"}, None):
            for figure in report.peer_figures(speed, peers):
                self.assertIsNone(figure.met)
        self.assertIsNone(named(report.peer_figures(speed, {"torch": "2", "peers": {}}),
                                "statistics of f32").met)

    def test_bytes_read_twice_are_seen(self):
        def routing(mebibytes):
            return report.routing_figure({"Routing/bf16/1048576/128/manual_time": {
                "dram__bytes_read.sum": [str(mebibytes * 1.048576), "Mbyte"]}})
        self.assertTrue(routing(288).met)
        self.assertIs(routing(576).met, False)
        self.assertIsNone(report.routing_figure({"skipped": "ncu: not found"}).met)

    def test_a_sanitizer_that_did_not_end_proves_nothing(self):
        found = report.sanitizer_figures({
            "memcheck a": {"summary": "0 errors"},
            "memcheck b": {"summary": "3 errors", "failed": "exit status 1"},
            "racecheck a": {"summary": "0 hazards displayed (0 errors, 0 warnings)"},
            "racecheck b": {"summary": "", "failed": "not to the end in its time"},
            "initcheck a": {"summary": "", "skipped": "No such file"}})
        self.assertEqual([f.met for f in found], [True, False, True, None, None])

    def test_a_test_that_ran_no_case_did_not_pass(self):
        found = report.test_figures({"a": {"passed": 3}, "b": {"passed": 0},
                                     "c": {"passed": 2, "failed": "exit status 1"},
                                     "d": {"passed": 0, "skipped": "no CUDA GPU"}})
        self.assertEqual([f.met for f in found], [True, False, False, None])

    def test_products_that_were_not_requested_describe_why(self):
        requested = {"name": "a", "outcome": "asked", "verdict": "verified", "order": "left fold",
                 "arithmetic": "f32 adds", "evidence": "", "matches": 250, "samples": 250}
        page = report.markdown({"products": {"products": [
            requested, {"name": "b", "outcome": "refused", "why": "CUBLAS_STATUS_NOT_SUPPORTED"}]},
            "audits": {"a": "contract pass: held"}})
        self.assertIn("| `a` | verified | left fold | f32 adds | 250/250 | contract pass: held |",
                      page)
        self.assertIn("| `b` | refused: CUBLAS_STATUS_NOT_SUPPORTED |", page)

    def test_a_trainer_is_judged_by_its_losses_and_by_what_is_found(self):
        part = {"torch": "2", "dropless": {"steps": 60, "same_losses": True},
                "score-drop": {"steps": 60, "same_losses": False}}
        def met(audits):
            return [f.met for f in report.trainer_figures(part, audits)]
        self.assertEqual(met({}), [True, None, False, None])
        leak = ["causality/moe-future-leak"]
        self.assertEqual(met({"dropless": [], "score-drop": leak}), [True, True, False, True])
        self.assertEqual(met({"dropless": leak, "score-drop": []}), [True, False, False, False])


class Programs(unittest.TestCase):
    """A bundle with shell scripts instead of the programs."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.folder / "bundle" / "bin").mkdir(parents=True)

    def enterContext(self, context):  # unittest has it since Python 3.11
        value = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return value

    def program(self, name, script):
        path = self.folder / "bundle" / "bin" / name
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def tool_of_the_machine(self, name, script):
        """Replaces a tool of the machine."""
        folder = self.folder / "tools"
        folder.mkdir(exist_ok=True)
        path = folder / name
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        before = os.environ["PATH"]
        self.addCleanup(os.environ.__setitem__, "PATH", before)
        os.environ["PATH"] = f"{folder}:{before}"

    def run_parts(self, *only, minutes=1.0):
        out = self.folder / "out"
        done = gpu_check("run", "--bundle", self.folder / "bundle", "--out", out, "--minutes",
                         minutes, "--only", *only)
        return done, json.loads((out / "gpu.json").read_text()), (out / "gpu.md").read_text()

    def test_figures_of_benchmarks_reach_the_page(self):
        result = {"benchmarks": [
            {"run_name": name, "name": name + "_median", "aggregate_name": "median",
             "real_time": 2.0, "time_unit": "us", "bytes_per_second": rate}
            for name, rate in ((COPY, 1e12), (STATS, 0.9e12))]}
        self.program("gpu_kernels", "for a; do case $a in --benchmark_out=*) "
                     f"echo '{json.dumps(result)}' > ${{a#--benchmark_out=}};; esac; done\n")
        done, results, page = self.run_parts("speed")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(results["speed"][STATS]["nanoseconds"], 2000)
        self.assertIn("| statistics of bf16, share of the device copy | 900 GB/s, 90.0% | ≥ 85 % "
                      "| met |", page)

    def test_products_reach_the_page_though_the_program_breaks_later(self):
        whole = {"schema": "plumbline.gpu_gemm/1", "asked": 1, "products": [
            {"name": "a", "outcome": "asked", "verdict": "verified", "order": "left fold",
             "arithmetic": "f32 adds", "evidence": "", "matches": 250, "samples": 250}]}
        self.program("gpu_gemm", f"echo '{json.dumps(whole)}' > $2/gemm.json; exit 1\n")
        done, results, page = self.run_parts("products")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("products: exit status 1", done.stdout)
        self.assertIn("| `a` | verified | left fold |", page)
        self.assertEqual(results["products"]["asked"], 1)

    def test_what_one_part_cannot_read_costs_the_others_nothing(self):
        self.program("gpu_step", "echo no object\n")
        self.program("gpu_gemm", "echo '{\"products\": []}' > $2/gemm.json\n")
        done, results, _ = self.run_parts("step", "products")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("ValueError", results["step"]["failed"])
        self.assertEqual(results["products"], {"products": []})

    def test_parts_of_several_calls_make_one_report(self):
        self.program("gpu_step", "echo no object\n")
        self.program("gpu_gemm", "echo '{\"products\": []}' > $2/gemm.json\n")
        self.run_parts("products")
        _, results, page = self.run_parts("step")
        self.assertEqual(results["products"], {"products": []})
        self.assertIn("ValueError", results["step"]["failed"])
        self.assertIn("## Products of cuBLASLt", page)
        names = sorted(p.name for p in (self.folder / "out").iterdir())
        self.assertEqual(names, ["data.products.tar.gz", "data.step.tar.gz", "gpu.json", "gpu.md",
                                 "logs.products.tar.gz", "logs.step.tar.gz"])

    def test_each_part_leaves_all_that_there_is(self):
        self.program("gpu_step", "echo no object\n")
        self.program("gpu_gemm", "echo '{\"products\": []}' > $2/gemm.json\n")
        kept = []
        out = self.folder / "out"
        out.mkdir()
        bench = parts.Bench(self.folder / "bundle", out, 60)
        self.addCleanup(bench.close)
        parts.run_all(bench, ["step", "products"], lambda found: kept.append(dict(found)),
                      report=lambda text: None)
        self.assertEqual([sorted(k) for k in kept], [["step"], ["products", "step"]])

    def test_clocks_are_noted_before_and_after(self):
        self.tool_of_the_machine("nvidia-smi", "echo '1980 MHz, 2619 MHz, 40, 300 W'\n")
        self.program("gpu_step", "echo no object\n")
        _, results, page = self.run_parts("step")
        self.assertEqual(results["clocks"]["step"]["before"]["clocks.sm"], "1980 MHz")
        self.assertEqual(results["clocks"]["step"]["after"]["clocks.mem"], "2619 MHz")
        self.assertIn("| step | before | clocks.sm 1980 MHz", page)

    def test_a_metric_that_the_profiler_does_not_know_costs_no_other(self):
        unknown = "smsp__inst_executed_pipe_xu.sum"
        self.tool_of_the_machine("ncu", f"""case "$*" in *{unknown}*)
            echo "==ERROR== Failed to find metric {unknown}"; exit 1;; esac
            echo '"ID","Metric Name","Metric Unit","Metric Value"'
            echo '"0","gpu__time_duration.sum","usecond","12"'\n""")
        _, results, page = self.run_parts("profile")
        self.assertEqual(results["profile"]["unknown"], {"metrics": [unknown]})
        for _, benchmark in parts.PROFILED:
            self.assertEqual(results["profile"][benchmark],
                             {"gpu__time_duration.sum": ["12", "usecond"]})
        self.assertIn(f"Not known to this profiler: `{unknown}`.", page)

    def test_a_profiler_that_may_not_is_skipped_with_its_words(self):
        words = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission"
        self.tool_of_the_machine("ncu", f"echo '{words}'; exit 1\n")
        _, results, page = self.run_parts("profile")
        for _, benchmark in parts.PROFILED:
            self.assertEqual(results["profile"][benchmark], {"skipped": words})
        self.assertIn("ERR_NVGPUCTRPERM", page)

    def test_a_sanitizer_that_refuses_is_skipped_with_its_words(self):
        words = "========= Error: Device not supported. Please refer to the documentation"
        self.tool_of_the_machine("nvidia-smi", "echo 'H200, 580.1, 1 MiB, 1 MHz, 1 MHz, 1 MHz, 1 MHz, 1 W, 1 W, 40'\n")
        self.tool_of_the_machine("compute-sanitizer", f"echo '{words}'; exit 1\n")
        done, results, _ = self.run_parts("sanitizers")
        for found in results["sanitizers"].values():
            self.assertEqual(found["skipped"], words)
        self.assertNotEqual(done.returncode, 1, done.stdout)

    def test_the_bundles_sanitizer_is_used_where_the_machine_has_none(self):
        self.assertEqual(parts.tool("a-tool-that-no-machine-has"), "a-tool-that-no-machine-has")
        carried = self.folder / "bundle" / parts.SANITIZER / "compute-sanitizer"
        self.tool_of_the_machine("nvidia-smi", "echo 'H200, 580.1, 1 MiB, 1 MHz, 1 MHz, 1 MHz, 1 MHz, 1 W, 1 W, 40'\n")
        if shutil.which("compute-sanitizer"):
            self.skipTest("the machine has its own")
        carried.parent.mkdir()
        carried.write_text("#!/bin/sh\necho '========= ERROR SUMMARY: 0 errors'\n")
        carried.chmod(0o755)
        _, results, _ = self.run_parts("sanitizers")
        self.assertEqual({f["summary"] for f in results["sanitizers"].values()}, {"0 errors"})

    def test_without_a_gpu_no_sanitizer_runs(self):
        if shutil.which("nvidia-smi"):
            self.skipTest("there is a GPU")
        self.tool_of_the_machine("compute-sanitizer", "exit 139\n")
        done, results, _ = self.run_parts("sanitizers")
        self.assertIn("nvidia-smi", results["sanitizers"]["skipped"])
        self.assertEqual(done.returncode, 77, done.stdout)

    def test_a_machine_without_pytorch_has_no_peers_and_states_so(self):
        (self.folder / "torch.py").write_text("raise ImportError('no PyTorch here')\n")
        before = os.environ.get("PYTHONPATH", "")
        self.addCleanup(os.environ.__setitem__, "PYTHONPATH", before)
        os.environ["PYTHONPATH"] = str(self.folder)
        _, results, page = self.run_parts("peers")
        self.assertEqual(results["peers"], {"skipped": "no PyTorch here"})
        self.assertIn("| logit pair of bf16 against PyTorch |  | ≥ 8 × | not measured:", page)

    def test_a_step_next_to_copies_is_its_own_part(self):
        found = {"blocks": [], "taken": 1, "lost": 0}
        self.program("gpu_step", f"""case "$*" in "--copies 1") echo '{json.dumps(found)}';;
            *) exit 3;; esac\n""")
        _, results, page = self.run_parts("step_copies")
        self.assertEqual(results["step_copies"], found)
        self.assertIn("during copies of 256 MB in both directions", page)

    def test_what_breaks_is_stated_and_no_success(self):
        self.program("gpu_step", "echo about to break; exit 3\n")
        done, results, page = self.run_parts("step")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("step: exit status 3", done.stdout)
        self.assertIn("about to break", results["step"]["tail"])
        self.assertIn("not measured: failed: exit status 3", page)

    def test_what_hangs_is_ended_and_the_rest_is_named(self):
        self.program("gpu_kernels", "echo started; sleep 600; echo over\n")
        done, results, _ = self.run_parts("speed", "host", minutes=0.05)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("not to the end", results["speed"]["failed"])
        self.assertEqual(results["speed"]["tail"], "started\n")
        self.assertEqual(results["host"], {"skipped": "no time was left"})

    def test_mistakes_are_named(self):
        done = gpu_check("run", "--bundle", self.folder / "nothing", "--out", self.folder)
        self.assertEqual(done.returncode, 2)
        self.assertIn("run tools/gpu_check bundle first", done.stdout)
        done = gpu_check("run", "--bundle", self.folder / "bundle", "--out", self.folder, "--only",
                         "spead")
        self.assertEqual(done.returncode, 2)
        self.assertIn("expected device, tests, first, speed", done.stdout)
        done = gpu_check("report", self.folder)
        self.assertEqual(done.returncode, 2)
        self.assertIn("gpu.json", done.stdout)


@unittest.skipUnless((BUILD / "bin" / "gpu_kernels").exists(), "built without the CUDA toolkit")
@unittest.skipIf(shutil.which("nvidia-smi"), "there is a GPU: run tools/gpu_check itself")
class DryRun(unittest.TestCase):
    def test_the_bundle_runs_elsewhere_and_claims_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            packed = folder / "made" / "carried.tar.xz"  # in a folder that does not exist yet
            done = gpu_check("bundle", "--no-build", "--build", BUILD, "--bundle", packed)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertLessEqual(packed.stat().st_size, 50 << 20)
            done = gpu_check("run", "--bundle", packed, "--out", folder / "out")
            self.assertEqual(done.returncode, 77, done.stdout)
            results = json.loads((folder / "out" / "gpu.json").read_text())
            self.assertEqual(set(results), {p.__name__ for p in parts.PARTS})
            for name in parts.TESTS:  # each program was started, with the files next to it
                self.assertIn("no CUDA GPU", results["tests"][name]["skipped"])
            for part in ("first", "speed", "host", "step", "step_graph", "step_copies", "products"):
                self.assertIn("no CUDA GPU", results[part]["skipped"])
            for _, group in report.figures(results):
                for figure in group:
                    self.assertIsNone(figure.met, figure.row())
            with tarfile.open(folder / "out" / "logs.tar.gz") as logs:
                self.assertIn("logs/gpu_kernels.txt", logs.getnames())
            self.assertIn("skipped", results["trainer"])
            self.start_the_sanitizer(packed, folder / "unpacked")
            self.watch_a_trainer(packed, folder)
            page = folder / "page.md"
            done = gpu_check("report", folder / "out", "--build", BUILD, "--write", page)
            self.assertEqual(done.returncode, 77, done.stdout)
            self.assertIn("## Not there yet", page.read_text())

    def start_the_sanitizer(self, packed, folder):
        """Runs compute-sanitizer of the bundle, with the helper that starts programs for it."""
        with tarfile.open(packed) as archive:
            archive.extractall(folder)
        found = folder / "gpu_check" / parts.SANITIZER
        if not found.exists():
            return  # this build's toolkit has none, as tools/gpu_check bundle printed
        done = subprocess.run([found / "compute-sanitizer", "--version"], capture_output=True, text=True, check=True)
        self.assertIn("NVIDIA (R) Compute Sanitizer", done.stdout)
        self.assertTrue(os.access(found / "TreeLauncherSubreaper", os.X_OK))

    def watch_a_trainer(self, packed, folder):
        """Runs the example on the CPU with the bundled agent."""
        with tarfile.open(packed) as archive:
            archive.extractall(folder)
        if subprocess.run(["/usr/bin/python3", "-c", "import torch"], check=False,
                          stderr=subprocess.DEVNULL).returncode != 0:
            return
        environment = {**os.environ, **parts.guest(folder / "gpu_check")}
        subprocess.run(["/usr/bin/python3", parts.EXAMPLE, "--steps", "2", "--quiet", "--text",
                        parts.TEXT, "--record", folder / "record"], env=environment, check=True)
        done = subprocess.run([BUILD / "bin" / "plumb", "audit", "--quiet", "--format", "json",
                               folder / "record"], stdout=subprocess.PIPE, check=False)
        rules = {v["rule"] for v in json.loads(done.stdout)["verdicts"]}
        self.assertIn("causality/moe-future-leak", rules)


if __name__ == "__main__":
    unittest.main()
