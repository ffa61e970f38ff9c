// What a real plumbd says under /api/v1, and to whom.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "tests/server/doors/support.h"
#include "tests/support/files.h"

namespace plumbline::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

struct Answer {
  int status = 0;
  std::string head, body;
  json value() const { return json::parse(body, nullptr, false); }
};

Answer Parsed(const std::string& bytes) {
  Answer answer;
  const size_t end = bytes.find("\r\n\r\n");
  answer.head = bytes.substr(0, end);
  if (end != std::string::npos) answer.body = bytes.substr(end + 4);
  if (bytes.size() > 12) answer.status = std::atoi(bytes.substr(9, 3).c_str());
  return answer;
}

std::string Encoded(const std::string& text) {
  std::string out;
  char hex[4];
  for (const char c : text) {
    std::snprintf(hex, sizeof hex, "%%%02X", static_cast<unsigned char>(c));
    out += hex;
  }
  return out;
}

class WebTest : public testing::Test {
 protected:
  void Start(const std::string& toml = "") {
    server_ = StartWith(folder_, toml, {"--http", "127.0.0.1:0"});
    ASSERT_FALSE(server_->address().empty()) << server_->process().errors();
    http_ = HttpAddress(*server_);
  }
  std::string Entry(const std::string& name, const std::string& tokens, const std::string& scopes,
                    const std::string& runs = "['*']") {
    return "[[access]]\nname = '" + name + "'\ntoken_file = '" +
           WriteSecret(folder_, name + ".tokens", tokens) + "'\nscopes = " + scopes +
           "\nruns = " + runs + "\n";
  }
  static std::string Bearer(const TestToken& token) {
    std::string text = ReadFile(token.file);
    text.erase(text.find_last_not_of('\n') + 1);
    return "Authorization: Bearer " + text + "\r\n";
  }
  Answer Send(const std::string& method, const std::string& path, const std::string& headers = "",
              const std::string& host = "127.0.0.1") {
    const int fd = Dial(http_);
    const std::string request = method + " " + path + " HTTP/1.1\r\nHost: " + host +
                                "\r\nConnection: close\r\nContent-Length: 0\r\n" + headers + "\r\n";
    (void)!send(fd, request.data(), request.size(), MSG_NOSIGNAL);
    std::string bytes;
    char buffer[4096];
    for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0;) {
      bytes.append(buffer, static_cast<size_t>(n));
    }
    close(fd);
    return Parsed(bytes);
  }
  Answer Get(const std::string& path, const std::string& headers = "") {
    return Send("GET", "/api/v1/" + path, headers);
  }
  Answer Change(const std::string& fingerprint, const json& update, const std::string& headers) {
    return Send("POST", "/api/v1/incidents/" + fingerprint + "/state",
                "Plumbline-Update: " + Encoded(update.dump()) + "\r\n" + headers);
  }
  // A run with one open error. The fingerprint of its incident, as `headers` see it.
  std::string Leak(const std::string& run, uint64_t stream, const std::string& headers = "") {
    agents_.push_back(std::make_unique<AgentStream>(*server_, stream, std::vector{SourceOf(run)}));
    return WaitFor(run, stream, headers);
  }
  std::string WaitFor(const std::string& run, uint64_t /*stream*/, const std::string& headers) {
    agents_.back()->Send(LeakingStep(SourceOf(run), 0), 1);
    std::string fingerprint;
    EXPECT_TRUE(Eventually([&] {
      for (const json& row : Get("incidents", headers).value().value("incidents", json::array())) {
        if (row["run"] == run && row["rule"] == "causality/moe-future-leak") {
          fingerprint = row["fingerprint"];
        }
      }
      return !fingerprint.empty();
    }));
    return fingerprint;
  }

  TempFolder folder_;
  std::unique_ptr<Plumbd> server_;
  std::string http_;
  std::vector<std::unique_ptr<AgentStream>> agents_;
};

TEST_F(WebTest, RunsIncidentsAndRulesOfAServerThatAsksNobody) {
  Start();
  EXPECT_TRUE(Get("runs").value()["runs"].empty());
  const std::string fingerprint = Leak("a/b run", 1);
  agents_[0]->Send(ScalarStep(SourceOf("a/b run"), 1, 2.5), 2);
  ASSERT_TRUE(agents_[0]->Acknowledged(2));
  const json run = Get("runs").value()["runs"][0];
  EXPECT_EQ(run["run"], "a/b run");
  EXPECT_EQ(run["state"], "error");
  EXPECT_EQ(run["worst"]["fingerprint"], fingerprint);
  EXPECT_FALSE(run["worst"]["act"].get<std::string>().empty());
  EXPECT_EQ(Get("runs/a%2Fb%20run").value()["incidents"][0]["fingerprint"], fingerprint);
  EXPECT_EQ(Get("runs/no%20such").status, 404);
  EXPECT_GT(Get("runs/a%2Fb%20run/coverage").value()["judged"], 0);

  const json incident = Get("incidents/" + fingerprint.substr(0, 8)).value();
  EXPECT_EQ(incident["finding"]["rule"], "causality/moe-future-leak");
  EXPECT_EQ(incident["history"][0]["change"], "opened");
  EXPECT_TRUE(incident["may_change"]);
  EXPECT_EQ(Get("incidents/ffffffffffffffff").status, 404);
  EXPECT_EQ(Get("incidents?state=silenced").value()["incidents"].size(), 0u);
  EXPECT_EQ(Get("incidents").value()["counts"]["open"], 1);
  // All of one expert's candidates, to be drawn.
  const json& queue = incident["finding"]["witness"]["queue"];
  EXPECT_GE(queue["row"].size(), 2u);
  EXPECT_EQ(queue["row"].size(), queue["score"].size());
  EXPECT_EQ(queue["kept"][queue["refused"].get<size_t>()], 0);
  EXPECT_EQ(queue["kept"][queue["admitted"].get<size_t>()], 1);

  const json rule = Get("rules/causality/moe-future-leak").value();
  EXPECT_EQ(rule["sections"][1]["title"], "Why");
  EXPECT_EQ(rule["incidents"][0]["run"], "a/b run");
  EXPECT_EQ(Get("rules/causality/none").status, 404);
  EXPECT_EQ(Get("no/such/address").status, 404);
  EXPECT_EQ(Send("GET", "/etc/passwd").status, 404);
}

// A browser resolves "..", however it is written: behind a "=" it comes through.
TEST_F(WebTest, ARunMayBeNamedLikeAWayUp) {
  Start();
  for (const std::string name : {"..", ".", "=..", "a..b"}) {
    const uint64_t stream = agents_.size() + 1;
    agents_.push_back(
        std::make_unique<AgentStream>(*server_, stream, std::vector{SourceOf(name, 0, 1)}));
    agents_.back()->Send(ScalarStep(SourceOf(name, 0, 1), 1, 2.5), 1);
    ASSERT_TRUE(agents_.back()->Acknowledged(1));
  }
  EXPECT_EQ(Get("runs/%3D..").value()["run"], "..");
  EXPECT_EQ(Get("runs/=.").value()["run"], ".");
  EXPECT_EQ(Get("runs/%3D%3D..").value()["run"], "=..");
  EXPECT_EQ(Get("runs/a..b").value()["run"], "a..b");
  EXPECT_EQ(Get("runs/=..b").status, 404);
}

TEST_F(WebTest, ValuesAreReducedAndASpikeOfOneStepIsKept) {
  Start();
  AgentStream agent(*server_, 1, {SourceOf("run", 0, 1)});
  v1::Batch batch = BatchOf(SourceOf("run", 0, 1));
  for (int64_t step = 0; step < 1000; ++step) {
    const double value = step == 500 ? 9 : 1;
    AddScalar(&batch, "x", step, step == 700 ? std::nan("") : value);
  }
  AddProgress(&batch, 999);
  agent.Send(batch, 1);
  ASSERT_TRUE(agent.Acknowledged(1));
  json points;
  ASSERT_TRUE(Eventually([&] {
    points = Get("runs/run/points?series=x&px=10").value();
    return points.contains("max") && points["step"].size() == 10;
  }));
  EXPECT_EQ(points["bucket_steps"], 100);
  EXPECT_EQ(points["max"][5], 9);
  EXPECT_EQ(points["min"][5], 1);
  EXPECT_EQ(points["bad"], json::array({7}));
  const json groups = Get("runs/run/series").value();
  EXPECT_EQ(groups["groups"][0]["series"][0]["series"], "x");
  EXPECT_EQ(Get("runs/run/series?filter=nothing").value()["matching"], 0);

  const std::string cells = Get("runs/run/cells?series=x&columns=10&rows=4").body;
  const json head = json::parse(cells.substr(0, cells.find('\n')));
  EXPECT_EQ(head["first_rank"], json::array({0}));
  EXPECT_EQ(cells.size() - cells.find('\n') - 1, head["step"].size());
  EXPECT_EQ(Get("runs/run/cells?series=none").status, 404);
}

TEST_F(WebTest, AnotherSitesNameReadsAndChangesNothing) {
  Start();
  const std::string fingerprint = Leak("run", 1);
  EXPECT_EQ(Send("GET", "/api/v1/runs", "", "evil.example:80").status, 403);
  for (const char* ours : {"localhost:80", "LOCALHOST:80", "localhost.", "Localhost.:80"}) {
    EXPECT_EQ(Send("GET", "/api/v1/runs", "", ours).status, 200) << ours;
  }
  EXPECT_EQ(Send("GET", "/api/v1/runs", "", "localhost.evil.example.").status, 403);
  // Metrics name runs, too.
  EXPECT_EQ(Send("GET", "/metrics", "", "evil.example:80").status, 403);
  EXPECT_EQ(Send("GET", "/metrics", "", "plumbd:7434").status, 200);
  EXPECT_EQ(Send("GET", "/healthz", "", "evil.example:80").status, 200);
  const json update = {{"state", "acknowledged"}, {"reason", "known"}, {"who", "me"}};
  for (const char* sender : {"Origin: http://evil.example\r\n", "Sec-Fetch-Site: cross-site\r\n",
                             "Origin: null\r\n", ""}) {
    EXPECT_EQ(Change(fingerprint, update, sender).status, 403) << sender;
  }
  EXPECT_EQ(Get("incidents/" + fingerprint).value()["state"], "open");
  EXPECT_EQ(
      Change(fingerprint, {{"state", "acknowledged"}}, "Sec-Fetch-Site: same-origin\r\n").status,
      400);
  EXPECT_EQ(
      Send("POST", "/api/v1/incidents/" + fingerprint + "/state", "Sec-Fetch-Site: same-origin\r\n")
          .status,
      400);
  const Answer done = Change(fingerprint, update, "Origin: http://127.0.0.1\r\n");
  EXPECT_EQ(done.status, 200) << done.body;
  EXPECT_EQ(done.value()["state"], "acknowledged");
  EXPECT_EQ(done.value()["who"], "me");
  // Somebody who saw it open was too late.
  EXPECT_EQ(Change(fingerprint,
                   {{"state", "silenced"}, {"reason", "r"}, {"until_step", 9}, {"seen", "open"}},
                   "Sec-Fetch-Site: same-origin\r\n")
                .status,
            409);
  EXPECT_EQ(Send("POST", "/api/v1/runs", "Sec-Fetch-Site: same-origin\r\n").status, 405);
}

// A connection that is told of events: what has come so far.
class EventReader {
 public:
  EventReader(const std::string& http, const std::string& headers = "") : fd_(Dial(http)) {
    const std::string request =
        "GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n" + headers + "\r\n";
    (void)!send(fd_, request.data(), request.size(), MSG_NOSIGNAL);
  }
  ~EventReader() { close(fd_); }
  bool Sees(const std::string& words) {
    return Eventually([&] {
             pollfd ready{fd_, POLLIN, 0};
             char buffer[4096];
             while (poll(&ready, 1, 50) > 0) {
               const ssize_t n = read(fd_, buffer, sizeof buffer);
               if (n <= 0) {
                 over_ = true;
                 break;
               }
               text_.append(buffer, static_cast<size_t>(n));
             }
             return text_.find(words) != std::string::npos || over_;
           }) &&
           text_.find(words) != std::string::npos;
  }
  bool Ends() {
    return Eventually([&] { return !Sees("never") && over_; });
  }
  const std::string& text() const { return text_; }

 private:
  const int fd_;
  std::string text_;
  bool over_ = false;
};

TEST_F(WebTest, WhatATokenMayNotSeeIsNotThere) {
  const TestToken admin = NewToken(folder_, "admin"), reader = NewToken(folder_, "reader"),
                  agent = NewToken(folder_, "agent");
  Start(Entry("admin", admin.line, "['read', 'admin']") +
        Entry("reader", reader.line, "['read']", "['mine-*']") +
        Entry("agent", agent.line, "['write']"));
  EXPECT_EQ(Get("runs").status, 401);
  EXPECT_EQ(Get("events").status, 401);
  EXPECT_THAT(Get("runs").head, HasSubstr("WWW-Authenticate: Bearer"));
  // The document itself holds nothing of anybody.
  EXPECT_THAT(Send("GET", "/").status, testing::AnyOf(200, 503));

  transport::Credentials credentials;
  credentials.token_file = agent.file;
  const auto channel = ChannelTo(server_->address(), credentials);
  for (const std::string run : {"mine-1", "other"}) {
    agents_.push_back(
        std::make_unique<AgentStream>(channel, agents_.size() + 1, std::vector{SourceOf(run)}));
    WaitFor(run, 0, Bearer(admin));
  }
  const json seen = Get("runs", Bearer(reader)).value()["runs"];
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0]["run"], "mine-1");
  EXPECT_EQ(Get("runs/other", Bearer(reader)).status, 403);
  std::string mine, other;
  const json all = Get("incidents", Bearer(admin)).value();
  for (const json& row : all["incidents"]) {
    (row["run"] == "other" ? other : mine) = row["fingerprint"];
  }
  EXPECT_EQ(Get("incidents/" + other, Bearer(reader)).status, 404);
  EXPECT_THAT(Get("incidents", Bearer(reader)).body, Not(HasSubstr("other")));
  const json update = {{"state", "acknowledged"}, {"reason", "known"}};
  EXPECT_EQ(Change(mine, update, Bearer(reader)).status, 403);
  EXPECT_EQ(Change(other, update, Bearer(reader)).status, 404);
  EXPECT_EQ(Change(mine, update, "Sec-Fetch-Site: same-origin\r\n").status, 401);

  // A session stands for the token, in a browser alone, until it is closed.
  const Answer opened = Send("POST", "/api/v1/session", Bearer(admin));
  ASSERT_EQ(opened.status, 204);
  const size_t at = opened.head.find("plumbline_session=");
  const std::string cookie =
      "Cookie: " + opened.head.substr(at, opened.head.find(';', at) - at) + "\r\n";
  EXPECT_EQ(Get("runs", cookie).status, 200);
  EXPECT_EQ(Change(mine, update, cookie).status, 403);
  EXPECT_EQ(Change(mine, update, cookie + "Origin: http://evil\r\n").status, 403);
  const Answer done = Change(mine, update, cookie + "Sec-Fetch-Site: same-origin\r\n");
  EXPECT_EQ(done.status, 200) << done.body;
  EXPECT_EQ(done.value()["who"], "the page (admin)");
  EventReader listens(http_, cookie);
  ASSERT_TRUE(listens.Sees("event: hello"));
  for (const char* sender : {"Origin: http://evil.example\r\n", "Sec-Fetch-Site: same-site\r\n",
                             "Origin: null\r\n", ""}) {
    EXPECT_EQ(Send("DELETE", "/api/v1/session", cookie + sender).status, 403) << sender;
    EXPECT_EQ(Get("runs", cookie).status, 200) << sender;
    const bool foreign = *sender != '\0';
    const Answer tried = Send("POST", "/api/v1/session", Bearer(admin) + sender);
    EXPECT_EQ(tried.status, foreign ? 403 : 204) << sender;
    EXPECT_EQ(tried.head.find("Set-Cookie") == std::string::npos, foreign) << sender;
  }
  EXPECT_EQ(Send("DELETE", "/api/v1/session", cookie + "Origin: http://127.0.0.1\r\n").status, 204);
  EXPECT_TRUE(listens.Ends());
  EXPECT_EQ(Get("runs", cookie).status, 401);
}

TEST_F(WebTest, EventsComeAndGoOnBehindTheLastOne) {
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
  // Whoever saw nothing but the hello is told again what came behind it.
  const size_t at = first.text().find("id: ") + 4;
  const std::string id = first.text().substr(at, first.text().find('\n', at) - at);
  EventReader again(http_, "Last-Event-ID: " + id + "\r\n");
  ASSERT_TRUE(again.Sees("event: incident"));
  EventReader fresh(http_);
  ASSERT_TRUE(fresh.Sees("event: beat"));
  EXPECT_THAT(fresh.text(), Not(HasSubstr("event: incident")));
  EXPECT_EQ(Send("HEAD", "/api/v1/events").status, 200);
}

// Where the last event stood among all changes would count those of others' runs.
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

  // With its own it goes on; with a number that it made up, it is told nothing.
  EventReader again(http_, Bearer(reader) + "Last-Event-ID: " + before + "\r\n");
  EXPECT_TRUE(again.Sees(mine));
  EventReader guesses(http_, Bearer(reader) + "Last-Event-ID: " + plain + "\r\n");
  ASSERT_TRUE(guesses.Sees("event: beat"));
  EXPECT_THAT(guesses.text(), Not(HasSubstr("event: incident")));
  EventReader all_again(http_, Bearer(admin) + "Last-Event-ID: " + plain + "\r\n");
  EXPECT_TRUE(all_again.Sees(mine));
}

TEST_F(WebTest, ManyWhoAreToldOfEventsLeaveRoomForOthers) {
  Start();
  std::vector<std::unique_ptr<EventReader>> readers;
  for (int i = 0; i < 140; ++i) readers.push_back(std::make_unique<EventReader>(http_));
  // Some too many are refused, and a scrape is answered.
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

TEST_F(WebTest, ThePageComesWithAPolicyOrSaysWhyItIsAbsent) {
  Start();
  const Answer page = Send("GET", "/");
  if (page.status == 503) {
    EXPECT_THAT(page.body, HasSubstr("built without its page"));
    return;
  }
  EXPECT_EQ(page.status, 200);
  EXPECT_THAT(page.head, HasSubstr("script-src 'self'"));
  EXPECT_THAT(page.head, HasSubstr("frame-ancestors 'none'"));
  EXPECT_THAT(page.head, Not(HasSubstr("unsafe")));
  const Answer script = Send("GET", "/page.js", "Accept-Encoding: gzip\r\n");
  EXPECT_THAT(script.head, HasSubstr("Content-Encoding: gzip"));
  const size_t at = script.head.find("ETag: ") + 6;
  const std::string tag = script.head.substr(at, script.head.find('\r', at) - at);
  EXPECT_EQ(Send("GET", "/page.js", "If-None-Match: " + tag + "\r\n").status, 304);
}

}  // namespace
}  // namespace plumbline::test
