// Tests the classification of profiler names, including names with a misleading resemblance.
#include <gtest/gtest.h>

#include "analysis/timeline/timeline.h"

namespace plumbline::timeline {
namespace {

TEST(Names, KernelsThatCommunicate) {
  for (const char* name :
       {"ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclKernel_SendRecv", "rcclGenericKernel", "void nvshmemi_put_kernel",
        "void deep_ep::intranode::dispatch<8>", "void ep::combine<4>", "multimem_all_reduce_kernel",
        "one_shot_all_reduce_kernel", "oneShotAllReduceKernel", "two-shot all-reduce",
        "vllm::cross_device_reduce_1stage<float>", "symm_mem_barrier", "all2all_kernel",
        "AllToAllV", "ReduceScatterRing", "_all_gather_base_kernel"})
    EXPECT_TRUE(IsCommunicationKernel(name)) << name;
  for (const char* name : {"void at::native::reduce_kernel<512>", "at::native::all_reduce_like",
                           "triton_red_allreduce_0", "sm90_gemm_bf16", "step::kernel",
                           "sweep::fill", "void cub::DeviceReduceKernel", "flash_fwd_kernel", ""})
    EXPECT_FALSE(IsCommunicationKernel(name)) << name;
}

TEST(Names, HostSpans) {
  const auto has = [](const char* name, uint8_t wanted) {
    return (ClassesOfHost(name) & wanted) != 0;
  };
  EXPECT_TRUE(has("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", kDataLoading));
  EXPECT_TRUE(has("train.py(44): get_batch", kDataLoading));
  EXPECT_FALSE(has("aten::data", kDataLoading));
  EXPECT_FALSE(has("Optimizer.step#AdamW.step", 0xff));
  EXPECT_TRUE(has("torch/serialization.py(421): save", kCheckpoint));
  EXPECT_TRUE(has("save_checkpoint", kCheckpoint));
  for (const char* name : {"torch/utils/checkpoint.py(447): forward", "CheckpointFunctionBackward",
                           "CheckpointFunction", "activation_checkpoint"})
    EXPECT_FALSE(has(name, kCheckpoint)) << name;
  EXPECT_TRUE(has("<built-in function collect>", kGarbageCollection));
  EXPECT_TRUE(has("Python GC", kGarbageCollection));
  EXPECT_FALSE(has("gcd_kernel", kGarbageCollection));
  EXPECT_TRUE(has("torch/_inductor/compile_fx.py(81): compile_fx", kCompilation));
  for (const char* name : {"Torch-Compiled Region: 0/0", "CompiledFxGraph.__call__",
                           "torch/_dynamo/eval_frame.py(11): _fn", "torch/_compile.py(31): inner"})
    EXPECT_FALSE(has(name, kCompilation)) << name;
  // The location of a project has no meaning; library paths have.
  EXPECT_FALSE(has("/home/me/checkpoint_runs/train.py(3): step", kCheckpoint));
  EXPECT_FALSE(has("/data/dataloader/gc/train.py(3): step", 0xff));
  EXPECT_TRUE(has("/usr/lib/python3/dist-packages/torch/utils/data/dataloader.py(9): __next__",
                  kDataLoading));
  EXPECT_TRUE(has("/x/site-packages/torch/serialization.py(9): save", kCheckpoint));
  EXPECT_FALSE(has("/x/site-packages/torch/utils/checkpoint.py(9): forward", kCheckpoint));
  EXPECT_TRUE(has("nccl:all_reduce", kCommunication));
  EXPECT_TRUE(has("record_param_comms", kCommunication));
  for (const char* name : {"cudaStreamSynchronize", "cudaDeviceSynchronize", "aten::item",
                           "aten::_local_scalar_dense", "cudaMemcpy", "hipMemcpyWithStream"})
    EXPECT_TRUE(has(name, kSynchronisation)) << name;
  for (const char* name : {"cudaMemcpyAsync", "cudaLaunchKernel", "aten::copy_"})
    EXPECT_FALSE(has(name, kSynchronisation)) << name;
}

TEST(Names, WhatOnlyTrainingDoes) {
  for (const char* name :
       {"autograd::engine::evaluate_function: AddmmBackward0", "Optimizer.step#AdamW.step",
        "void at::native::multi_tensor_apply_kernel<>", "flash_bwd_kernel", "fused_adam",
        "/home/me/train.py(9): backward", "layer_norm_backward_kernel", "cutlass_wgrad"})
    EXPECT_TRUE(StatesTraining(name)) << name;
  for (const char* name : {"flash_fwd_kernel", "scheduler.py(612): get_next_batch_to_run",
                           "/backward/serve.py(3): step", "aten::mm", "madame", ""})
    EXPECT_FALSE(StatesTraining(name)) << name;
}

TEST(Names, StepMarks) {
  int64_t step = -1;
  EXPECT_TRUE(StepMark("ProfilerStep#12", &step));
  EXPECT_EQ(step, 12);
  for (const char* name : {"ProfilerStep#", "ProfilerStep#1a", "ProfilerStep*", "step 3"})
    EXPECT_FALSE(StepMark(name, &step)) << name;
}

}  // namespace
}  // namespace plumbline::timeline
