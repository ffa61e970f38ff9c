// Tests hostile collectives with missing or extra ranks, extreme numbers and excessive counts: no
// crash, no unbounded work, no finding.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/rules/support/judged_reductions.h"
#include "tests/rules/support/simulated_reduction.h"

namespace plumbline::analysis {
namespace {

using rules::testing::CallOf;
using rules::testing::ForEachCall;
using rules::testing::Highest;
using rules::testing::Judge;
using rules::testing::Of;
using rules::testing::ReductionRun;
using rules::testing::ReductionSpec;
using rules::testing::Text;
using rules::testing::Verdicts;

// Tests that if an addend is missing, every element is incorrect, but no arithmetic is at fault.
TEST(Joining, ALostRecordIsNoBias) {
  for (const char* group : {"", "dp"}) {
    for (const bool numbered : {true, false}) {
      for (const int lost : {0, 3, 7}) {
        ReductionSpec s;
        s.whole = false;
        s.steps = 3;
        s.samples = 400;
        s.missing = lost;
        v1::Batch batch = ReductionRun(s);
        ForEachCall(batch, [&](v1::ReductionCall& call) {
          call.set_group(group);
          if (!numbered) call.set_group_rank(0);
        });
        const Verdicts verdicts = Judge({batch});
        const v1::Verdict* sum = Of(verdicts, "precision/collective-sum");
        ASSERT_NE(sum, nullptr);
        EXPECT_EQ(sum->reason().rfind("missing-ranks: ", 0), 0u) << Text(verdicts);
        EXPECT_EQ(Highest(verdicts), v1::LEVEL_UNSPECIFIED) << Text(verdicts);
      }
    }
  }
}

// Tests a reduce-scatter: only one rank has the result. It is judged as a sum that all ranks get.
TEST(Joining, OneRankHasTheResult) {
  for (const int owner : {0, 5}) {
    ReductionSpec s;
    s.whole = false;
    s.steps = 3;
    s.samples = 400;
    v1::Batch whole = ReductionRun(s), scattered = whole, none = whole;
    for (v1::Evidence& e : *scattered.mutable_evidence()) {
      v1::Reduction& r = *e.mutable_reduction();
      if (static_cast<int>(r.call().group_rank()) != owner) r.mutable_sample()->clear_output();
    }
    for (v1::Evidence& e : *none.mutable_evidence())
      e.mutable_reduction()->mutable_sample()->clear_output();
    const Verdicts all = Judge({whole}), one = Judge({scattered}), lost = Judge({none});
    const char* rule = "precision/collective-sum";
    ASSERT_NE(Of(all, rule), nullptr);
    ASSERT_NE(Of(one, rule), nullptr);
    EXPECT_EQ(Of(one, rule)->kind(), Of(all, rule)->kind()) << Text(one);
    EXPECT_EQ(Highest(one), Highest(all)) << Text(one);
    EXPECT_EQ(Of(lost, rule)->reason().rfind("no-result: ", 0), 0u) << Text(lost);
  }
}

TEST(Joining, AGapInTheGroupRanksIsAMissingRank) {
  ReductionSpec s;
  s.whole = false;
  s.samples = 400;
  s.missing = 3;
  v1::Batch batch = ReductionRun(s);
  ForEachCall(batch, [](v1::ReductionCall& call) {
    call.set_group("dp");
    call.set_group_size(0);
  });
  const Verdicts verdicts = Judge({batch});
  EXPECT_EQ(Of(verdicts, "precision/collective-sum")->reason().rfind("missing-ranks: rank 3", 0),
            0u)
      << Text(verdicts);
}

TEST(Joining, MoreRecordsThanRanksAreAmbiguous) {
  const auto reason = [](v1::Batch batch) {
    return Of(Judge({std::move(batch)}), "precision/collective-sum")->reason();
  };
  ReductionSpec s;
  s.whole = false;
  v1::Batch more = ReductionRun(s);
  ForEachCall(more, [](v1::ReductionCall& call) {
    call.set_group_rank(0);
    call.set_group_size(7);
  });
  EXPECT_EQ(reason(more).rfind("ambiguous-group: ", 0), 0u);
  v1::Batch twice = ReductionRun(s);
  *twice.add_evidence() = twice.evidence(2);
  EXPECT_EQ(reason(twice).rfind("ambiguous-group: rank 2", 0), 0u);
  s.whole = true;
  v1::Batch whole = ReductionRun(s);
  *whole.add_evidence() = whole.evidence(0);
  EXPECT_EQ(reason(whole).rfind("ambiguous-group: 2 records", 0), 0u);
  v1::Batch rows = ReductionRun(s);
  CallOf(rows, 0).set_group_size(9);
  EXPECT_EQ(reason(rows).rfind("bad-tensor: inputs: expected a row for each of the 9", 0), 0u);
}

// Tests that untrusted numbers are validated before loops, divisions and multiplications.
TEST(Wire, AbsurdNumbersAreRefusedOrBorne) {
  static constexpr uint64_t kOdd[] = {0,
                                      1,
                                      2,
                                      63,
                                      1u << 16,
                                      (1ull << 31) - 1,
                                      1ull << 31,
                                      (1ull << 32) - 1,
                                      1ull << 44,
                                      1ull << 62,
                                      (1ull << 63) - 1,
                                      1ull << 63,
                                      ~0ull - 1,
                                      ~0ull};
  std::mt19937 random(17);
  const auto odd = [&] { return kOdd[random() % std::size(kOdd)]; };
  for (int i = 0; i < 1500; ++i) {
    ReductionSpec s;
    s.seed = i + 1;
    s.whole = random() % 2 == 0;
    s.ranks = 2 + static_cast<int>(random() % 4);
    s.samples = 1 + static_cast<int>(random() % 8);
    s.record_count = false;
    v1::Batch batch = ReductionRun(s);
    const bool all = random() % 2 == 0;
    for (int e = 0; e < batch.evidence_size(); ++e) {
      v1::ReductionCall& call = CallOf(batch, all ? 0 : e);
      switch (random() % 8) {
        case 0:
          call.set_count(odd());
          break;
        case 1:
          call.set_group_size(static_cast<uint32_t>(odd()));
          break;
        case 2:
          call.set_channels(static_cast<uint32_t>(odd()));
          call.set_count(odd());
          break;
        case 3:
          call.set_chunk(odd());
          call.set_count(odd());
          break;
        case 4:
          call.set_group_rank(static_cast<uint32_t>(odd()));
          break;
        case 5:
          for (uint64_t n = 0; n < 2 * static_cast<uint64_t>(s.ranks); ++n)
            call.add_ring_order(static_cast<uint32_t>(odd()));
          break;
        case 6: {
          v1::ReductionSample& sample =
              *batch.mutable_evidence(e)->mutable_reduction()->mutable_sample();
          v1::Tensor& t = random() % 2 ? *sample.mutable_inputs() : *sample.mutable_output();
          t.set_shape(static_cast<int>(random() % static_cast<uint32_t>(t.shape_size())),
                      static_cast<int64_t>(odd()));
          break;
        }
        default: {
          const uint64_t value = odd();
          std::string& data = *batch.mutable_evidence(e)
                                   ->mutable_reduction()
                                   ->mutable_sample()
                                   ->mutable_offsets()
                                   ->mutable_data();
          data.replace(0, sizeof value, reinterpret_cast<const char*>(&value), sizeof value);
        }
      }
    }
    const Verdicts verdicts = Judge({batch});
    for (const v1::Verdict& v : verdicts) {
      const bool reported = v.rule() == "precision/collective-mismatch" || !v.has_finding();
      EXPECT_TRUE(reported || v.finding().level() == v1::LEVEL_NOTE) << v.ShortDebugString();
    }
  }
}

TEST(Work, ManyRanksAndFewSamples) {
  for (const int ranks : {5040, 20000}) {
    ReductionSpec s;
    s.model = "ring";
    s.ranks = ranks;
    s.samples = ranks > 10000 ? 1 : 8;
    const Verdicts verdicts = Judge({ReductionRun(s)});
    const v1::Verdict* sum = Of(verdicts, "precision/collective-sum");
    ASSERT_NE(sum, nullptr);
    EXPECT_FALSE(sum->details().fields().at("proved").bool_value()) << Text(verdicts);
    EXPECT_TRUE(sum->details().fields().contains("not_tried"));
  }
}

// Tests a group that is never complete, in a hundred thousand copies, each with a declared size of
// 2^32 - 1 ranks.
TEST(Work, ManyGroupsThatNeverComplete) {
  ReductionSpec s;
  s.whole = false;
  s.ranks = 2;
  s.samples = 1;
  s.missing = 1;
  v1::Batch batch = ReductionRun(s);
  const v1::Evidence one = batch.evidence(0);
  for (int i = 1; i < 100000; ++i) {
    v1::Evidence& e = *batch.add_evidence();
    e = one;
    e.mutable_reduction()->mutable_call()->set_group(absl::StrCat("g", i));
    e.mutable_reduction()->mutable_call()->set_group_size(~0u);
  }
  const Verdicts verdicts = Judge({batch});
  EXPECT_EQ(Highest(verdicts), v1::LEVEL_UNSPECIFIED);
  EXPECT_LT(verdicts.size(), 10u);
}

}  // namespace
}  // namespace plumbline::analysis
