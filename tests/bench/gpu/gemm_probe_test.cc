#include "bench/gpu/gemm/gemm_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/bench/gpu/fake_matmul.h"

namespace plumbline::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Probed MustProbe(const Product& product, FakeLibrary* library, double seconds = 60) {
  ProbeLimits limits;
  limits.seconds = seconds;
  auto probed = Probe(product, limits, library);
  EXPECT_TRUE(probed.ok()) << probed.status();
  return probed.ok() ? *std::move(probed) : Probed();
}

TEST(GemmProbe, ALeftFoldIsNamed) {
  FakeLibrary library;
  const Probed probed = MustProbe(SmallProduct(), &library);
  EXPECT_EQ(probed.outcome, Outcome::kRequested) << probed.why;
  EXPECT_EQ(probed.algorithm.id, 7);
  const sums::Fingerprint& f = probed.fingerprint;
  EXPECT_EQ(f.verdict, sums::Verdict::kVerified) << f.evidence;
  EXPECT_EQ(f.order, "left fold of 64 terms");
  EXPECT_EQ(f.arithmetic, "f32 adds, nearest-even; products rounded to f32");
  EXPECT_THAT(probed.batch, HasSubstr("the same bits"));
  EXPECT_GT(probed.calls, f.tree_calls);
}

TEST(GemmProbe, NarrowFactorsAndResultsToo) {
  FakeLibrary library;
  for (const DType input : {DType::kBF16, DType::kF16, DType::kE4M3}) {
    const Probed probed = MustProbe(SmallProduct(input, DType::kBF16), &library);
    const sums::Fingerprint& f = probed.fingerprint;
    EXPECT_EQ(f.verdict, sums::Verdict::kVerified) << DTypeName(input) << ": " << f.evidence;
    EXPECT_THAT(f.arithmetic, StartsWith("f32 adds")) << DTypeName(input);
  }
}

TEST(GemmProbe, ARefusalIsNoError) {
  FakeLibrary library;
  library.faults.open = [] { return absl::UnimplementedError("cublasLtMatmul: no"); };
  const Probed probed = MustProbe(SmallProduct(), &library);
  EXPECT_EQ(probed.outcome, Outcome::kRefused);
  EXPECT_EQ(probed.why, "cublasLtMatmul: no");
}

TEST(GemmProbe, ARefusedBatchLeavesTheProduct) {
  FakeLibrary library;
  library.faults.batch = [](int rows) {
    return rows == 17 ? absl::UnimplementedError("rows 17") : absl::OkStatus();
  };
  const Probed probed = MustProbe(SmallProduct(), &library);
  EXPECT_EQ(probed.outcome, Outcome::kRequested) << probed.why;
  EXPECT_EQ(probed.fingerprint.verdict, sums::Verdict::kVerified);
  EXPECT_EQ(probed.batch, "not asked: rows 17");
}

TEST(GemmProbe, WhatTakesTooLongIsNotReached) {
  FakeLibrary library;
  const Probed probed = MustProbe(SmallProduct(), &library, 1e-6);
  EXPECT_EQ(probed.outcome, Outcome::kNotReached);
  EXPECT_THAT(probed.why, HasSubstr("over its 1e-06 s"));
}

TEST(GemmProbe, AnErrorOfTheDeviceIsOne) {
  FakeLibrary library;
  library.faults.call = [] { return absl::InternalError("cudaStreamSynchronize: gone"); };
  EXPECT_TRUE(absl::IsInternal(Probe(SmallProduct(), {}, &library).status()));
}

// Tensors of a dump by name, as offsets into its bytes.
struct ReadDump {
  explicit ReadDump(const std::string& file) : bytes(file) {
    uint64_t size = 0;
    std::memcpy(&size, file.data(), sizeof(size));
    header = nlohmann::json::parse(file.substr(8, size));
    begin = 8 + size;
  }
  template <typename T>
  T At(const char* name, size_t i) const {
    const size_t offset = header[name]["data_offsets"][0];
    T value;
    std::memcpy(&value, bytes.data() + begin + offset + i * sizeof(T), sizeof(T));
    return value;
  }
  std::string bytes;
  nlohmann::json header;
  size_t begin = 0;
};

TEST(GemmProbe, DumpHoldsRowsColumnsAndTheirElements) {
  FakeLibrary library;
  const Probed probed = MustProbe(SmallProduct(), &library);
  const ReadDump dump(probed.dump);
  EXPECT_EQ(dump.header["__metadata__"]["kind"], "matmul");
  EXPECT_EQ(dump.header["__metadata__"]["layer"], "f32-f32-32F-128x128x64");
  EXPECT_EQ(dump.header["__metadata__"]["library"], "fake 1.2.3");
  ASSERT_EQ(dump.header["a"]["shape"], nlohmann::json({32, 64}));
  ASSERT_EQ(dump.header["d"]["shape"], nlohmann::json({256}));
  for (size_t i = 0; i < 256; ++i) {
    const auto row = static_cast<size_t>(dump.At<int32_t>("a_index", i));
    const auto column = static_cast<size_t>(dump.At<int32_t>("b_index", i));
    float sum = 0;
    for (size_t k = 0; k < 64; ++k) {
      const float product =
          dump.At<float>("a", row * 64 + k) * dump.At<float>("b", column * 64 + k);
      sum += product;
    }
    ASSERT_EQ(dump.At<float>("d", i), sum) << i;
    ASSERT_EQ(dump.At<int64_t>("offsets", i),
              static_cast<int64_t>((128 - 32 + row) * 128 + column));
  }
}

}  // namespace
}  // namespace plumbline::bench
