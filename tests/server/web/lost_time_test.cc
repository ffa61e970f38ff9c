// The time that ranks lost by an incident is stated only if the server's data decide it.
#include "server/web/lost_time.h"

#include <gtest/gtest.h>

namespace plumbline::server {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

v1::Incident IncidentOf(const char* rule, int64_t opened_seconds = 0) {
  v1::Incident incident;
  incident.mutable_finding()->set_rule(rule);
  incident.set_opened_unix_ns(opened_seconds * kSecond);
  return incident;
}

// Rank 7 of 8 made no step for 20 s when it was reported, at second 100.
v1::Incident Hang() {
  v1::Incident incident = IncidentOf("performance/hang", 100);
  v1::Finding& finding = *incident.mutable_finding();
  finding.mutable_measured()->set_value(20);
  finding.mutable_site()->set_step_last(13);
  auto& details = *finding.mutable_details()->mutable_fields();
  details["ranks"].mutable_list_value()->add_values()->set_number_value(7);
  for (int rank = 0; rank < 7; ++rank)
    details["waiting"].mutable_list_value()->add_values()->set_number_value(rank);
  return incident;
}

double Seconds(const v1::Incident& incident, const RunTimes& times,
               const v1::IncidentStatus& status = {}) {
  const auto lost = LostBy(incident, status, times);
  return lost ? lost->rank_seconds : -1;
}

TEST(LostTime, OfAHangLastsUntilNowOrUntilTheProcessesEnd) {
  v1::RunInfo info;
  info.set_newest_step(14);
  info.set_ranks_connected(8);
  EXPECT_EQ(Seconds(Hang(), {&info, 400 * kSecond}), 8 * 320);
  EXPECT_EQ(LostBy(Hang(), {}, {&info, 400 * kSecond})->of, "8 ranks made no step for 320 s");
  info.set_ranks_connected(0);
  info.set_last_seen_unix_ns(160 * kSecond);
  EXPECT_EQ(Seconds(Hang(), {&info, 400 * kSecond}), 8 * 80);
  info.set_last_seen_unix_ns(90 * kSecond);
  EXPECT_EQ(Seconds(Hang(), {&info, 400 * kSecond}), 8 * 20) << "what was measured";
}

TEST(LostTime, OfAHangThatEndedIsTheLongestPause) {
  v1::RunInfo info;
  info.set_ranks_connected(8);
  info.set_newest_step(500);
  EXPECT_EQ(Seconds(Hang(), {&info, 400 * kSecond}), -1) << "the server was restarted since";
  EXPECT_EQ(Seconds(Hang(), {&info, 400 * kSecond, {}, 10}), -1) << "another pause";
  EXPECT_EQ(Seconds(Hang(), {&info, 400 * kSecond, {}, 45}), 8 * 45);
}

// Resolved 30 s after it was reported with 20 s: 50 s on 8 ranks, however long the run lasts then.
TEST(LostTime, OfAHangThatWasResolvedStaysWhenTheRunIsOver) {
  v1::RunInfo info;
  info.set_newest_step(500);
  v1::Incident hang = Hang();
  hang.set_state(v1::Incident::STATE_RESOLVED);
  hang.set_updated_unix_ns(130 * kSecond);
  hang.set_count(1);
  EXPECT_EQ(Seconds(hang, {&info, 4000 * kSecond}), 8 * 50);
  EXPECT_EQ(Seconds(hang, {&info, 4000 * kSecond, {}, 45}), 8 * 50);
  hang.set_count(2);  // healthy steps may lie between two hangs of one incident
  EXPECT_EQ(Seconds(hang, {&info, 4000 * kSecond}), -1);
  EXPECT_EQ(Seconds(hang, {&info, 4000 * kSecond, {}, 45}), 8 * 45);
  hang.set_count(1);
  hang.set_updated_unix_ns(90 * kSecond);  // a clock that was set back
  EXPECT_EQ(Seconds(hang, {&info, 4000 * kSecond}), -1);
}

TEST(LostTime, OfAnIncidentIsThatOfItsLongestSymptomIfItsRuleMeasuredNone) {
  const auto change = [](const char* rule, double seconds, bool on_gpus) {
    IncidentTable::Change one;
    one.incident = IncidentOf(rule);
    one.status.set_lost_rank_seconds(seconds);
    one.status.set_lost_on_gpus(on_gpus);
    return one;
  };
  auto root = change("performance/data-stall", 0, false);
  const auto idle = change("performance/idle-comb", 40, false);
  const auto straggler = change("performance/straggler", 90, true);
  const auto stall = change("health/loss-stall", 0, false);
  EXPECT_EQ(LostBy(root, {}, {}), std::nullopt);
  EXPECT_EQ(LostBy(root, {&stall}, {}), std::nullopt);
  const auto lost = LostBy(root, {&idle, &straggler, &stall}, {});
  ASSERT_TRUE(lost.has_value());
  EXPECT_EQ(lost->rank_seconds, 90) << "the symptoms overlap in time, so they are not added";
  EXPECT_TRUE(lost->on_gpus);
  EXPECT_EQ(lost->of, "measured in the steps of the finding (performance/straggler)");
  EXPECT_FALSE(LostBy(root, {&idle}, {})->on_gpus);
  root.status.set_lost_rank_seconds(7);
  EXPECT_EQ(LostBy(root, {&straggler}, {})->rank_seconds, 7) << "its own measurement";
}

TEST(LostTime, OfACrashIsThatOfRepeatedSteps) {
  v1::RunInfo info;
  info.set_world_size(16);
  const auto attempt = [&info](int64_t first, int64_t last) {
    v1::AttemptInfo& one = *info.add_attempts();
    one.set_step_first(first);
    one.set_step_last(last);
  };
  attempt(0, 119);
  const v1::Incident died = IncidentOf("health/run-died");
  EXPECT_EQ(Seconds(died, {&info, 0, {2}}), -1) << "it was not restarted";
  attempt(100, 150);
  EXPECT_EQ(Seconds(died, {&info, 0, {2, 3}}), 20 * 2 * 16);
  EXPECT_EQ(LostBy(died, {}, {&info, 0, {2, 3}})->of, "20 steps were repeated on 16 ranks");
  EXPECT_EQ(Seconds(died, {&info, 0, {0, 3}}), -1) << "the length of its steps is not known";
  attempt(151, 170);
  EXPECT_EQ(Seconds(died, {&info, 0, {2, 0, 0}}), 20 * 2 * 16) << "nothing else is repeated";
}

TEST(LostTime, OfOtherIncidentsIsWhatTheirRuleMeasured) {
  v1::IncidentStatus status;
  EXPECT_EQ(Seconds(IncidentOf("performance/straggler"), {}, status), -1);
  EXPECT_EQ(Seconds(IncidentOf("performance/hang"), {}, status), -1) << "the run is not known";
  status.set_lost_rank_seconds(7200);
  EXPECT_EQ(Seconds(IncidentOf("performance/straggler"), {}, status), 7200);
}

}  // namespace
}  // namespace plumbline::server
