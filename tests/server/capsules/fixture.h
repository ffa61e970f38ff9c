// Two ranks that leak, a plumbd that is killed and started again, and plumb capsule.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/server/capsules/rank.h"
#include "tests/server/support.h"

namespace plumbline::test {

class CapsuleTest : public ::testing::Test {
 protected:
  void Start(const std::string& config = "") {
    folder_.Write("plumbd.toml", config);
    Restart();
  }
  void KillServer() {
    server_->process().Signal(SIGKILL);
    server_->process().Wait();
  }
  void Restart() {
    if (server_ != nullptr) KillServer();
    server_ = std::make_unique<Plumbd>(
        std::vector<std::string>{"--data", folder_.File("data"), "--config",
                                 folder_.File("plumbd.toml"), "--http", "127.0.0.1:0"});
    ASSERT_FALSE(server_->address().empty()) << server_->process().errors();
  }
  // Both ranks have closed step 0, which leaks.
  void TwoLeakingRanks() {
    for (uint32_t r = 0; r < 2; ++r) Connect(r, 1);
    for (auto& rank : ranks_) ASSERT_TRUE(rank->Step(0));
  }
  // Connects one of two ranks, for the first time or again.
  void Connect(uint32_t rank, uint64_t next_sequence = 2) {
    ranks_[rank] = nullptr;
    ranks_[rank] =
        std::make_unique<CapsuleRank>(*server_, 10 + rank, SourceOf("run", rank, 2), next_sequence);
  }
  Process Fetch(const std::string& fingerprint, std::vector<std::string> more = {}) const {
    std::vector<std::string> command = {PLUMB_PROGRAM, "capsule",  fingerprint,       "--output",
                                        out_,          "--server", server_->address()};
    command.insert(command.end(), more.begin(), more.end());
    return Process(command);
  }
  nlohmann::json Manifest() const {
    return nlohmann::json::parse(ReadFile(out_ + "/manifest.json"));
  }
  Ended AuditOfCapsule() const {
    return RunToEnd({PLUMB_PROGRAM, "audit", out_, "--format", "json", "--quiet"});
  }
  std::string PartOfRank0() {
    return folder_.File("data/capsules/") + Fingerprint() + "/trainer-0.part";
  }
  // Returns true once both ranks are found; each is found separately.
  bool Found() {
    return Eventually([this] {
      const auto incidents = server_->Incidents("run", "causality/moe-future-leak");
      return incidents.size() == 1 && incidents[0].finding().site().ranks_size() == 2;
    });
  }
  bool FoundForGood() {
    return Found() && ranks_[0]->stream().Acknowledged(1) && ranks_[1]->stream().Acknowledged(1);
  }
  // Reaches a state in which rank 1's part of the capsule is stored; `order` is the request to rank
  // 0.
  void HoldRankOne(v1::SendCapsule* order) {
    Start();
    TwoLeakingRanks();
    ASSERT_TRUE(FoundForGood());
    *order = ranks_[0]->Ordered();
    ranks_[1]->SendAll(ranks_[1]->Ordered());
    ASSERT_TRUE(Holds(*server_, 1));
  }
  std::string Fingerprint() {
    const auto incidents = server_->Incidents("run", "causality/moe-future-leak");
    return incidents.size() == 1 ? incidents[0].finding().fingerprint() : "";
  }

  const TempFolder folder_;
  const std::string out_ = folder_.File("capsule");
  std::unique_ptr<Plumbd> server_;
  std::array<std::unique_ptr<CapsuleRank>, 2> ranks_;
};

}  // namespace plumbline::test
