// The receivers of a request: which connection of a stream (connections end and begin on separate
// threads, so their events may come in any order), and which ranks of a run that is still starting.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "server/capsules/capsule_keeper.h"
#include "tests/server/capsules/rank.h"
#include "tests/server/support.h"

namespace plumbline::server {
namespace {

class Line : public Connection {
 public:
  void OnHeld(uint64_t, bool) override {}
  void OnRefused(uint64_t, const std::string&) override {}
  void OnSuperseded() override {}
  void Resume() override {}
  const void* call() const override { return this; }
  void OnDirective(const v1::Directive& directive) override {
    if (directive.capsule().release()) return;
    {
      std::lock_guard lock(mutex_);
      last_ = directive.capsule();
    }
    ++orders;
  }
  v1::SendCapsule last() {
    std::lock_guard lock(mutex_);
    return last_;
  }

  std::atomic<int> orders{0};

 private:
  std::mutex mutex_;
  v1::SendCapsule last_;
};

class CapsuleKeeperTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kStream = 7;

  void SetUp() override { Start(); }
  // Starts a keeper; a second call acts like a restart after a kill.
  void Start(std::chrono::nanoseconds grace = std::chrono::seconds(30),
             std::chrono::nanoseconds silence = std::chrono::seconds(30)) {
    keeper_.reset();
    keeper_.emplace(
        CapsuleOptions{.directory = folder_.File("capsules"),
                       .level = v1::LEVEL_UNSPECIFIED,
                       .grace = grace,
                       .silence = silence},
        [](const std::string&) {
          return RunKnown{3, {}};
        },
        &counters_);
    ASSERT_TRUE(keeper_->Start().ok());
  }
  void Joined(uint64_t connection, const std::shared_ptr<Line>& line,
              const v1::Source& source = test::SourceOf("run", 0, 1)) {
    v1::Hello hello;
    hello.set_directives(true);
    *hello.add_sources() = source;
    keeper_->Joined(kStream + source.rank(), connection, line, hello);
  }
  // Returns how many processes are requested.
  int Request(std::vector<uint32_t> named = {}, bool anew = false) {
    v1::Finding finding;
    finding.set_fingerprint("00ff");
    finding.mutable_site()->set_run("run");
    finding.mutable_site()->set_op("router");
    finding.mutable_site()->mutable_ranks()->Add(named.begin(), named.end());
    int requested = -1;
    std::atomic<bool> done{false};
    keeper_->Request(finding, anew, [&](const absl::StatusOr<v1::CapsuleInfo>& info) {
      if (info.ok()) requested = info->ranks_size();
      done = true;
    });
    EXPECT_TRUE(test::Eventually([&] { return done.load(); }));
    return requested;
  }

  void Refuse(const v1::SendCapsule& order, const std::string& why) {
    keeper_->OnPart(kStream, test::Refusal(order, why, order.step()));
  }
  void SendAll(const v1::SendCapsule& order, const v1::Source& source) {
    const std::string bytes = test::TakenAt(source, order.step());
    keeper_->OnPart(kStream + source.rank(), test::PartOf(order, bytes, 0, bytes.size()));
  }
  bool Reaches(v1::CapsuleInfo::State state) const {
    return test::Eventually([&] { return Info().state() == state; });
  }
  bool Holds(int index) const {
    return test::Eventually(
        [&] { return Info().ranks(index).state() == v1::CapsuleRank::STATE_HELD; });
  }

  v1::CapsuleInfo Info() const { return keeper_->List("run", "00ff").at(0); }

  test::TempFolder folder_;
  Counters counters_;
  std::optional<CapsuleKeeper> keeper_;
};

TEST_F(CapsuleKeeperTest, ALateWordOfAnOlderConnectionDoesNotTakeTheStreamBack) {
  const auto older = std::make_shared<Line>(), newer = std::make_shared<Line>();
  Joined(5, newer);
  Joined(4, older);
  EXPECT_EQ(Request(), 1);
  EXPECT_EQ(newer->orders, 1);
  EXPECT_EQ(older->orders, 0);
}

TEST_F(CapsuleKeeperTest, TheEndOfAnOlderConnectionIsNotTheStreams) {
  const auto older = std::make_shared<Line>(), newer = std::make_shared<Line>();
  Joined(4, older);
  Joined(5, newer);
  keeper_->Left(kStream, 4);
  EXPECT_EQ(Request(), 1);
  EXPECT_EQ(newer->orders, 1);
  EXPECT_EQ(older->orders, 0);
}

TEST_F(CapsuleKeeperTest, StepsThatWerePassedAreNoStepsWithoutACall) {
  const auto line = std::make_shared<Line>();
  Joined(4, line);
  EXPECT_EQ(Request(), 1);
  for (int n = 1; n <= 5; ++n) {
    ASSERT_EQ(line->orders, n);
    Refuse(line->last(), "passed-step: it is past");
    ASSERT_TRUE(test::Eventually([&] { return line->orders == n + 1; }));
  }
  for (int n = 6; n <= 8; ++n) {
    Refuse(line->last(), "no-call: the site was not called");
    ASSERT_TRUE(test::Eventually([&] { return line->orders == n + 1; })) << n;
  }
  // the fourth time: the site is hardly ever called
  Refuse(line->last(), "no-call: the site was not called");
  EXPECT_TRUE(test::Eventually([&] { return Info().state() == v1::CapsuleInfo::STATE_FAILED; }));
}

// Rank 0 may have a finding before rank 1 is connected.
TEST_F(CapsuleKeeperTest, RanksThatAreStillStartingAreWaitedFor) {
  const auto first = std::make_shared<Line>(), second = std::make_shared<Line>();
  Joined(1, first, test::SourceOf("run", 0, 2));
  EXPECT_EQ(Request({0}), 0);
  EXPECT_EQ(Info().state(), v1::CapsuleInfo::STATE_WAITING);
  EXPECT_EQ(first->orders, 0);
  Joined(2, second, test::SourceOf("run", 1, 2));
  EXPECT_TRUE(test::Eventually([&] { return first->orders == 1 && second->orders == 1; }));
  EXPECT_EQ(first->last().step(), second->last().step());
}

TEST_F(CapsuleKeeperTest, RanksThatNeverComeAreNotWaitedForForever) {
  Start(std::chrono::milliseconds(300));
  const auto line = std::make_shared<Line>();
  Joined(1, line, test::SourceOf("run", 0, 2));
  Request({0});
  EXPECT_TRUE(test::Eventually([&] { return Info().ranks_size() == 1; }))
      << "rank 1 has never joined";
}

TEST_F(CapsuleKeeperTest, ARankThatTheFindingNamesAndThatIsAwayIsMissing) {
  Start(std::chrono::milliseconds(0));
  const auto line = std::make_shared<Line>();
  Joined(1, line, test::SourceOf("run", 0, 2));
  EXPECT_EQ(Request({0, 1}), 2);
  EXPECT_EQ(line->orders, 1);
  EXPECT_EQ(Info().ranks(1).source().rank(), 1u);
  EXPECT_EQ(Info().ranks(1).error().rfind("away:", 0), 0u);
  Refuse(line->last(), "no-site: it has none");
  EXPECT_TRUE(test::Eventually([&] { return Info().state() == v1::CapsuleInfo::STATE_FAILED; }));
}

// The stored part of a rank is useless once another rank had passed that step.
TEST_F(CapsuleKeeperTest, ARankThatIsHeldGetsARequestForAnotherStepAfterARestart) {
  const auto first = std::make_shared<Line>(), second = std::make_shared<Line>();
  const v1::Source rank0 = test::SourceOf("run", 0, 2), rank1 = test::SourceOf("run", 1, 2);
  Joined(1, first, rank0);
  Joined(1, second, rank1);
  EXPECT_EQ(Request({0, 1}), 2);
  SendAll(first->last(), rank0);
  ASSERT_TRUE(Holds(0));
  Start();
  Joined(2, first, rank0);
  Joined(2, second, rank1);
  ASSERT_TRUE(test::Eventually([&] { return second->orders == 2; }));
  keeper_->OnPart(kStream + 1, test::Refusal(second->last(), "passed-step: it is past", 50));
  ASSERT_TRUE(test::Eventually([&] { return first->orders == 2; }));
  EXPECT_GT(first->last().step(), 50);
  SendAll(first->last(), rank0);
  ASSERT_TRUE(Holds(0));
  SendAll(second->last(), rank1);
  EXPECT_TRUE(Reaches(v1::CapsuleInfo::STATE_COMPLETE));
}

TEST_F(CapsuleKeeperTest, AKillAfterTheLastRankIsHeldIsNoEnd) {
  const auto line = std::make_shared<Line>();
  Joined(1, line);
  EXPECT_EQ(Request({0}), 1);
  SendAll(line->last(), test::SourceOf("run", 0, 1));
  ASSERT_TRUE(Reaches(v1::CapsuleInfo::STATE_COMPLETE));
  keeper_.reset();
  // The state after the rank was saved, before the capsule was saved as finished.
  const std::string path = folder_.File("capsules/00ff/info.pb");
  v1::CapsuleInfo info;
  ASSERT_TRUE(info.ParseFromString(test::ReadFile(path)));
  info.set_state(v1::CapsuleInfo::STATE_TAKING);
  test::WriteFile(path, info.SerializeAsString());
  Start();
  EXPECT_TRUE(Reaches(v1::CapsuleInfo::STATE_COMPLETE));
}

TEST_F(CapsuleKeeperTest, ARankThatDoesNotAnswerGetsAnotherRequest) {
  Start(std::chrono::seconds(30), std::chrono::milliseconds(50));
  const auto line = std::make_shared<Line>();
  Joined(1, line);
  EXPECT_EQ(Request({0}), 1);
  const int64_t step = line->last().step();
  ASSERT_TRUE(test::Eventually([&] { return line->orders >= 3; }));
  EXPECT_EQ(line->last().step(), step) << "for the same";
  SendAll(line->last(), test::SourceOf("run", 0, 1));
  EXPECT_TRUE(Reaches(v1::CapsuleInfo::STATE_COMPLETE));
}

// A trainer declares a site when it first calls it.
TEST_F(CapsuleKeeperTest, AProcessThatHasOnlyBegunMayYetHaveTheSite) {
  const auto line = std::make_shared<Line>();
  Joined(1, line);
  EXPECT_EQ(Request({0}), 1);
  keeper_->OnPart(kStream, test::Refusal(line->last(), "no-site: it has none", 0));
  ASSERT_TRUE(test::Eventually([&] { return line->orders == 2; }));
  SendAll(line->last(), test::SourceOf("run", 0, 1));
  EXPECT_TRUE(Reaches(v1::CapsuleInfo::STATE_COMPLETE));
  EXPECT_EQ(Info().without_site_size(), 0);
}

TEST_F(CapsuleKeeperTest, OneWithoutTheSiteIsNoPartOfItUnlessTheFindingNamesIt) {
  const auto first = std::make_shared<Line>(), second = std::make_shared<Line>();
  const v1::Source rank0 = test::SourceOf("run", 0, 2), rank1 = test::SourceOf("run", 1, 2);
  Joined(1, first, rank0);
  Joined(1, second, rank1);
  EXPECT_EQ(Request({0}), 2);
  keeper_->OnPart(kStream + 1, test::Refusal(second->last(), "no-site: it has none", 9));
  SendAll(first->last(), rank0);
  EXPECT_TRUE(Reaches(v1::CapsuleInfo::STATE_COMPLETE));
  EXPECT_EQ(Info().without_site(0), 1u);
  EXPECT_EQ(Request({0, 1}, true), 2);
  keeper_->OnPart(kStream + 1, test::Refusal(second->last(), "no-site: it has none", 9));
  SendAll(first->last(), rank0);
  EXPECT_TRUE(Reaches(v1::CapsuleInfo::STATE_PARTIAL));
}

TEST_F(CapsuleKeeperTest, NoRankGetsARequestOnceTheStreamHasLeft) {
  const auto line = std::make_shared<Line>();
  Joined(4, line);
  keeper_->Left(kStream, 4);
  EXPECT_EQ(Request(), 0);
  EXPECT_EQ(line->orders, 0);
}

}  // namespace
}  // namespace plumbline::server
