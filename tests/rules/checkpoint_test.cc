// Tests that an engine that is saved and restored between batches gives the same verdicts, bit for
// bit, as an uninterrupted engine: all golden cases and longer simulated runs. With all rules in
// the engine, every fourth case of a rule is interrupted after every batch, the others after every
// fourth batch, but about 48 times at most; every second case gets a second attempt, the others end
// and continue, because a process returned. If PLUMB_LONG=1, all cases are interrupted after every
// batch and get both.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "analysis/frame/archive_proto.h"
#include "base/archive.h"
#include "rules/catalogue.h"
#include "rules/engine/engine.h"
#include "rules/engine/report.h"
#include "tests/rules/support/golden_case.h"
#include "tests/rules/support/stepwise.h"
#include "tests/support/batches.h"

namespace plumbline::rules {
namespace {

using testing::GoldenCase;
using testing::GoldenCases;
using testing::InputOf;
using testing::Stepwise;

// Returns the bytes with map fields in order, unlike SerializeAsString.
template <typename Message>
std::string Bytes(const Message& message) {
  Archive archive;
  Message copy = message;
  archive(copy);
  return archive.Take();
}

// The output of a run, in order.
struct Judged {
  std::vector<std::string> verdicts;
  std::vector<std::string> report;  // Findings, then lines.
  std::string coverage;
  std::string end;  // The last state before the end of the run.
  int restores = 0;
};

class Judging {
 public:
  Judging(EngineConfig config, int every) : config_(std::move(config)), every_(every) {
    engine_ = Fresh();
  }

  Judged Run(const std::vector<v1::Batch>& batches) {
    size_t n = 0;
    for (const v1::Batch& batch : batches) {
      // Some cases include batches that Add rejects.
      (void)engine_->Add(batch);
      ++n;
      // A hosted run is over after each of the last three batches.
      if (config_.hosted && n + 2 >= batches.size()) EndRun(batch);
      if (every_ > 0 && n % static_cast<size_t>(every_) == 0) Interrupt();
    }
    judged_.end = engine_->Checkpoint();
    engine_->Finish();
    const Coverage coverage = engine_->coverage();
    judged_.coverage =
        absl::StrCat(coverage.judged, " ", coverage.inconclusive, " ", coverage.dropped);
    for (const v1::Finding* finding : report_->findings())
      judged_.report.push_back(Bytes(*finding));
    for (const v1::Verdict* line : report_->verdicts()) judged_.report.push_back(Bytes(*line));
    return std::move(judged_);
  }

 private:
  std::unique_ptr<Engine> Fresh() {
    auto engine = Engine::Create(config_, [this](const v1::Verdict& verdict) {
      judged_.verdicts.push_back(Bytes(verdict));
      report_->Add(verdict);
    });
    EXPECT_TRUE(engine.ok()) << engine.status();
    return engine.ok() ? std::move(*engine) : nullptr;
  }

  // Ends the runs of the batch while its processes cannot be reached, so that they may return.
  void EndRun(const v1::Batch& batch) {
    for (const v1::Source& source : batch.sources())
      engine_->MarkGone(source, LateCause::kServerAway, analysis::EndKind::kUnreachable);
    for (const v1::Source& source : batch.sources()) engine_->FinishRun(source.run());
  }

  void Interrupt() {
    const std::string bytes = engine_->Checkpoint();
    engine_ = Fresh();
    const absl::Status status = engine_->Restore(bytes);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(engine_->Checkpoint(), bytes) << "a second checkpoint differs";
    Archive written;
    written(*report_);
    const std::string report = written.Take();
    report_ = std::make_unique<Report>();
    Archive read(report);
    read(*report_);
    read.End();
    ASSERT_TRUE(read.ok()) << read.error();
    ++judged_.restores;
  }

  EngineConfig config_;
  int every_;
  Judged judged_;
  std::unique_ptr<Report> report_ = std::make_unique<Report>();
  std::unique_ptr<Engine> engine_;
};

// Returns the rules whose verdicts differ after an interruption if judged alone. For diagnosis
// after a difference.
std::string RulesThatDiffer(EngineConfig config, const std::vector<v1::Batch>& batches, int every) {
  std::string rules;
  for (const CatalogueEntry& entry : Catalogue()) {
    config.rules = {entry.info->id};
    if (Judging(config, 0).Run(batches).end != Judging(config, every).Run(batches).end)
      rules += std::string(" ") + entry.info->id;
  }
  return rules;
}

// Returns the number of interruptions. Fails if the results differ.
int Compare(const EngineConfig& config, const std::vector<v1::Batch>& batches, int every) {
  const Judged never = Judging(config, 0).Run(batches);
  const Judged often = Judging(config, every).Run(batches);
  EXPECT_EQ(never.verdicts.size(), often.verdicts.size());
  EXPECT_TRUE(never.verdicts == often.verdicts) << "verdicts differ";
  EXPECT_TRUE(never.report == often.report) << "reports differ";
  EXPECT_TRUE(never.end == often.end)
      << "states differ:" << RulesThatDiffer(config, batches, every);
  EXPECT_EQ(never.coverage, often.coverage);
  return often.restores;
}

// Returns the batches of a trainer that restarts midway: the second half is repeated as another
// attempt, and the first attempt has a final batch.
std::vector<v1::Batch> WithSecondAttempt(std::vector<v1::Batch> batches) {
  const size_t half = batches.size() / 2, all = batches.size();
  for (size_t i = half; i < all; ++i) {
    batches.push_back(batches[i]);
    for (v1::Source& source : *batches.back().mutable_sources()) source.set_attempt(1);
    if (i == (half + all) / 2) batches.push_back(batches[all - 1]);
  }
  return batches;
}

// Returns the batches of a stream that repeats its last batch twice, each time after the run's end.
std::vector<v1::Batch> WithReturns(std::vector<v1::Batch> batches) {
  for (int i = 0; i < 2 && !batches.empty(); ++i) batches.push_back(v1::Batch(batches.back()));
  for (v1::Batch& batch : batches) {
    if (batch.stream_id() == 0) batch.set_stream_id(1);
  }
  return batches;
}

bool Long() { return std::getenv("PLUMB_LONG") != nullptr; }

// Returns the number of batches between interruptions for the n-th case of a rule.
int Every(int n, size_t batches) {
  constexpr int kShare = 4;
  constexpr size_t kMost = 48;
  if (Long()) return 1;
  const size_t every = n % kShare == 0 ? 1 : std::min<size_t>(kShare, batches);
  return static_cast<int>(std::max(every, batches / kMost));
}

class EveryRule : public ::testing::TestWithParam<const CatalogueEntry*> {};

TEST_P(EveryRule, IsNotDisturbedByARestartAfterAnyStep) {
  int n = 0;
  for (const GoldenCase& c : GoldenCases(PLUMBLINE_SOURCE_DIR, GetParam()->info->id)) {
    SCOPED_TRACE(c.path.filename().string());
    const std::vector<v1::Batch> whole = InputOf(c);
    const EngineConfig every_rule = testing::ConfigOf(c);
    if (whole.size() > 1) Compare(every_rule, whole, Every(n, whole.size()));
    const std::vector<v1::Batch> steps = Stepwise(whole);
    EXPECT_GT(Compare(every_rule, steps, Every(n, steps.size())), 0);
    EngineConfig alone = testing::ConfigOf(c);
    alone.rules = {GetParam()->info->id};
    if (Long() || n % 2 == 0) Compare(alone, WithSecondAttempt(steps), 1);
    alone.hosted = true;
    if (Long() || n % 2 == 1) Compare(alone, WithReturns(steps), 1);
    if (HasFailure()) return;
    ++n;
  }
}

std::vector<const CatalogueEntry*> BuiltRules() {
  std::vector<const CatalogueEntry*> built;
  for (const CatalogueEntry& entry : Catalogue()) {
    built.push_back(&entry);
  }
  return built;
}

std::string TestName(const ::testing::TestParamInfo<const CatalogueEntry*>& info) {
  std::string name = info.param->info->id;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Checkpoint, EveryRule, ::testing::ValuesIn(BuiltRules()), TestName);

// Runs longer than the golden cases, with statistics that accumulate over steps.
struct Simulated {
  const char* name;
  const char* kind;
  const char* input;
};

class LongRun : public ::testing::TestWithParam<Simulated> {};

TEST_P(LongRun, IsNotDisturbedByRestarts) {
  GoldenCase c;
  c.input_kind = GetParam().kind;
  c.input = GetParam().input;
  EXPECT_GT(Compare({}, WithSecondAttempt(Stepwise(InputOf(c))), 1), 10);
}

INSTANTIATE_TEST_SUITE_P(
    Checkpoint, LongRun,
    ::testing::Values(
        Simulated{"Halves", "logprobs", "steps = 24\nhalves = on\nlag = 2\nnoise = moe\n"},
        Simulated{"Leak", "logprobs", "steps = 30\nsin = leak\nshare = .02\nids = on\n"},
        Simulated{"MissedSync", "logprobs", "steps = 60\nsin = missed-sync\nfrom_step = 30\n"},
        Simulated{"Logits", "logprobs", "steps = 12\nlogits = on\nsharpness = 2\n"},
        Simulated{"LogitsApart", "logprobs",
                  "steps = 12\nlogits = on\nsin = processed-against-raw\ntemperature = .7\n"},
        Simulated{"Mixture", "mixture", "steps = 130\n"},
        Simulated{"Biased", "reduction", "steps = 20\n"},
        Simulated{"Updates", "update", "steps = 30\nmax_samples = 64\n"}),
    [](const auto& run) { return std::string(run.param.name); });

// Tests summaries without samples over enough steps for rules that re-evaluate each time the
// evidence doubles.
TEST(Checkpoint, SummariesAloneAreNotDisturbed) {
  v1::Batch batch = test::BatchOf(test::SourceOf("run"));
  for (int64_t step = 0; step < 24; ++step) {
    v1::Evidence& routing = *batch.add_evidence();
    routing.mutable_site()->set_layer("layers.0");
    routing.mutable_site()->set_op("router");
    routing.set_step(step);
    routing.mutable_routing()->mutable_config()->set_experts(8);
    routing.mutable_routing()->mutable_config()->set_top_k(2);
    routing.mutable_routing()->mutable_summary()->set_tokens(64);
    v1::Evidence& logits = *batch.add_evidence();
    logits.mutable_site()->set_layer("policy");
    logits.mutable_site()->set_op("logits");
    logits.set_step(step);
    logits.mutable_logits()->mutable_config()->set_vocabulary(1000);
    v1::LogitsSummary& summary = *logits.mutable_logits()->mutable_summary();
    summary.set_rows(64);
    summary.set_usable(64);
    summary.set_kl_train_rollout(0.05);
    summary.set_kl_rollout_train(0.05);
    summary.set_max_abs_delta(0.3);
  }
  EXPECT_EQ(Compare({}, Stepwise({batch}), 1), 24);
}

}  // namespace
}  // namespace plumbline::rules
