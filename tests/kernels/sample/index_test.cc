// Tests the sampled indices: a permutation, evenly distributed, and never changed between versions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "kernels/core/sample_index.h"
#include "kernels/sample/gather.h"
#include "tests/kernels/device/values_case.h"

namespace plumbline {
namespace {

TEST(SampleIndex, IsAPermutationOfEverySmallCount) {
  for (uint64_t count = 1; count <= 1100; ++count) {
    for (const uint64_t key :
         {uint64_t{0}, uint64_t{1}, ~uint64_t{0}, uint64_t{0x123456789abcdef} * count}) {
      std::vector<bool> seen(count);
      for (uint64_t i = 0; i < count; ++i) {
        const uint64_t index = SampleIndex(key, count, i);
        ASSERT_LT(index, count);
        ASSERT_FALSE(seen[index]) << "count " << count << " key " << key;
        seen[index] = true;
      }
    }
  }
  for (const uint64_t count : {4095u, 4096u, 4097u, 65535u, 65536u, 65537u, 1000003u}) {
    std::vector<bool> seen(count);
    for (uint64_t i = 0; i < count; ++i) seen[SampleIndex(42, count, i)] = true;
    EXPECT_EQ(std::count(seen.begin(), seen.end(), true), static_cast<int64_t>(count));
  }
}

TEST(SampleIndex, DrawsWithoutReplacementFromLargeCounts) {
  for (const uint64_t count : {uint64_t{1} << 32, (uint64_t{1} << 48) - 59, uint64_t{1} << 48}) {
    std::set<uint64_t> seen;
    for (uint64_t i = 0; i < 20000; ++i) {
      const uint64_t index = SampleIndex(7, count, i);
      ASSERT_LT(index, count);
      ASSERT_TRUE(seen.insert(index).second);
    }
  }
}

// Returns chi-squared over 100 bins: mean 99, deviation 14; 200 is 7 deviations off.
double ChiSquared(const std::vector<uint64_t>& counts) {
  double expected = 0;
  for (const uint64_t n : counts)
    expected += static_cast<double>(n) / static_cast<double>(counts.size());
  double sum = 0;
  for (const uint64_t n : counts) {
    const double off = static_cast<double>(n) - expected;
    sum += off * off / expected;
  }
  return sum;
}

TEST(SampleIndex, SpreadsEvenlyOverIndicesAndKeys) {
  for (const uint64_t count :
       {uint64_t{100}, uint64_t{1000}, uint64_t{12345600}, uint64_t{1} << 40}) {
    // Counts one draw of each of many keys, the first draws of one key, and the distance of two
    // draws.
    std::vector<uint64_t> keys(100), draws(100), gaps(100);
    for (uint64_t n = 0; n < 50000; ++n) {
      const uint64_t key = SampleKey("run", static_cast<int64_t>(n), "layers.1", "grads");
      const uint64_t first = SampleIndex(key, count, 0);
      const uint64_t second = SampleIndex(key, count, 1);
      const auto bin = [&](uint64_t index) { return static_cast<size_t>(index * 100 / count); };
      ++keys[bin(first)];
      ++gaps[bin((second + count - first - 1) % count)];  // never 0: uniform over count - 1 places
      if (n < count) ++draws[bin(SampleIndex(3, count, n))];
    }
    EXPECT_LT(ChiSquared(keys), 200) << count;
    if (count > 1000) {
      EXPECT_LT(ChiSquared(gaps), 200) << count;
    }
    if (count > 50000) {
      EXPECT_LT(ChiSquared(draws), 200) << count;
    }
  }
}

// Every order of three elements occurs, so the network is not a rotation.
TEST(SampleIndex, AllOrdersOfThreeAreAlikeOften) {
  std::vector<uint64_t> orders(27);
  for (uint64_t key = 0; key < 60000; ++key) {
    const uint64_t code = SampleIndex(internal::Mix64(key), 3, 0) * 9 +
                          SampleIndex(internal::Mix64(key), 3, 1) * 3 +
                          SampleIndex(internal::Mix64(key), 3, 2);
    ++orders[code];
  }
  int used = 0;
  for (const uint64_t n : orders) {
    if (n == 0) continue;
    ++used;
    EXPECT_NEAR(static_cast<double>(n), 10000, 6 * std::sqrt(10000.0 * 5 / 6));
  }
  EXPECT_EQ(used, 6);
}

TEST(SampleIndex, ValuesAreFixed) {
  const uint64_t key = SampleKey("exp1", 12, "layers.3", "grads");
  EXPECT_EQ(key, 3849308107174397471u);
  EXPECT_EQ(SampleIndex(key, 1000000, 0), 488515u);
  EXPECT_EQ(SampleIndex(key, 1000000, 4095), 52521u);
  EXPECT_EQ(SampleIndex(key, uint64_t{1} << 48, 1), 169949929308215u);
  EXPECT_EQ(SampleIndex(1, 7, 7), 7u) << "out of range comes back";
}

TEST(SampleKey, DistinguishesItsParts) {
  const uint64_t key = SampleKey("a", 1, "b", "c");
  EXPECT_NE(key, SampleKey("a", 2, "b", "c"));
  EXPECT_NE(key, SampleKey("ab", 1, "", "c"));
  EXPECT_NE(key, SampleKey("a", 1, "bc", ""));
  EXPECT_NE(key, SampleKey("", 1, "ab", "c"));
}

TEST(SampleIndices, AscendingAndAllWhenTheyFit) {
  EXPECT_EQ(SampleIndices(9, 3), (std::vector<uint64_t>{0, 1, 2}));
  EXPECT_TRUE(SampleIndices(9, 0).empty());
  const std::vector<uint64_t> some = SampleIndices(9, 100000, 50);
  ASSERT_EQ(some.size(), 50u);
  EXPECT_TRUE(std::is_sorted(some.begin(), some.end()));
  EXPECT_TRUE(std::adjacent_find(some.begin(), some.end()) == some.end());
}

TEST(SampledGather, TakesWhatTheIndicesName) {
  for (const DType t : kFloatingTypes) {
    for (int layout = 0; layout < 6; ++layout) {
      const ValuesCase c = Lay(t, ValuesMaker(2).Make(t, Kind::kBits, 840), layout);
      const size_t size = DTypeSize(t);
      const auto count = static_cast<uint64_t>(c.view.elements());
      std::vector<uint64_t> indices = SampleIndices(layout, count, 100);
      indices.push_back(count - 1);
      indices.push_back(0);
      indices.push_back(0);
      std::vector<std::byte> out(indices.size() * size);
      ASSERT_TRUE(GatherSamples(c.view, indices, out.data()).ok());
      for (size_t i = 0; i < indices.size(); ++i) {
        EXPECT_EQ(std::memcmp(out.data() + i * size, c.dense.data() + indices[i] * size, size), 0);
      }
    }
  }
}

TEST(SampledGather, RefusesIndicesBeyondTheTensor) {
  const float x[3] = {};
  float out[2];
  const TensorView v = TensorView::Dense(x, DType::kF32, 3);
  const uint64_t beyond[] = {2, 3};
  EXPECT_FALSE(GatherSamples(v, beyond, reinterpret_cast<std::byte*>(out)).ok());
  const uint64_t first[] = {0};
  EXPECT_FALSE(
      GatherSamples(TensorView::Dense(x, DType::kF32, 0), first, reinterpret_cast<std::byte*>(out))
          .ok());
  EXPECT_FALSE(GatherSamples(TensorView(), first, reinterpret_cast<std::byte*>(out)).ok());
}

}  // namespace
}  // namespace plumbline
