// Tests every golden case with ids replaced by keyed hashes: the verdicts are the same, or
// inconclusive with a reason. Also tests that findings with hidden ids contain none of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/load.h"
#include "rules/catalogue.h"
#include "rules/words/hide_ids.h"
#include "rules/words/report_json.h"
#include "tests/rules/support/golden_case.h"
#include "tests/rules/support/routing_parts.h"
#include "tests/rules/support/synthetic_routing.h"
#include "tests/rules/support/verdicts.h"
#include "transport/redact.h"

namespace plumbline::rules {
namespace {

using testing::GoldenCase;
using transport::Redactor;
using Batches = std::vector<v1::Batch>;

std::vector<v1::Verdict> Judged(const GoldenCase& c, Batches batches) {
  std::vector<v1::Verdict> verdicts;
  auto engine = Engine::Create(testing::ConfigOf(c),
                               [&](const v1::Verdict& verdict) { verdicts.push_back(verdict); });
  EXPECT_TRUE(engine.ok()) << engine.status();
  for (v1::Batch& batch : batches) (void)(*engine)->Add(std::move(batch));
  (*engine)->Finish();
  return verdicts;
}

// Returns the outcome of a verdict without the parts that depend on the values of ids (witnesses
// and their order).
std::string Outcome(const v1::Verdict& v) {
  const v1::Finding& f = v.finding();
  std::string out = absl::StrCat(v.rule(), " at ", v.site().layer(), "/", v.site().op(), " ",
                                 v.site().step_first(), "-", v.site().step_last(), ": ",
                                 v1::Verdict::Kind_Name(v.kind()), " ", f.level(), " ",
                                 f.strength(), " ", f.cause().id(), " ", f.title());
  if (v.kind() == v1::Verdict::KIND_INCONCLUSIVE)
    absl::StrAppend(&out, v.reason().substr(0, v.reason().find(':')));
  return out;
}

std::vector<std::string> Outcomes(const std::vector<v1::Verdict>& verdicts) {
  std::vector<std::string> out;
  for (const v1::Verdict& v : verdicts) out.push_back(Outcome(v));
  std::sort(out.begin(), out.end());
  return out;
}

// Returns the number of changed items in the batches.
uint64_t Redact(const Redactor& redactor, Batches* batches) {
  uint64_t changed = 0;
  for (v1::Batch& batch : *batches) changed += redactor.Redact(&batch);
  return changed;
}

// Calls `visit` for each case with possible ids in its evidence.
void ForEachCase(const std::function<void(const char* rule, const GoldenCase&)>& visit) {
  const std::set<std::string> kinds = {"router",   "attack", "routing-pair",
                                       "logprobs", "tensor", "batch"};
  for (const CatalogueEntry& entry : Catalogue())
    for (const GoldenCase& c : testing::GoldenCases(PLUMBLINE_SOURCE_DIR, entry.info->id))
      if (kinds.contains(c.input_kind)) visit(entry.info->id, c);
}

struct Tally {
  int findings = 0, others = 0;
};

TEST(Redacted, EveryCaseGivesTheVerdictsOfTheRawIds) {
  const Redactor redactor("a key of the tests");
  std::map<std::string, Tally> judged;  // by rule
  ForEachCase([&](const char* rule, const GoldenCase& c) {
    const Batches raw = testing::InputOf(c);
    Batches redacted = raw;
    if (Redact(redactor, &redacted) == 0) return;
    const auto verdicts = Judged(c, std::move(redacted));
    const auto expected = Judged(c, raw);
    for (const v1::Verdict& v : expected) {
      if (v.rule() != rule) continue;
      Tally& tally = judged[rule];
      ++(v.kind() == v1::Verdict::KIND_FINDING ? tally.findings : tally.others);
    }
    EXPECT_EQ(Outcomes(verdicts), Outcomes(expected)) << rule << "/" << c.path.filename();
  });
  // Every rule that reads ids must occur, with and without findings.
  for (const char* rule :
       {"causality/moe-future-leak", "causality/moe-batch-dependence", "causality/moe-tie-order",
        "causality/moe-intervention", "causality/train-infer-routing", "drift/record-invalid",
        "drift/sampler-mismatch", "drift/logit-drift", "drift/staleness", "drift/drift-growth",
        "drift/missed-sync", "performance/rollout-straggler"}) {
    EXPECT_GT(judged[rule].findings, 0) << rule;
    EXPECT_GT(judged[rule].others, 0) << rule;
  }
}

// ---- two keys ----

bool OfRollout(const v1::Batch& batch, const v1::Evidence& e) {
  return batch.sources(static_cast<int>(e.source())).role() == v1::ROLE_ROLLOUT ||
         e.routing().config().mode() == "eval";
}

// Tests sides with different keys: no additional findings, and no rule that compares the sides
// passes.
TEST(Redacted, SidesUnderTwoKeysAreInconclusive) {
  const Redactor train("the trainer's own key"), rollout("the engine's own key");
  std::map<std::string, int> inconclusive;
  ForEachCase([&](const char* rule, const GoldenCase& c) {
    if (c.input_kind != "routing-pair" && c.input_kind != "logprobs") return;
    const Batches raw = testing::InputOf(c);
    Batches batches = raw;
    bool both[2] = {false, false};
    for (v1::Batch& batch : batches) {
      for (v1::Evidence& e : *batch.mutable_evidence()) {
        const bool side = OfRollout(batch, e);
        both[side ? 1 : 0] |= (side ? rollout : train).Redact(&e);
      }
    }
    if (!both[0] || !both[1]) return;
    // The drift between whole sequences must still be found.
    bool found = false;
    for (const v1::Verdict& v : Judged(c, raw))
      found |= v.rule() == rule && v.kind() == v1::Verdict::KIND_FINDING;
    for (const v1::Verdict& v : Judged(c, std::move(batches))) {
      if (v.rule() != rule) continue;
      EXPECT_TRUE(found || v.kind() != v1::Verdict::KIND_FINDING)
          << rule << "/" << c.path.filename() << ": " << v.finding().explanation();
      const bool read = v.kind() == v1::Verdict::KIND_INCONCLUSIVE;
      inconclusive[rule] += read && absl::StartsWith(v.reason(), "keys-differ");
    }
  });
  EXPECT_GT(inconclusive["causality/train-infer-routing"], 0);
}

// ---- pools that span ranks ----

Batches PartsOf(RouterPolicy policy, bool own_numbers) {
  testing::RoutingSpec spec;
  spec.policy = policy;
  spec.sequences = 8;
  spec.length = 64;
  spec.seed = 5;
  return testing::PartsOf(testing::SyntheticRouting(spec), {.own_numbers = own_numbers});
}

v1::Verdict JudgedAlone(Batches batches) {
  const auto verdicts = testing::VerdictsOf("causality/moe-future-leak", std::move(batches));
  EXPECT_EQ(verdicts.size(), 1u);
  return verdicts.empty() ? v1::Verdict() : verdicts[0];
}

// Tests that ranks with their own sequence numbers give the same verdicts: those numbers had no
// order.
TEST(Redacted, PoolsOfRanksAreJudgedWhereTheOrderIsKnown) {
  const Redactor redactor("a key of the tests");
  for (const RouterPolicy policy :
       {RouterPolicy::kScore, RouterPolicy::kFifo, RouterPolicy::kRankMajor}) {
    const Batches raw = PartsOf(policy, true);
    Batches redacted = raw;
    ASSERT_GT(Redact(redactor, &redacted), 0u);
    EXPECT_EQ(Outcome(JudgedAlone(redacted)), Outcome(JudgedAlone(raw)));
  }
}

// Tests that if ids are global, the order of the sequences of two ranks is lost. A
// first-come-first-served queue must not be reported as a leak, and a leak must not pass as a
// queue.
TEST(Redacted, PoolsOfRanksWhoseOrderIsLostAreInconclusive) {
  const Redactor redactor("a key of the tests");
  for (const RouterPolicy policy : {RouterPolicy::kScore, RouterPolicy::kFifo}) {
    Batches batches = PartsOf(policy, false);
    ASSERT_GT(Redact(redactor, &batches), 0u);
    EXPECT_THAT(JudgedAlone(batches).reason(), ::testing::StartsWith("order-redacted:"));
  }
}

TEST(Redacted, RanksUnderTwoKeysAreInconclusive) {
  for (const bool raw : {false, true}) {
    Batches batches = PartsOf(RouterPolicy::kScore, true);
    for (size_t i = 0; i < batches.size(); ++i) {
      const Redactor own(absl::StrCat("the key of rank ", i));
      if (i == 0 && raw) continue;
      ASSERT_GT(own.Redact(&batches[i]), 0u);
    }
    const v1::Verdict v = JudgedAlone(batches);
    EXPECT_THAT(v.reason(), ::testing::StartsWith("keys-differ:"));
    EXPECT_THAT(v.reason(), ::testing::HasSubstr("PLUMBLINE_REDACT_KEY"));
  }
}

// Tests an order that does not match the ids or has another length.
TEST(Redacted, AnOrderThatCannotBeIsNotJudged) {
  const Redactor redactor("a key of the tests");
  testing::RoutingSpec spec;
  spec.seed = 5;
  for (const bool cut : {false, true}) {
    v1::Batch batch = testing::SyntheticRouting(spec).Batch();
    ASSERT_GT(redactor.Redact(&batch), 0u);
    v1::RoutingSample& s = *batch.mutable_evidence(0)->mutable_routing()->mutable_sample();
    std::string* data = s.mutable_sequence_order()->mutable_data();
    if (cut) {
      data->resize(data->size() / 2);
    } else {
      data->replace(0, 4, std::string(4, '\x7f'));
    }
    EXPECT_THAT(JudgedAlone({batch}).reason(), ::testing::StartsWith("bad-tensor: sequence_order"));
  }
}

// ---- hidden ids ----

constexpr int64_t kFarSequence = 7'312'905'846'000, kFarToken = 8'465'190'273'000;

void Shift(int64_t by, v1::Tensor* t) {
  const auto dtype = static_cast<DType>(t->dtype());
  const size_t width = DTypeSize(dtype);
  if (width == 0 || IsFloating(dtype)) return;
  std::string out;
  for (size_t i = 0; i < t->data().size() / width; ++i) {
    const int64_t id = LoadInt64(t->data().data(), dtype, static_cast<int64_t>(i));
    const int64_t far = id < 0 ? id : id + by;
    out.append(reinterpret_cast<const char*>(&far), sizeof far);
  }
  t->set_dtype(v1::DTYPE_I64);
  t->set_data(out);
}

// Replaces ids by recognisable ones in the same order.
void MakeRecognisable(v1::Evidence* e) {
  if (e->routing().sample().has_sequence_id())
    Shift(kFarSequence, e->mutable_routing()->mutable_sample()->mutable_sequence_id());
  if (e->has_logprobs()) {
    for (v1::LogprobsSequence& s : *e->mutable_logprobs()->mutable_sequences()) {
      s.set_id("zq person, " + s.id());
      if (s.has_tokens()) Shift(kFarToken, s.mutable_tokens());
    }
  }
  if (!e->has_logits()) return;
  for (v1::LogitsRow& row : *e->mutable_logits()->mutable_rows())
    if (!row.sequence_id().empty()) row.set_sequence_id("zq person, " + row.sequence_id());
}

bool NamesAnId(const std::string& text) {
  return absl::StrContains(text, "7312905") || absl::StrContains(text, "8465190") ||
         absl::StrContains(text, "zq person") || absl::StrContains(text, "7.3129") ||
         absl::StrContains(text, "8.4651");
}

TEST(HideIds, NoFindingNamesOne) {
  std::map<std::string, int> named;  // by rule, from findings and reasons with raw ids
  ForEachCase([&](const char* rule, const GoldenCase& c) {
    Batches batches = testing::InputOf(c);
    for (v1::Batch& batch : batches)
      for (v1::Evidence& e : *batch.mutable_evidence()) MakeRecognisable(&e);
    for (const v1::Verdict& v : Judged(c, std::move(batches))) {
      if (v.rule() != rule) continue;
      v1::Finding finding = v.finding();
      finding.set_rule(v.rule());
      named[rule] += NamesAnId(FindingValue(finding).dump());
      const std::string hidden = FindingValue(WithoutIds(finding)).dump();
      EXPECT_FALSE(NamesAnId(hidden)) << rule << "/" << c.path.filename() << "\n" << hidden;
      EXPECT_FALSE(NamesAnId(ReasonWithoutIds(v.rule(), v.reason()))) << v.reason();
    }
  });
  for (const char* rule :
       {"causality/moe-future-leak", "causality/moe-batch-dependence", "causality/moe-intervention",
        "causality/train-infer-routing", "drift/record-invalid", "performance/rollout-straggler"})
    EXPECT_GT(named[rule], 0) << rule << ": the search above finds nothing";
}

TEST(HideIds, NumbersOfCallsAndProseStay) {
  v1::Finding collective;
  collective.set_rule("precision/collective-mismatch");
  collective.set_explanation("Call 12 of sequence 3");
  EXPECT_EQ(WithoutIds(collective).explanation(), collective.explanation());
  v1::Finding drift;
  drift.set_rule("drift/record-invalid");
  drift.set_explanation("Equal sequence ids. The last sequence 12.5. A sequence is long.");
  EXPECT_EQ(WithoutIds(drift).explanation(),
            "Equal sequence ids. The last sequence (hidden). A sequence is long.");
}

}  // namespace
}  // namespace plumbline::rules
