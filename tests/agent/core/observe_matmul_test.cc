// Matrix products from the C ABI's struct to a record that names their computation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "analysis/product/replay.h"
#include "base/block_formats.h"
#include "base/half.h"
#include "tests/agent/core/observed_run.h"

namespace plumbline::agent {
namespace {

using namespace testing;  // NOLINT: the tests' own

// A product by f32 sums from the first to the last element, as computed.
struct Multiplied {
  int64_t rows, inner, columns;
  std::vector<float> a, w, d;  // w [N, K]
  Multiplied(int64_t m, int64_t k, int64_t n) : rows(m), inner(k), columns(n) {
    uint32_t state = 7;
    const auto draw = [&] {
      state = state * 1664525 + 1013904223;
      return static_cast<float>(state >> 8) / (1 << 24) - 0.4f;
    };
    for (int64_t i = 0; i < m * k; ++i) a.push_back(draw());
    for (int64_t i = 0; i < n * k; ++i) w.push_back(draw());
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        float sum = 0;
        for (int64_t at = 0; at < k; ++at) {
          const float product =
              a[static_cast<size_t>(i * k + at)] * w[static_cast<size_t>(j * k + at)];
          sum += product;
        }
        d.push_back(sum);
      }
    }
  }
};

// The record of a product names its computation, for a small product and for one too large for the
// ring.
TEST(Observe, ProductsAreNamedByWhatIsKept) {
  for (const int64_t inner : {300, 9000}) {
    TempFolder dir;
    Recorded r(dir.path());
    const Multiplied p(40, inner, 50);
    const Tensor a(p.a.data(), {p.rows, inner}), d(p.d.data(), {p.rows, p.columns});
    int64_t shape[2] = {inner, p.columns}, strides[2] = {1, inner};
    const Tensor weight(p.w.data(), {p.columns, inner});
    DLTensor b = *weight.get();
    b.shape = shape;
    b.strides = strides;
    plumbline_matmul_t call = PLUMBLINE_MATMUL_INIT;
    call.a = a.get();
    call.b = &b;
    call.d = d.get();
    call.library = "by hand 1";
    r.run->StepBegin(3);
    EXPECT_EQ(r.run->ObserveMatmul(r.matmul, 3, call, &r.error), PLUMBLINE_OK) << r.error.text;
    r.run->StepEnd(3);
    const auto all = r.Close(dir.path());
    ASSERT_EQ(all.size(), 1u);
    const v1::Matmul& m = all[0].matmul();
    EXPECT_EQ(m.config().rows(), 40u);
    EXPECT_EQ(m.config().columns(), 50u);
    EXPECT_EQ(m.config().library(), "by hand 1");
    EXPECT_EQ(m.sample().a().shape(0), 32);
    EXPECT_EQ(all[0].sample_size(), 64u);
    const auto c = analysis::DecodeMatmul(m);
    ASSERT_TRUE(c.ok()) << c.status();
    EXPECT_EQ(std::count(c->apart.begin(), c->apart.end(), true), 32);
    for (int i = 0; i < c->samples; ++i) {
      const uint64_t at = c->offsets[static_cast<size_t>(i)];
      EXPECT_EQ(c->d[static_cast<size_t>(i)], p.d[at]);
      EXPECT_EQ(c->A(i, 17), p.a[at / 50 * static_cast<uint64_t>(inner) + 17]);
      EXPECT_EQ(c->B(i, 17), p.w[at % 50 * static_cast<uint64_t>(inner) + 17]);
    }
    const analysis::MatmulReplay replay = analysis::ReplayMatmul(*c);
    EXPECT_TRUE(replay.proved) << replay.Words();
    EXPECT_EQ(replay.name, "sequential");
    EXPECT_EQ(replay.matches, 64);
  }
}

TEST(Observe, ProductsKeepNothingAtStepsWithoutSamples) {
  TempFolder dir;
  SparseRun r(dir.path(), PLUMBLINE_KIND_MATMUL, "up", "matmul");
  const Multiplied p(3, 8, 5);
  const Tensor a(p.a.data(), {3, 8}), b(p.w.data(), {8, 5}), d(p.d.data(), {3, 5});
  plumbline_matmul_t call = PLUMBLINE_MATMUL_INIT;
  call.a = a.get();
  call.b = b.get();
  call.d = d.get();
  for (int64_t step = 0; step < 40; ++step) {
    r.run->StepBegin(step);
    EXPECT_EQ(r.run->ObserveMatmul(r.site, step, call, &r.error), PLUMBLINE_OK);
    r.run->StepEnd(step);
  }
  ASSERT_EQ(r.run->Close(20000, &r.error), PLUMBLINE_OK);
  int sampled = 0, bare = 0;
  for (const v1::Batch& batch : ReadRecord(FirstRecord(dir.path()))) {
    for (const v1::Evidence& e : batch.evidence()) {
      ++(e.matmul().has_sample() ? sampled : bare);
      EXPECT_EQ(e.matmul().config().inner(), 8u);
    }
  }
  EXPECT_GE(sampled, 1);
  EXPECT_GE(bare, 1);
}

// ---- scales -------------------------------------------------------------------------------------

std::vector<uint8_t> AsE4M3(const std::vector<float>& values) {
  std::vector<uint8_t> bytes;
  for (const float x : values) bytes.push_back(FloatToE4M3(x));
  return bytes;
}

// A product of e4m3 factors in blocks of 32 whose sums are scaled when they are added in f32, and
// multiplied by one factor. Scales are powers of two, as e8m0 codes.
struct Scaled {
  static constexpr int64_t kRows = 40, kInner = 256, kColumns = 36, kBlock = 32, kBlocks = 8;
  std::vector<uint8_t> a, w;              // w [N, K]
  std::vector<uint8_t> a_scale, b_scale;  // [M, B] and [B, N]
  std::vector<float> d;
  float factor = 0.3f;

  Scaled() {
    const Multiplied p(kRows, kInner, kColumns);
    a = AsE4M3(p.a);
    w = AsE4M3(p.w);
    for (int64_t i = 0; i < kRows * kBlocks; ++i)
      a_scale.push_back(static_cast<uint8_t>(122 + i * 7 % 9));
    for (int64_t i = 0; i < kBlocks * kColumns; ++i)
      b_scale.push_back(static_cast<uint8_t>(123 + i * 5 % 8));
    for (int64_t i = 0; i < kRows; ++i)
      for (int64_t j = 0; j < kColumns; ++j) d.push_back(Element(i, j));
  }

  float Element(int64_t i, int64_t j) const {
    float sum = 0;
    for (int64_t k = 0; k < kInner; ++k) {
      const auto at = [&](const std::vector<uint8_t>& x, int64_t row) {
        return E4M3ToFloat(x[static_cast<size_t>(row * kInner + k)]);
      };
      const int64_t block = k / kBlock;
      const double s = E8M0Value(a_scale[static_cast<size_t>(i * kBlocks + block)]) *
                       E8M0Value(b_scale[static_cast<size_t>(block * kColumns + j)]);
      sum += at(a, i) * at(w, j) * static_cast<float>(s);
    }
    return factor * sum;
  }

  // Passes the product as the trainer does, with the fields that `report` sets.
  plumbline_status_t Observe(Recorded& r, const std::function<void(plumbline_matmul_t&)>& report) {
    const Tensor left(a.data(), kE4M3, {kRows, kInner}), out(d.data(), {kRows, kColumns});
    const Tensor weight(w.data(), kE4M3, {kColumns, kInner});
    const Tensor of_a(a_scale.data(), {kRows, kBlocks}), of_b(b_scale.data(), {kBlocks, kColumns});
    int64_t shape[2] = {kInner, kColumns}, strides[2] = {1, kInner};
    DLTensor b = *weight.get();
    b.shape = shape;
    b.strides = strides;
    plumbline_matmul_t call = PLUMBLINE_MATMUL_INIT;
    call.a = left.get();
    call.b = &b;
    call.d = out.get();
    call.a_scale = of_a.get();
    call.b_scale = of_b.get();
    call.scale = static_cast<double>(factor);
    call.scale_format = "e8m0";
    call.block = kBlock;
    report(call);
    r.run->StepBegin(3);
    const plumbline_status_t status = r.run->ObserveMatmul(r.matmul, 3, call, &r.error);
    r.run->StepEnd(3);
    return status;
  }
};

// Scales of blocks and one scale of the product, from the ABI's struct to a record that names the
// sum.
TEST(Observe, ScaledProductsAreNamedByWhatIsKept) {
  TempFolder dir;
  Recorded r(dir.path());
  Scaled p;
  ASSERT_EQ(p.Observe(r, [](plumbline_matmul_t&) {}), PLUMBLINE_OK) << r.error.text;
  const auto all = r.Close(dir.path());
  ASSERT_EQ(all.size(), 1u);
  const v1::Matmul& m = all[0].matmul();
  EXPECT_EQ(m.config().scale(), static_cast<double>(p.factor));
  EXPECT_EQ(m.config().block(), 32u);
  EXPECT_EQ(m.config().scale_format(), "e8m0");
  EXPECT_EQ(m.config().output_rounding(), "");
  const std::vector<float> kept = Data<float>(m.sample().a_scale());
  ASSERT_EQ(kept.size(), 32u * 8u);
  for (const float s : kept) EXPECT_TRUE(s >= std::exp2(-5.0f) && s <= std::exp2(3.0f)) << s;
  const auto c = analysis::DecodeMatmul(m);
  ASSERT_TRUE(c.ok()) << c.status();
  const analysis::MatmulReplay replay = analysis::ReplayMatmul(*c);
  EXPECT_TRUE(replay.explained()) << replay.Words();
  EXPECT_EQ(replay.matches, 64);
  EXPECT_EQ(replay.name, "sequential");
}

// Tiles: 128 rows of a share one row of scales, 4 columns of b share one column.
TEST(Observe, ScalesOfTilesReachEachRow) {
  TempFolder dir;
  Recorded r(dir.path());
  Scaled p;
  const std::vector<float> of_tiles(8, 0.25f);
  std::vector<float> of_columns;
  for (int i = 0; i < 8 * 9; ++i) of_columns.push_back(std::exp2(static_cast<float>(i % 9)));
  const Tensor a_scale(of_tiles.data(), {1, 8}), b_scale(of_columns.data(), {8, 9});
  ASSERT_EQ(p.Observe(r,
                      [&](plumbline_matmul_t& call) {
                        call.a_scale = a_scale.get();
                        call.b_scale = b_scale.get();
                        call.scale_format = nullptr;
                        call.a_tile = 128;
                        call.b_tile = 4;
                      }),
            PLUMBLINE_OK)
      << r.error.text;
  const auto all = r.Close(dir.path());
  ASSERT_EQ(all.size(), 1u);
  const auto c = analysis::DecodeMatmul(all[0].matmul());
  ASSERT_TRUE(c.ok()) << c.status();
  for (int i = 0; i < c->samples; ++i) {
    const uint64_t column = c->offsets[static_cast<size_t>(i)] % Scaled::kColumns;
    EXPECT_EQ(c->AScale(i, 3), 0.25);
    EXPECT_EQ(c->BScale(i, 3), std::exp2(static_cast<double>((3 * 9 + column / 4) % 9)));
  }
}

// One scale for each tensor, in one element; and a store with stochastic rounding.
TEST(Observe, ScalesOfTensorsAndAStochasticStore) {
  TempFolder dir;
  Recorded r(dir.path());
  Scaled p;
  const float half = 0.5f, three = 3;
  const Tensor a_scale(&half, {1}), b_scale(&three, {1});
  ASSERT_EQ(p.Observe(r,
                      [&](plumbline_matmul_t& call) {
                        call.a_scale = a_scale.get();
                        call.b_scale = b_scale.get();
                        call.scale_format = nullptr;
                        call.block = 0;
                        call.output_rounding = "stochastic";
                      }),
            PLUMBLINE_OK)
      << r.error.text;
  const auto all = r.Close(dir.path());
  ASSERT_EQ(all.size(), 1u);
  const v1::Matmul& m = all[0].matmul();
  EXPECT_EQ(m.config().output_rounding(), "stochastic");
  EXPECT_EQ(Data<float>(m.sample().a_tensor_scale()), std::vector<float>{0.5f});
  EXPECT_EQ(Data<float>(m.sample().b_tensor_scale()), std::vector<float>{3.0f});
  EXPECT_FALSE(m.sample().has_a_scale());
}

TEST(Observe, ScalesThatAreNoneAreRefusedByName) {
  struct Mistake {
    const char* stated;
    std::function<void(plumbline_matmul_t&)> make;
  };
  const std::vector<float> few(3, 1.0f);
  const Tensor wrong(few.data(), {3, 1});
  const Mistake mistakes[] = {
      {"scale_format", [](auto& c) { c.scale_format = "e3m2"; }},
      {"scale_format", [](auto& c) { c.scale_format = nullptr; }},  // required for u8
      {"output_rounding", [](auto& c) { c.output_rounding = "up"; }},
      {"a_scale", [&](auto& c) { c.a_scale = wrong.get(); }},
      {"b_scale", [&](auto& c) { c.b_scale = wrong.get(); }},
      {"scale", [](auto& c) { c.scale = INFINITY; }},
      {"block", [](auto& c) { c.block = uint64_t{1} << 40; }},
  };
  for (const Mistake& mistake : mistakes) {
    TempFolder dir;
    Recorded r(dir.path());
    Scaled p;
    EXPECT_EQ(p.Observe(r, mistake.make), PLUMBLINE_INVALID_ARGUMENT) << mistake.stated;
    EXPECT_NE(std::string(r.error.text).find(mistake.stated), std::string::npos) << r.error.text;
    EXPECT_TRUE(r.Close(dir.path()).empty());
  }
}

}  // namespace
}  // namespace plumbline::agent
