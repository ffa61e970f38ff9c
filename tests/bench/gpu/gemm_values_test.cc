#include "bench/gpu/gemm/gemm_values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "bench/gpu/gemm/gemm_dump.h"
#include "bench/gpu/gemm/gemm_report.h"
#include "tests/bench/gpu/fake_matmul.h"

namespace plumbline::bench {
namespace {

TEST(GemmValues, EveryDTypeGivesBackWhatItRepresents) {
  for (const DType dtype :
       {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kE4M3, DType::kE5M2}) {
    const FloatFormat format = FormatOf(dtype);
    const std::vector<double> values = {0,
                                        -0.0,
                                        1,
                                        -1.5,
                                        format.max_finite,
                                        PowerOfTwo(format.min_exponent),
                                        PowerOfTwo(format.min_exponent - format.precision + 1)};
    std::vector<std::byte> bytes(values.size() * DTypeSize(dtype));
    Encode(dtype, values, bytes.data());
    for (size_t i = 0; i < values.size(); ++i) {
      const double back = Decode(dtype, &bytes[i * DTypeSize(dtype)]);
      EXPECT_EQ(back, values[i]) << DTypeName(dtype);
      EXPECT_EQ(std::signbit(back), std::signbit(values[i])) << DTypeName(dtype);
    }
  }
}

TEST(GemmValues, RowAndColumnHoldsWhatWasSetLast) {
  constexpr int kInner = 200;
  for (const DType dtype : {DType::kBF16, DType::kE4M3, DType::kF64}) {
    std::vector<std::byte> kept(2 * kInner * DTypeSize(dtype)), fresh(kept);
    RowAndColumn factors(dtype, kInner, kept.data());
    std::vector<double> row(kInner, 1), column(kInner, 2);
    for (const int changed : {-1, 0, 63, 64, 199}) {
      if (changed >= 0) row[static_cast<size_t>(changed)] = -0.0;
      if (changed >= 0) column[static_cast<size_t>(changed)] = 4;
      factors.Set(row, column);
      Encode(dtype, row, fresh.data());
      Encode(dtype, column, fresh.data() + kInner * DTypeSize(dtype));
      EXPECT_EQ(kept, fresh) << DTypeName(dtype) << " " << changed;
    }
  }
}

TEST(GemmTable, NamesAreUniqueAndFitForFiles) {
  std::set<std::string> names;
  for (const Product& product : GemmTable()) {
    const std::string name = NameOf(product);
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_EQ(name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                     "0123456789_-"),
              std::string::npos)
        << name;
  }
  EXPECT_TRUE(names.count("bf16-f32-32F-4096x4096x4096")) << "nothing large";
  EXPECT_TRUE(names.count("f32-f32-32F-128x128x512-split4-inplace")) << "nothing split";
}

TEST(GemmTable, IsLikelyToTakeTwoMinutes) {
  double seconds = 0, last = 0;
  for (const Product& product : GemmTable()) {
    EXPECT_GE(EstimatedSeconds(product), last) << NameOf(product);
    last = EstimatedSeconds(product);
    seconds += last;
  }
  EXPECT_LE(seconds, 120);
}

// A product whose elements are all zero; it takes no time.
class NoMatmul : public Matmul {
 public:
  const Algorithm& algorithm() const override { return algorithm_; }
  std::byte* factors() override { return factors_.data(); }
  absl::Status Compute(int /*lines*/, const std::byte** d) override {
    *d = corner_.data();
    return absl::OkStatus();
  }
  absl::Status ComputeBatch(int /*rows*/, const std::byte** d) override { return Compute(1, d); }

 private:
  Algorithm algorithm_;
  std::vector<std::byte> factors_ = std::vector<std::byte>(size_t{2} * kMostLines * 4096 * 8);
  std::vector<std::byte> corner_ = std::vector<std::byte>(size_t{kMostLines} * kMostLines * 8);
};

TEST(GemmTable, DumpsLeaveRoomForContracts) {
  NoMatmul matmul;
  size_t bytes = 0;
  for (const Product& product : GemmTable()) {
    if (!product.dump) continue;
    const auto dump = MatmulDump(product, "none", &matmul);
    ASSERT_TRUE(dump.ok()) << dump.status();
    bytes += dump->File().size();
  }
  EXPECT_LE(bytes, Report::kMostFileBytes - (size_t{512} << 10));
}

}  // namespace
}  // namespace plumbline::bench
