// What of the page's service needs no server: a finding in short, ranks by steps as bytes, who is
// let through the door.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "server/web/cells.h"
#include "server/web/door.h"
#include "server/web/what_to_do.h"

namespace plumbline::test {
namespace {

using server::CellGrid;
using server::GridOf;
using server::ShortOf;

v1::Finding Fix(const std::string& fix,
                const std::string& title = "routing looks into the future") {
  v1::Finding finding;
  finding.set_rule("causality/moe-future-leak");
  finding.set_title(title);
  finding.set_fix(fix);
  return finding;
}

TEST(WhatToDo, TheFirstSentenceOfTheFixAndWhatStandsInBackticks) {
  const auto in_short = ShortOf(Fix(
      "Drop by position, e.g. `--moe-token-drop-policy position`. Or use `drop_tokens=False`."));
  EXPECT_EQ(in_short.act, "Drop by position, e.g. `--moe-token-drop-policy position`.");
  EXPECT_EQ(in_short.command(), "--moe-token-drop-policy position");
  EXPECT_EQ(in_short.commands.size(), 2u);
  EXPECT_EQ(ShortOf(Fix("Compute the logits in fp32 (3.5 GB more) on both sides")).act,
            "Compute the logits in fp32 (3.5 GB more) on both sides");
  EXPECT_EQ(ShortOf(Fix("Compute the logits in fp32 on both sides")).command(), "");
  EXPECT_EQ(ShortOf(Fix("")).act, "Read what causality/moe-future-leak checks.");
}

TEST(WhatToDo, WhatStandsInParenthesesByFrameworkIsACommandOfItsOwn) {
  const auto in_short =
      ShortOf(Fix("Drop by position instead of by score (Megatron-LM: --moe-token-drop-policy "
                  "position), or route "
                  "without capacity (Megatron-LM: no --moe-expert-capacity-factor; DeepSpeed: "
                  "drop_tokens=False)."));
  EXPECT_EQ(in_short.act, "Drop by position instead of by score, or route without capacity.");
  ASSERT_EQ(in_short.commands.size(), 3u);
  EXPECT_EQ(in_short.commands[0].where, "Megatron-LM");
  EXPECT_EQ(in_short.commands[0].text, "--moe-token-drop-policy position");
  EXPECT_EQ(in_short.commands[2].where, "DeepSpeed");
  EXPECT_EQ(in_short.commands[2].text, "drop_tokens=False");
  EXPECT_TRUE(ShortOf(Fix("Look at it (see: nothing, and ((broken")).commands.empty());
}

TEST(WhatToDo, ARuleThatSaysItItselfIsBelieved) {
  v1::Finding finding = Fix("Do `this` first.");
  auto& details = *finding.mutable_details()->mutable_fields();
  details["act"].set_string_value("Stop the run.");
  details["command"].set_string_value("kill -STOP 1");
  details["title_short"].set_string_value("NaN");
  const auto in_short = ShortOf(finding);
  EXPECT_EQ(in_short.act, "Stop the run.");
  EXPECT_EQ(in_short.command(), "kill -STOP 1");
  EXPECT_EQ(in_short.commands.at(1).text, "this");
  EXPECT_EQ(in_short.title, "NaN");
}

TEST(WhatToDo, ALongTitleIsCutBetweenCharacters) {
  std::string title;
  for (int i = 0; i < 200; ++i) title += "\u00e4";
  const std::string cut = ShortOf(Fix("", title)).title;
  EXPECT_EQ(cut, title.substr(0, 2 * server::kShort) + "\u2026");
  EXPECT_EQ(ShortOf(Fix("", "the loss became NaN and stays so: every weight is lost")).title,
            "the loss became NaN and stays so");
}

TEST(WhatToDo, RanksAreRanges) {
  v1::FindingSite site;
  for (const uint32_t rank : {5u, 3u, 4u, 9u}) site.add_ranks(rank);
  EXPECT_EQ(server::RankText(site), "3\u20135, 9");
  for (uint32_t rank = 20; rank < 60; rank += 2) site.add_ranks(rank);
  EXPECT_EQ(server::RankText(site), "3\u20135, 9, 20, 22, 24, 26, 28, 30 and 14 more");
}

v1::SeriesColumns Matrix(uint32_t ranks, int steps,
                         const std::function<double(uint32_t, int)>& value) {
  v1::SeriesColumns columns;
  columns.set_bucket_steps(1);
  for (uint32_t rank = 0; rank < ranks; ++rank) columns.add_rank(rank);
  for (int step = 0; step < steps; ++step) columns.add_step(step);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    for (int step = 0; step < steps; ++step) columns.add_mean(value(rank, step));
  }
  return columns;
}

TEST(Cells, OneRankThatDiffersIsSeenAmongNeighboursThatAreMerged) {
  const auto columns = Matrix(1000, 50, [](uint32_t rank, int step) {
    return rank == 613 && step == 20 ? 9.0 : 1.0 + 0.001 * (rank % 7);
  });
  const CellGrid grid = GridOf(columns, 100, {});
  ASSERT_EQ(grid.first_rank.size(), 100u);
  ASSERT_EQ(grid.bytes.size(), 100u * 50);
  const size_t row = 61;
  EXPECT_EQ(grid.first_rank[row], 610u);
  EXPECT_EQ(grid.last_rank[row], 619u);
  EXPECT_EQ(static_cast<uint8_t>(grid.bytes[row * 50 + 20]), CellGrid::kMost);
  EXPECT_LE(static_cast<uint8_t>(grid.bytes[row * 50 + 21]), CellGrid::kMost);
}

TEST(Cells, ARankMayStandAloneAndNothingFiniteIsNotHidden) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  auto columns = Matrix(40, 3, [&](uint32_t rank, int step) {
    return rank == 7 && step == 1 ? kNan : static_cast<double>(rank);
  });
  std::string absent((40 * 3 + 7) / 8, '\0');
  absent[0] = 1;  // rank 0, step 0
  columns.set_absent(absent);
  const CellGrid grid = GridOf(columns, 4, {17});
  ASSERT_EQ(grid.first_rank.size(), grid.bytes.size() / 3);
  EXPECT_EQ(static_cast<uint8_t>(grid.bytes[1]), CellGrid::kNotFinite);
  bool alone = false;
  for (size_t row = 0; row < grid.first_rank.size(); ++row) {
    alone |= grid.first_rank[row] == 17 && grid.last_rank[row] == 17;
  }
  EXPECT_TRUE(alone);
  // Nothing but what is absent: no evidence, and no crash for a range that there is none of.
  auto none = Matrix(1, 2, [](uint32_t, int) { return 0.0; });
  none.set_absent("\x03");
  const CellGrid empty = GridOf(none, 4, {});
  EXPECT_EQ(static_cast<uint8_t>(empty.bytes.at(0)), CellGrid::kNoEvidence);
}

TEST(Door, OnlyAnAddressIsANameWhereNobodyIsAsked) {
  for (const char* good :
       {"127.0.0.1:7434", "localhost:7434", "localhost", "[::1]:80", "10.0.0.7"}) {
    EXPECT_TRUE(server::CheckHost(good).ok()) << good;
  }
  for (const char* bad :
       {"evil.example:7434", "", "127.0.0.1.evil.example", "localhost.evil", "[evil]"}) {
    EXPECT_FALSE(server::CheckHost(bad).ok()) << bad;
  }
}

TEST(Door, AChangeIsOursOrShowsAToken) {
  server::WebRequest request;
  request.host = "h:1";
  EXPECT_FALSE(server::CheckSameOrigin(request).ok()) << "a cookie alone";
  request.caller.authorization = "Bearer x";
  EXPECT_TRUE(server::CheckSameOrigin(request).ok());
  request.origin = "https://evil.example";
  EXPECT_FALSE(server::CheckSameOrigin(request).ok());
  request.origin = "null";
  EXPECT_FALSE(server::CheckSameOrigin(request).ok());
  request.origin = "https://h:1";
  EXPECT_TRUE(server::CheckSameOrigin(request).ok());
  request.fetch_site = "same-site";
  EXPECT_FALSE(server::CheckSameOrigin(request).ok());
  request.fetch_site = "same-origin";
  EXPECT_TRUE(server::CheckSameOrigin(request).ok());
}

}  // namespace
}  // namespace plumbline::test
