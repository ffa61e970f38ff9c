// Tests which ranks are awaited, for how long, and which streams do not count.
#include "server/capsules/run_processes.h"

#include <gtest/gtest.h>

#include "tests/support/batches.h"

namespace plumbline::server {
namespace {

using std::chrono::seconds;
using test::SourceOf;

class AttendanceTest : public ::testing::Test {
 protected:
  using Time = RunProcesses::Time;

  static RunProcesses::Stream StreamOf(uint64_t connection, std::vector<v1::Source> sources,
                                       bool follows = true) {
    RunProcesses::Stream stream;
    stream.connection = connection;
    stream.sources = std::move(sources);
    stream.follows = follows;
    return stream;
  }
  bool Join(uint64_t stream, const v1::Source& source, Time now, uint64_t connection = 1) {
    return run_processes_.Joined(stream, StreamOf(connection, {source}), now);
  }
  bool More(std::vector<uint32_t> named, Time now, const std::map<int, uint32_t>& worlds = {}) {
    v1::FindingSite site;
    site.set_run("run");
    site.mutable_ranks()->Add(named.begin(), named.end());
    return run_processes_.MoreMayCome(site, worlds, now);
  }

  const Time start_{};
  const Time later_ = start_ + std::chrono::hours(1);
  RunProcesses run_processes_{seconds(30), start_};
};

TEST_F(AttendanceTest, RanksOfTheWorldAreWaitedForAWhile) {
  EXPECT_TRUE(Join(1, SourceOf("run", 0, 2), later_));
  EXPECT_TRUE(More({0}, later_ + seconds(9)));
  EXPECT_FALSE(More({0}, later_ + seconds(10))) << "some may carry no probe";
  EXPECT_TRUE(Join(2, SourceOf("run", 1, 2), later_ + seconds(5)));
  EXPECT_FALSE(More({0}, later_ + seconds(5)));
}

TEST_F(AttendanceTest, RanksThatAreNamedAreWaitedForLonger) {
  Join(1, SourceOf("run", 0, 1), later_);
  EXPECT_TRUE(More({0, 1}, later_ + seconds(29)));
  EXPECT_FALSE(More({0, 1}, later_ + seconds(30)));
}

TEST_F(AttendanceTest, AfterAStartOfTheServerAnyRankMayComeBack) {
  EXPECT_TRUE(More({}, start_ + seconds(29)));
  EXPECT_FALSE(More({}, start_ + seconds(30))) << "later no rank is expected";
}

// A rank that reconnects does not restart the time. A run that had no process left restarts it.
TEST_F(AttendanceTest, TheTimeBeginsWithTheFirstOfARun) {
  Join(1, SourceOf("run", 0, 3), later_);
  Join(2, SourceOf("run", 1, 3), later_);
  EXPECT_TRUE(run_processes_.Left(2, 1));
  Join(2, SourceOf("run", 1, 3), later_ + seconds(20), 2);
  EXPECT_FALSE(More({0}, later_ + seconds(20)));
  run_processes_.Left(1, 1);
  run_processes_.Left(2, 2);
  Join(1, SourceOf("run", 0, 3), later_ + seconds(40), 2);
  EXPECT_TRUE(More({0}, later_ + seconds(41)));
}

TEST_F(AttendanceTest, AnotherRoleOfTheRunIsWaitedFor) {
  v1::Source rollout = SourceOf("run", 0, 1);
  rollout.set_role(v1::ROLE_ROLLOUT);
  Join(1, rollout, later_);
  EXPECT_FALSE(More({0}, later_));
  EXPECT_TRUE(More({0}, later_, {{v1::ROLE_ROLLOUT, 1}, {v1::ROLE_TRAINER, 1}}));
  Join(2, SourceOf("run", 0, 1), later_);
  EXPECT_FALSE(More({0}, later_, {{v1::ROLE_ROLLOUT, 1}, {v1::ROLE_TRAINER, 1}}));
}

TEST_F(AttendanceTest, WhatAProcessLeftStandsForNoProcess) {
  EXPECT_TRUE(run_processes_.Joined(1, StreamOf(1, {SourceOf("run", 0, 1)}, false), later_));
  EXPECT_TRUE(More({0}, later_));
  Join(2, SourceOf("run", 0, 1), later_);
  EXPECT_FALSE(More({0}, later_));
  EXPECT_EQ(run_processes_.ProcessesOf("run").size(), 2u);
}

TEST_F(AttendanceTest, OnlyTheNewestAttemptCounts) {
  Join(1, SourceOf("run", 0, 2), later_);
  Join(2, SourceOf("run", 1, 2), later_);
  Join(3, SourceOf("run", 0, 2, 1), later_ + seconds(60));
  EXPECT_TRUE(More({0}, later_ + seconds(61)));
  ASSERT_EQ(run_processes_.ProcessesOf("run").size(), 1u);
  EXPECT_EQ(run_processes_.ProcessesOf("run")[0].stream, 3u);
  EXPECT_EQ(run_processes_.StreamsOf("run").size(), 3u);
  run_processes_.Left(3, 1);
  EXPECT_EQ(run_processes_.ProcessesOf("run").size(), 2u);
}

TEST_F(AttendanceTest, TheNewsOfConnectionsMayComeInAnyOrder) {
  EXPECT_TRUE(Join(1, SourceOf("run", 0, 1), later_, 5));
  EXPECT_FALSE(Join(1, SourceOf("run", 0, 1), later_, 4));
  EXPECT_FALSE(run_processes_.Left(1, 4));
  EXPECT_FALSE(run_processes_.Left(9, 1));
  ASSERT_NE(run_processes_.Of(1), nullptr);
  EXPECT_EQ(run_processes_.Of(1)->connection, 5u);
  EXPECT_TRUE(run_processes_.Left(1, 5));
  EXPECT_EQ(run_processes_.Of(1), nullptr);
  EXPECT_TRUE(run_processes_.ProcessesOf("run").empty());
}

// A relay has many sources, and may send the same source twice.
TEST_F(AttendanceTest, AStreamOfManySources) {
  run_processes_.Joined(
      1, StreamOf(1, {SourceOf("run", 0, 3), SourceOf("run", 1, 3), SourceOf("run", 1, 3)}),
      later_);
  EXPECT_TRUE(More({0}, later_));
  run_processes_.Joined(1, StreamOf(2, {SourceOf("run", 2, 3), SourceOf("other", 0, 1)}), later_);
  EXPECT_TRUE(More({0, 1, 2}, later_));
  run_processes_.Joined(2, StreamOf(1, {SourceOf("run", 0, 3), SourceOf("run", 1, 3)}), later_);
  EXPECT_FALSE(More({0, 1, 2}, later_));
  EXPECT_TRUE(run_processes_.Left(1, 2));
  EXPECT_TRUE(run_processes_.ProcessesOf("other").empty());
  EXPECT_EQ(run_processes_.ProcessesOf("run").size(), 2u);
}

}  // namespace
}  // namespace plumbline::server
