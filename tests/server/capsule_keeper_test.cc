// Which connection of a stream an order goes to. Connections end and begin on threads of their own,
// so the news of them may come in any order.
#include "server/capsules/capsule_keeper.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>

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

  void SetUp() override {
    keeper_.emplace(
        CapsuleOptions{.directory = folder_.File("capsules"), .level = v1::LEVEL_UNSPECIFIED},
        [](const std::string&) { return 3; }, &counters_);
    ASSERT_TRUE(keeper_->Start().ok());
  }
  void Joined(uint64_t connection, const std::shared_ptr<Line>& line) {
    v1::Hello hello;
    hello.set_directives(true);
    *hello.add_sources() = test::SourceOf("run", 0, 1);
    keeper_->Joined(kStream, connection, line, hello);
  }
  // How many processes are asked.
  int Request() {
    v1::Finding finding;
    finding.set_fingerprint("00ff");
    finding.mutable_site()->set_run("run");
    finding.mutable_site()->set_op("router");
    int asked = -1;
    std::atomic<bool> done{false};
    keeper_->Request(finding, false, [&](const absl::StatusOr<v1::CapsuleInfo>& info) {
      if (info.ok()) asked = info->ranks_size();
      done = true;
    });
    EXPECT_TRUE(test::Eventually([&] { return done.load(); }));
    return asked;
  }

  void Refuse(const v1::SendCapsule& order, const std::string& why) {
    v1::CapsulePart part;
    part.set_capsule(order.capsule());
    part.set_step(order.step());
    part.set_error(why);
    part.set_newest_step(order.step());
    keeper_->OnPart(kStream, part);
  }

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
  keeper_->Left(kStream, 5);
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
  Refuse(line->last(), "no-call: the site was not called");  // the fourth: it is hardly ever called
  EXPECT_TRUE(test::Eventually(
      [&] { return keeper_->List("run", "00ff").at(0).state() == v1::CapsuleInfo::STATE_FAILED; }));
}

TEST_F(CapsuleKeeperTest, NobodyIsAskedOnceTheStreamHasLeft) {
  const auto line = std::make_shared<Line>();
  Joined(4, line);
  keeper_->Left(kStream, 4);
  EXPECT_EQ(Request(), 0);
  EXPECT_EQ(line->orders, 0);
}

}  // namespace
}  // namespace plumbline::server
