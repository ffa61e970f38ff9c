#include "bench/gpu/gemm/cublas_matmul.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/gpu/gemm/gemm_probe.h"
#include "tests/bench/gpu/fake_cublas_lt.h"

namespace plumbline::bench {
namespace {

using ::testing::HasSubstr;

Product SmallProduct() {
  Product product;
  product.shape = product.algorithm = {96, 64, 64};
  product.dump = true;
  return product;
}

class CublasMatmul : public ::testing::Test {
 protected:
  void Open(const std::vector<Product>& products) {
    auto opened = OpenCublasMatmuls(lt_, products);
    ASSERT_TRUE(opened.ok()) << opened.status();
    library_ = *std::move(opened);
  }
  absl::StatusOr<Probed> Query(const Product& product) {
    Open({product});
    ProbeLimits limits;
    limits.seconds = 60;
    return Probe(product, limits, library_.get());
  }

  FakeCublasLt& fake_ = NewFakeCublasLt();
  const CublasLt lt_ = FakeCublasLtTable();
  std::unique_ptr<MatmulLibrary> library_;
};

TEST_F(CublasMatmul, PlacesFactorsAndReadsTheElement) {
  const auto probed = Query(SmallProduct());
  ASSERT_TRUE(probed.ok()) << probed.status();
  ASSERT_EQ(probed->outcome, Outcome::kRequested) << probed->why;
  EXPECT_EQ(probed->fingerprint.verdict, sums::Verdict::kVerified) << probed->fingerprint.evidence;
  EXPECT_EQ(probed->fingerprint.order, "left fold of 64 terms");
  EXPECT_THAT(probed->batch, HasSubstr("the same bits"));
  EXPECT_EQ(probed->algorithm.id, 1);
  EXPECT_EQ(probed->algorithm.cluster_shape, -1);
  EXPECT_EQ(library_->name(), "cuBLASLt 13.1.2");
}

TEST_F(CublasMatmul, ACornerIsColumnsOfItsRows) {
  const Product product = SmallProduct();
  Open({product});
  auto matmul = library_->Open(product);
  ASSERT_TRUE(matmul.ok()) << matmul.status();
  // Row i holds i + 1 in its first place, column j holds 10 (j + 1).
  auto* factors = reinterpret_cast<float*>((*matmul)->factors());
  std::fill(factors, factors + 4 * 64, 0.0f);
  for (int i = 0; i < 2; ++i) factors[i * 64] = static_cast<float>(i + 1);
  for (int j = 0; j < 2; ++j) factors[(2 + j) * 64] = static_cast<float>(10 * (j + 1));
  const std::byte* d = nullptr;
  ASSERT_TRUE((*matmul)->Compute(2, &d).ok());
  const auto* corner = reinterpret_cast<const float*>(d);
  EXPECT_EQ(std::vector<float>(corner, corner + 4), (std::vector<float>{10, 20, 20, 40}));
  EXPECT_EQ(fake_.rows_not_zero, 2);
  EXPECT_EQ(fake_.columns_not_zero, 2);
  // The second product has one line less. Nothing of the first one may remain.
  factors[64] = 7;
  ASSERT_TRUE((*matmul)->Compute(1, &d).ok());
  EXPECT_EQ(*reinterpret_cast<const float*>(d), 7);
  EXPECT_EQ(fake_.rows_not_zero, 1);
  EXPECT_EQ(fake_.columns_not_zero, 1);
}

TEST_F(CublasMatmul, ALargerProductLeavesNoRest) {
  Product large = SmallProduct();
  large.shape = large.algorithm = {128, 128, 512};
  Open({SmallProduct(), large});
  for (const Product& product : {large, SmallProduct(), large}) {
    auto matmul = library_->Open(product);
    ASSERT_TRUE(matmul.ok()) << matmul.status();
    auto* factors = reinterpret_cast<float*>((*matmul)->factors());
    std::fill(factors, factors + 64 * product.shape.inner, 1.0f);
    const std::byte* d = nullptr;
    ASSERT_TRUE((*matmul)->Compute(32, &d).ok());
    EXPECT_EQ(fake_.rows_not_zero, 32);
    EXPECT_EQ(fake_.columns_not_zero, 32);
  }
}

TEST_F(CublasMatmul, ASplitIsRequestedFromEveryAlgorithm) {
  Product product = SmallProduct();
  product.split_k = 2;
  product.reduction = Reduction::kComputeType;
  const auto probed = Query(product);
  ASSERT_TRUE(probed.ok()) << probed.status();
  ASSERT_EQ(probed->outcome, Outcome::kRequested) << probed->why;
  EXPECT_EQ(probed->algorithm.id, 2);
  EXPECT_EQ(probed->algorithm.split_k, 2);
  EXPECT_EQ(probed->algorithm.reduction, 2);
  EXPECT_THAT(probed->fingerprint.order, HasSubstr("2 parts 32 apart"));
  product.reduction = Reduction::kOutputType;
  const auto refused = Query(product);
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_EQ(refused->outcome, Outcome::kRefused);
  EXPECT_THAT(refused->why, HasSubstr("2 parts reduced by output"));
}

TEST_F(CublasMatmul, TheAlgorithmMayBeThatOfALargerProduct) {
  Product product = SmallProduct();
  product.algorithm = {4096, 4096, 64};
  Open({product});
  ASSERT_TRUE(library_->Open(product).ok());
  EXPECT_EQ(fake_.heuristic_rows, 4096);
  EXPECT_EQ(fake_.checked_rows, 96);
}

TEST_F(CublasMatmul, AnOddBatchStatesHowItsRowsAreAligned) {
  Product product = SmallProduct();
  product.shape.inner = product.algorithm.inner = 16;  // 64 bytes a row
  Open({product});
  auto matmul = library_->Open(product);
  ASSERT_TRUE(matmul.ok()) << matmul.status();
  EXPECT_EQ(fake_.a_alignment, 256u);
  const std::byte* d = nullptr;
  std::fill((*matmul)->factors(), (*matmul)->factors() + 128, std::byte{});
  ASSERT_TRUE((*matmul)->ComputeBatch(17, &d).ok());
  EXPECT_EQ(fake_.a_alignment, 64u);
  EXPECT_EQ(fake_.heuristic_rows, 17);
}

TEST_F(CublasMatmul, ARefusalLeavesTheDeviceAtWork) {
  fake_.matmul = CUBLAS_STATUS_NOT_SUPPORTED;
  const auto probed = Query(SmallProduct());
  ASSERT_TRUE(probed.ok()) << probed.status();
  EXPECT_EQ(probed->outcome, Outcome::kRefused);
  EXPECT_EQ(probed->why, "cublasLtMatmul: CUBLAS_STATUS_NOT_SUPPORTED");
  fake_.synchronize = cudaErrorIllegalAddress;
  EXPECT_EQ(Query(SmallProduct()).status().message(), "cudaStreamSynchronize: the device is gone");
}

TEST(CublasLtFile, WhatIsMissingIsNamed) {
  EXPECT_THAT(std::string(OpenCublasLt("/no/such/library.so").status().message()),
              HasSubstr("/no/such/library.so"));
  EXPECT_EQ(OpenCublasLt("libm.so.6").status().message(), "libm.so.6 has no cublasLtGetVersion");
}

}  // namespace
}  // namespace plumbline::bench
