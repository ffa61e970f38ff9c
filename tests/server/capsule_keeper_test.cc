// Which connection of a stream an order goes to. Connections end and begin on threads of their own,
// so the news of them may come in any order.
#include "server/capsules/capsule_keeper.h"

#include <gtest/gtest.h>

#include <atomic>

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
  void OnDirective(const v1::Directive&) override { ++orders; }

  std::atomic<int> orders{0};
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

TEST_F(CapsuleKeeperTest, NobodyIsAskedOnceTheStreamHasLeft) {
  const auto line = std::make_shared<Line>();
  Joined(4, line);
  keeper_->Left(kStream, 4);
  EXPECT_EQ(Request(), 0);
  EXPECT_EQ(line->orders, 0);
}

}  // namespace
}  // namespace plumbline::server
