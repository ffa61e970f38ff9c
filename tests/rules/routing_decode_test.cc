// Tests the decoded call: sorted keys, repeated rows, dense ids.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "analysis/routing/policies/cell_keys.h"
#include "tests/rules/support/synthetic_routing.h"

namespace plumbline::rules {
namespace {

using testing::SyntheticRouting;

TEST(RoutingKeys, OfChoicesAreTheKeysOneByOne) {
  v1::Batch batch = SyntheticRouting({.policy = RouterPolicy::kScore}).Batch();
  v1::Routing& routing = *batch.mutable_evidence(0)->mutable_routing();
  const float masked = -INFINITY;  // not a choice, so it has no key, only a share of zero
  auto* data = routing.mutable_sample()->mutable_scores()->mutable_data();
  std::memcpy(data->data() + 4, &masked, sizeof(masked));
  const auto c = DecodeRouting(routing);
  ASSERT_TRUE(c.ok()) << c.status();
  const std::vector<uint8_t> all_cells(static_cast<size_t>(c->pools * c->experts), 1);
  for (KeyKind kind : KeyKinds(*c)) {
    const KeyReader reader(*c, kind);
    const std::vector<Key> keys = KeysOfChoices(*c, all_cells, kind);
    ASSERT_EQ(keys.size(), c->choices.size());
    for (size_t i = 0; i < keys.size(); ++i) {
      const Choice& choice = c->choices[i];
      const Key key = reader.At(choice.token, choice.expert, choice.rank);
      ASSERT_EQ(keys[i].value, key.value) << KeyName(kind);
      ASSERT_EQ(keys[i].tolerance, key.tolerance);
      const double alone = KeyValue(*c, kind, choice.token, choice.expert, choice.rank);
      ASSERT_NEAR(alone, key.value, 1e-13 * std::fabs(alone)) << KeyName(kind);
    }
    EXPECT_FALSE(std::isnan(reader.At(0, 1, 0).value)) << KeyName(kind);
    EXPECT_FALSE(std::isnan(reader.At(0, 1, 0).tolerance)) << KeyName(kind);
  }
}

// Tests that keys by cell, from the first cell or from all at once, equal the keys by row.
TEST(RoutingKeys, CellsHaveTheKeysOfTheirChoices) {
  const v1::Batch batch =
      SyntheticRouting({.policy = RouterPolicy::kScore, .sequences = 32, .length = 256}).Batch();
  const auto c = DecodeRouting(batch.evidence(0).routing());
  ASSERT_TRUE(c.ok()) << c.status();
  const CellChoices cells = GroupByCell(*c, std::vector<uint8_t>(8, 1));
  ASSERT_GT(cells.begin.back(), 8192U);
  for (KeyKind kind : KeyKinds(*c)) {
    for (QueueBy by : {QueueBy::kChoice, QueueBy::kBestOfRow, QueueBy::kSumOfRow}) {
      const std::vector<Key> all = KeysOfChoices(*c, std::vector<uint8_t>(8, 1), kind, by);
      for (bool fits : {false, true}) {
        CellKeys keys(*c, cells, kind);
        for (size_t i = 0; i < cells.size(); ++i) {
          const std::span<const Key> cell = keys.Cell(i, by, fits);
          const std::span<const int32_t> choices = cells.ChoicesOf(i);
          ASSERT_EQ(cell.size(), choices.size());
          for (size_t n = 0; n < cell.size(); ++n) {
            const Key& key = all[static_cast<size_t>(choices[n])];
            ASSERT_EQ(cell[n].value, key.value) << KeyName(kind) << " cell " << i;
            ASSERT_EQ(cell[n].tolerance, key.tolerance);
          }
        }
      }
    }
  }
}

TEST(RoutingTensors, RepeatedRowsAreFoundInAnyOrder) {
  std::mt19937 random(5);
  for (const int64_t step : {int64_t{1}, int64_t{1} << 40}) {
    std::vector<int64_t> sequence, position;
    std::vector<int32_t> rows;
    for (int32_t t = 0; t < 400; ++t) {
      rows.push_back(t);
      sequence.push_back(t % 7 == 0 ? INT64_MIN : t % 5);
      position.push_back((t - 200) * step);
    }
    EXPECT_LT(FindRepeated(rows, sequence, position).first, 0);
    std::shuffle(rows.begin(), rows.end(), random);
    EXPECT_LT(FindRepeated(rows, sequence, position).first, 0);
    sequence[33] = sequence[311];
    position[33] = position[311];
    const RepeatedRows twice = FindRepeated(rows, sequence, position);
    EXPECT_EQ(twice.first, 33);
    EXPECT_EQ(twice.second, 311);
  }
}

TEST(RoutingTensors, IdsAreNumberedAsTheyAppear) {
  const DenseIds dense = NumberIds({9, 9, -4, 9, INT64_MAX, -4});
  EXPECT_EQ(dense.of_row, (std::vector<int32_t>{0, 0, 1, 0, 2, 1}));
  EXPECT_EQ(dense.count, 3);
}

}  // namespace
}  // namespace plumbline::rules
