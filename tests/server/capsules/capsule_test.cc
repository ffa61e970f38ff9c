// Capsules: the requested ranks and steps, the checks and storage of parts, and that the output of
// plumb capsule is judged to the same finding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/sha256.h"
#include "tests/server/capsules/fixture.h"
#include "tests/server/http_support.h"
#include "tests/server/support.h"

namespace plumbline::test {
namespace {

using nlohmann::json;

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
  for (auto& rank : ranks_) EXPECT_TRUE(rank->Released());
  const std::string fingerprint = Fingerprint();
  Process capsule = Fetch(fingerprint.substr(0, 8));
  ASSERT_EQ(capsule.Wait(), 0) << capsule.errors();
  const json manifest = Manifest();
  EXPECT_EQ(manifest["fingerprint"], fingerprint);
  EXPECT_EQ(manifest["step"], first.step());
  ASSERT_EQ(manifest["files"].size(), 2u);
  for (const json& file : manifest["files"]) {
    const std::string bytes = ReadFile(out_ + "/" + std::string(file["name"]));
    EXPECT_EQ(bytes.size(), file["bytes"]);
    EXPECT_EQ(HexText(Sha256Of(bytes)), file["sha256"]);
    EXPECT_EQ(file["form"], "safetensors");
  }
  EXPECT_EQ(json::parse(ReadFile(out_ + "/finding.json"))["fingerprint"], fingerprint);
  const Ended audit = AuditOfCapsule();
  EXPECT_EQ(audit.status, 1) << audit.errors;
  bool reached = false;
  const json report = json::parse(audit.output);
  for (const json& finding : report["findings"]) {
    reached |= finding["fingerprint"] == fingerprint &&
               finding["rule"] == "causality/moe-future-leak" && finding["level"] == "error";
  }
  EXPECT_TRUE(reached) << audit.output;
}

// With [redact] the stored parts of a rank hold hashes, and are judged to the same finding.
TEST_F(CapsuleTest, AServerThatRedactsKeepsHashes) {
  const std::string key = folder_.Write("redact.key", "0123456789abcdef0123");
  std::filesystem::permissions(key, std::filesystem::perms(0600));
  Start("[redact]\nids = true\nkey_file = \"" + key + "\"\n");
  TwoLeakingRanks();
  for (auto& rank : ranks_) rank->SendAll(rank->Ordered());
  ASSERT_TRUE(Reaches(*server_, v1::CapsuleInfo::STATE_COMPLETE));
  const std::string fingerprint = Fingerprint();
  v1::Batch kept;
  ASSERT_TRUE(
      kept.ParseFromString(ReadFile(folder_.File("data/capsules/") + fingerprint + "/trainer-0")));
  EXPECT_NE(kept.evidence(0).redacted_key(), 0u);
  EXPECT_EQ(kept.evidence(0).routing().sample().sequence_id().dtype(), v1::DTYPE_I64);
  Process capsule = Fetch(fingerprint);
  ASSERT_EQ(capsule.Wait(), 0) << capsule.errors();
  const Ended audit = AuditOfCapsule();
  EXPECT_EQ(audit.status, 1) << audit.errors;
  EXPECT_THAT(audit.output, testing::HasSubstr(fingerprint));
}

TEST_F(CapsuleTest, ABrowserKeepsItAsATarThatIsJudgedTheSame) {
  Start();
  TwoLeakingRanks();
  const std::string address = HttpAddress(*server_);
  ASSERT_TRUE(FoundForGood());
  const std::string fingerprint = Fingerprint();
  const std::string host = "localhost";
  const std::string path = "/api/v1/incidents/" + fingerprint + "/capsule";
  EXPECT_THAT(HttpAnswer(address, path, "", host), testing::HasSubstr("404 Not Found"));
  for (auto& rank : ranks_) rank->SendAll(rank->Ordered());
  ASSERT_TRUE(Reaches(*server_, v1::CapsuleInfo::STATE_COMPLETE));
  const std::string answer = HttpAnswer(address, path, "", host);
  const size_t body = answer.find("\r\n\r\n") + 4;
  ASSERT_LT(body, answer.size());
  EXPECT_THAT(answer.substr(0, body), testing::HasSubstr("attachment; filename=\"capsule-"));
  std::filesystem::create_directories(out_);
  folder_.Write("capsule.tar", answer.substr(body));
  const Ended unpacked =
      RunToEnd({"/bin/tar", "xf", folder_.File("capsule.tar"), "--strip-components=1", "-C", out_});
  ASSERT_EQ(unpacked.status, 0) << unpacked.errors;
  const json manifest = Manifest();
  for (const json& file : manifest["files"]) {
    const std::string bytes = ReadFile(out_ + "/" + std::string(file["name"]));
    EXPECT_EQ(HexText(Sha256Of(bytes)), file["sha256"]);
  }
  EXPECT_EQ(json::parse(ReadFile(out_ + "/finding.json"))["fingerprint"], fingerprint);
  const Ended audit = AuditOfCapsule();
  EXPECT_EQ(audit.status, 1) << audit.errors;
  EXPECT_NE(audit.output.find(fingerprint), std::string::npos) << audit.output;
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
  for (auto& rank : ranks_) rank->SendAll(again);
  ASSERT_TRUE(Reaches(*server_, v1::CapsuleInfo::STATE_COMPLETE));
  EXPECT_EQ(Capsules(*server_)[0].step(), again.step());
  EXPECT_EQ(Capsules(*server_)[0].tries(), 2u);
}

// A part that was in flight for the previous step must not become the beginning of the capsule of
// this step.
TEST_F(CapsuleTest, PartsOfAStepThatIsNotWantedAnyMoreAreLeftOut) {
  Start();
  TwoLeakingRanks();
  const v1::SendCapsule first = ranks_[0]->Ordered();
  ranks_[1]->Refuse(ranks_[1]->Ordered(), "passed-step: it is past", 500);
  const v1::SendCapsule again = ranks_[0]->Ordered();
  ASSERT_NE(again.step(), first.step());
  ASSERT_TRUE(ranks_[0]->Send(ranks_[0]->Part(first, 0, 100)));
  for (auto& rank : ranks_) rank->SendAll(again);
  EXPECT_TRUE(Reaches(*server_, v1::CapsuleInfo::STATE_COMPLETE));
}

TEST_F(CapsuleTest, DamagedPartsAreRequestedAgain) {
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
  // Valid parts with a wrong digest of the whole.
  const uint64_t total = ranks_[0]->Bytes(order.step()).size();
  v1::CapsulePart last = ranks_[0]->Part(order, 100, total);
  last.set_sha256(std::string(32, 'x'));
  ASSERT_TRUE(ranks_[0]->Send(last));
  EXPECT_EQ(ranks_[0]->Ordered().offset(), 0u);
  ranks_[0]->SendAll(order);
  ASSERT_TRUE(Reaches(*server_, v1::CapsuleInfo::STATE_COMPLETE));
}

// A rank's data never counts for another rank, and is never more than allowed.
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
  other.set_stream_id(11);  // a stream that does not belong to this call
  ASSERT_TRUE(ranks_[0]->Send(other));
  ASSERT_TRUE(Reaches(*server_, v1::CapsuleInfo::STATE_PARTIAL));
  const auto info = Capsules(*server_)[0];
  for (const auto& rank : info.ranks()) {
    EXPECT_EQ(rank.state(), rank.source().rank() == 0 ? v1::CapsuleRank::STATE_FAILED
                                                      : v1::CapsuleRank::STATE_HELD);
  }
  EXPECT_EQ(info.ranks(0).error().rfind("damaged:", 0), 0u) << info.ranks(0).error();
  // The streams are unaffected.
  ASSERT_TRUE(ranks_[0]->Step(1));
  EXPECT_TRUE(ranks_[0]->stream().Acknowledged(2));
  // The existing parts are written, and the missing ones are reported.
  Process capsule = Fetch(Fingerprint());
  EXPECT_EQ(capsule.Wait(), 2);
  EXPECT_NE(capsule.errors().find("missing"), std::string::npos) << capsule.errors();
  const json manifest = Manifest();
  EXPECT_EQ(manifest["files"].size(), 1u);
  EXPECT_EQ(manifest["missing"].size(), 1u);
}

TEST_F(CapsuleTest, AnOldAgentIsNeverSentADirective) {
  Start("[ingest]\ngrace_seconds = 0.5\n");
  AgentStream old(*server_, 10, {SourceOf("run", 0, 1)});
  ASSERT_TRUE(old.Welcomed());
  ASSERT_TRUE(old.Send(LeakingStep(SourceOf("run", 0, 1), 0), 1));
  ASSERT_TRUE(Reaches(*server_, v1::CapsuleInfo::STATE_FAILED));
  EXPECT_EQ(Capsules(*server_)[0].error().rfind("old-agent:", 0), 0u);
  ASSERT_TRUE(old.Send(LeakingStep(SourceOf("run", 0, 1), 1), 2));
  EXPECT_TRUE(old.Acknowledged(2));
  EXPECT_EQ(old.directives(), 0u);
  // The journal has the inputs of the finding.
  Process nothing = Fetch(Fingerprint());
  EXPECT_EQ(nothing.Wait(), 2);
  EXPECT_NE(nothing.errors().find("--judged"), std::string::npos) << nothing.errors();
  Process judged = Fetch(Fingerprint(), {"--judged"});
  ASSERT_EQ(judged.Wait(), 0) << judged.errors();
  const Ended audit = AuditOfCapsule();
  EXPECT_EQ(audit.status, 1) << audit.errors;
  EXPECT_NE(audit.output.find(Fingerprint()), std::string::npos);
}

// A curve has many points, from all steps. The message names the command that judges them again.
TEST_F(CapsuleTest, AFindingOfASeriesStatesWhatJudgesItAgain) {
  Start();
  AgentStream agent(*server_, 10, {SourceOf("run", 0, 1)});
  ASSERT_TRUE(agent.Welcomed());
  v1::Batch batch = ScalarStep(SourceOf("run", 0, 1), 0);
  v1::SeriesSet& set = *batch.add_series_sets();
  set.set_id(17);
  set.add_sites()->set_op("train_loss");
  v1::SeriesRows& rows = *batch.add_series();
  rows.set_set(17);
  rows.add_source(0);
  rows.add_step(0);
  rows.add_value(std::nan(""));
  ASSERT_TRUE(agent.Send(batch, 1));
  const auto found = [this] { return server_->Incidents("run", "health/loss-non-finite"); };
  ASSERT_TRUE(Eventually([&] { return found().size() == 1; }));
  Process judged = Fetch(found()[0].finding().fingerprint(), {"--judged"});
  EXPECT_EQ(judged.Wait(), 2);
  EXPECT_NE(judged.errors().find("--run run --rules health/loss-non-finite judges it again"),
            std::string::npos)
      << judged.errors();
}

TEST_F(CapsuleTest, BoundedByRanksAndOneACause) {
  Start("[capsules]\nranks = 1\nper_run = 1\n");
  TwoLeakingRanks();
  ranks_[0]->SendAll(ranks_[0]->Ordered());
  ASSERT_TRUE(Reaches(*server_, v1::CapsuleInfo::STATE_COMPLETE));
  EXPECT_EQ(Capsules(*server_)[0].omitted_ranks(), 1u);
  // If a cause has a capsule, a further site of the cause needs none.
  for (auto& r : ranks_) ASSERT_TRUE(r->stream().Send(LeakingStep(r->source(), 1, "layers.7"), 2));
  ASSERT_TRUE(Eventually([&] {
    const auto leaks = server_->Statuses("run", "causality/moe-future-leak");
    return leaks.size() == 1 && leaks[0].site_count() == 2;
  }));
  EXPECT_EQ(server_->Info().dropped().at("capsules-not-taken"), 0u);
  EXPECT_EQ(Capsules(*server_).size(), 1u);
}

TEST_F(CapsuleTest, NoMoreOfARunThanItsBoundAreTakenUnasked) {
  Start("[capsules]\nper_run = 0\n");
  TwoLeakingRanks();
  ASSERT_TRUE(Eventually([&] { return server_->Info().dropped().at("capsules-not-taken") >= 1; }));
  EXPECT_TRUE(Capsules(*server_).empty());
}

TEST_F(CapsuleTest, APersonRequestsAndARankThatGoesIsNotWaitedFor) {
  Start("[capsules]\ntake = \"off\"\n[ingest]\ngrace_seconds = 0.5\n");
  TwoLeakingRanks();
  ASSERT_TRUE(Found());
  EXPECT_TRUE(Capsules(*server_).empty());
  Process capsule = Fetch(Fingerprint());
  ranks_[0]->SendAll(ranks_[0]->Ordered());
  ranks_[1]->Ordered();
  ranks_[1] = nullptr;
  EXPECT_EQ(capsule.Wait(), 2) << capsule.errors();
  const json manifest = Manifest();
  EXPECT_EQ(manifest["missing"][0]["rank"], 1);
  EXPECT_EQ(std::string(manifest["missing"][0]["reason"]).rfind("gone:", 0), 0u);
}

// A resumed run has ranks of the same numbers, which cannot send what the first ones saw.
TEST_F(CapsuleTest, TheNextAttemptGetsNoRequestForTheRestOfTheFirstOnes) {
  Start("[ingest]\ngrace_seconds = 0.5\n");
  TwoLeakingRanks();
  const v1::SendCapsule order = ranks_[0]->Ordered();
  ranks_[1]->SendAll(ranks_[1]->Ordered());
  ASSERT_TRUE(ranks_[0]->Send(ranks_[0]->Part(order, 0, 100)));
  ranks_[0] = nullptr;
  CapsuleRank next(*server_, 20, SourceOf("run", 0, 2, 1));
  ASSERT_TRUE(Reaches(*server_, v1::CapsuleInfo::STATE_PARTIAL));
  EXPECT_EQ(next.stream().directives(), 0u);
  EXPECT_EQ(Capsules(*server_)[0].ranks(0).error().rfind("gone:", 0), 0u);
}

TEST_F(CapsuleTest, OfTwoConnectedAttemptsTheLaterGetsTheRequest) {
  Start("[capsules]\ntake = \"off\"\n");
  TwoLeakingRanks();
  ASSERT_TRUE(Found());
  CapsuleRank next(*server_, 20, SourceOf("run", 0, 2, 1));
  CapsuleRank other(*server_, 21, SourceOf("run", 1, 2, 1));
  Process capsule = Fetch(Fingerprint());
  for (CapsuleRank* rank : {&next, &other}) rank->SendAll(rank->Ordered());
  EXPECT_EQ(capsule.Wait(), 0) << capsule.errors();
  EXPECT_EQ(Capsules(*server_)[0].ranks_size(), 2);
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

TEST_F(CapsuleTest, WithoutDataNoRankGetsARequest) {
  Plumbd server;
  CapsuleRank rank(server, 10, SourceOf("run", 0, 1));
  ASSERT_TRUE(rank.Step(0));
  ASSERT_TRUE(Eventually([&] { return server.Incidents("run").size() >= 1; }));
  const std::string fingerprint = server.Incidents("run")[0].finding().fingerprint();
  const Ended capsule = RunToEnd(
      {PLUMB_PROGRAM, "capsule", fingerprint, "--output", out_, "--server", server.address()});
  EXPECT_EQ(capsule.status, 2);
  EXPECT_NE(capsule.errors.find("--data"), std::string::npos) << capsule.errors;
  EXPECT_EQ(rank.stream().directives(), 0u);
  EXPECT_FALSE(std::filesystem::exists(out_));
}

}  // namespace
}  // namespace plumbline::test
