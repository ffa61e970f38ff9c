// The events that a page receives, and the limit of listening pages.
#include "tests/server/web/web_fixture.h"

namespace plumbline::test {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST_F(WebTest, EventsComeAndGoOnAfterTheLastOne) {
  Start();
  EventReader first(http_);
  ASSERT_TRUE(first.Sees("event: hello"));
  EXPECT_THAT(first.text(), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(first.text(), HasSubstr("text/event-stream"));
  const std::string fingerprint = Leak("run", 1);
  ASSERT_TRUE(first.Sees("event: incident"));
  EXPECT_THAT(first.text(), HasSubstr(fingerprint));
  ASSERT_TRUE(first.Sees("event: runs"));
  ASSERT_TRUE(first.Sees("event: beat"));
  // A page that saw only the hello gets everything after it again.
  const size_t at = first.text().find("id: ") + 4;
  const std::string id = first.text().substr(at, first.text().find('\n', at) - at);
  EventReader again(http_, "Last-Event-ID: " + id + "\r\n");
  ASSERT_TRUE(again.Sees("event: incident"));
  EventReader fresh(http_);
  ASSERT_TRUE(fresh.Sees("event: beat"));
  EXPECT_THAT(fresh.text(), Not(HasSubstr("event: incident")));
  EXPECT_EQ(Send("HEAD", "/api/v1/events").status, 200);
}

// The position of the last event among all changes would count those of others' runs.
TEST_F(WebTest, TheIdsOfEventsCountNothingOfOthersRuns) {
  const TestToken admin = NewToken(folder_, "admin"), reader = NewToken(folder_, "reader"),
                  agent = NewToken(folder_, "agent");
  Start(Entry("admin", admin.line, "['read', 'admin']") +
        Entry("reader", reader.line, "['read']", "['mine-*']") +
        Entry("agent", agent.line, "['write']"));
  transport::Credentials credentials;
  credentials.token_file = agent.file;
  const auto channel = ChannelTo(server_->address(), credentials);
  const auto found_in = [&](const std::string& run) {
    agents_.push_back(
        std::make_unique<AgentStream>(channel, agents_.size() + 1, std::vector{SourceOf(run)}));
    return WaitFor(run, 0, Bearer(admin));
  };
  const auto id_of = [](const std::string& text) {
    const size_t at = text.rfind("id: ") + 4;
    return text.substr(at, text.find('\n', at) - at);
  };
  EventReader reads(http_, Bearer(reader)), sees_all(http_, Bearer(admin));
  ASSERT_TRUE(reads.Sees("event: hello") && sees_all.Sees("event: hello"));
  const std::string before = id_of(reads.text()), plain = id_of(sees_all.text());
  EXPECT_EQ(before.find('.'), std::string::npos);
  EXPECT_EQ(before.size(), 48u) << "of one length, however many changes there are";
  EXPECT_NE(plain.find(".0"), std::string::npos);
  found_in("other");
  const std::string mine = found_in("mine-1");
  ASSERT_TRUE(reads.Sees(mine));
  EXPECT_THAT(reads.text(), Not(HasSubstr("other")));

  // With an id of the server the page continues; with an invented number it gets nothing.
  EventReader again(http_, Bearer(reader) + "Last-Event-ID: " + before + "\r\n");
  EXPECT_TRUE(again.Sees(mine));
  EventReader guesses(http_, Bearer(reader) + "Last-Event-ID: " + plain + "\r\n");
  ASSERT_TRUE(guesses.Sees("event: beat"));
  EXPECT_THAT(guesses.text(), Not(HasSubstr("event: incident")));
  EventReader all_again(http_, Bearer(admin) + "Last-Event-ID: " + plain + "\r\n");
  EXPECT_TRUE(all_again.Sees(mine));
}

TEST_F(WebTest, ManyListenersLeaveRoomForOthers) {
  Start();
  std::vector<std::unique_ptr<EventReader>> readers;
  for (int i = 0; i < 140; ++i) readers.push_back(std::make_unique<EventReader>(http_));
  // Readers above the limit are refused, and a scrape is answered.
  EXPECT_TRUE(Eventually([&] {
    int refused = 0;
    for (const auto& one : readers)
      refused += one->text().find(" 503 ") != std::string::npos || !one->Sees("HTTP/1.1 200");
    return refused > 0;
  }));
  EXPECT_EQ(Get("runs").status, 200);
}

TEST_F(WebTest, ARevokedTokenEndsItsEvents) {
  const TestToken token = NewToken(folder_, "token");
  Start(Entry("all", token.line, "['read']"));
  EventReader reader(http_, Bearer(token));
  ASSERT_TRUE(reader.Sees("event: hello"));
  WriteSecret(folder_, "all.tokens", "# revoked\n");
  EXPECT_TRUE(reader.Ends());
}

TEST_F(WebTest, OneEntrysPagesLeaveRoomForOthersPages) {
  const TestToken one = NewToken(folder_, "one"), other = NewToken(folder_, "other");
  Start(Entry("one", one.line, "['read']") + Entry("other", other.line, "['read']"));
  std::vector<std::unique_ptr<EventReader>> readers;
  for (int i = 0; i < 32; ++i) {
    readers.push_back(std::make_unique<EventReader>(http_, Bearer(one)));
    ASSERT_TRUE(readers.back()->Sees("event: hello"));
  }
  EventReader beyond(http_, Bearer(one));
  EXPECT_TRUE(beyond.Sees(" 503 "));
  EventReader another(http_, Bearer(other));
  EXPECT_TRUE(another.Sees("event: hello"));
}

}  // namespace
}  // namespace plumbline::test
