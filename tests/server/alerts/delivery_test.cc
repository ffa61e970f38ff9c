// Delivery of notifications: the sinks with the test's own receivers, and the whole alert centre.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <set>

#include "rules/engine/incidents.h"
#include "server/alerts/alert_center.h"
#include "server/alerts/signature.h"
#include "tests/server/alerts/support.h"

namespace plumbline::server {
namespace {

using test::AlertFinding;
using test::AlertUpdate;
using test::Eventually;
using test::HttpReceiver;
using testing::HasSubstr;
using Kind = SendResult::Kind;
using Action = v1::IncidentUpdate;

constexpr char kSecret[] = "0123456789abcdef0123";

class AlertDeliveryTest : public testing::Test {
 protected:
  void SetUp() override {
    std::signal(SIGPIPE, SIG_IGN);  // as plumbd does
    test::WriteSecret(folder_.File("secret"), kSecret);
  }

  AlertRoute Webhook(const std::string& name = "hook") const {
    AlertRoute route;
    route.name = name;
    route.webhook = receiver_.url("/in");
    route.secret_file = folder_.File("secret");
    route.timeout_seconds = 60;
    return route;
  }

  // Writes a program for the test.
  AlertRoute Command(const std::string& script, double timeout = 30) const {
    const std::string path = folder_.File("notify");
    std::ofstream(path) << "#!/bin/sh\n" << script;
    chmod(path.c_str(), 0700);
    AlertRoute route;
    route.name = "command";
    route.command = {path, folder_.File("out"), "two words; $(not run)"};
    route.timeout_seconds = timeout;
    return route;
  }

  void StartCenter(std::vector<AlertRoute> routes, const std::string& path = "") {
    AlertOptions options;
    options.config.routes = std::move(routes);
    options.config.gather_seconds = gather_seconds_;
    options.config.gather_most_seconds = gather_most_seconds_;
    options.path = path;
    options.settled = [this] { return settled_.load(); };
    options.times.first_pause = std::chrono::milliseconds(20);
    options.times.longest_pause = std::chrono::milliseconds(50);
    options.times.window = window_;
    auto center = AlertCenter::Start(std::move(options), &incident_table_);
    ASSERT_TRUE(center.ok()) << center.status();
    center_ = std::move(*center);
  }
  static std::string IncidentOf(const std::string& finding) {
    return rules::IncidentFingerprint(AlertFinding(finding));
  }
  const AlertCounts& Counts() const { return *center_->Routes().at(0).counts; }

  // Returns true if nothing arrives for a while. This is no proof, but a fault makes the test fail
  // sooner or later.
  bool StaysAt(size_t count) const {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    return receiver_.requests().size() == count;
  }

  test::TempFolder folder_;
  HttpReceiver receiver_;
  double gather_seconds_ = 0.02;
  double gather_most_seconds_ = 0.02;
  std::chrono::milliseconds window_{60000};
  std::atomic<bool> settled_{true};
  IncidentTable incident_table_{[] { return int64_t{5'000'000'000}; }, 10};
  std::unique_ptr<AlertCenter> center_;
};

// ---- sinks ---------------------------------------------------------------------------------

TEST_F(AlertDeliveryTest, AWebhookIsSignedWithATimeAndStatesWhichNotificationItIs) {
  auto sink = MakeSink(Webhook(), [] { return int64_t{1'700'000'000'000'000'000}; });
  EXPECT_EQ(sink->Send(MakeTest("hook", 1)).kind, Kind::kDelivered);
  const auto request = receiver_.requests().at(0);
  EXPECT_EQ(request.path, "/in");
  EXPECT_EQ(request.headers.at("Content-Type"), "application/json");
  EXPECT_EQ(request.headers.at("Idempotency-Key"), "test-1");
  EXPECT_EQ(request.headers.at("X-Plumbline-Event"), "test");
  EXPECT_EQ(request.headers.at("X-Plumbline-Timestamp"), "1700000000");
  EXPECT_EQ(request.headers.at("X-Plumbline-Signature"),
            "sha256=" + HmacSha256Hex(kSecret, "1700000000." + request.body));
  EXPECT_FALSE(request.headers.contains("Authorization"));
}

TEST_F(AlertDeliveryTest, WhatAStatusMeans) {
  AlertRoute route = Webhook();
  test::WriteSecret(folder_.File("token"), "t0ken");
  route.token_file = folder_.File("token");
  auto sink = MakeSink(route, [] { return int64_t{0}; });
  const struct {
    int status;
    Kind kind;
  } cases[] = {{204, Kind::kDelivered}, {400, Kind::kRefused},  {401, Kind::kRefused},
               {302, Kind::kRefused},   {408, Kind::kTryAgain}, {429, Kind::kTryAgain},
               {500, Kind::kTryAgain},  {503, Kind::kTryAgain}};
  for (const auto& c : cases) {
    receiver_.Answer(c.status);
    const SendResult result = sink->Send(MakeTest("hook", 1));
    EXPECT_EQ(result.kind, c.kind) << c.status << " " << result.detail;
    if (c.kind != Kind::kDelivered) {
      EXPECT_THAT(result.detail, HasSubstr(std::to_string(c.status)));
    }
  }
  EXPECT_EQ(receiver_.requests().at(0).headers.at("Authorization"), "Bearer t0ken");
  route.webhook = "http://127.0.0.1:" + std::to_string(test::FreePort()) + "/";
  const SendResult unknown = MakeSink(route, [] { return int64_t{0}; })->Send(MakeTest("hook", 1));
  EXPECT_EQ(unknown.kind, Kind::kTryAgain);
  EXPECT_THAT(unknown.detail, HasSubstr("Connection"));
  std::remove(route.secret_file.c_str());
  EXPECT_EQ(sink->Send(MakeTest("hook", 1)).kind, Kind::kTryAgain);
}

TEST_F(AlertDeliveryTest, AnEncryptedReceiverIsCheckedByItsCertificate) {
  const std::string key = folder_.File("key"), certificate = folder_.File("certificate");
  test::Process openssl({"/usr/bin/openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                         "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out",
                         certificate, "-days", "1", "-subj", "/CN=receiver", "-addext",
                         "subjectAltName=IP:127.0.0.1"});
  ASSERT_EQ(openssl.Wait(), 0) << openssl.errors();
  HttpReceiver encrypted(certificate, key);
  AlertRoute route = Webhook();
  route.webhook = encrypted.url("/in");
  const auto send = [&] {
    return MakeSink(route, [] { return int64_t{0}; })->Send(MakeTest("hook", 1));
  };
  const SendResult unknown = send();
  EXPECT_EQ(unknown.kind, Kind::kTryAgain);
  EXPECT_THAT(unknown.detail, HasSubstr("SSL"));
  EXPECT_TRUE(encrypted.requests().empty());
  route.ca_file = certificate;
  EXPECT_EQ(send().kind, Kind::kDelivered);
  EXPECT_EQ(encrypted.requests().size(), 1u);
  // A name that is not the certificate's.
  route.webhook = "https://localhost:" + std::to_string(encrypted.port()) + "/in";
  EXPECT_EQ(send().kind, Kind::kTryAgain);
  EXPECT_EQ(encrypted.requests().size(), 1u);
}

TEST_F(AlertDeliveryTest, ACommandReadsTheNotificationWithoutAShell) {
  setenv("PLUMB_TEST_TOKEN", "not for children", 1);
  const AlertRoute route =
      Command("cat > \"$1\"; echo \"$2 $PLUMBLINE_ALERT_EVENT [$PLUMB_TEST_TOKEN]\" >> \"$1\"\n");
  const Notification n = MakeTest("command", 1);
  const SendResult result = MakeSink(route, nullptr)->Send(n);
  EXPECT_EQ(result.kind, Kind::kDelivered) << result.detail;
  EXPECT_EQ(test::ReadFile(folder_.File("out")), n.body + "two words; $(not run) test []\n");
}

TEST_F(AlertDeliveryTest, WhatACommandsEndMeans) {
  const auto run = [&](const std::string& script, double timeout = 30) {
    return MakeSink(Command(script, timeout), nullptr)->Send(MakeTest("command", 1));
  };
  EXPECT_EQ(run("exit 0\n").kind, Kind::kDelivered);  // the program need not read its input
  const SendResult refused = run("echo 'no such\tteam' >&2; exit 3\n");
  EXPECT_EQ(refused.kind, Kind::kRefused);
  EXPECT_THAT(refused.detail, HasSubstr("exit status 3: no such\\tteam"));
  EXPECT_EQ(run("exit 75\n").kind, Kind::kTryAgain);
  EXPECT_EQ(run("kill -9 $$\n").kind, Kind::kTryAgain);
  AlertRoute none;
  none.command = {"/nonexistent/notify"};
  EXPECT_EQ(MakeSink(none, nullptr)->Send(MakeTest("x", 1)).kind, Kind::kTryAgain);
  // A program that hangs is killed, with the processes that it started.
  pid_t child = 0;
  double timeout = 0.25;
  ASSERT_TRUE(Eventually([&] {  // long enough to report the processes that it started
    timeout *= 2;
    const SendResult late = run("sleep 1000 & echo $! > \"$1\"; wait\n", timeout);
    EXPECT_EQ(late.kind, Kind::kTryAgain);
    EXPECT_THAT(late.detail, HasSubstr("took too long"));
    child = static_cast<pid_t>(std::stoi("0" + test::ReadFile(folder_.File("out"))));
    return child > 1;
  }));
  EXPECT_TRUE(Eventually([&] {
    const std::string stat = test::ReadFile("/proc/" + std::to_string(child) + "/stat");
    return stat.empty() || stat.find(") Z") != std::string::npos;
  }));
}

// ---- the centre ----------------------------------------------------------------------------

TEST_F(AlertDeliveryTest, OneFaultOnManyRanksIsOneNotificationWithAllOfThem) {
  gather_most_seconds_ = 60;
  StartCenter({Webhook()});
  v1::Finding finding = AlertFinding("f", v1::LEVEL_WARNING);
  finding.mutable_site()->clear_ranks();
  for (uint32_t rank = 0; rank < 4096; ++rank) {
    finding.mutable_site()->add_ranks(rank);
    // a higher level while it gathers: still one notification
    if (rank == 100) finding.set_level(v1::LEVEL_ERROR);
    incident_table_.Put(finding, rank + 1);
    if (rank == 2000) {
      EXPECT_TRUE(StaysAt(0));
    }  // its step is not closed yet
  }
  incident_table_.StepClosed("run1", 0);
  const auto bodies = receiver_.Wait(1);
  ASSERT_EQ(bodies.size(), 1u);
  EXPECT_EQ(bodies[0]["event"], "opened");
  EXPECT_EQ(bodies[0]["finding"]["level"], "error");
  EXPECT_EQ(bodies[0]["finding"]["site"]["rank_count"], 4096);
  incident_table_.StepClosed("run1", 100);
  EXPECT_EQ(receiver_.Wait(2).at(1)["event"], "resolved");
  EXPECT_TRUE(StaysAt(2));
  EXPECT_TRUE(Eventually([&] { return Counts().delivered == 2; }));
}

TEST_F(AlertDeliveryTest, TriesAgainInOrderUntilTheReceiverIsBack) {
  receiver_.Answer(503);
  StartCenter({Webhook()});
  incident_table_.Put(AlertFinding("f"), 1);
  ASSERT_GE(receiver_.Wait(3).size(), 3u);
  incident_table_.StepClosed("run1", 100);
  receiver_.Answer(200);
  ASSERT_TRUE(Eventually([&] { return Counts().delivered == 2; }));
  const auto bodies = receiver_.Wait(4);
  for (const auto& r : receiver_.requests()) {
    const bool opened = r.json()["event"] == "opened";
    EXPECT_EQ(r.headers.at("Idempotency-Key"), IncidentOf("f") + (opened ? "-1" : "-2"));
  }
  EXPECT_EQ(bodies.back()["event"], "resolved");
  EXPECT_GE(Counts().failed_tries, 3u);
  const auto history = center_->History(IncidentOf("f"));
  ASSERT_EQ(history->size(), 2u);
  EXPECT_EQ(history->at(0).state, AlertDelivery::State::kDelivered);
  EXPECT_GE(history->at(0).tries, 4u);
}

TEST_F(AlertDeliveryTest, WhatIsRefusedDoesNotStandInTheWay) {
  receiver_.Answer(400);
  StartCenter({Webhook()});
  incident_table_.Put(AlertFinding("f"), 1);
  ASSERT_TRUE(Eventually([&] { return Counts().given_up == 1; }));
  receiver_.Answer(200);
  incident_table_.Put(AlertFinding("g", v1::LEVEL_ERROR, "run2"), 1);
  ASSERT_TRUE(Eventually([&] { return Counts().delivered == 1; }));
  EXPECT_EQ(center_->History(IncidentOf("f"))->at(0).state, AlertDelivery::State::kGivenUp);
  EXPECT_THAT(center_->History(IncidentOf("f"))->at(0).problem, HasSubstr("400"));
}

TEST_F(AlertDeliveryTest, WhatIsTooOldIsGivenUp) {
  receiver_.Answer(500);
  AlertRoute route = Webhook();
  route.retry_hours = 0;
  StartCenter({route});
  incident_table_.Put(AlertFinding("f"), 1);
  EXPECT_TRUE(Eventually([&] { return Counts().given_up == 1; }));
}

TEST_F(AlertDeliveryTest, AboveTheLimitOneSummaryReportsTheRest) {
  window_ = std::chrono::seconds(10);  // all notifications must arrive within this time
  AlertRoute route = Webhook();
  route.most_a_minute = 2;
  StartCenter({route});
  for (int i = 0; i < 20; ++i) {
    const std::string i_th = std::to_string(i);
    incident_table_.Put(AlertFinding("f" + i_th, v1::LEVEL_ERROR, "run" + i_th), 1);
  }
  const auto bodies = receiver_.Wait(3);
  ASSERT_EQ(bodies.size(), 3u);
  EXPECT_EQ(bodies[0]["event"], "opened");
  EXPECT_EQ(bodies[1]["event"], "opened");
  EXPECT_EQ(bodies[2]["event"], "summary");
  EXPECT_EQ(bodies[2]["held_back"], 18);
  EXPECT_EQ(bodies[2]["kinds"]["error causality/moe-future-leak opened"], 18);
  EXPECT_EQ(Counts().held_back, 18u);
  EXPECT_TRUE(StaysAt(3));
}

TEST_F(AlertDeliveryTest, NothingWhileSilencedThenReopened) {
  StartCenter({Webhook()});
  incident_table_.Put(AlertFinding("f", v1::LEVEL_WARNING), 1);
  ASSERT_EQ(receiver_.Wait(1).size(), 1u);
  ASSERT_TRUE(incident_table_.Apply(AlertUpdate("f", Action::ACTION_SILENCE)).ok());
  incident_table_.Put(AlertFinding("f", v1::LEVEL_WARNING), 2);
  EXPECT_TRUE(StaysAt(1));
  ASSERT_TRUE(incident_table_.Apply(AlertUpdate("f", Action::ACTION_REOPEN)).ok());
  EXPECT_EQ(receiver_.Wait(2).at(1)["event"], "reopened");
}

TEST_F(AlertDeliveryTest, WhatWasDecidedSurvivesTheProcessAndIsReportedOnce) {
  const std::string path = folder_.File("alerts.sqlite");
  receiver_.Answer(503);
  incident_table_.SetIdentity("journal");
  StartCenter({Webhook()}, path);
  incident_table_.Put(AlertFinding("f"), 1);
  ASSERT_GE(receiver_.Wait(1).size(), 1u);
  center_.reset();
  receiver_.Answer(200);
  // The next process first replays the incident table; changes during the replay are in the past.
  settled_ = false;
  StartCenter({Webhook()}, path);
  ASSERT_TRUE(Eventually([&] { return Counts().delivered == 1; }));
  incident_table_.StepClosed("run1", 100);
  const size_t before = receiver_.requests().size();
  EXPECT_TRUE(StaysAt(before));
  settled_ = true;
  EXPECT_EQ(receiver_.Wait(before + 1).back()["event"], "resolved");
  center_.reset();
  StartCenter({Webhook()}, path);
  EXPECT_TRUE(StaysAt(before + 1));
  std::set<std::string> keys;
  for (const auto& r : receiver_.requests()) keys.insert(r.headers.at("Idempotency-Key"));
  EXPECT_EQ(keys.size(), 2u);
}

TEST_F(AlertDeliveryTest, AHangingReceiverHoldsUpNoOther) {
  AlertRoute hanging = Command("sleep 1000\n", 300);
  StartCenter({hanging, Webhook()});
  incident_table_.Put(AlertFinding("f"), 1);
  EXPECT_EQ(receiver_.Wait(1).size(), 1u);
  const auto start = std::chrono::steady_clock::now();
  center_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

}  // namespace
}  // namespace plumbline::server
