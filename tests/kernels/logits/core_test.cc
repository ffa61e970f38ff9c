// Tests the parts of a row's measurement: the generic loops, the lanes of a device, the maximum.
#include "kernels/logits/core.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/logits/lane.h"
#include "kernels/logits/loops.h"
#include "tests/kernels/logits/rows.h"

namespace plumbline {
namespace {

TEST(LogitPair, AnyProcessorGivesTheSame) {
  Rows rows(1, kLogitChunk);
  rows.Draw(16, 0.3f);
  for (int64_t i = 0; i < 50; ++i) rows.At(1, 0, i) = kMasked;
  LogitSums<double> sums[2];
  LogitPowers powers[2];
  LogitTails tails[2];
  const LogitLoops* loops[] = {&PortableLogitLoops(), &LoopsOfLogits()};
  for (int k = 0; k < 2; ++k) {
    LogitChunk chunk[2];
    for (int s = 0; s < 2; ++s) {
      loops[k]->widen(reinterpret_cast<const std::byte*>(rows.z[s].data()), DType::kF32, nullptr,
                      200, &chunk[s]);
      RaiseMax(&sums[k].side[s], chunk[s].max);
      loops[k]->add_side(&chunk[s], &sums[k].side[s]);
    }
    const LogitReference r{rows.At(0, 0, 60), rows.At(1, 0, 60), true};
    loops[k]->add_common(chunk[0], chunk[1], r, &sums[k]);
    loops[k]->add_powers(chunk[1], sums[k].side[1].max, &powers[k]);
    loops[k]->add_tails(chunk[0], 20, chunk[1], 20, &tails[k]);
  }
  const LogitReference r{rows.At(0, 0, 60), rows.At(1, 0, 60), true};
  ExpectRow(FinishLogits(sums[1], r), FinishLogits(sums[0], r), InDoubles(1e-13));
  for (int k = 0; k < kLogitThetas; ++k)
    EXPECT_TRUE(Near(powers[1].sum[k], powers[0].sum[k], 1e-13, 0));
  EXPECT_TRUE(Near(tails[1].js, tails[0].js, 1e-13, 0));
  EXPECT_TRUE(Near(tails[1].variation, tails[0].variation, 1e-13, 0));
  for (int k = 0; k < kLogitLambdas; ++k)
    EXPECT_TRUE(Near(tails[1].downward[k], tails[0].downward[k], 1e-13, 0));
}

// Returns the largest of a round's bf16 values, packed like on a device.
PackedMost MostOf(const float (&pairs)[2][kLogitVector]) {
  PackedMost most{};
  for (int s = 0; s < 2; ++s) {
    const auto half = [&](int first) {
      const float z = *std::max_element(&pairs[s][first], &pairs[s][first] + kLogitVector / 2);
      return std::bit_cast<uint32_t>(z) >> 16;
    };
    most.side[s] = half(kLogitVector / 2) << 16 | half(0);
  }
  return most;
}

// Measures a row like a block of device threads: f32 lanes, merged in f64. `packed`: as bf16, as
// the device reads them. `begun`: a logit of each side with which the lanes begin.
template <typename Real>
LogitRow ByLanes(const Rows& rows, int64_t row, int lanes, bool packed = false,
                 const float* begun = nullptr) {
  const float* z[2];
  for (int s = 0; s < 2; ++s) z[s] = rows.z[s].data() + row * rows.vocabulary;
  LogitReference r;
  for (int64_t i = 0; i < rows.vocabulary && !r.set; ++i) {
    if (std::isfinite(z[0][i]) && std::isfinite(z[1][i])) r = {z[0][i], z[1][i], true};
  }
  const LaneReference<Real> of_rounds(r);
  std::vector<LogitLane<Real>> lane(static_cast<size_t>(lanes));
  for (auto& l : lane) {
    for (int s = 0; begun != nullptr && s < 2; ++s) l.Start(s, begun[s]);
  }
  for (int64_t i = 0; i < rows.vocabulary; i += kLogitVector) {
    float pairs[2][kLogitVector];
    for (int s = 0; s < 2; ++s) {
      for (int k = 0; k < kLogitVector; ++k) {
        pairs[s][k] = i + k < rows.vocabulary ? z[s][i + k] : kMasked;
      }
    }
    auto& taker = lane[static_cast<size_t>(i / kLogitVector % lanes)];
    if (i + kLogitVector <= rows.vocabulary && packed) {
      taker.template Add<true, true>(pairs[0], pairs[1], of_rounds, MostOf(pairs));
    } else if (i + kLogitVector <= rows.vocabulary) {
      taker.Add(pairs[0], pairs[1], of_rounds);
    } else {
      taker.AddRest(pairs[0], pairs[1], r);
    }
  }
  LogitSums<double> sums;
  for (const auto& l : lane) MergeLogits(&sums, l.Sums(r, packed, packed));
  LogitRow found = FinishLogits(sums, r);
  // Like the threads that have the largest logit: they examine their pairs again.
  Real top[2] = {-INFINITY, -INFINITY};
  for (const auto& l : lane) {
    for (int s = 0; s < 2; ++s) top[s] = std::max(top[s], l.top(s));
  }
  bool shared = false;
  for (int64_t i = 0; i < rows.vocabulary; ++i) {
    shared |= static_cast<Real>(z[0][i]) == top[0] && static_cast<Real>(z[1][i]) == top[1];
  }
  if (found.usable) found.top1_differs = !shared;
  return found;
}

TEST(LogitPair, LanesOfADeviceMergeToTheRow) {
  uint64_t seed = 100;
  for (const int64_t v : {2, 100, 4096, 50000}) {
    for (const float noise : {1e-3f, 0.05f, 2.0f}) {
      Rows rows(1, v);
      rows.Draw(seed++, noise, 1, 20);
      for (int64_t i = 5; i < v; i += 17) rows.At(0, 0, i) = rows.At(1, 0, i) = kMasked;
      SCOPED_TRACE(std::to_string(v) + " logits, noise " + std::to_string(noise));
      LogitRow expected = rows.Expected(0);
      expected.token = -1;
      expected.topk_common = 0;
      expected.logprob[0] = expected.logprob[1] = NAN;
      ExpectRow(ByLanes<double>(rows, 0, 7), expected, InDoubles(1e-9, 1e-14));
      const LogitRow found = ByLanes<float>(rows, 0, 32);
      for (int s = 0; s < 2; ++s) {
        EXPECT_TRUE(Near(found.lse[s], expected.lse[s], 1e-6, 0));
        EXPECT_TRUE(Near(found.entropy[s], expected.entropy[s], 2e-6, 2e-6));
        EXPECT_TRUE(Near(found.varentropy[s], expected.varentropy[s], 1e-5, 1e-5));
      }
      // The difference of a logit and its reference is rounded to about 2e-7.
      const double fine = 1e-4 + 2e-6 / noise;
      EXPECT_TRUE(Near(found.kl_train_rollout, expected.kl_train_rollout, fine, 1e-12));
      EXPECT_TRUE(Near(found.kl_rollout_train, expected.kl_rollout_train, fine, 1e-12));
      EXPECT_TRUE(Near(found.max_abs_delta, expected.max_abs_delta, 1e-3, 4e-6));
      EXPECT_TRUE(Near(found.slope, expected.slope, 1e-5, 0));
      EXPECT_EQ(found.top1_differs, expected.top1_differs);
      EXPECT_EQ(found.common, expected.common);
    }
  }
}

// bf16 in packed words gives the same sums to the last bit, for any place of the largest logit, and
// nearly the same sums if the lanes begin with a large logit.
TEST(LogitPair, LanesTakePackedBF16) {
  for (const int64_t v : {8, 1000, 30000}) {
    Rows rows(1, v);
    rows.Draw(static_cast<uint64_t>(v), 0.05f);
    float most[2] = {-INFINITY, -INFINITY};
    for (int s = 0; s < 2; ++s) {
      for (int64_t i = 0; i < v; ++i) {
        float& z = rows.At(s, 0, i);
        z = i % 97 == 13 ? kMasked : std::bit_cast<float>(std::bit_cast<uint32_t>(z) & 0xffff0000u);
        most[s] = std::max(most[s], z);
      }
    }
    const LogitRow plain = ByLanes<float>(rows, 0, 5), packed = ByLanes<float>(rows, 0, 5, true);
    for (int s = 0; s < 2; ++s) {
      EXPECT_EQ(packed.lse[s], plain.lse[s]);
      EXPECT_EQ(packed.entropy[s], plain.entropy[s]);
      EXPECT_EQ(packed.varentropy[s], plain.varentropy[s]);
      EXPECT_EQ(packed.lattice[s], 1.0);
    }
    EXPECT_EQ(packed.kl_train_rollout, plain.kl_train_rollout);
    EXPECT_EQ(packed.kl_rollout_train, plain.kl_rollout_train);
    EXPECT_EQ(packed.top1_differs, plain.top1_differs);
    EXPECT_EQ(packed.max_abs_delta, plain.max_abs_delta);
    const LogitRow expected = rows.Expected(0);
    for (const float above : {0.0f, 5.0f}) {
      const float begun[2] = {most[0] + above, most[1]};
      const LogitRow found = ByLanes<float>(rows, 0, 64, true, begun);
      for (int s = 0; s < 2; ++s) {
        EXPECT_TRUE(Near(found.lse[s], expected.lse[s], 1e-6, 0));
        EXPECT_TRUE(Near(found.entropy[s], expected.entropy[s], 2e-6, 2e-6));
        EXPECT_TRUE(Near(found.varentropy[s], expected.varentropy[s], 1e-5, 1e-5));
      }
      EXPECT_TRUE(Near(found.kl_train_rollout, expected.kl_train_rollout, 2e-4, 1e-12));
      EXPECT_TRUE(Near(found.kl_rollout_train, expected.kl_rollout_train, 2e-4, 1e-12));
      EXPECT_EQ(found.top1_differs, expected.top1_differs);
    }
  }
}

// Differences at the limit of the moments, all of one sign: the omitted terms of the series are
// largest.
TEST(LogitPair, MomentsLeaveOutLittle) {
  for (const float d : {0.125f, -0.125f, 0.1f}) {
    Rows rows(1, 4096);
    rows.Draw(7, 0.0f);
    for (int64_t i = 1; i < rows.vocabulary; ++i) {
      rows.At(1, 0, i) = std::round(rows.At(1, 0, i) * 64) / 64;
      rows.At(0, 0, i) = rows.At(1, 0, i) + d;
    }
    rows.At(0, 0, 0) = rows.At(1, 0, 0) = 1;  // the reference
    const LogitRow expected = rows.Expected(0), found = ByLanes<float>(rows, 0, 32);
    EXPECT_TRUE(Near(found.kl_train_rollout, expected.kl_train_rollout, 1e-4, 1e-6));
    EXPECT_TRUE(Near(found.kl_rollout_train, expected.kl_rollout_train, 1e-4, 1e-6));
  }
}

// Mixes special rounds with ordinary ones: masks on both sides and on one, masks written as a
// number, faults, differences above 1/8, logits far above the preceding ones.
TEST(LogitPair, LanesTakeWhatIsNotOrdinary) {
  const auto expect_near = [](const Rows& rows, const char* what) {
    SCOPED_TRACE(what);
    LogitRow expected = rows.Expected(0);
    const LogitRow fine = ByLanes<double>(rows, 0, 5), found = ByLanes<float>(rows, 0, 5);
    for (const LogitRow* row : {&fine, &found}) {
      EXPECT_EQ(row->common, expected.common);
      EXPECT_EQ(row->usable, expected.usable);
      for (int s = 0; s < 2; ++s) {
        EXPECT_EQ(row->finite[s], expected.finite[s]);
        EXPECT_EQ(row->non_finite[s], expected.non_finite[s]);
        if (!expected.usable) continue;
        EXPECT_TRUE(Near(row->lattice[s], expected.lattice[s], 1e-15, 0));
        const double bound = row == &fine ? 1e-12 : 2e-6;
        EXPECT_TRUE(Near(row->lse[s], expected.lse[s], bound, bound));
        EXPECT_TRUE(Near(row->entropy[s], expected.entropy[s], 5 * bound, 5 * bound));
      }
      if (!expected.usable) continue;
      // For logits up to 100 above the reference, a difference of about 0.02 is exact to 4e-6.
      const double bound = row == &fine ? 1e-10 : 2e-3;
      EXPECT_TRUE(Near(row->kl_train_rollout, expected.kl_train_rollout, bound, 1e-10));
      EXPECT_TRUE(Near(row->kl_rollout_train, expected.kl_rollout_train, bound, 1e-10));
      EXPECT_EQ(row->top1_differs, expected.top1_differs);
    }
  };
  for (const int64_t v : {1, 7, 8, 9, 100, 3001}) {
    SCOPED_TRACE(v);
    Rows rows(1, v);
    rows.Draw(static_cast<uint64_t>(v), 0.02f);
    expect_near(rows, "ordinary");
    Rows wide = rows;
    for (int64_t i = 0; i < v; i += 3) wide.At(0, 0, i) += 0.5f;
    expect_near(wide, "some beyond 1/8");
    Rows masked = rows;
    for (int64_t i = 1; i < v; i += 5) masked.At(0, 0, i) = masked.At(1, 0, i) = kMasked;
    expect_near(masked, "masked");
    for (int64_t i = 2; i < v; i += 11) masked.At(1, 0, i) = kMasked;
    expect_near(masked, "masked on one side");
    Rows rising = rows;
    for (int64_t i = 0; i < v; ++i) {
      for (int s = 0; s < 2; ++s) rising.At(s, 0, i) += static_cast<float>(i / 8) * 0.25f;
    }
    expect_near(rising, "rising");
    if (v < 3) continue;
    Rows faulty = rows;
    faulty.At(0, 0, v - 1) = NAN;
    faulty.At(1, 0, 1) = INFINITY;
    expect_near(faulty, "faults");
  }
}

// A mask of -3e38 on both sides, in rows whose other logits are ordinary: nothing becomes NaN.
TEST(LogitPair, LanesTakeMasksThatAreNumbers) {
  for (const bool first : {false, true}) {
    Rows rows(1, 4000);
    rows.Draw(9, 0.02f);
    for (int64_t i = first ? 0 : 40; i < 4000; i += 2) rows.At(0, 0, i) = rows.At(1, 0, i) = -3e38f;
    const LogitRow expected = rows.Expected(0), found = ByLanes<float>(rows, 0, 5);
    for (int s = 0; s < 2; ++s) {
      EXPECT_TRUE(Near(found.lse[s], expected.lse[s], 1e-6, 0));
      EXPECT_TRUE(Near(found.entropy[s], expected.entropy[s], 1e-5, 0));
    }
  }
}

// Finite logits up to the largest float, of either sign.
TEST(LogitPair, LanesTakeHugeLogits) {
  const auto expect = [](const Rows& rows, const char* what) {
    SCOPED_TRACE(what);
    const LogitRow expected = rows.Expected(0);
    for (const int lanes : {1, 5}) {
      const LogitRow found = ByLanes<float>(rows, 0, lanes);
      EXPECT_TRUE(found.usable);
      EXPECT_EQ(found.common, expected.common);
      EXPECT_EQ(found.top1_differs, expected.top1_differs);
      for (int s = 0; s < 2; ++s) {
        EXPECT_TRUE(Near(found.lse[s], expected.lse[s], 1e-6, 0));
        EXPECT_TRUE(Near(found.entropy[s], expected.entropy[s], 1e-5, 1e-6));
        EXPECT_TRUE(Near(found.varentropy[s], expected.varentropy[s], 1e-5, 1e-6));
      }
      // At 1e15 a double resolves an eighth of the reference's logits.
      EXPECT_TRUE(Near(found.kl_train_rollout, expected.kl_train_rollout, 1e-5, 1e-2));
      EXPECT_TRUE(Near(found.kl_rollout_train, expected.kl_rollout_train, 1e-5, 1e-2));
      EXPECT_TRUE(Near(found.max_abs_delta, expected.max_abs_delta, 1e-6, 1e-6));
      EXPECT_TRUE(Near(found.slope, expected.slope, 1e-5, 0));
    }
  };
  for (const float huge : {2e9f, 1e15f, 1e38f, 2.3e38f, 3.4e38f}) {
    SCOPED_TRACE(huge);
    Rows rows(1, 203);
    rows.Draw(3, 0.02f);
    Rows late = rows, early = rows, twice = rows, all = rows;
    late.At(0, 0, 200) = late.At(1, 0, 200) = huge;
    expect(late, "the last but one");
    early.At(0, 0, 1) = early.At(1, 0, 1) = huge;
    expect(early, "early");
    for (const int64_t at : {3, 77, 130}) twice.At(0, 0, at) = twice.At(1, 0, at) = huge;
    twice.At(0, 0, 50) = twice.At(1, 0, 50) = -huge;
    expect(twice, "some, and one below");
    for (int64_t i = 0; i < 203; ++i) all.At(0, 0, i) = all.At(1, 0, i) = i % 2 == 0 ? huge : -huge;
    expect(all, "nothing else");
  }
}

TEST(LogitPair, TheLargestAreThoseOfASort) {
  std::mt19937 random(4);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::pair<float, int32_t>> all;
    TopLogits top;
    const int n = static_cast<int>(random() % 40);
    for (int32_t i = 0; i < n; ++i) all.push_back({static_cast<float>(random() % 12), i});
    std::shuffle(all.begin(), all.end(), random);
    for (const auto& [z, at] : all) {
      if (top.Takes(z)) top.Insert(z, at);
    }
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
    ASSERT_EQ(top.count, std::min(n, kTopLogits));
    for (int i = 0; i < top.count; ++i) EXPECT_EQ(top.at[i], all[static_cast<size_t>(i)].second);
  }
}

}  // namespace
}  // namespace plumbline
