// A plumbd that is killed, whose disk fails, whose clock jumps, and whose agents repeat, reorder
// and disconnect. After each round everything acknowledged is stored exactly once, and the findings
// are those of an uninterrupted engine for the same entries. PLUMB_LONG=1: 100 rounds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "server/journal/segment_rewrite.h"
#include "server/journal/segments.h"
#include "tests/server/chaos_agents.h"

namespace plumbline::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr uint32_t kRanks = 3;
constexpr int kShortRounds = 6;
constexpr int kLongRounds = 100;

bool Long() {
  const char* value = std::getenv("PLUMB_LONG");
  return value != nullptr && *value != '\0' && *value != '0';
}

class ChaosTest : public testing::Test {
 protected:
  void SetUp() override {
    std::ofstream(folder_.File("plumbd.toml"))
        << "[journal]\nsegment_bytes = 65536\n[checkpoint]\nseconds = 0.05\n"
           "[ingest]\nack_seconds = 0.02\n";
  }
  void TearDown() override {
    if (HasFailure() && server_)
      ADD_FAILURE() << "plumbd printed:\n" << server_->process().errors();
  }

  std::string Data() const { return folder_.File("data"); }
  std::string Journal() const { return Data() + "/journal"; }

  void Start(const std::string& grace) {
    SetFault("none");
    server_ = std::make_unique<Plumbd>(
        std::vector<std::string>{"--data", Data(), "--config", folder_.File("plumbd.toml"),
                                 "--grace", grace},
        // the fault library is loaded first
        std::vector<std::string>{"ASAN_OPTIONS=verify_asan_link_order=0",
                                 std::string("LD_PRELOAD=") + PLUMB_FAULT_LIBRARY,
                                 "PLUMB_FAULT_FILE=" + folder_.File("fault")});
    ASSERT_FALSE(server_->address().empty()) << server_->process().errors();
  }

  // Sets the fault of the disk from now on; the clock stays where it jumped.
  void SetFault(const std::string& disk) {
    std::ofstream(folder_.File("fault.new")) << disk << " " << clock_offset_;
    std::filesystem::rename(folder_.File("fault.new"), folder_.File("fault"));
  }

  void Kill() {
    server_->process().Signal(SIGKILL);
    server_->process().Wait();
    for (auto& agent : agents_) agent->Break();
  }

  // Acts like a host that crashed during a write: the newest segment ends in part of a frame, or in
  // zeros.
  void TearTail() {
    const auto segments = *server::ListSegments(Journal());
    if (segments.empty()) return;
    std::ofstream file(segments.back().path, std::ios::binary | std::ios::app);
    const size_t size = random_() % 60;
    file << std::string(size, '\0');
  }

  void Act(milliseconds how_long) {
    const auto end = Clock::now() + how_long;
    while (Clock::now() < end) {
      for (auto& agent : agents_) {
        if (random_() % 60 == 0) agent->Break();
        agent->Act(*server_);
      }
      std::this_thread::sleep_for(milliseconds(2));
    }
  }

  void CheckNothingIsLost() {
    const auto held = BatchesOfJournal(Journal());
    std::vector<const ChaosAgent*> all;
    for (const auto& agent : agents_) all.push_back(agent.get());
    for (const auto& agent : retired_) all.push_back(agent.get());
    for (const ChaosAgent* agent : all) {
      EXPECT_EQ(agent->broken_promise(), "");
      const auto of_stream = held.find(agent->stream_id());
      for (uint64_t s = 1; s <= agent->acknowledged(); ++s) {
        ASSERT_NE(of_stream, held.end()) << "stream " << agent->stream_id();
        ASSERT_TRUE(of_stream->second.contains(s)) << "batch " << s << " was acknowledged";
      }
      if (of_stream == held.end()) continue;
      for (const auto& [sequence, copies] : of_stream->second) {
        ASSERT_EQ(copies.size(), 1u) << "batch " << sequence;
        ASSERT_EQ(copies[0], agent->batch(sequence).SerializeAsString()) << "batch " << sequence;
      }
    }
  }

  size_t PackedSegments() const {
    size_t count = 0;
    const auto segments = server::ListSegments(Journal());
    for (const server::Segment& segment : *segments) {
      const auto packed = server::IsPacked(segment);
      count += packed.ok() && *packed ? 1 : 0;
    }
    return count;
  }

  uintmax_t JournalBytes() const {
    uintmax_t bytes = 0;
    const auto segments = server::ListSegments(Journal());
    if (!segments.ok()) return 0;
    for (const server::Segment& segment : *segments) {
      bytes += std::filesystem::file_size(segment.path);
    }
    return bytes;
  }

  void CheckFindings() {
    Findings expected, found;
    uintmax_t bytes = 0;
    const bool equal = Eventually([&] {
      // The clock may cause a decision meanwhile. Then there is more to judge.
      if (const uintmax_t now = JournalBytes(); now != std::exchange(bytes, now)) {
        expected = FindingsOfJournal(Journal());
      }
      found = FindingsOf(*server_);
      return found == expected;
    });
    EXPECT_TRUE(equal) << found.size() << " findings, expected " << expected.size();
  }

  void AddAttempt(uint32_t attempt, int64_t steps) {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      agents_.push_back(std::make_unique<ChaosAgent>(
          100 * (attempt + 1) + rank, SourceOf("chaos", rank, kRanks, attempt), steps,
          1000 * attempt + rank, static_cast<Age>(rank % 3)));
    }
  }

  std::mt19937 random_{5};
  long clock_offset_ = 0;
  TempFolder folder_;
  std::unique_ptr<Plumbd> server_;
  std::vector<std::unique_ptr<ChaosAgent>> agents_;
  std::vector<std::unique_ptr<ChaosAgent>> retired_;  // of an earlier attempt
};

TEST_F(ChaosTest, WhatWasAcknowledgedIsThereOnceAndMeansTheSame) {
  const int rounds = Long() ? kLongRounds : kShortRounds;
  const char* faults[] = {"none", "full", "sync", "write"};
  const int64_t steps = 200 + 8 * rounds;
  size_t packed = 0;
  AddAttempt(0, steps);
  Start("30");
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    if (round == rounds / 2) {  // the run is resumed: a new attempt supersedes
      for (auto& agent : agents_) retired_.push_back(std::move(agent));
      agents_.clear();
      AddAttempt(1, steps);
    }
    clock_offset_ += (static_cast<long>(random_() % 3) - 1) * 86400 * 365;
    SetFault("none");
    Act(milliseconds(100 + random_() % 200));
    SetFault(faults[round % 4]);
    Act(milliseconds(random_() % 150));
    if (random_() % 2 == 0) {
      SetFault("none");
      Act(milliseconds(random_() % 150));
    }
    Kill();
    packed = std::max(packed, PackedSegments());
    CheckNothingIsLost();
    if (random_() % 2 == 0) TearTail();
    Start(random_() % 2 == 0 ? "30" : "0.3");
    CheckFindings();
  }

  // Without faults everything arrives.
  ASSERT_TRUE(Eventually([&] {
    Act(milliseconds(20));
    return std::all_of(agents_.begin(), agents_.end(), [](const auto& a) { return a->done(); });
  }));
  CheckNothingIsLost();
  CheckFindings();
  Kill();
  Start("30");
  CheckFindings();
  // Some were packed between the kills; now there is enough time.
  RecordProperty("packed_before", static_cast<int>(packed));
  EXPECT_TRUE(Eventually([&] { return PackedSegments() > 0; }));
  const auto held = BatchesOfJournal(Journal());
  for (const auto& agent : agents_) {
    EXPECT_EQ(held.at(agent->stream_id()).size(), agent->size());
  }
}

}  // namespace
}  // namespace plumbline::test
