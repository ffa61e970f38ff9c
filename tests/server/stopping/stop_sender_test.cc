// Tests which processes get a directive to end the training, for which findings, and how often.
#include "server/stopping/stop_sender.h"

#include <gtest/gtest.h>

#include "base/clock.h"

namespace plumbline::server {
namespace {

class StopLine : public Connection {
 public:
  void OnHeld(uint64_t, bool) override {}
  void OnRefused(uint64_t, const std::string&) override {}
  void OnSuperseded() override {}
  void Resume() override {}
  const void* call() const override { return this; }
  void OnDirective(const v1::Directive& directive) override { stops.push_back(directive.stop()); }

  std::vector<v1::StopTraining> stops;
};

v1::Finding Found(const std::string& fingerprint, v1::Level level, int64_t step) {
  v1::Finding f;
  f.set_fingerprint(fingerprint);
  f.set_rule("health/" + fingerprint);
  f.set_level(level);
  f.set_title("the loss is NaN");
  f.mutable_site()->set_run("r");
  f.mutable_site()->set_step_first(step);
  f.mutable_site()->set_step_last(step);
  return f;
}

class StopSenderTest : public testing::Test {
 protected:
  static v1::Hello Hello(v1::Level level, uint64_t age_ns = 0, const std::string& run = "r") {
    v1::Hello hello;
    hello.set_directives(true);
    hello.set_stop_on(level);
    hello.set_age_ns(age_ns);
    hello.add_sources()->set_run(run);
    return hello;
  }

  std::shared_ptr<StopLine> Join(uint64_t id, const v1::Hello& hello, uint64_t connection = 1) {
    auto line = std::make_shared<StopLine>();
    sender_.Joined(id, connection, line, hello);
    return line;
  }

  void Find(const v1::Finding& finding) {
    table_.Put(finding, 1);
    sender_.OnFound(finding, finding.site());
  }

  int64_t now_ = static_cast<int64_t>(UnixNs());
  IncidentTable table_{[this] { return now_; }};
  Counters counters_;
  std::vector<v1::IncidentUpdate> kept_;
  StopSender sender_{&table_, &counters_,
                     [this](v1::IncidentUpdate update) { kept_.push_back(std::move(update)); }};
};

TEST_F(StopSenderTest, AnErrorIsOrderedToThoseWhoRequestedIt) {
  const auto error = Join(1, Hello(v1::LEVEL_ERROR)), warning = Join(2, Hello(v1::LEVEL_WARNING));
  const auto none = Join(3, Hello(v1::LEVEL_UNSPECIFIED));
  const auto other = Join(4, Hello(v1::LEVEL_ERROR, 0, "another"));
  Find(Found("a", v1::LEVEL_WARNING, 4));
  EXPECT_TRUE(error->stops.empty());
  ASSERT_EQ(warning->stops.size(), 1u);
  Find(Found("b", v1::LEVEL_ERROR, 5));
  ASSERT_EQ(error->stops.size(), 1u);
  EXPECT_EQ(error->stops[0].rule(), "health/b");
  EXPECT_EQ(error->stops[0].step_last(), 5);
  EXPECT_EQ(warning->stops.size(), 2u);
  EXPECT_TRUE(none->stops.empty());
  EXPECT_TRUE(other->stops.empty());
  EXPECT_EQ(counters_.stop_directives, 3u);
  Find(Found("c", v1::LEVEL_NOTE, 6));
  EXPECT_EQ(counters_.stop_directives, 3u);
}

TEST_F(StopSenderTest, TheFirstOrderOfAnIncidentIsKept) {
  const auto one = Join(1, Hello(v1::LEVEL_ERROR)), two = Join(2, Hello(v1::LEVEL_ERROR));
  for (int64_t step = 5; step < 9; ++step) Find(Found("a", v1::LEVEL_ERROR, step));
  EXPECT_EQ(one->stops.size(), 4u);
  ASSERT_EQ(kept_.size(), 1u);
  EXPECT_EQ(kept_[0].action(), v1::IncidentUpdate::ACTION_STOP);
  EXPECT_EQ(kept_[0].reason(), "stop_on: 2 processes of the run ordered to end at step 5");
  std::vector<v1::IncidentRevision> stated;
  table_.SetOnRevision(
      [&](const std::string&, const v1::IncidentRevision& r) { stated.push_back(r); });
  ASSERT_TRUE(table_.Apply(kept_[0]).ok());
  ASSERT_EQ(stated.size(), 1u);
  EXPECT_EQ(stated[0].change(), v1::IncidentRevision::CHANGE_STOPPED);
  EXPECT_EQ(stated[0].state(), v1::Incident::STATE_OPEN);
  EXPECT_FALSE(CheckUpdate(kept_[0]).ok()) << "people acknowledge, silence and open again";
}

TEST_F(StopSenderTest, OneConnectionGetsFewOrdersOfOneIncident) {
  const auto line = Join(1, Hello(v1::LEVEL_ERROR));
  for (int64_t step = 0; step < 1000; ++step) Find(Found("a", v1::LEVEL_ERROR, step));
  EXPECT_EQ(line->stops.size(), StopSender::kMostOfOne);
  Find(Found("b", v1::LEVEL_ERROR, 1000));
  EXPECT_EQ(line->stops.size(), StopSender::kMostOfOne + 1);
}

TEST_F(StopSenderTest, SuppressedAndSilencedFindingsOrderNothing) {
  const auto line = Join(1, Hello(v1::LEVEL_ERROR));
  v1::Finding suppressed = Found("a", v1::LEVEL_ERROR, 5);
  suppressed.set_suppressed(true);
  Find(suppressed);
  for (const auto action :
       {v1::IncidentUpdate::ACTION_ACKNOWLEDGE, v1::IncidentUpdate::ACTION_SILENCE}) {
    const v1::Finding finding = Found("b", v1::LEVEL_ERROR, 5);
    table_.Put(finding, 1);
    v1::IncidentUpdate update;
    update.set_fingerprint("b");
    update.set_action(action);
    update.set_until_step(1000);
    update.set_who("somebody");
    update.set_reason("it is known");
    ASSERT_TRUE(table_.Apply(update).ok());
    sender_.OnFound(finding, finding.site());
  }
  EXPECT_TRUE(line->stops.empty());
  Find(Found("a", v1::LEVEL_ERROR, 6));  // not suppressed any more
  EXPECT_EQ(line->stops.size(), 1u);
}

TEST_F(StopSenderTest, AProcessThatWasAwayGetsItWhenItIsBackAndANewOneDoesNot) {
  Find(Found("a", v1::LEVEL_ERROR, 7));
  const auto back = Join(1, Hello(v1::LEVEL_ERROR, 60'000'000'000));
  ASSERT_EQ(back->stops.size(), 1u);
  EXPECT_EQ(back->stops[0].step_last(), 7);
  now_ = static_cast<int64_t>(UnixNs()) - 3'600'000'000'000;  // an hour ago
  IncidentTable old([this] { return now_; });
  old.Put(Found("a", v1::LEVEL_ERROR, 7), 1);
  StopSender sender(&old, &counters_, [](const v1::IncidentUpdate&) {});
  const auto fresh = std::make_shared<StopLine>();
  sender.Joined(2, 1, fresh, Hello(v1::LEVEL_ERROR, 60'000'000'000));
  EXPECT_TRUE(fresh->stops.empty());
  const v1::Finding again =
      Found("a", v1::LEVEL_ERROR, 9);  // the same incident, in the new attempt
  old.Put(again, 2);
  sender.OnFound(again, again.site());
  EXPECT_EQ(fresh->stops.size(), 1u);
}

TEST_F(StopSenderTest, AnOlderConnectionThatLeavesTakesNothingAway) {
  const auto older = Join(1, Hello(v1::LEVEL_ERROR), 1);
  const auto newer = Join(1, Hello(v1::LEVEL_ERROR), 2);
  sender_.Left(1, 1);
  Find(Found("a", v1::LEVEL_ERROR, 5));
  EXPECT_TRUE(older->stops.empty());
  EXPECT_EQ(newer->stops.size(), 1u);
  sender_.Left(1, 2);
  Find(Found("b", v1::LEVEL_ERROR, 6));
  EXPECT_EQ(newer->stops.size(), 1u);
}

}  // namespace
}  // namespace plumbline::server
