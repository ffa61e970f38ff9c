// How a process handles directives: denser sampling within its budget, capsules in parts.
#include "agent/core/run/directives.h"

#include <gtest/gtest.h>

#include "agent/core/run/run.h"
#include "base/crc32c.h"
#include "base/sha256.h"
#include "tests/agent/core/support.h"

namespace plumbline::agent {
namespace {

using namespace testing;  // NOLINT: the tests' own

class DirectivesTest : public ::testing::Test {
 protected:
  DirectivesTest() {
    AgentOptions options;
    options.run = "r";
    v1::Source source;
    source.set_run("r");
    source.set_rank(3);
    source.set_world_size(4);
    state_ = std::make_shared<RunState>(options, source);
    directives_ = std::make_unique<Directives>(state_);
    site_ = state_->sites.FindOrAdd(SiteKind::kRouting, "layers.0", "routing", 0);
    directives_->OnWelcome();
  }

  static v1::Directive Send(uint64_t id, int64_t step, uint64_t offset = 0,
                            const std::string& layer = "layers.0") {
    v1::Directive directive;
    v1::SendCapsule& order = *directive.mutable_capsule();
    order.set_capsule(id);
    order.mutable_site()->set_layer(layer);
    order.mutable_site()->set_op("routing");
    order.set_step(step);
    order.set_offset(offset);
    order.set_max_bytes(8 << 20);
    return directive;
  }

  void Newest(int64_t step) { state_->newest_step.store(step); }

  // Passes the evidence of one call, with a sample of `bytes` bytes, as the drain thread does.
  void Call(int64_t step, size_t bytes, uint32_t call = 0) {
    v1::Evidence e;
    e.mutable_site()->set_layer("layers.0");
    e.mutable_site()->set_op("routing");
    e.set_step(step);
    e.set_call(call);
    const bool sampled = state_->SampleDue(*site_, step);
    if (sampled) {
      v1::Tensor& scores = *e.mutable_routing()->mutable_sample()->mutable_scores();
      for (size_t i = 0; i < bytes; ++i) *scores.mutable_data() += static_cast<char>(i * 7);
    }
    directives_->Took(*site_, sampled, e);
  }

  std::vector<v1::CapsulePart> Parts() {
    std::vector<v1::CapsulePart> parts;
    v1::AgentMessage message;
    while (directives_->Next(&message)) {
      if (message.has_capsule()) parts.push_back(message.capsule());
      message.Clear();
    }
    return parts;
  }

  v1::DirectiveReport Report() {
    v1::AgentMessage message;
    EXPECT_TRUE(directives_->Next(&message));
    return message.report();
  }

  std::string Error(const v1::Directive& directive) {
    directives_->OnDirective(directive);
    const auto parts = Parts();
    return parts.size() == 1 ? parts[0].error() : "";
  }

  std::shared_ptr<RunState> state_;
  std::unique_ptr<Directives> directives_;
  Site* site_ = nullptr;
};

std::string Whole(const std::vector<v1::CapsulePart>& parts) {
  std::string bytes;
  for (const auto& part : parts) {
    EXPECT_EQ(part.offset(), bytes.size());
    EXPECT_EQ(part.crc32c(), Crc32c(part.data().data(), part.data().size()));
    bytes += part.data();
    EXPECT_EQ(part.last(), bytes.size() == part.total());
  }
  return bytes;
}

TEST_F(DirectivesTest, TheCallsOfOneStepInParts) {
  Newest(999);
  directives_->OnDirective(Send(7, 1003));
  EXPECT_TRUE(Parts().empty());
  for (int64_t step = 1000; step < 1003; ++step) {
    Call(step, 100);
    directives_->StepEnded(step);
  }
  EXPECT_TRUE(state_->SampleDue(*site_, 1003));
  Call(1003, 300'000, 0);
  Call(1003, 300'000, 1);
  EXPECT_TRUE(Parts().empty()) << "the step is not over";
  directives_->StepEnded(1003);
  const auto parts = Parts();
  ASSERT_EQ(parts.size(), 3u);
  const std::string bytes = Whole(parts);
  EXPECT_EQ(parts.back().sha256(), Sha256Of(bytes));
  v1::Batch batch;
  ASSERT_TRUE(batch.ParseFromString(bytes));
  EXPECT_EQ(batch.sources(0).rank(), 3u);
  ASSERT_EQ(batch.evidence_size(), 2);
  EXPECT_EQ(batch.evidence(1).call(), 1u);
  EXPECT_EQ(site_->orders.capsule_step(), SiteOrders::kNever) << "one step alone";
}

TEST_F(DirectivesTest, ResumesAfterThePartsThatTheServerHolds) {
  directives_->OnDirective(Send(7, 5));
  Call(5, 900'000);
  directives_->StepEnded(5);
  v1::AgentMessage first;
  ASSERT_TRUE(directives_->Next(&first));
  directives_->OnWelcome();  // the stream broke
  EXPECT_TRUE(Parts().empty()) << "no directive came on this stream";
  directives_->OnDirective(Send(7, 5, first.capsule().data().size()));
  auto parts = Parts();
  parts.insert(parts.begin(), first.capsule());
  EXPECT_EQ(parts.back().sha256(), Sha256Of(Whole(parts)));
  // Sends it again from the start.
  directives_->OnDirective(Send(7, 5, 0));
  EXPECT_EQ(parts.back().sha256(), Sha256Of(Whole(Parts())));
}

TEST_F(DirectivesTest, StatesWhyThereIsNothing) {
  Newest(10);
  EXPECT_EQ(Error(Send(1, 11)).rfind("passed-step:", 0), 0u);
  EXPECT_EQ(Error(Send(1, 20, 0, "layers.9")).rfind("no-site:", 0), 0u);

  directives_->OnDirective(Send(2, 12));
  directives_->StepEnded(12);  // the site was not called
  EXPECT_EQ(Parts().at(0).error().rfind("no-call:", 0), 0u);

  v1::Directive small = Send(3, 14);
  small.mutable_capsule()->set_max_bytes(1000);
  directives_->OnDirective(small);
  Call(14, 5000);
  directives_->StepEnded(14);
  EXPECT_EQ(Parts().at(0).error().rfind("too-large:", 0), 0u);

  directives_->OnDirective(Send(4, 30));
  directives_->OnDirective(Send(5, 31));
  EXPECT_EQ(Parts().at(0).error().rfind("superseded:", 0), 0u);
  directives_->Finished();
  EXPECT_EQ(Parts().at(0).error().rfind("run-ended:", 0), 0u);
  EXPECT_EQ(Error(Send(6, 40)).rfind("run-ended:", 0), 0u);
}

// The directive arrived during the step: a capsule needs a complete step.
TEST_F(DirectivesTest, AStepThatHadBegunIsNoneOfIt) {
  Newest(999);
  state_->cadence.AtStepEnd(1 << 20, 1 << 10);  // few steps are sampled
  v1::Evidence unsampled;
  unsampled.set_step(1001);
  directives_->OnDirective(Send(7, 1001));
  directives_->Took(*site_, false, unsampled);
  Call(1001, 100, 1);
  directives_->StepEnded(1001);
  EXPECT_EQ(Parts().at(0).error().rfind("passed-step:", 0), 0u);
}

TEST_F(DirectivesTest, HoldsFewAndForgetsWhatIsReleased) {
  std::vector<Site*> sites;
  for (size_t i = 0; i < Directives::kMostCapsules + 1; ++i) {
    state_->sites.FindOrAdd(SiteKind::kRouting, "l" + std::to_string(i), "routing", 0);
  }
  for (size_t i = 0; i < Directives::kMostCapsules; ++i) {
    EXPECT_EQ(Error(Send(i + 1, 5, 0, "l" + std::to_string(i))), "");
  }
  EXPECT_EQ(Error(Send(9, 5, 0, "l4")).rfind("busy:", 0), 0u);
  v1::Directive release;
  release.mutable_capsule()->set_capsule(1);
  release.mutable_capsule()->set_release(true);
  directives_->OnDirective(release);
  EXPECT_EQ(Error(Send(9, 5, 0, "l4")), "");
}

// The capsule's release was lost with a connection, and the server does not request the capsule
// after the process reconnects.
TEST_F(DirectivesTest, WhatIsNotRequestedAgainMakesRoom) {
  directives_->OnDirective(Send(1, 5));
  Call(5, 100);
  directives_->StepEnded(5);
  EXPECT_TRUE(Parts().at(0).last());
  for (size_t i = 1; i < Directives::kMostCapsules; ++i) {
    const std::string layer = "l" + std::to_string(i);
    state_->sites.FindOrAdd(SiteKind::kRouting, layer, "routing", 0);
    EXPECT_EQ(Error(Send(i + 1, 50, 0, layer)), "");
  }
  state_->sites.FindOrAdd(SiteKind::kRouting, "last", "routing", 0);
  EXPECT_EQ(Error(Send(9, 50, 0, "last")).rfind("busy:", 0), 0u);
  directives_->OnWelcome();
  EXPECT_EQ(Error(Send(9, 50, 0, "last")), "");
  EXPECT_EQ(Error(Send(10, 50, 0, "layers.0")).rfind("busy:", 0), 0u) << "the others are awaited";
}

TEST_F(DirectivesTest, RequestedALaterStepItBeginsAnew) {
  directives_->OnDirective(Send(7, 5));
  Call(5, 100);
  directives_->StepEnded(5);
  EXPECT_EQ(Parts().size(), 1u);
  directives_->OnDirective(Send(7, 9));
  Call(9, 200);
  directives_->StepEnded(9);
  const auto parts = Parts();
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].step(), 9);
  EXPECT_EQ(parts[0].error(), "");
}

// The copies of the ranks differ, and no rank can detect this. The server requests a look from all
// ranks.
TEST_F(DirectivesTest, TheChecksumOfAllWeightsMeansEachOfThem) {
  Newest(100);
  state_->cadence.AtStepEnd(1 << 20, 1 << 10);
  const auto add = [&](SiteKind kind, const char* layer, const char* op) {
    Site* site = state_->sites.FindOrAdd(kind, layer, op, 0);
    site->NoteBytes(1000, 10);
    site->EndStep();
    return site;
  };
  const Site* a = add(SiteKind::kTensor, "a", "weight");
  const Site* b = add(SiteKind::kTensor, "b", "weight");
  const Site* gradient = add(SiteKind::kTensor, "a", "gradient");
  const Site* update = add(SiteKind::kUpdate, "a", "weight");
  v1::Directive directive;
  v1::SampleSite& order = *directive.mutable_sample();
  order.mutable_site()->set_op("weights_checksum");
  order.set_every(1);
  order.set_until_step(110);
  directives_->OnDirective(directive);
  EXPECT_EQ(Report().reason(), "");
  EXPECT_TRUE(state_->SampleDue(*a, 105) && state_->SampleDue(*b, 105));
  EXPECT_FALSE(state_->SampleDue(*gradient, 105) || state_->SampleDue(*update, 105));
}

TEST_F(DirectivesTest, DenserSamplingWithinTheBudget) {
  Newest(10'000);
  state_->cadence.AtStepEnd(1 << 20, 1 << 10);
  v1::Directive directive;
  v1::SampleSite& order = *directive.mutable_sample();
  order.mutable_site()->set_layer("layers.0");
  order.mutable_site()->set_op("routing");
  order.set_every(2);
  order.set_until_step(10'020);
  site_->NoteBytes(1000, 10);
  site_->EndStep();
  EXPECT_FALSE(state_->SampleDue(*site_, 10'004));
  directives_->OnDirective(directive);
  v1::DirectiveReport report = Report();
  EXPECT_EQ(report.every(), 2u);
  EXPECT_EQ(report.reason(), "");
  EXPECT_TRUE(state_->SampleDue(*site_, 10'012));
  EXPECT_TRUE(state_->SampleDue(*site_, 10'020));
  EXPECT_FALSE(state_->SampleDue(*site_, 10'013));
  EXPECT_FALSE(state_->SampleDue(*site_, 10'022)) << "over";
  EXPECT_EQ(site_->orders.NextDue(10'013, 20'000, 1), 10'014);
  EXPECT_EQ(site_->orders.NextDue(10'021, 20'000, 1), 20'000);

  // The governor makes the sampling less dense.
  state_->cadence.Stretch(4);
  EXPECT_FALSE(state_->SampleDue(*site_, 10'012 + 2));
  EXPECT_TRUE(state_->SampleDue(*site_, 10'016));

  // If a site is too large for the request, it gets the available budget, and reports this.
  state_->cadence.Stretch(1);
  site_->NoteBytes(8 << 20, 10);
  site_->EndStep();
  order.set_every(1);
  order.set_until_step(10'040);
  directives_->OnDirective(directive);
  report = Report();
  EXPECT_GT(report.every(), 1u);
  EXPECT_EQ(report.reason().rfind("budget:", 0), 0u);
  order.set_until_step(10'001);
  directives_->OnDirective(directive);
  report = Report();
  EXPECT_EQ(report.every(), 0u);
  EXPECT_EQ(report.reason().rfind("passed-step:", 0), 0u);
  directive.Clear();
  directive.set_quiet(true);
  directives_->OnDirective(directive);
  EXPECT_FALSE(state_->SampleDue(*site_, 10'012));
}

v1::Directive Stop(v1::Level level, int64_t step) {
  v1::Directive directive;
  directive.mutable_stop()->set_level(level);
  directive.mutable_stop()->set_rule("health/loss-non-finite");
  directive.mutable_stop()->set_title("the loss is NaN");
  directive.mutable_stop()->set_step_first(step);
  directive.mutable_stop()->set_step_last(step);
  return directive;
}

// For a process with the steps 100 to 120.
std::string ReasonAfter(int32_t stop_on, const std::vector<v1::Directive>& directives,
                        size_t bytes = 256) {
  AgentOptions options;
  options.run = "r";
  options.stop_on = stop_on;
  auto state = std::make_shared<RunState>(options, v1::Source());
  state->first_step.store(100);
  state->newest_step.store(120);
  Directives taken(state);
  for (const v1::Directive& directive : directives) taken.OnDirective(directive);
  std::string text(bytes, 'x');
  if (!state->stop_order.Copy({text.data(), text.size()})) return "";
  return text.substr(0, text.find('\0'));
}

TEST(StopOrder, OfTheLevelAndOfAStepOfThisProcess) {
  const auto error = Stop(v1::LEVEL_ERROR, 118), warning = Stop(v1::LEVEL_WARNING, 119);
  const std::string whole = "error health/loss-non-finite: the loss is NaN (step 118)";
  EXPECT_EQ(ReasonAfter(v1::LEVEL_ERROR, {error}), whole);
  EXPECT_EQ(ReasonAfter(v1::LEVEL_ERROR, {error, Stop(v1::LEVEL_ERROR, 120)}), whole);
  EXPECT_EQ(ReasonAfter(v1::LEVEL_ERROR, {error}, 6), "error");
  EXPECT_EQ(ReasonAfter(v1::LEVEL_WARNING, {warning}).substr(0, 7), "warning");
  EXPECT_EQ(ReasonAfter(v1::LEVEL_ERROR, {warning}), "");
  EXPECT_EQ(ReasonAfter(0, {error}), "");
  // From an earlier attempt with more steps than this one, or already over.
  EXPECT_EQ(ReasonAfter(v1::LEVEL_ERROR, {Stop(v1::LEVEL_ERROR, 99)}), "");
  EXPECT_EQ(ReasonAfter(v1::LEVEL_ERROR, {Stop(v1::LEVEL_ERROR, 121)}), "");
}

TEST_F(DirectivesTest, AnOrderThatIsNotUnderstoodIsIgnored) {
  v1::Directive unknown;
  ASSERT_TRUE(
      unknown.ParseFromString(std::string("\xfa\x07\x00", 3)));  // field 127, of a later version
  directives_->OnDirective(unknown);
  EXPECT_TRUE(Parts().empty());
  EXPECT_FALSE(state_->stop_order.Copy({}));
}

}  // namespace
}  // namespace plumbline::agent
