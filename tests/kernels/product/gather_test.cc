// Tests the sampled parts of a matrix product: their choice, and that host and device code copy the
// same parts.
#include "kernels/product/gather.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "base/load.h"

namespace plumbline {
namespace {

// Every element encodes its position: a = 1000 * row + k, b = 1000 * k + column, and so on.
struct Product {
  int64_t rows, inner, columns;
  std::vector<float> a, b, d, c;
  ProductInput in;

  Product(int64_t m, int64_t k, int64_t n) : rows(m), inner(k), columns(n) {
    Fill(m, k, &a);
    Fill(k, n, &b);
    Fill(m, n, &d);
    Fill(m, n, &c);
    in.a = TensorView::Dense(a.data(), DType::kF32, m, k);
    in.b = TensorView::Dense(b.data(), DType::kF32, k, n);
    in.d = TensorView::Dense(d.data(), DType::kF32, m, n);
    in.c = TensorView::Dense(c.data(), DType::kF32, m, n);
  }
  static void Fill(int64_t rows, int64_t columns, std::vector<float>* out) {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) out->push_back(static_cast<float>(1000 * i + j));
  }
};

struct Gathered {
  std::vector<std::byte> bytes;
  const ProductPlan& plan;
  float At(uint64_t part, int64_t i) const { return LoadRaw<float>(bytes.data() + part, i); }
};

Gathered OnHost(const ProductPlan& plan) {
  Gathered g{std::vector<std::byte>(plan.bytes), plan};
  GatherProduct(plan, g.bytes.data());
  return g;
}

std::vector<std::byte> AsThreads(const ProductPlan& plan) {
  std::vector<std::byte> bytes(plan.bytes);
  for (int64_t i = 0; i < ProductThreads(plan); ++i)
    GatherProductOne(plan, i, reinterpret_cast<unsigned char*>(bytes.data()));
  return bytes;
}

TEST(ProductGather, TakesWholeRowsAndColumnsAndWhereTheyMeet) {
  for (const auto& [m, k, n] :
       {std::array<int64_t, 3>{50, 7, 60}, {3, 1, 60}, {1, 9, 1}, {40, 5, 2}}) {
    const Product p(m, k, n);
    ASSERT_TRUE(CheckProduct(p.in).ok());
    const ProductPlan plan = PlanProduct(p.in, 77, 32, 1024);
    EXPECT_EQ(plan.elements, std::min<int64_t>(m, 32) * std::min<int64_t>(n, 32));
    const Gathered g = OnHost(plan);
    ProductPairs pairs(plan.rows, plan.columns);
    std::set<std::pair<int, int>> seen;
    for (int i = 0; i < plan.elements; ++i) {
      const ProductPair pair = pairs.Next();
      EXPECT_TRUE(seen.insert({pair.row, pair.column}).second);
      const auto row = static_cast<float>(SampledRow(77, static_cast<uint64_t>(m), pair.row));
      const auto column =
          static_cast<float>(SampledColumn(77, static_cast<uint64_t>(n), pair.column));
      EXPECT_EQ(g.At(plan.d_at, i), 1000 * row + column);
      EXPECT_EQ(g.At(plan.c_at, i), 1000 * row + column);
      for (int64_t at = 0; at < k; ++at) {
        EXPECT_EQ(g.At(0, pair.row * k + at), 1000 * row + static_cast<float>(at));
        EXPECT_EQ(g.At(plan.b_at, pair.column * k + at), 1000 * static_cast<float>(at) + column);
      }
    }
    EXPECT_EQ(AsThreads(plan), g.bytes);
  }
}

// The first elements share neither a row nor a column, because statistics are taken of those.
TEST(ProductGather, TheFirstPairsAreApart) {
  for (const auto& [rows, columns] : {std::pair{32, 32}, {5, 32}, {32, 3}, {1, 1}}) {
    ProductPairs pairs(rows, columns);
    std::set<int> r, c;
    for (int i = 0; i < std::min(rows, columns); ++i) {
      const ProductPair pair = pairs.Next();
      EXPECT_TRUE(r.insert(pair.row).second);
      EXPECT_TRUE(c.insert(pair.column).second);
    }
  }
}

// Views as trainers have them: a batch of sequences, a transposed weight, a bias, any dtype.
TEST(ProductGather, LayoutsGiveTheSameBytes) {
  const int64_t batch = 4, length = 6, k = 10, n = 33;
  for (const DType type : {DType::kF32, DType::kBF16, DType::kE4M3, DType::kF64}) {
    const size_t size = DTypeSize(type);
    std::mt19937 rng(5);
    const auto random = [&](int64_t count) {
      std::vector<std::byte> bytes(static_cast<size_t>(count) * size + 3);
      for (std::byte& b : bytes) b = static_cast<std::byte>(rng());
      return bytes;
    };
    const auto a = random(batch * length * k), b = random(k * n), d = random(batch * length * n);
    std::vector<std::byte> turned(b.size());  // b as [n, k]
    for (int64_t i = 0; i < k; ++i)
      for (int64_t j = 0; j < n; ++j)
        std::memcpy(&turned[static_cast<size_t>(j * k + i) * size],
                    &b[static_cast<size_t>(i * n + j) * size], size);
    ProductInput flat, deep;
    flat.a = TensorView::Dense(a.data(), type, batch * length, k);
    flat.b = TensorView::Dense(b.data(), type, k, n);
    flat.d = TensorView::Dense(d.data(), type, batch * length, n);
    flat.c = TensorView::Dense(b.data(), type, n);
    deep = flat;
    deep.a = TensorView::Dense(a.data(), type, batch, length, k);
    deep.d = TensorView::Dense(d.data(), type, batch, length, n);
    deep.b = TensorView::Dense(turned.data(), type, n, k);
    std::swap(deep.b.shape[0], deep.b.shape[1]);
    std::swap(deep.b.stride[0], deep.b.stride[1]);
    ASSERT_TRUE(CheckProduct(flat).ok()) << CheckProduct(flat);
    ASSERT_TRUE(CheckProduct(deep).ok()) << CheckProduct(deep);
    const ProductPlan plan = PlanProduct(flat, 3, 9, 50), other = PlanProduct(deep, 3, 9, 50);
    EXPECT_EQ(plan.elements, 50);
    EXPECT_EQ(OnHost(plan).bytes, OnHost(other).bytes);
    EXPECT_EQ(OnHost(plan).bytes, AsThreads(other));
    // Unaligned host memory is read in place.
    std::vector<std::byte> shifted(a.size() + 1);
    std::memcpy(shifted.data() + 1, a.data(), a.size());
    ProductInput odd = flat;
    odd.a.data = shifted.data() + 1;
    EXPECT_EQ(OnHost(PlanProduct(odd, 3, 9, 50)).bytes, OnHost(plan).bytes);
  }
}

TEST(ProductGather, MistakesNameTheTensorAndWhatWasExpected) {
  const Product p(4, 5, 6);
  const auto states = [](const ProductInput& in) {
    return std::string(CheckProduct(in).message());
  };
  ProductInput in = p.in;
  in.b = TensorView::Dense(p.b.data(), DType::kF32, 6, 5);
  EXPECT_EQ(states(in), "b: expected [5, N], K as in a [4,5], found f32[6,5]");
  in = p.in;
  in.d = TensorView::Dense(p.d.data(), DType::kF32, 4, 5);
  EXPECT_EQ(states(in), "d: expected a's shape with 6 in place of 5, found f32[4,5]");
  in = p.in;
  in.c = TensorView::Dense(p.c.data(), DType::kF32, 4);
  EXPECT_EQ(states(in), "c: expected [6] or d's shape, found f32[4]");
  in = p.in;
  in.a = TensorView();
  EXPECT_EQ(states(in), "a: expected a tensor of a known dtype, found none");
  in = p.in;
  in.a.dtype = DType::kI32;
  EXPECT_EQ(states(in), "a: expected floating elements, found i32[4,5]");
  in = p.in;
  in.b.shape[1] = in.d.shape[1] = in.c.shape[1] = 0;
  EXPECT_EQ(states(in), "b: expected at least one element, found f32[5,0]");
  in = p.in;
  in.d.device = 0;
  EXPECT_EQ(states(in), "d: expected to lie where a does");
}

// Scales of blocks of 4 products: of rows in tiles of 3, of columns in tiles of 8.
TEST(ProductGather, TakesTheScalesOfWhatItTakes) {
  Product p(50, 10, 60);
  std::vector<float> a_scale, b_scale;
  Product::Fill(17, 3, &a_scale);  // ceil(50 / 3), ceil(10 / 4)
  Product::Fill(3, 8, &b_scale);   // ceil(60 / 8)
  p.in.a_scale = TensorView::Dense(a_scale.data(), DType::kF32, 17, 3);
  p.in.b_scale = TensorView::Dense(b_scale.data(), DType::kF32, 3, 8);
  p.in.block = 4;
  p.in.a_tile = 3;
  p.in.b_tile = 8;
  ASSERT_TRUE(CheckProduct(p.in).ok()) << CheckProduct(p.in);
  const ProductPlan plan = PlanProduct(p.in, 77, 32, 1024);
  EXPECT_EQ(plan.blocks, 3);
  const Gathered g = OnHost(plan);
  EXPECT_EQ(AsThreads(plan), g.bytes);
  for (int i = 0; i < plan.rows; ++i) {
    const auto row = static_cast<int64_t>(SampledRow(77, 50, i));
    const auto column = static_cast<int64_t>(SampledColumn(77, 60, i));
    for (int j = 0; j < 3; ++j) {
      EXPECT_EQ(g.At(plan.a_scale_at, 3 * i + j), static_cast<float>(1000 * (row / 3) + j));
      EXPECT_EQ(g.At(plan.b_scale_at, 3 * i + j), static_cast<float>(1000 * j + column / 8));
    }
  }
}

TEST(ProductGather, OneElementScalesTheTensor) {
  Product p(9, 10, 6);
  float one = 0.5F;
  p.in.a_scale = TensorView::Dense(&one, DType::kF32, 1);
  const ProductPlan plan = PlanProduct(p.in, 77, 32, 1024);
  EXPECT_EQ(plan.blocks, 1);
  const Gathered g = OnHost(plan);
  EXPECT_EQ(AsThreads(plan), g.bytes);
  for (int i = 0; i < plan.rows; ++i) EXPECT_EQ(g.At(plan.a_scale_at, i), 0.5F);
  EXPECT_EQ(plan.b_scale.size, 0u);
}

TEST(ProductGather, ScalesThatDoNotFitAreNamed) {
  Product p(50, 10, 60);
  std::vector<float> scales(200);
  p.in.block = 4;
  EXPECT_NE(std::string(CheckProduct(p.in).message()).find("expected a_scale"), std::string::npos);
  p.in.a_scale = TensorView::Dense(scales.data(), DType::kF32, 50, 2);
  EXPECT_NE(std::string(CheckProduct(p.in).message()).find("a_scale: expected [50,3]"),
            std::string::npos);
  p.in.a_scale = TensorView::Dense(scales.data(), DType::kF32, 50, 3);
  p.in.b_scale = TensorView::Dense(scales.data(), DType::kF32, 60, 3);
  EXPECT_NE(std::string(CheckProduct(p.in).message()).find("b_scale: expected [3,60]"),
            std::string::npos);
  p.in.b_scale = TensorView();
  p.in.b_tile = -1;
  EXPECT_NE(std::string(CheckProduct(p.in).message()).find("expected 0 or more"),
            std::string::npos);
}

}  // namespace
}  // namespace plumbline
