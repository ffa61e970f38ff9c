// Queries to a GPU's driver, with a library that replaces it. A run reports the results with its
// blocks.
#include "agent/core/devices/gpu_health.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "tests/agent/core/support.h"
#include "tests/support/eventually.h"

namespace plumbline::agent {
namespace {

class NvmlTest : public ::testing::Test {
 protected:
  NvmlTest() {
    void* library = dlopen(FAKE_NVML, RTLD_NOW | RTLD_LOCAL);
    set_ = reinterpret_cast<decltype(set_)>(dlsym(library, "fake_nvml_set"));
    inits_ = reinterpret_cast<decltype(inits_)>(dlsym(library, "fake_nvml_inits"));
    looks_ = reinterpret_cast<decltype(looks_)>(dlsym(library, "fake_nvml_looks"));
    for (const char* name : {"CUDA_VISIBLE_DEVICES", "LOCAL_RANK"}) unsetenv(name);
    for (const int gpu : {0, 1}) set_(gpu, 0, 0, 0);
  }
  ~NvmlTest() override {
    for (const char* name : {"CUDA_VISIBLE_DEVICES", "LOCAL_RANK", "PLUMBLINE_NVML_LIBRARY"})
      unsetenv(name);
  }

  // Tests which of the two GPUs is reported for an environment.
  std::string Chosen() {
    set_(0, 0x40, 0, 0);
    set_(1, 0x80, 0, 0);
    std::string why;
    const auto nvml = Nvml::Open(FAKE_NVML, &why);
    if (nvml == nullptr) return why;
    GpuSeen seen;
    nvml->Look(&seen);
    return seen.reasons == 0x40 ? "0" : seen.reasons == 0x80 ? "1" : "?";
  }

  void (*set_)(int, unsigned long long, unsigned long long, unsigned long long) = nullptr;
  int (*inits_)() = nullptr;
  int (*looks_)() = nullptr;
};

TEST_F(NvmlTest, OneLookReportsClocksErrorsAndEvents) {
  set_(0, 0x4, 7, 0);  // at its power cap, with errors of an earlier job
  std::string why;
  auto nvml = Nvml::Open(FAKE_NVML, &why);
  ASSERT_NE(nvml, nullptr) << why;
  EXPECT_EQ(inits_(), 1);
  GpuSeen seen;
  nvml->Look(&seen);
  EXPECT_EQ(seen.looks, 1u);
  EXPECT_EQ(seen.held, 0u);
  EXPECT_EQ(seen.reasons, 0u);
  EXPECT_EQ(seen.uncorrected, 0u);
  EXPECT_EQ(seen.xid, 0u);
  set_(0, 0x4 | 0x20, 9, 79);
  nvml->Look(&seen);
  EXPECT_EQ(seen.looks, 2u);
  EXPECT_EQ(seen.held, 1u);
  EXPECT_EQ(seen.reasons, 0x20u);
  EXPECT_EQ(seen.uncorrected, 2u);
  EXPECT_EQ(seen.xid, 79u);
  set_(0, 0, 0, 0);  // a counter that was reset
  nvml->Look(&seen);
  EXPECT_EQ(seen.uncorrected, 0u);
  nvml.reset();
  EXPECT_EQ(inits_(), 0);
}

TEST_F(NvmlTest, TheGpuIsTheOneThatTheProcessSees) {
  EXPECT_EQ(Chosen(), "0");
  setenv("LOCAL_RANK", "1", 1);
  EXPECT_EQ(Chosen(), "1");
  setenv("CUDA_VISIBLE_DEVICES", "0", 1);  // each process sees one GPU
  EXPECT_EQ(Chosen(), "0");
  setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
  EXPECT_EQ(Chosen(), "0");
  setenv("LOCAL_RANK", "0", 1);
  EXPECT_EQ(Chosen(), "1");
  setenv("CUDA_VISIBLE_DEVICES", "GPU-one", 1);
  EXPECT_EQ(Chosen(), "1");
  setenv("CUDA_VISIBLE_DEVICES", "GPU-other", 1);
  EXPECT_EQ(Chosen(), "NVML does not find GPU \"GPU-other\": it returned 2");
}

TEST_F(NvmlTest, WithoutALibraryItIsSilent) {
  std::string why;
  EXPECT_EQ(Nvml::Open("/nowhere/libnvidia-ml.so.1", &why), nullptr);
  EXPECT_NE(why.find("/nowhere/"), std::string::npos);
  EXPECT_EQ(Nvml::Open("libc.so.6", &why), nullptr);
  EXPECT_EQ(why, "libc.so.6 lacks functions of NVML");
  setenv("PLUMBLINE_NVML_LIBRARY", "/nowhere/libnvidia-ml.so.1", 1);
  GpuHealth health;
  EXPECT_FALSE(health.Take());
  health.Start();
  EXPECT_FALSE(health.Take());
}

TEST_F(NvmlTest, TheThreadLooksAndGoesAtOnce) {
  setenv("PLUMBLINE_NVML_LIBRARY", FAKE_NVML, 1);
  set_(0, 0x8, 0, 0);
  std::optional<GpuSeen> seen;
  {
    GpuHealth health;
    health.Start();
    EXPECT_TRUE(test::Eventually([&] { return (seen = health.Take()).has_value(); }));
  }
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->held, seen->looks);
  EXPECT_TRUE(test::Eventually([&] { return inits_() == 0; }));
}

// A run that reports its waits sends GPU data with each block of a loop's times.
TEST_F(NvmlTest, ARunReportsItNextToItsBlocks) {
  setenv("PLUMBLINE_NVML_LIBRARY", FAKE_NVML, 1);
  set_(0, 0x40, 0, 0);
  const test::TempFolder dir;
  testing::TestRun run(testing::RecordOptions(dir.path()));
  plumbline_error_t error;
  const auto block = [&](int64_t from) {
    for (int64_t step = from; step < from + 16; ++step) {
      uint64_t span = 0;
      ASSERT_EQ(run.run().StepBegin(step), PLUMBLINE_OK);
      ASSERT_EQ(run.run().SpanBegin(step, "data", "loader", &span, &error), PLUMBLINE_OK);
      ASSERT_EQ(run.run().SpanEnd(span, &error), PLUMBLINE_OK);
      ASSERT_EQ(run.run().StepEnd(step), PLUMBLINE_OK);
    }
    ASSERT_EQ(run.run().Flush(60000, &error), PLUMBLINE_OK) << error.text;
  };
  block(0);
  // Waits for a second query after this point, so that the result of the first one is available.
  const int before = looks_();
  ASSERT_TRUE(test::Eventually([&] { return looks_() >= before + 2; }));
  block(16);
  ASSERT_EQ(run.Close(), PLUMBLINE_OK);
  std::map<std::string, double> stated;
  std::vector<v1::Batch> batches = testing::ReadRecord(testing::FirstRecord(dir.path()));
  testing::RowsToEvidence(&batches);
  for (const v1::Batch& batch : batches) {
    for (const v1::Evidence& e : batch.evidence()) {
      if (e.has_scalar()) stated[e.site().op()] = e.scalar().value();
    }
  }
  EXPECT_EQ(stated.at("gpu.clocks_held"), 1);
  EXPECT_EQ(stated.at("gpu.clock_reasons"), 0x40);
  EXPECT_EQ(stated.at("gpu.ecc_uncorrected"), 0);
  EXPECT_EQ(stated.at("gpu.xid"), 0);
}

}  // namespace
}  // namespace plumbline::agent
