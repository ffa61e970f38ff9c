// Capsules with broken connections and kill -9 of the server.
#include "tests/server/capsules/fixture.h"

namespace plumbline::test {
namespace {

TEST_F(CapsuleTest, GoesOnAfterABreakAndAfterKillOfTheServer) {
  v1::SendCapsule order;
  ASSERT_NO_FATAL_FAILURE(HoldRankOne(&order));
  ASSERT_TRUE(ranks_[0]->Send(ranks_[0]->Part(order, 0, 100)));
  ASSERT_TRUE(ranks_[0]->Send(ranks_[0]->Part(order, 100, 100)));
  const auto held = [part = PartOfRank0()] { return ReadFile(part).size(); };
  ASSERT_TRUE(Eventually([&] { return held() == 200; }));
  // The connection breaks.
  Connect(0);
  v1::SendCapsule more = ranks_[0]->Ordered();
  EXPECT_EQ(more.step(), order.step());
  EXPECT_EQ(more.capsule(), order.capsule());
  EXPECT_EQ(more.offset(), 200u);
  ASSERT_TRUE(ranks_[0]->Send(ranks_[0]->Part(more, 200, 100)));
  ASSERT_TRUE(Eventually([&] { return held() == 300; }));
  // The server dies.
  Restart();
  Connect(0);
  more = ranks_[0]->Ordered();
  EXPECT_EQ(more.offset(), 299u) << "the last byte comes again";
  ranks_[0]->SendAll(more, 299);
  ASSERT_TRUE(Reaches(*server_, v1::CapsuleInfo::STATE_COMPLETE));
}

// All bytes were written but not checked: the last byte, with the digest, is requested again.
TEST_F(CapsuleTest, AKillBetweenTheLastByteAndItsCheckIsNoEnd) {
  v1::SendCapsule order;
  ASSERT_NO_FATAL_FAILURE(HoldRankOne(&order));
  ASSERT_TRUE(ranks_[0]->Send(ranks_[0]->Part(order, 0, 100)));
  const std::string part = PartOfRank0();
  ASSERT_TRUE(Eventually([&] { return std::filesystem::exists(part); }));
  KillServer();
  WriteFile(part, ranks_[0]->Bytes(order.step()));
  Restart();
  Connect(0);
  ranks_[0]->SendAll(order, ranks_[0]->Ordered().offset());
  EXPECT_TRUE(Reaches(*server_, v1::CapsuleInfo::STATE_COMPLETE));
}

// The first request may have been lost with the server: the next must be ahead of the ranks again.
TEST_F(CapsuleTest, AfterKillOfTheServerTheStepMovesAheadOfTheRanks) {
  Start();
  TwoLeakingRanks();
  ASSERT_TRUE(FoundForGood());
  ranks_[1]->SendAll(ranks_[1]->Ordered());
  ranks_[0]->Ordered();
  Restart();
  for (const uint32_t r : {0, 1}) Connect(r);
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
  ASSERT_TRUE(FoundForGood());
  Restart();
  ASSERT_TRUE(Found());
  Process capsule = Fetch(Fingerprint());
  ASSERT_TRUE(Reaches(*server_, v1::CapsuleInfo::STATE_WAITING));
  Connect(0);
  EXPECT_EQ(Capsules(*server_)[0].ranks_size(), 0) << "rank 1 may come back";
  Connect(1);
  for (auto& rank : ranks_) rank->SendAll(rank->Ordered());
  EXPECT_EQ(capsule.Wait(), 0) << capsule.errors();
  EXPECT_EQ(Capsules(*server_)[0].ranks_size(), 2);
}

// A finding that was stored but not reported before the kill gets its capsule. The test creates
// this state by taking no capsules at first.
TEST_F(CapsuleTest, AFindingFromBeforeTheKillGetsItsCapsule) {
  Start("[capsules]\ntake = \"off\"\n");
  TwoLeakingRanks();
  ASSERT_TRUE(FoundForGood());
  ASSERT_TRUE(Capsules(*server_).empty());
  Start();
  for (const uint32_t r : {0, 1}) Connect(r);
  for (auto& rank : ranks_) rank->SendAll(rank->Ordered());
  EXPECT_TRUE(Reaches(*server_, v1::CapsuleInfo::STATE_COMPLETE));
}

TEST_F(CapsuleTest, AFindingOfARunThatIsOverGetsNone) {
  Start("[capsules]\ntake = \"off\"\n[ingest]\ngrace_seconds = 0.5\n");
  TwoLeakingRanks();
  ASSERT_TRUE(FoundForGood());
  for (auto& rank : ranks_) rank = nullptr;
  ASSERT_TRUE(Eventually([this] {
    return server_->process().errors().find("run \"run\": over") != std::string::npos;
  }));
  Start();
  ASSERT_TRUE(Eventually([this] { return !server_->Info().catching_up(); }));
  EXPECT_TRUE(Capsules(*server_).empty());
}

}  // namespace
}  // namespace plumbline::test
