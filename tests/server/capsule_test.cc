// Capsules: who is asked for which step, what comes is checked and kept, and what plumb capsule
// fetches is judged to the same finding.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/sha256.h"
#include "tests/server/capsule_rank.h"
#include "tests/server/support.h"

namespace plumbline {
namespace {

using nlohmann::json;
using test::AgentStream;
using test::CapsuleRank;
using test::Eventually;
using test::LeakingStep;
using test::Plumbd;
using test::Process;
using test::SourceOf;
using test::TempFolder;

std::vector<v1::CapsuleInfo> Capsules(const Plumbd& server) {
  auto stub = v1::Query::NewStub(server.Channel());
  grpc::ClientContext context;
  v1::ListCapsulesResponse response;
  EXPECT_TRUE(stub->ListCapsules(&context, {}, &response).ok());
  return {response.capsules().begin(), response.capsules().end()};
}

bool Reaches(const Plumbd& server, v1::CapsuleInfo::State state) {
  return Eventually([&] {
    const auto list = Capsules(server);
    return list.size() == 1 && list[0].state() == state;
  });
}

class CapsuleTest : public ::testing::Test {
 protected:
  void Start(const std::string& config = "") {
    std::ofstream(folder_.File("plumbd.toml")) << config;
    server_ = std::make_unique<Plumbd>(Options());
    ASSERT_FALSE(server_->address().empty()) << server_->process().errors();
  }
  std::vector<std::string> Options() const {
    return {"--data", folder_.File("data"), "--config", folder_.File("plumbd.toml")};
  }
  void KillServer() {
    server_->process().Signal(SIGKILL);
    server_->process().Wait();
  }
  void KillAndRestart() {
    KillServer();
    Restart();
  }
  void Restart() {
    server_ = std::make_unique<Plumbd>(Options());
    ASSERT_FALSE(server_->address().empty()) << server_->process().errors();
  }
  // Both ranks have closed step 0, which leaks.
  void TwoLeakingRanks() {
    for (uint32_t r = 0; r < 2; ++r) {
      ranks_.push_back(std::make_unique<CapsuleRank>(*server_, 10 + r, SourceOf("run", r, 2)));
    }
    for (auto& rank : ranks_) ASSERT_TRUE(rank->Step(0));
  }
  Process Plumb(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), PLUMB_PROGRAM);
    return Process(std::move(arguments));
  }
  std::string Fingerprint() {
    const auto incidents = server_->Incidents("run", "causality/moe-future-leak");
    return incidents.size() == 1 ? incidents[0].finding().fingerprint() : "";
  }

  TempFolder folder_;
  std::unique_ptr<Plumbd> server_;
  std::vector<std::unique_ptr<CapsuleRank>> ranks_;
};

TEST_F(CapsuleTest, EveryRankGivesOneStepAndTheAuditReachesTheFinding) {
  Start();
  TwoLeakingRanks();
  const v1::SendCapsule first = ranks_[0]->Ordered();
  const v1::SendCapsule second = ranks_[1]->Ordered();
  EXPECT_EQ(first.step(), second.step());
  EXPECT_EQ(first.capsule(), second.capsule());
  EXPECT_GT(first.step(), 0);
  EXPECT_EQ(first.site().layer(), "layers.0");
  ranks_[0]->SendAll(first);
  ranks_[1]->SendAll(second);
  ASSERT_TRUE(Reaches(*server_, v1::CapsuleInfo::STATE_COMPLETE));
  EXPECT_TRUE(ranks_[0]->Released());
  EXPECT_TRUE(ranks_[1]->Released());

  const std::string fingerprint = Fingerprint();
  const std::string out = folder_.File("capsule");
  Process capsule =
      Plumb({"capsule", fingerprint.substr(0, 8), "--output", out, "--server", server_->address()});
  ASSERT_EQ(capsule.Wait(), 0) << capsule.errors();
  const json manifest = json::parse(std::ifstream(out + "/manifest.json"));
  EXPECT_EQ(manifest["fingerprint"], fingerprint);
  EXPECT_EQ(manifest["step"], first.step());
  ASSERT_EQ(manifest["files"].size(), 2u);
  for (const json& file : manifest["files"]) {
    const std::string bytes = test::ReadFile(out + "/" + std::string(file["name"]));
    EXPECT_EQ(bytes.size(), file["bytes"]);
    EXPECT_EQ(HexText(Sha256Of(bytes)), file["sha256"]);
    EXPECT_EQ(file["form"], "safetensors");
  }
  EXPECT_EQ(json::parse(std::ifstream(out + "/finding.json"))["fingerprint"], fingerprint);

  Process audit = Plumb({"audit", out, "--format", "json", "--quiet"});
  EXPECT_EQ(audit.Wait(), 1) << audit.errors();
  bool reached = false;
  const json report = json::parse(audit.output());
  for (const json& finding : report["findings"]) {
    reached |= finding["fingerprint"] == fingerprint &&
               finding["rule"] == "causality/moe-future-leak" && finding["level"] == "error";
  }
  EXPECT_TRUE(reached) << audit.output();
}

TEST_F(CapsuleTest, ARankThatWasPastTheStepMovesItForAll) {
  Start();
  TwoLeakingRanks();
  const v1::SendCapsule first = ranks_[0]->Ordered();
  ranks_[0]->SendAll(first);
  ranks_[1]->Refuse(ranks_[1]->Ordered(), "passed-step: it is past", 500);
  const v1::SendCapsule again = ranks_[0]->Ordered();
  EXPECT_GT(again.step(), 500);
  EXPECT_EQ(again.offset(), 0u);
  EXPECT_EQ(ranks_[1]->Ordered().step(), again.step());
  ranks_[0]->SendAll(again);
  ranks_[1]->SendAll(again);
  ASSERT_TRUE(Reaches(*server_, v1::CapsuleInfo::STATE_COMPLETE));
  EXPECT_EQ(Capsules(*server_)[0].step(), again.step());
  EXPECT_EQ(Capsules(*server_)[0].tries(), 2u);
}

// What was under way for the step before must not become the beginning of this one's.
TEST_F(CapsuleTest, PartsOfAStepThatIsNotWantedAnyMoreAreLeftOut) {
  Start();
  TwoLeakingRanks();
  const v1::SendCapsule first = ranks_[0]->Ordered();
  ranks_[1]->Refuse(ranks_[1]->Ordered(), "passed-step: it is past", 500);
  const v1::SendCapsule again = ranks_[0]->Ordered();
  ASSERT_NE(again.step(), first.step());
  ASSERT_TRUE(ranks_[0]->Send(ranks_[0]->Part(first, 0, 100)));
  ranks_[0]->SendAll(again);
  ranks_[1]->SendAll(again);
  EXPECT_TRUE(Reaches(*server_, v1::CapsuleInfo::STATE_COMPLETE));
}

TEST_F(CapsuleTest, GoesOnAfterABreakAndAfterKillOfTheServer) {
  Start();
  TwoLeakingRanks();
  ASSERT_TRUE(Eventually([&] { return !Fingerprint().empty(); }));
  ASSERT_TRUE(ranks_[0]->stream().Acknowledged(1));
  ASSERT_TRUE(ranks_[1]->stream().Acknowledged(1));
  const v1::SendCapsule order = ranks_[0]->Ordered();
  ranks_[1]->SendAll(ranks_[1]->Ordered());
  ASSERT_TRUE(ranks_[0]->Send(ranks_[0]->Part(order, 0, 100)));
  ASSERT_TRUE(ranks_[0]->Send(ranks_[0]->Part(order, 100, 100)));
  const auto held = [&] {
    return std::filesystem::file_size(folder_.File("data/capsules/") + Fingerprint() +
                                      "/trainer-0.part");
  };
  ASSERT_TRUE(Eventually([&] {
    return std::filesystem::exists(folder_.File("data/capsules/") + Fingerprint() +
                                   "/trainer-0.part") &&
           held() == 200;
  }));
  // The connection breaks.
  ranks_[0] = nullptr;
  ranks_[0] = std::make_unique<CapsuleRank>(*server_, 10, SourceOf("run", 0, 2), 2);
  v1::SendCapsule more = ranks_[0]->Ordered();
  EXPECT_EQ(more.step(), order.step());
  EXPECT_EQ(more.capsule(), order.capsule());
  EXPECT_EQ(more.offset(), 200u);
  ASSERT_TRUE(ranks_[0]->Send(ranks_[0]->Part(more, 200, 100)));
  ASSERT_TRUE(Eventually([&] { return held() == 300; }));
  // The server dies.
  KillAndRestart();
  ranks_[0] = std::make_unique<CapsuleRank>(*server_, 10, SourceOf("run", 0, 2), 2);
  more = ranks_[0]->Ordered();
  EXPECT_EQ(more.offset(), 299u) << "the last byte comes again";
  ranks_[0]->SendAll(more, 299);
  ASSERT_TRUE(Reaches(*server_, v1::CapsuleInfo::STATE_COMPLETE));
}

// All was written, but not looked at: the digest, which came last, is asked for again.
TEST_F(CapsuleTest, AKillBetweenTheLastByteAndItsCheckIsNoEnd) {
  Start();
  TwoLeakingRanks();
  for (auto& rank : ranks_) ASSERT_TRUE(rank->stream().Acknowledged(1));
  ranks_[1]->SendAll(ranks_[1]->Ordered());
  const v1::SendCapsule order = ranks_[0]->Ordered();
  ASSERT_TRUE(ranks_[0]->Send(ranks_[0]->Part(order, 0, 100)));
  const std::string part = folder_.File("data/capsules/") + Fingerprint() + "/trainer-0.part";
  ASSERT_TRUE(Eventually([&] { return std::filesystem::exists(part); }));
  KillServer();
  std::ofstream(part, std::ios::binary) << ranks_[0]->Bytes(order.step());
  Restart();
  ranks_[0] = std::make_unique<CapsuleRank>(*server_, 10, SourceOf("run", 0, 2), 2);
  ranks_[0]->SendAll(order, ranks_[0]->Ordered().offset());
  EXPECT_TRUE(Reaches(*server_, v1::CapsuleInfo::STATE_COMPLETE));
}

// The first order may have been lost with the server: the next must be ahead of the ranks again.
TEST_F(CapsuleTest, AfterKillOfTheServerTheStepMovesAheadOfTheRanks) {
  Start();
  TwoLeakingRanks();
  ASSERT_TRUE(Eventually([&] { return !Fingerprint().empty(); }));
  ranks_[1]->SendAll(ranks_[1]->Ordered());
  ranks_[0]->Ordered();
  KillAndRestart();
  for (uint32_t r = 0; r < 2; ++r)
    ranks_[r] = std::make_unique<CapsuleRank>(*server_, 10 + r, SourceOf("run", r, 2), 2);
  ranks_[0]->Refuse(ranks_[0]->Ordered(), "passed-step: it is past", 500);
  const v1::SendCapsule again = ranks_[0]->Ordered();
  EXPECT_GE(again.step(), 502) << "agents take what is two steps ahead";
  ranks_[0]->SendAll(again);
  v1::SendCapsule other = ranks_[1]->Ordered();
  if (other.step() != again.step()) other = ranks_[1]->Ordered();
  ranks_[1]->SendAll(other);
  EXPECT_TRUE(Reaches(*server_, v1::CapsuleInfo::STATE_COMPLETE));
}

TEST_F(CapsuleTest, AfterARestartTheRanksOfTheFindingAreWaitedFor) {
  Start("[capsules]\ntake = \"off\"\n");
  TwoLeakingRanks();
  ASSERT_TRUE(Eventually([&] { return !Fingerprint().empty(); }));
  for (auto& rank : ranks_) ASSERT_TRUE(rank->stream().Acknowledged(1));
  KillAndRestart();
  ASSERT_TRUE(Eventually([&] { return !Fingerprint().empty(); }));
  Process capsule = Plumb({"capsule", Fingerprint(), "--output", folder_.File("capsule"),
                           "--server", server_->address()});
  ASSERT_TRUE(Reaches(*server_, v1::CapsuleInfo::STATE_WAITING));
  ranks_[0] = std::make_unique<CapsuleRank>(*server_, 10, SourceOf("run", 0, 2), 2);
  EXPECT_EQ(Capsules(*server_)[0].ranks_size(), 0) << "rank 1 may come back";
  ranks_[1] = std::make_unique<CapsuleRank>(*server_, 11, SourceOf("run", 1, 2), 2);
  for (auto& rank : ranks_) rank->SendAll(rank->Ordered());
  EXPECT_EQ(capsule.Wait(), 0) << capsule.errors();
  EXPECT_EQ(Capsules(*server_)[0].ranks_size(), 2);
}

TEST_F(CapsuleTest, DamagedPartsAreAskedForAgain) {
  Start();
  TwoLeakingRanks();
  const v1::SendCapsule order = ranks_[0]->Ordered();
  ranks_[1]->SendAll(ranks_[1]->Ordered());
  ASSERT_TRUE(ranks_[0]->Send(ranks_[0]->Part(order, 0, 100)));
  v1::CapsulePart damaged = ranks_[0]->Part(order, 100, 100);
  (*damaged.mutable_data())[5] ^= 1;
  ASSERT_TRUE(ranks_[0]->Send(damaged));
  EXPECT_EQ(ranks_[0]->Ordered().offset(), 100u);
  ASSERT_TRUE(ranks_[0]->Send(ranks_[0]->Part(order, 300, 100)));  // a gap
  EXPECT_EQ(ranks_[0]->Ordered().offset(), 100u);
  // Parts that fit, and a whole that does not.
  const uint64_t total = ranks_[0]->Bytes(order.step()).size();
  v1::CapsulePart last = ranks_[0]->Part(order, 100, total);
  last.set_sha256(std::string(32, 'x'));
  ASSERT_TRUE(ranks_[0]->Send(last));
  EXPECT_EQ(ranks_[0]->Ordered().offset(), 0u);
  ranks_[0]->SendAll(order);
  ASSERT_TRUE(Reaches(*server_, v1::CapsuleInfo::STATE_COMPLETE));
}

// What one rank sends never becomes another's, and never more than was allowed.
TEST_F(CapsuleTest, ARankCannotSpeakForAnother) {
  Start("[capsules]\nrank_bytes = 65536\n");
  TwoLeakingRanks();
  const v1::SendCapsule order = ranks_[0]->Ordered();
  EXPECT_EQ(order.max_bytes(), 65536u);
  ranks_[1]->SendAll(ranks_[1]->Ordered());
  for (int i = 0; i < 20; ++i) {
    v1::CapsulePart stolen = ranks_[1]->Part(order, 0, 1 << 20);  // rank 1's evidence
    stolen.set_stream_id(10);
    if (i % 2 == 0) stolen.set_total(1 << 30);
    ASSERT_TRUE(ranks_[0]->Send(stolen));
  }
  v1::CapsulePart other = ranks_[0]->Part(order, 0, 100);
  other.set_stream_id(11);  // of a stream that is not this call's
  ASSERT_TRUE(ranks_[0]->Send(other));
  ASSERT_TRUE(Reaches(*server_, v1::CapsuleInfo::STATE_PARTIAL));
  const auto info = Capsules(*server_)[0];
  for (const auto& rank : info.ranks()) {
    EXPECT_EQ(rank.state(), rank.source().rank() == 0 ? v1::CapsuleRank::STATE_FAILED
                                                      : v1::CapsuleRank::STATE_HELD);
  }
  EXPECT_EQ(info.ranks(0).error().rfind("damaged:", 0), 0u) << info.ranks(0).error();
  // The streams are unharmed.
  ASSERT_TRUE(ranks_[0]->Step(1));
  EXPECT_TRUE(ranks_[0]->stream().Acknowledged(2));

  // What there is is written, and what is missing is said.
  const std::string out = folder_.File("capsule");
  Process capsule =
      Plumb({"capsule", Fingerprint(), "--output", out, "--server", server_->address()});
  EXPECT_EQ(capsule.Wait(), 2);
  EXPECT_NE(capsule.errors().find("missing"), std::string::npos) << capsule.errors();
  const json manifest = json::parse(std::ifstream(out + "/manifest.json"));
  EXPECT_EQ(manifest["files"].size(), 1u);
  EXPECT_EQ(manifest["missing"].size(), 1u);
}

TEST_F(CapsuleTest, AnOldAgentIsNeverSentADirective) {
  Start();
  AgentStream old(*server_, 10, {SourceOf("run", 0, 1)});
  ASSERT_TRUE(old.Welcomed());
  ASSERT_TRUE(old.Send(LeakingStep(SourceOf("run", 0, 1), 0), 1));
  ASSERT_TRUE(Reaches(*server_, v1::CapsuleInfo::STATE_FAILED));
  EXPECT_EQ(Capsules(*server_)[0].error().rfind("old-agent:", 0), 0u);
  ASSERT_TRUE(old.Send(LeakingStep(SourceOf("run", 0, 1), 1), 2));
  EXPECT_TRUE(old.Acknowledged(2));
  EXPECT_EQ(old.directives(), 0u);
  // The journal has what the finding was judged from.
  const std::string out = folder_.File("capsule");
  Process nothing =
      Plumb({"capsule", Fingerprint(), "--output", out, "--server", server_->address()});
  EXPECT_EQ(nothing.Wait(), 2);
  EXPECT_NE(nothing.errors().find("--judged"), std::string::npos) << nothing.errors();
  Process judged = Plumb(
      {"capsule", Fingerprint(), "--judged", "--output", out, "--server", server_->address()});
  ASSERT_EQ(judged.Wait(), 0) << judged.errors();
  Process audit = Plumb({"audit", out, "--format", "json", "--quiet"});
  EXPECT_EQ(audit.Wait(), 1) << audit.errors();
  EXPECT_NE(audit.output().find(Fingerprint()), std::string::npos);
}

TEST_F(CapsuleTest, BoundedByRanksAndByRuns) {
  Start("[capsules]\nranks = 1\nper_run = 1\n");
  TwoLeakingRanks();
  ranks_[0]->SendAll(ranks_[0]->Ordered());
  ASSERT_TRUE(Reaches(*server_, v1::CapsuleInfo::STATE_COMPLETE));
  EXPECT_EQ(Capsules(*server_)[0].omitted_ranks(), 1u);
  // A second finding of the run is not taken unasked.
  for (auto& rank : ranks_) {
    ASSERT_TRUE(rank->stream().Send(LeakingStep(rank->source(), 1, "layers.7"), 2));
  }
  ASSERT_TRUE(Eventually([&] { return server_->Incidents("run").size() >= 2; }));
  ASSERT_TRUE(Eventually([&] {
    const auto info = server_->Info();
    return info.dropped().count("capsules-not-taken") != 0 &&
           info.dropped().at("capsules-not-taken") >= 1;
  }));
  EXPECT_EQ(Capsules(*server_).size(), 1u);
}

TEST_F(CapsuleTest, APersonAsksAndARankThatGoesIsNotWaitedFor) {
  Start("[capsules]\ntake = \"off\"\n[ingest]\ngrace_seconds = 0.5\n");
  TwoLeakingRanks();
  ASSERT_TRUE(Eventually([&] { return !Fingerprint().empty(); }));
  EXPECT_TRUE(Capsules(*server_).empty());
  const std::string out = folder_.File("capsule");
  Process capsule =
      Plumb({"capsule", Fingerprint(), "--output", out, "--server", server_->address()});
  ranks_[0]->SendAll(ranks_[0]->Ordered());
  ranks_[1]->Ordered();
  ranks_[1] = nullptr;
  EXPECT_EQ(capsule.Wait(), 2) << capsule.errors();
  const json manifest = json::parse(std::ifstream(out + "/manifest.json"));
  EXPECT_EQ(manifest["missing"][0]["rank"], 1);
  EXPECT_EQ(std::string(manifest["missing"][0]["reason"]).rfind("gone:", 0), 0u);
}

// A resumed run has ranks of the same numbers, which cannot give what the first ones saw.
TEST_F(CapsuleTest, TheNextAttemptIsNotAskedForTheRestOfTheFirstOnes) {
  Start("[ingest]\ngrace_seconds = 0.5\n");
  TwoLeakingRanks();
  const v1::SendCapsule order = ranks_[0]->Ordered();
  ranks_[1]->SendAll(ranks_[1]->Ordered());
  ASSERT_TRUE(ranks_[0]->Send(ranks_[0]->Part(order, 0, 100)));
  ranks_[0] = nullptr;
  v1::Source resumed = SourceOf("run", 0, 2);
  resumed.set_attempt(1);
  CapsuleRank next(*server_, 20, resumed);
  ASSERT_TRUE(Reaches(*server_, v1::CapsuleInfo::STATE_PARTIAL));
  EXPECT_EQ(next.stream().directives(), 0u);
  EXPECT_EQ(Capsules(*server_)[0].ranks(0).error().rfind("gone:", 0), 0u);
}

TEST_F(CapsuleTest, OfTwoAttemptsThatAreConnectedTheLaterIsAsked) {
  Start("[capsules]\ntake = \"off\"\n");
  TwoLeakingRanks();
  ASSERT_TRUE(Eventually([&] { return !Fingerprint().empty(); }));
  v1::Source resumed = SourceOf("run", 0, 2);
  resumed.set_attempt(1);
  CapsuleRank next(*server_, 20, resumed);
  Process capsule = Plumb({"capsule", Fingerprint(), "--output", folder_.File("capsule"),
                           "--server", server_->address()});
  next.SendAll(next.Ordered());
  EXPECT_EQ(capsule.Wait(), 0) << capsule.errors();
  EXPECT_EQ(Capsules(*server_)[0].ranks_size(), 1);
  for (const auto& rank : ranks_) EXPECT_EQ(rank->stream().directives(), 0u);
}

TEST_F(CapsuleTest, ThroughARelay) {
  Start();
  Plumbd relay(std::vector<std::string>{"--relay", server_->address()});
  CapsuleRank rank(relay, 10, SourceOf("run", 0, 1));
  ASSERT_TRUE(rank.Step(0));
  rank.SendAll(rank.Ordered());
  ASSERT_TRUE(Reaches(*server_, v1::CapsuleInfo::STATE_COMPLETE));
}

TEST_F(CapsuleTest, WithoutDataNobodyIsAsked) {
  Plumbd server;
  CapsuleRank rank(server, 10, SourceOf("run", 0, 1));
  ASSERT_TRUE(rank.Step(0));
  ASSERT_TRUE(Eventually([&] { return server.Incidents("run").size() >= 1; }));
  const std::string fingerprint = server.Incidents("run")[0].finding().fingerprint();
  Process capsule = Plumb(
      {"capsule", fingerprint, "--output", folder_.File("capsule"), "--server", server.address()});
  EXPECT_EQ(capsule.Wait(), 2);
  EXPECT_NE(capsule.errors().find("--data"), std::string::npos) << capsule.errors();
  EXPECT_EQ(rank.stream().directives(), 0u);
  EXPECT_FALSE(std::filesystem::exists(folder_.File("capsule")));
}

}  // namespace
}  // namespace plumbline
