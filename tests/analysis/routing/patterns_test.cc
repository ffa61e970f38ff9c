// Tests cuts and tables: the required explanation before they excuse a router.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "analysis/routing/policies/cut.h"
#include "analysis/routing/policies/table.h"

namespace plumbline::analysis {
namespace {

// A case of top-1 choices by row: expert e is '0' + e if kept, 'a' + e if refused.
class Recording {
 public:
  Recording(int experts, int sequences) : sequences_(sequences) {
    case_.routing = &routing_;
    case_.experts = experts;
    case_.top_k = 1;
    case_.pool_basis = PoolBasis::kRecorded;
    case_.first_choice = {0};
  }
  // By row; if there are several sequences, by position.
  void Add(const std::string& rows) {
    for (char fate : rows) Add(fate >= 'a' ? fate - 'a' : fate - '0', fate < 'a');
  }
  void Add(int expert, bool kept) {
    case_.choices.push_back({case_.tokens, expert, 0, kept});
    case_.first_choice.push_back(static_cast<int32_t>(case_.choices.size()));
    case_.sequence.push_back(case_.tokens % sequences_);
    case_.position.push_back(case_.tokens / sequences_);
    case_.pool.push_back(0);
    case_.rows.push_back(RowState::kExplained);
    ++case_.tokens;
    ++case_.judged_rows;
    case_.dropped += kept ? 0 : 1;
    case_.pool_rows = {case_.tokens};
  }
  QueueCut Cut() const { return FindCut(case_, FindSaturation(case_), TimeQueues(case_)); }
  PositionTable Table() const { return FindTable(case_, FindSaturation(case_), TimeQueues(case_)); }

 private:
  v1::Routing routing_;
  RoutingCase case_;
  int sequences_;
};

std::string Repeat(const std::string& part, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += part;
  return out;
}

TEST(QueueCut, TwoUnequalPiecesExplainManyRefusals) {
  Recording r(3, 1);
  r.Add(Repeat("01", 10) + Repeat("ab2", 5) + Repeat("01", 6) + Repeat("ba2", 5));
  const QueueCut cut = r.Cut();
  EXPECT_TRUE(cut.fits);
  EXPECT_TRUE(cut.explains()) << cut.free_bits << " against " << cut.refusal_bits;
}

// Tests that any refusals of the only refusing expert can be separated one by one, which explains
// nothing.
TEST(QueueCut, AsManyPiecesAsRefusalsExplainNothing) {
  std::mt19937 rng(5);
  Recording r(1, 1);
  r.Add("0");
  for (int i = 0; i < 400; ++i) r.Add(rng() % 8 == 0 ? "a" : "0");
  const QueueCut cut = r.Cut();
  EXPECT_TRUE(cut.fits);
  EXPECT_FALSE(cut.explains()) << cut.free_bits << " against " << cut.refusal_bits;
}

TEST(QueueCut, EqualPiecesHaveNothingFree) {
  Recording r(2, 1);
  for (int piece = 0; piece < 12; ++piece) r.Add(Repeat("01", 12) + "a");
  const QueueCut cut = r.Cut();
  EXPECT_TRUE(cut.fits);
  EXPECT_TRUE(cut.explains()) << cut.free_bits << " against " << cut.refusal_bits;
}

TEST(QueueCut, AnAdmissionAfterARefusalNextToASteadyExpertFitsNone) {
  Recording r(2, 1);
  r.Add("a0" + Repeat("01", 20));
  EXPECT_FALSE(r.Cut().fits);
}

// Returns tokens with random choices; if a token chooses expert 0 at an odd position, it is
// refused.
Recording OddPositionsRefused(uint32_t seed, int positions) {
  std::mt19937 rng(seed);
  Recording r(4, 4);
  for (int row = 0; row < 4 * positions; ++row) {
    const auto expert = static_cast<int>(rng() % 4);
    r.Add(expert, expert > 0 || row / 4 % 2 == 0);
  }
  r.Add("0000");
  return r;
}

TEST(PositionTable, FitsWhatPositionsDecide) {
  const PositionTable table = OddPositionsRefused(3, 64).Table();
  EXPECT_TRUE(table.fits);
  // A count of variance 32 · 3/4 · 1/2 equals a given value with 3.1 bits.
  EXPECT_NEAR(table.count_bits, 3.1, 0.5);
}

TEST(PositionTable, OneFateThatDiffersRefutesIt) {
  Recording r = OddPositionsRefused(3, 64);
  r.Add("00a0");
  EXPECT_FALSE(r.Table().fits);
}

TEST(PositionTable, WhatPositionsAlsoChooseIsNoAccident) {
  Recording r(2, 4);
  for (int position = 0; position < 32; ++position) {
    r.Add(Repeat(position % 2 == 0 ? "1" : position % 4 == 1 ? "0" : "a", 4));
  }
  const PositionTable table = r.Table();
  EXPECT_TRUE(table.fits);
  EXPECT_EQ(table.count_bits, 0);
}

// Tests refusals after the last admission: a queue may have been full, so the count had to equal
// its capacity.
TEST(PositionTable, RefusalsAtTheEndMayBeAQueues) {
  Recording r = OddPositionsRefused(3, 64);
  const double before = r.Table().count_bits;
  r.Add(Repeat("a111", 16));
  const double after = r.Table().count_bits;
  EXPECT_TRUE(r.Table().fits);
  EXPECT_LT(after, before - 2);
}

TEST(PositionTable, FewRepeatsShowNothing) {
  Recording r(8, 1);
  r.Add(Repeat("01234a", 20));
  EXPECT_FALSE(r.Table().fits);
}

}  // namespace
}  // namespace plumbline::analysis
