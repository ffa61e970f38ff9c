// Tests the attempt of a process that sends none. A job that is restarted under its name continues
// as the next attempt; no other process does.
#include "server/stream/attempts.h"

#include <gtest/gtest.h>

namespace plumbline::server {
namespace {

class AttemptsTest : public ::testing::Test {
 protected:
  static v1::Hello HelloOf(uint64_t stream, uint32_t rank, uint32_t stated = 0, uint32_t world = 2,
                           v1::Role role = v1::ROLE_TRAINER) {
    v1::Hello hello;
    hello.set_stream_id(stream);
    v1::Source& source = *hello.add_sources();
    source.set_run("r");
    source.set_rank(rank);
    source.set_attempt(stated);
    source.set_world_size(world);
    source.set_role(role);
    return hello;
  }
  // Returns the attempt that the process gets.
  uint32_t Join(v1::Hello hello) {
    const uint32_t ahead = attempts_.Ahead(hello);
    Attempts::Raise(ahead, hello.mutable_sources());
    attempts_.Joined(hello.stream_id(), {hello.sources().begin(), hello.sources().end()}, ahead);
    return hello.sources(0).attempt();
  }
  uint32_t Join(uint64_t stream, uint32_t rank, uint32_t stated = 0, uint32_t world = 2) {
    return Join(HelloOf(stream, rank, stated, world));
  }
  void Leave(std::initializer_list<uint64_t> streams) {
    for (const uint64_t stream : streams) attempts_.Left(stream);
  }

  Attempts attempts_;
};

TEST_F(AttemptsTest, ARestartIsTheNextAttemptOnAllItsRanks) {
  EXPECT_EQ(Join(1, 0), 0u);
  EXPECT_EQ(Join(2, 1), 0u);
  Leave({1, 2});
  EXPECT_EQ(Join(3, 1), 1u);
  EXPECT_EQ(Join(4, 0), 1u);
  Leave({3, 4});
  EXPECT_EQ(Join(5, 0), 2u);
  Leave({5});
  EXPECT_EQ(Join(6, 1), 2u) << "its fellow has ended already";
}

TEST_F(AttemptsTest, AProcessKeepsItsAttempt) {
  Join(1, 0);
  Leave({1});
  EXPECT_EQ(Join(3, 0), 1u);
  Leave({3});
  EXPECT_EQ(Join(3, 0), 1u) << "its connection broke, and it is back";
  Leave({3});
  EXPECT_EQ(Join(1, 0), 0u) << "words of the first one were still on their way";
}

TEST_F(AttemptsTest, WhatIsDeclaredLaterIsTakenAsDeclared) {
  Join(1, 0);
  Leave({1});
  EXPECT_EQ(Join(2, 0, 3), 3u);
  EXPECT_EQ(Join(3, 1, 3), 3u);
  Leave({2, 3});
  EXPECT_EQ(Join(4, 0, 0), 4u) << "launched anew: it counts from 0 again";
  EXPECT_EQ(Join(5, 1, 0), 4u);
  Leave({4, 5});
  EXPECT_EQ(Join(6, 0, 1), 5u);
  // A late process of an attempt that was sent, not given, belongs to the attempt that it sends.
  EXPECT_EQ(Join(10, 0, 7), 7u);
  EXPECT_EQ(Join(11, 1, 6), 6u);
}

TEST_F(AttemptsTest, WhereOthersGoOnOneTakesThePlaceOfTheOneThatEnded) {
  Join(1, 0);
  Join(2, 1);
  Leave({1});
  EXPECT_EQ(Join(3, 0), 0u);
}

TEST_F(AttemptsTest, ALateRankIsOfTheSameAttempt) {
  Join(1, 0);
  Leave({1});
  EXPECT_EQ(Join(2, 1), 0u) << "it dialled when the first had ended";
}

TEST_F(AttemptsTest, AJobOfAnotherSizeIsAnotherAttempt) {
  Join(1, 0);
  Join(2, 1);
  Leave({1, 2});
  EXPECT_EQ(Join(5, 3, 0, 4), 1u) << "a rank that there was not before";
  EXPECT_EQ(Join(6, 0, 0, 4), 1u);
  EXPECT_EQ(Join(7, 1, 0, 4), 1u);
}

TEST_F(AttemptsTest, EnginesComeAndGoOneByOne) {
  EXPECT_EQ(Join(HelloOf(1, 0, 0, 2, v1::ROLE_ROLLOUT)), 0u);
  Leave({1});
  EXPECT_EQ(Join(HelloOf(2, 0, 0, 2, v1::ROLE_ROLLOUT)), 0u);
}

// A restarted server knows the given attempts.
TEST_F(AttemptsTest, ARestoredServerKnowsTheAttempts) {
  v1::Hello given = HelloOf(3, 0, 1);
  attempts_.Restore(1, {HelloOf(1, 0).sources(0)});
  attempts_.Restore(3, {given.sources(0)});
  EXPECT_EQ(Join(3, 0, 0), 1u) << "its process still sends 0";
  EXPECT_EQ(Join(1, 0, 0), 0u);
  Leave({1, 3});
  EXPECT_EQ(Join(4, 0, 0), 2u);
}

TEST_F(AttemptsTest, ForgottenAttemptsTakeNoMemory) {
  for (uint64_t stream = 1; stream <= 100; ++stream) {
    EXPECT_EQ(Join(stream, 0), stream == 1 ? 0u : 1u) << stream;
    attempts_.Forget(stream == 1 ? 0 : stream);
    Leave({1});
  }
  attempts_.Forget(1);
  EXPECT_EQ(Join(200, 0), 0u);
}

}  // namespace
}  // namespace plumbline::server
