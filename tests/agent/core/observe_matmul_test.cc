// Matrix products from the C ABI's struct to a record that names how they were computed.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "analysis/product/replay.h"
#include "tests/agent/core/observed_run.h"

namespace plumbline::agent {
namespace {

using namespace testing;  // NOLINT: the tests' own

// A product by f32 sums from the first to the last, as it was computed.
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

// What is recorded of a product, small or too large for the ring, names how it was computed.
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
    const auto c = rules::DecodeMatmul(m);
    ASSERT_TRUE(c.ok()) << c.status();
    EXPECT_EQ(std::count(c->apart.begin(), c->apart.end(), true), 32);
    for (int i = 0; i < c->samples; ++i) {
      const uint64_t at = c->offsets[static_cast<size_t>(i)];
      EXPECT_EQ(c->d[static_cast<size_t>(i)], p.d[at]);
      EXPECT_EQ(c->A(i, 17), p.a[at / 50 * static_cast<uint64_t>(inner) + 17]);
      EXPECT_EQ(c->B(i, 17), p.w[at % 50 * static_cast<uint64_t>(inner) + 17]);
    }
    const rules::MatmulReplay replay = rules::ReplayMatmul(*c);
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

}  // namespace
}  // namespace plumbline::agent
