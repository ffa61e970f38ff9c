// The answers of a real plumbd under /api/v1, for various callers.
#include "tests/server/web/web_fixture.h"

namespace plumbline::test {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST_F(WebTest, RunsIncidentsAndRulesOfAServerWithoutTokens) {
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
  // All candidates of one expert, for the picture.
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

// A browser resolves ".." in all spellings, but keeps it after a "=".
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
  // Metrics contain names of runs, too.
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
  // A caller that saw the incident open sends its change too late.
  EXPECT_EQ(Change(fingerprint,
                   {{"state", "silenced"}, {"reason", "r"}, {"until_step", 9}, {"seen", "open"}},
                   "Sec-Fetch-Site: same-origin\r\n")
                .status,
            409);
  EXPECT_EQ(Send("POST", "/api/v1/runs", "Sec-Fetch-Site: same-origin\r\n").status, 405);
}

TEST_F(WebTest, WhatATokenMayNotSeeIsNotThere) {
  const TestToken admin = NewToken(folder_, "admin"), reader = NewToken(folder_, "reader"),
                  agent = NewToken(folder_, "agent");
  Start(Entry("admin", admin.line, "['read', 'admin']") +
        Entry("reader", reader.line, "['read']", "['mine-*']") +
        Entry("agent", agent.line, "['write']"));
  EXPECT_EQ(Get("runs").status, 401);
  EXPECT_EQ(Get("events").status, 401);
  EXPECT_THAT(Get("runs").head, HasSubstr("WWW-Authenticate: Bearer"));
  // The HTML document holds no private data.
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
  // The growth of the store would reveal the activity of others.
  EXPECT_TRUE(Get("server", Bearer(admin)).value().contains("store_bytes"));
  EXPECT_FALSE(Get("server", Bearer(reader)).value().contains("store_bytes"));
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

  // A session represents the token, only in a browser, until it is closed.
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

TEST_F(WebTest, ThePageComesWithAPolicyOrStatesWhyItIsAbsent) {
  Start();
  const Answer page = Send("GET", "/");
  if (page.status == 503) {
    EXPECT_THAT(page.body, HasSubstr("built without the page"));
    return;
  }
  EXPECT_EQ(page.status, 200);
  EXPECT_THAT(page.head, HasSubstr("script-src 'self'"));
  EXPECT_THAT(page.head, HasSubstr("frame-ancestors 'none'"));
  EXPECT_THAT(page.head, Not(HasSubstr("unsafe")));
  const Answer script = Send("GET", "/page.js", "Accept-Encoding: gzip\r\n");
  EXPECT_THAT(script.head, HasSubstr("Content-Encoding: gzip"));
  EXPECT_THAT(script.head, HasSubstr("script-src 'self'"));
  EXPECT_THAT(script.head, HasSubstr("nosniff"));
  EXPECT_THAT(script.head, HasSubstr("Content-Length: " + std::to_string(script.body.size())));
  EXPECT_THAT(script.body, StartsWith("\x1f\x8b"));
  EXPECT_EQ(Send("HEAD", "/page.js", "Accept-Encoding: gzip\r\n").body, "");
  const Answer plain = Send("GET", "/page.js");
  EXPECT_THAT(plain.head, Not(HasSubstr("Content-Encoding")));
  EXPECT_GT(plain.body.size(), 2 * script.body.size());
}

std::string TagOf(const Answer& answer) {
  const size_t at = answer.head.find("ETag: ") + 6;
  return answer.head.substr(at, answer.head.find('\r', at) - at);
}

TEST_F(WebTest, PackedOrPlainIsAsTheClientAcceptsAndEachHasItsTag) {
  Start();
  if (const Answer page = Send("GET", "/"); page.status == 503) {
    EXPECT_THAT(page.head, Not(HasSubstr("Content-Encoding")))
        << "the body is plain, so the header must be absent";
    return;
  }
  const auto of = [&](const std::string& headers) { return Send("GET", "/page.js", headers); };
  const auto packed = HasSubstr("Content-Encoding: gzip");
  for (const char* takes : {"gzip", "br, GZIP;q=0.5", "*", "deflate, *;q=0.1", "x-gzip"}) {
    EXPECT_THAT(of(std::string("Accept-Encoding: ") + takes + "\r\n").head, packed) << takes;
  }
  for (const char* refuses :
       {"gzip;q=0", "gzip ; Q=0.000", "x-gzipfoo", "gzip;q=0, *", "br, *;q=0", "identity", ""}) {
    EXPECT_THAT(of(std::string("Accept-Encoding: ") + refuses + "\r\n").head, Not(packed))
        << refuses;
  }
  const Answer plain = of(""), small = of("Accept-Encoding: gzip\r\n");
  const std::string tag = TagOf(plain);
  EXPECT_NE(tag, TagOf(small));
  EXPECT_THAT(TagOf(small), testing::MatchesRegex("\"[^\"]+\""));
  for (const Answer& one : {plain, small}) {
    EXPECT_THAT(one.head, HasSubstr("Vary: Accept-Encoding"));
    EXPECT_EQ(one.head.find("Vary"), one.head.rfind("Vary"));
  }
  for (const std::string& known : {tag, "W/" + tag, "\"other\", " + tag, std::string("*")}) {
    EXPECT_EQ(of("If-None-Match: " + known + "\r\n").status, 304) << known;
  }
  for (const std::string& other : {TagOf(small), std::string("\"other\", W/\"x\""), tag + "x"}) {
    EXPECT_EQ(of("If-None-Match: " + other + "\r\n").status, 200) << other;
  }
  EXPECT_EQ(of("Accept-Encoding: gzip\r\nIf-None-Match: W/" + TagOf(small) + "\r\n").status, 304);
}

// Both have an error: the run in progress comes first, though its error was found earlier.
TEST_F(WebTest, ARunThatTrainsComesBeforeOneThatIsOverAndASilenceEndsAtAStepToCome) {
  Start();
  const std::string trains = Leak("trains", 1), over = Leak("over", 2);
  ASSERT_EQ(Get("runs").value()["runs"][0]["run"], "over") << "found last";
  agents_[1]->Send(Goodbye(SourceOf("over"), 0), 2);
  ASSERT_TRUE(agents_[1]->Acknowledged(2));
  ASSERT_TRUE(Eventually([&] { return Get("runs/over").value()["over"] == true; }));
  EXPECT_EQ(Get("runs").value()["runs"][0]["run"], "trains");
  EXPECT_EQ(Get("runs").value()["runs"][1]["run"], "over");
  EXPECT_EQ(Get("incidents/" + over).value()["run_over"], true);
  EXPECT_EQ(Get("incidents/" + trains).value()["run_over"], false);

  const auto silence = [&](const std::string& fingerprint, int step) {
    return Change(fingerprint, {{"state", "silenced"}, {"reason", "r"}, {"until_step", step}},
                  "Sec-Fetch-Site: same-origin\r\n");
  };
  const Answer never = silence(over, 1000), past = silence(trains, 0);
  EXPECT_EQ(never.status, 400);
  EXPECT_THAT(never.body, HasSubstr("the run is over"));
  EXPECT_EQ(past.status, 400);
  EXPECT_THAT(past.body, HasSubstr("the run is at step 0"));
  EXPECT_EQ(Get("incidents/" + trains).value()["state"], "open");
  EXPECT_EQ(silence(trains, 1000).status, 200);
}

}  // namespace
}  // namespace plumbline::test
