#!/usr/bin/env python3
"""Writes a trace in the form of the PyTorch profiler, of about the given number of bytes.

    bench/audit/trace.py 1e9 /tmp/trace.json

Per kernel: an operator, a launch, the arrows between them, a kernel with its arguments, over several lines each: about
290 bytes per event. One kernel of 61 communicates; the host runs ahead.
"""
import random
import sys

HEAD = """{
  "schemaVersion": 1,
  "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 84943110144}],
  "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8, "pg_count": 1},
  "displayTimeUnit": "ms",
  "traceEvents": [
"""
EVENTS = """  {
    "ph": "X", "cat": "cpu_op", "name": "aten::mul", "pid": 4242, "tid": 4242,
    "ts": %(start).3f, "dur": 12.345,
    "args": {
      "External id": %(n)d, "Record function id": 0, "Sequence number": %(n)d, "Fwd thread id": 0, "Input Dims": [[4096, 4096], [4096, 4096]], "Input type": ["c10::BFloat16", "c10::BFloat16"], "Ev Idx": %(n)d
    }
  },
  {
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 4242, "tid": 4242,
    "ts": %(launch).3f, "dur": 4.501,
    "args": {
      "External id": %(n)d, "cbid": 211, "correlation": %(n)d
    }
  },
  {
    "ph": "s", "id": %(n)d, "pid": 4242, "tid": 4242, "ts": %(launch).3f,
    "cat": "ac2g", "name": "ac2g"
  },
  {
    "ph": "X", "cat": "kernel", "name": "%(kernel)s", "pid": 0, "tid": %(stream)d,
    "ts": %(gpu).3f, "dur": 14.210,
    "args": {
      "External id": %(n)d, "queued": 0, "device": 0, "context": 1, "stream": %(stream)d, "correlation": %(n)d, "registers per thread": 32, "shared memory": 0, "blocks per SM": 31.030303, "warps per SM": 124.121212, "grid": [4096, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %%": 100
    }
  },
  {
    "ph": "f", "id": %(n)d, "pid": 0, "tid": %(stream)d, "ts": %(gpu).3f,
    "cat": "ac2g", "name": "ac2g", "bp": "e"
  }"""
TEMPLATE = ("void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, "
            "at::native::binary_internal::MulFunctor<float> >, at::detail::Array<char*, 3> >(int, at::native::BinaryFunctor<c10::BFloat16>)")
KERNELS = ([TEMPLATE + str(i) for i in range(40)]
           + [f"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_kernel__5x_cublas{i}" for i in range(20)]
           + ["ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"])


def main():
    size, path = int(float(sys.argv[1])), sys.argv[2]
    draw = random.Random(1)
    start = 4738473847.123
    with open(path, "w") as out:
        written = out.write(HEAD)
        n = 0
        while written < size:
            n += 1
            kernel = draw.choice(KERNELS)
            written += out.write((",\n" if n > 1 else "") + EVENTS % {
                "n": n, "kernel": kernel, "stream": 20 if kernel.startswith("nccl") else 7,
                "start": start, "launch": start + 3, "gpu": start + 20})
            start += 15
        out.write('\n  ],\n  "traceName": "trace.json"\n}\n')


main()
