#!/usr/bin/env python3
"""Tests how tools/kernel_budget counts machine code: kernels with known loops are counted, and the real ones are
compared with their limits."""
import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TOOL = ROOT / "tools" / "kernel_budget"
BUILD = pathlib.Path(os.environ["PLUMBLINE_BUILD_DIR"])
NVCC = os.environ["PLUMBLINE_NVCC"]
sys.path.insert(0, str(ROOT / "tools" / "budget"))

import built  # noqa: E402
import cubin  # noqa: E402
import disassembly  # noqa: E402
import limits  # noqa: E402
import loops  # noqa: E402
import machines  # noqa: E402
import opcodes  # noqa: E402
import report  # noqa: E402

KNOWN = """
extern "C" __global__ void __launch_bounds__(192) add(const float4* p, float* out, int n) {
  float s = 0;
  #pragma unroll 1
  for (int i = threadIdx.x; i < n; i += 192) {
    const float4 v = p[i];
    s += v.x; s += v.y; s += v.z; s += v.w;
  }
  out[threadIdx.x] = s;
}
extern "C" __global__ void __launch_bounds__(128) ahead(const float4* p, float* out, int n) {
  float s = 0;
  #pragma unroll 1
  for (int i = threadIdx.x; i < n; i += 512) {
    const float4 a = p[i], b = p[i + 128], c = p[i + 256], d = p[i + 384];
    s += a.x + b.x + c.x + d.x + a.y + b.y + c.y + d.y;
    s *= a.z + b.z + c.z + d.z + a.w + b.w + c.w + d.w;
  }
  out[threadIdx.x] = s;
}
extern "C" __global__ void rare(const float4* p, double* out, int n) {
  double s = 0;
  #pragma unroll 1
  for (int i = threadIdx.x; i < n; i += 128) {
    const float4 v = p[i];
    if (v.x > 3) {
      #pragma unroll 1
      for (int k = 0; k < n; ++k) s = s * 3 + v.y + out[k];
    }
    s += v.x + v.z + v.w;
  }
  out[threadIdx.x] = s;
}
extern "C" __global__ void spilled(const float* p, float* out, int n) {
  float kept[64];
  for (int i = 0; i < 64; ++i) kept[i] = p[i];
  for (int i = 0; i < n; ++i) kept[i & 63] += p[i];
  for (int i = 0; i < 64; ++i) out[i] = kept[i];
}
"""


def compiled(folder, text, name, architecture=90):
    source, to = folder / f"{name}.cu", folder / f"{name}.cubin"
    source.write_text(text)
    subprocess.run([NVCC, f"-arch=sm_{architecture}", "-cubin", "-o", str(to), str(source)],
                   check=True)
    return {kernel.name: kernel for kernel in cubin.read(to)}


class KnownKernels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = tempfile.TemporaryDirectory()
        cls.kernels = compiled(pathlib.Path(cls.work.name), KNOWN, "known")

    @classmethod
    def tearDownClass(cls):
        cls.work.cleanup()

    def way(self, name, load_bytes, needs=()):
        found = [loop.way(load_bytes, needs) for loop in loops.loops(self.kernels[name])]
        return min((way for way in found if way), key=len)

    def pipes(self, way):
        names = [opcodes.OPERATIONS[i.operation] for i in way]
        return {pipe: sum(p == pipe for _, p in names) for pipe in opcodes.PIPES}

    def test_a_loop_is_counted_by_pipe(self):
        way = self.way("add", 16)
        self.assertEqual(self.pipes(way)["fp32"], 4)
        self.assertEqual(self.pipes(way)["memory"], 1)
        self.assertEqual(self.pipes(way)["unknown"], 0)
        self.assertLess(len(way), 16)  # includes the instructions that count and branch

    def test_bytes_under_way_are_those_of_loads_before_their_first_use(self):
        self.assertEqual(loops.under_way(self.way("add", 16)), 16)
        self.assertEqual(loops.under_way(self.way("ahead", 64)), 64)

    def test_a_rare_case_is_passed_by_unless_it_is_requested(self):
        self.assertEqual(self.pipes(self.way("rare", 16))["fp64"], 1)
        double = {n for n, (name, _) in opcodes.OPERATIONS.items() if name in ("DFMA", "DMUL")}
        self.assertGreaterEqual(self.pipes(self.way("rare", 16, [(double, 1)]))["fp64"], 3)

    def test_what_a_thread_keeps_in_memory_is_seen(self):
        self.assertGreaterEqual(self.kernels["spilled"].spills, 64)
        self.assertEqual(self.kernels["add"].spills, 0)

    def test_warps_by_threads_and_registers(self):
        kernel = self.kernels["add"]
        self.assertEqual(kernel.threads, 192)
        self.assertEqual(machines.resident_warps(kernel, machines.MACHINES[0]), 60)  # 10 blocks of 6
        many = cubin.Kernel("x", 90, [], [], 129, 128, 0)  # 4,352 registers per warp
        self.assertEqual(machines.resident_warps(many, machines.MACHINES[0]), 12)

    def test_the_share_of_a_copy(self):
        h200 = machines.MACHINES[0]
        share, bound = machines.reach(h200, {"fp32": 16.9}, 2)
        self.assertEqual(bound, "fp32")
        self.assertAlmostEqual(share, .85, delta=.01)
        share, bound = machines.reach(h200, {"fp32": 1, "alu": 8.45}, 2)
        self.assertEqual(bound, "alu")
        self.assertAlmostEqual(share, .85, delta=.01)


class RealKernels(unittest.TestCase):
    """The machine code in the objects of libplumbline_cuda.so."""

    @classmethod
    def setUpClass(cls):
        cls.work = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.work.name)
        for source in sorted({row.source for row in limits.ROWS}):
            built.extract(BUILD, source, limits.ARCHITECTURES, cls.folder)

    @classmethod
    def tearDownClass(cls):
        cls.work.cleanup()

    def call(self, *options):
        return subprocess.run([str(TOOL), "--cubins", str(self.folder), *options], capture_output=True,
                              text=True, check=False)

    def test_every_loop_is_within_its_limits(self):
        done = self.call()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for row in limits.ROWS:
            for architecture in limits.ARCHITECTURES:
                self.assertIn(f"| {row.name} | sm_{architecture} |", done.stdout)

    @unittest.skipUnless(built.program("nvdisasm"), "no nvdisasm next to nvcc")
    def test_nvdisasm_reads_the_same(self):
        every = os.environ.get("PLUMB_LONG") == "1"  # four seconds of CPU per architecture
        done = self.call("--disassemble", *([] if every else ["--only", "90"]))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        compared, branches = map(int, re.match(r"(\d+) instructions, (\d+) branch targets: 0 differ", done.stdout).groups())
        self.assertGreater(compared, 50000)
        self.assertGreater(branches, 4000)

    @unittest.skipUnless(built.program("nvdisasm"), "no nvdisasm next to nvcc")
    def test_what_nvdisasm_reads_otherwise_is_stated(self):
        path = self.folder / "stats_90.cubin"
        kernel = max(cubin.read(path), key=lambda kernel: len(kernel.instructions))
        lines = disassembly.read(built.program("nvdisasm"), path)[kernel.name]
        branch = next(i for i in kernel.instructions if lines[i.at].target is not None)
        lines[branch.at].target += 16
        lines[kernel.instructions[0].at].name = "FADD"
        lines[kernel.instructions[1].at].guarded ^= True
        stated = "\n".join(disassembly.differences(kernel, lines))
        self.assertIn("nvdisasm has FADD", stated)
        self.assertIn("has a guard", stated)
        self.assertIn(f"{branch.at:#x}: a branch to {branch.target:#x}", stated)

    def test_what_exceeds_its_limit_is_stated(self):
        row = limits.ROWS[0]
        kernels = cubin.read(self.folder / f"{pathlib.Path(row.source).stem}_90.cubin")
        self.assertEqual(report.errors(report.measure(row, kernels)), [])
        tight = dataclasses.replace(row, most=(1, 1, 1), registers=8)
        errors = "\n".join(report.errors(report.measure(tight, kernels)))
        self.assertIn("expected at most 1", errors)
        self.assertIn("registers, expected at most 8", errors)
        with self.assertRaisesRegex(LookupError, "no loop of"):
            report.measure(dataclasses.replace(row, function="NoSuchFunction"), kernels)


class Numbers(unittest.TestCase):
    def test_operations_have_the_numbers_that_probes_find(self):
        done = subprocess.run([str(TOOL), "--probe", "--only", "90"], capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
