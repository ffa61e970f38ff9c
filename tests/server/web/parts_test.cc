// Tests the parts of the page's service that need no server: ranks by steps as bytes, and access by
// host name.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "server/http/same_origin.h"
#include "server/web/cells.h"
#include "server/web/event_ids.h"
#include "server/web/host_check.h"
#include "server/web/symptoms.h"

namespace plumbline::test {
namespace {

using server::CellGrid;
using server::GridOf;

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
  // Only absent values: no evidence, and no crash for an empty range.
  auto none = Matrix(1, 2, [](uint32_t, int) { return 0.0; });
  none.set_absent("\x03");
  const CellGrid empty = GridOf(none, 4, {});
  EXPECT_EQ(static_cast<uint8_t>(empty.bytes.at(0)), CellGrid::kNoEvidence);
}

server::IncidentTable::Change Incident(const std::string& rule, int64_t step,
                                       v1::Incident::State state = v1::Incident::STATE_OPEN) {
  server::IncidentTable::Change change;
  v1::Finding& finding = *change.incident.mutable_finding();
  finding.set_rule(rule);
  finding.set_level(v1::LEVEL_ERROR);
  finding.mutable_site()->set_run("run");
  finding.mutable_site()->set_step_first(step);
  finding.mutable_site()->set_step_last(step + 30);
  finding.set_fingerprint(rule);
  change.incident.set_state(state);
  change.status.set_fingerprint("of " + rule);
  return change;
}

TEST(Symptoms, AreWithinTheRowOfTheirRoot) {
  const std::vector all = {Incident("health/loss-non-finite", 61),
                           Incident("precision/non-finite", 60)};
  const server::Symptoms symptoms(all);
  EXPECT_EQ(symptoms.RootOf(all[0]), &all[1]);
  EXPECT_EQ(symptoms.RootOf(all[1]), nullptr);
  const server::Json row = symptoms.Row(all[1]);
  ASSERT_EQ(row["symptoms"].size(), 1u);
  EXPECT_EQ(row["symptoms"][0]["fingerprint"], "of health/loss-non-finite");
}

TEST(Symptoms, AResolvedIncidentHidesNoOpenOne) {
  const std::vector all = {Incident("health/loss-non-finite", 61),
                           Incident("precision/non-finite", 60, v1::Incident::STATE_RESOLVED)};
  EXPECT_EQ(server::Symptoms(all).RootOf(all[0]), nullptr);
  // An acknowledged incident is still the cause.
  const std::vector known = {
      Incident("health/loss-non-finite", 61),
      Incident("precision/non-finite", 60, v1::Incident::STATE_ACKNOWLEDGED)};
  EXPECT_EQ(server::Symptoms(known).RootOf(known[0]), &known[1]);
}

TEST(Door, OnlyAnAddressIsANameWhereNoTokenIsRequired) {
  for (const char* good : {"127.0.0.1:7434", "localhost:7434", "localhost", "[::1]:80", "10.0.0.7",
                           "LOCALHOST:7434", "LocalHost.", "localhost.:7434"}) {
    EXPECT_TRUE(server::CheckHost(good).ok()) << good;
  }
  for (const char* bad :
       {"evil.example:7434", "", "127.0.0.1.evil.example", "localhost.evil", "[evil]", ".",
        "localhost..", "LOCALHOST.EVIL.", "evil.localhost", "[::1].evil", "[::1"}) {
    EXPECT_FALSE(server::CheckHost(bad).ok()) << bad;
  }
}

TEST(Door, WhatIsScrapedMayBeCalledByANameOfTheNetwork) {
  for (const char* good :
       {"127.0.0.1:7434", "plumbd:7434", "trainer-7", "", "[::1]:80", "localhost."}) {
    EXPECT_TRUE(server::CheckScrapeHost(good).ok()) << good;
  }
  for (const char* bad : {"evil.example:7434", "127.0.0.1.evil.example", "[evil]", "ai."}) {
    EXPECT_FALSE(server::CheckScrapeHost(bad).ok()) << bad;
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
  request.host = "H:1";
  EXPECT_TRUE(server::CheckSameOrigin(request).ok());
  request.fetch_site = "same-site";
  EXPECT_FALSE(server::CheckSameOrigin(request).ok());
  request.fetch_site = "same-origin";
  EXPECT_TRUE(server::CheckSameOrigin(request).ok());
}

TEST(EventIds, OfAPrincipalWithSomeRunsRevealNothingAndReturnToTheirServerAlone) {
  using server::EventIds;
  const EventIds ids, others;
  const std::string sealed = ids.Sealed(41);
  EXPECT_EQ(ids.FromSealed(sealed), 41u);
  EXPECT_EQ(ids.FromSealed(ids.Sealed(UINT64_MAX)), UINT64_MAX);
  EXPECT_NE(sealed, ids.Sealed(41)) << "equal positions could be recognised";
  EXPECT_EQ(others.FromSealed(sealed), std::nullopt);
  std::string changed = sealed;
  changed[20] = changed[20] == '0' ? '1' : '0';
  EXPECT_EQ(ids.FromSealed(changed), std::nullopt);
  for (const char* bad : {"", "table.41", "zz"}) EXPECT_EQ(ids.FromSealed(bad), std::nullopt);
  EXPECT_EQ(ids.FromSealed(std::string(48, 'g')), std::nullopt);

  EXPECT_EQ(EventIds::FromPlain(EventIds::Plain("a.b", 7), "a.b"), 7u);
  EXPECT_EQ(EventIds::FromPlain("other.7", "a.b"), std::nullopt);
  EXPECT_EQ(EventIds::FromPlain("a.b.-7", "a.b"), std::nullopt);
}

}  // namespace
}  // namespace plumbline::test
