// Products on the host instead of cuBLASLt: one left fold in f32 per element.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/half.h"
#include "bench/gpu/gemm/gemm_values.h"
#include "bench/gpu/gemm/matmul.h"

namespace plumbline::bench {

inline Product SmallProduct(DType input = DType::kF32, DType output = DType::kF32) {
  Product product;
  product.input = input;
  product.output = output;
  product.shape = product.algorithm = {128, 128, 64};
  product.dump = true;
  return product;
}

// Faults of a fake. A status that is set here is returned by the call.
struct FakeFaults {
  std::function<absl::Status()> open = [] { return absl::OkStatus(); };
  std::function<absl::Status()> call = [] { return absl::OkStatus(); };
  std::function<absl::Status(int rows)> batch = [](int) { return absl::OkStatus(); };
};

class FakeMatmul : public Matmul {
 public:
  FakeMatmul(const Product& product, const FakeFaults& faults)
      : product_(product),
        faults_(faults),
        factors_(2 * kMostLines * Inner() * DTypeSize(product.input)) {
    algorithm_.id = 7;
  }
  const Algorithm& algorithm() const override { return algorithm_; }
  std::byte* factors() override { return factors_.data(); }

  absl::Status Compute(int lines, const std::byte** d) override {
    if (absl::Status s = faults_.call(); !s.ok()) return s;
    std::vector<double> corner;
    for (int column = 0; column < lines; ++column) {
      for (int row = 0; row < lines; ++row) corner.push_back(Fold(row, lines + column));
    }
    corner_.resize(corner.size() * DTypeSize(product_.output));
    Encode(product_.output, corner, corner_.data());
    *d = corner_.data();
    return absl::OkStatus();
  }
  absl::Status ComputeBatch(int rows, const std::byte** d) override {
    if (absl::Status s = faults_.batch(rows); !s.ok()) return s;
    return Compute(1, d);
  }

 private:
  size_t Inner() const { return static_cast<size_t>(product_.shape.inner); }
  float Factor(int line, size_t k) const {
    const size_t at = static_cast<size_t>(line) * Inner() + k;
    return static_cast<float>(
        Decode(product_.input, factors_.data() + at * DTypeSize(product_.input)));
  }
  double Fold(int row, int column) const {
    float sum = Factor(row, 0) * Factor(column, 0);
    for (size_t k = 1; k < Inner(); ++k) {
      const float product = Factor(row, k) * Factor(column, k);
      sum += product;
    }
    return static_cast<double>(sum);
  }

  const Product product_;
  const FakeFaults& faults_;
  Algorithm algorithm_;
  std::vector<std::byte> factors_;
  std::vector<std::byte> corner_;
};

class FakeLibrary : public MatmulLibrary {
 public:
  FakeFaults faults;

  std::string name() const override { return "fake 1.2.3"; }
  absl::StatusOr<std::unique_ptr<Matmul>> Open(const Product& product) override {
    if (absl::Status s = faults.open(); !s.ok()) return s;
    return std::make_unique<FakeMatmul>(product, faults);
  }
};

}  // namespace plumbline::bench
