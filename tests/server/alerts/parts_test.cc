// The components of alerts, each alone: configuration, decisions, log, text, signature.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "analysis/rollout/turns.h"
#include "audit/live/doctor_batch.h"
#include "server/alerts/alert_decider.h"
#include "server/alerts/alert_log.h"
#include "server/alerts/signature.h"
#include "server/settings/config.h"
#include "server/store/database.h"
#include "tests/server/alerts/support.h"

namespace plumbline::server {
namespace {

using test::AlertFinding;
using test::AlertUpdate;
using testing::ElementsAre;
using testing::HasSubstr;
using Action = v1::IncidentUpdate;

AlertRoute RouteTo(const std::string& name, const std::string& webhook = "http://127.0.0.1:9") {
  AlertRoute route;
  route.name = name;
  route.webhook = webhook;
  return route;
}

class AlertConfigTest : public testing::Test {
 protected:
  absl::Status Load(const std::string& text) {
    std::ofstream(path_) << text;
    config_ = Config();
    ConfigMistakes mistakes;
    if (auto s = LoadConfigFile(path_, &config_, &mistakes); !s.ok()) return s;
    ValidateConfig(config_, &mistakes);
    return mistakes.ToStatus();
  }
  void SetUp() override { test::WriteSecret(secret_, "0123456789abcdef0123"); }
  std::string Secret() const { return "secret_file = '" + secret_ + "'\n"; }

  const test::TempFolder folder_;
  const std::string path_ = folder_.File("plumbd.toml");
  const std::string secret_ = folder_.File("secret");
  Config config_;
};

TEST_F(AlertConfigTest, ReadsRoutes) {
  const absl::Status s = Load(
      "[alerts]\npage = 'https://plumb.example'\ngather_seconds = 1\n"
      "[[alerts.route]]\nname = 'a'\nalertmanager = 'http://localhost:9093'\nlevel = 'note'\n"
      "[[alerts.route]]\nname = 'b'\nwebhook = 'https://example.com/hook?x=1'\n" +
      Secret() +
      "rules = ['causality/*', 'precision/*']\nruns = ['exp*']\nmost_a_minute = 5\n"
      "resolved = false\n"
      "[[alerts.route]]\nname = 'c'\ncommand = ['/bin/true', 'x']\n");
  ASSERT_TRUE(s.ok()) << s;
  ASSERT_EQ(config_.alerts.routes.size(), 3u);
  EXPECT_EQ(config_.alerts.gather_seconds, 1);
  const AlertRoute& b = config_.alerts.routes[1];
  EXPECT_EQ(b.sink(), AlertRoute::Sink::kWebhook);
  EXPECT_EQ(b.most_a_minute, 5);
  EXPECT_FALSE(b.resolved);
  EXPECT_THAT(b.rules, ElementsAre("causality/*", "precision/*"));
  EXPECT_EQ(config_.alerts.routes[0].level, v1::LEVEL_NOTE);
  v1::Finding finding = AlertFinding("f", v1::LEVEL_WARNING, "exp7");
  EXPECT_TRUE(b.Matches(finding));
  finding.set_level(v1::LEVEL_NOTE);
  EXPECT_FALSE(b.Matches(finding));
  EXPECT_TRUE(config_.alerts.routes[0].Matches(finding));
  finding = AlertFinding("f", v1::LEVEL_ERROR, "other");
  EXPECT_FALSE(b.Matches(finding));
  finding = AlertFinding("f", v1::LEVEL_ERROR, audit::kDoctorRun);
  EXPECT_FALSE(config_.alerts.routes[0].Matches(finding));
  config_.alerts.routes[0].runs = {"plumb-*"};
  EXPECT_TRUE(config_.alerts.routes[0].Matches(finding));
  finding = AlertFinding("f", v1::LEVEL_ERROR, "exp7");
  finding.set_rule("health/loss-spike");
  EXPECT_FALSE(b.Matches(finding));
}

TEST_F(AlertConfigTest, StatesFileLineAndWhatWasExpected) {
  const std::string route = "[alerts]\n\n[[alerts.route]]\nname = 'a'\n";
  const struct {
    std::string text;
    const char* message;
  } cases[] = {
      {route + "webhok = 'x'\n",
       ":5: alerts.route.webhok: unknown key in [alerts.route]; did you mean"},
      {route + "level = 'loud'\n",
       ":5: alerts.route.level: expected note, warning or error, found \"loud\""},
      {route, ":3: alerts.route: expected one of alertmanager, webhook and command, found 0"},
      {route + "webhook = 'http://127.0.0.1/'\nalertmanager = 'http://127.0.0.1/'\n", "found 2"},
      {route + "webhook = 'http://127.0.0.1/'\n", "expected secret_file"},
      {route + "webhook = 'http://127.0.0.1/'\nsecret_file = '/nonexistent'\n", "cannot be read"},
      {route + "alertmanager = 'http://10.0.0.1:9093'\n", "expected https://"},
      {route + "alertmanager = 'ftp://127.0.0.1'\n", "expected a URL like"},
      {route + "alertmanager = 'http://u:p@127.0.0.1'\n", "no user or password"},
      {route + "alertmanager = 'http://127.0.0.1:99999'\n", "no port between"},
      {route + "command = ['notify']\n", "absolute path"},
      {route + "command = ['/nonexistent/notify']\n",
       ":5: alerts.route.command: expected a program"},
      {route + "command = ['/bin/true']\ntimeout_seconds = 0\n",
       ":6: alerts.route.timeout_seconds: expected 0.1 to 300, found 0"},
      {"[[alerts.route]]\ncommand = ['/bin/true']\n", ":1: alerts.route.name: expected letters"},
      {route + "command = ['/bin/true']\n[[alerts.route]]\nname = 'a'\ncommand = ['/bin/true']\n",
       ":7: alerts.route.name: expected a unique name, found \"a\""},
      {"[alerts]\nroute = 3\n", ":2: alerts.route: expected tables [[alerts.route]], found 3"},
      {"[relay]\nupstream = '127.0.0.1:1'\n[[alerts.route]]\nname = 'a'\ncommand = ['/bin/true']\n",
       ":3: alerts.route: expected none together with relay.upstream: a relay has no incidents"},
      {"[alerts]\ngather_seconds = -1\n", ":2: alerts.gather_seconds: expected 0 to 60, found -1"},
      {"[alerts]\npage = 'x'\n", "alerts.page"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(std::string(Load(c.text).message()), HasSubstr(c.message)) << c.text;
  }
  test::WriteSecret(secret_, "short");
  EXPECT_THAT(std::string(Load(route + "webhook = 'http://127.0.0.1/'\n" + Secret()).message()),
              HasSubstr("at least 16 bytes"));
  test::WriteSecret(secret_, "0123456789abcdef0123");
  chmod(secret_.c_str(), 0644);
  EXPECT_THAT(std::string(Load(route + "webhook = 'http://127.0.0.1/'\n" + Secret()).message()),
              HasSubstr(secret_));
}

TEST(AlertSignature, IsHmacSha256) {
  // RFC 4231, test case 2.
  EXPECT_EQ(HmacSha256Hex("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(WebhookSignature("k", "12", "body"), "sha256=" + HmacSha256Hex("k", "12.body"));
}

// ---- decisions -----------------------------------------------------------------------------

class AlertDeciderTest : public testing::Test {
 protected:
  AlertDeciderTest() {
    config_.routes = {RouteTo("all")};
    Restart(0);
  }
  void Restart(uint64_t known) { decider_.emplace(config_, reported_, known); }

  // Returns the events decided for the first route, and applies them.
  std::vector<std::string> Decide(const std::string& fingerprint = "f") {
    return Applied(decider_->Decide(*incident_table_.Get(incident_table_.IncidentOf(fingerprint)),
                                    incident_table_));
  }
  std::vector<std::string> Applied(const std::vector<AlertDecision>& decisions) {
    decider_->Apply(decisions);
    std::vector<std::string> events;
    for (const AlertDecision& d : decisions) {
      reported_[{d.route, d.fingerprint}] = d.reported;
      events.push_back(d.route + " " +
                       (d.notification ? EventWord(d.notification->event) : "nothing"));
      if (d.notification) last_ = nlohmann::json::parse(d.notification->body);
    }
    return events;
  }
  void Put(v1::Level level = v1::LEVEL_ERROR, int64_t step = 0) {
    v1::Finding finding = AlertFinding("f", level);
    finding.mutable_site()->set_step_last(step);
    incident_table_.Put(finding, ++count_);
  }

  IncidentTable incident_table_{[] { return int64_t{5'000'000'000}; }, 10};
  AlertConfig config_;
  std::map<AlertLog::ReportedKey, ReceiverState> reported_;
  std::optional<AlertDecider> decider_;
  uint64_t count_ = 0;
  nlohmann::json last_;  // the body of the last notification
};

TEST_F(AlertDeciderTest, ReportsOnceHoweverOftenItIsFound) {
  Put();
  EXPECT_THAT(Decide(), ElementsAre("all opened"));
  for (int i = 0; i < 4096; ++i) Put();
  EXPECT_THAT(Decide(), ElementsAre());
  Restart(0);  // another process, which read the stored state
  EXPECT_THAT(Decide(), ElementsAre());
}

TEST_F(AlertDeciderTest, ReportsARaisedLevelAndOfTheEnd) {
  Put(v1::LEVEL_WARNING);
  EXPECT_THAT(Decide(), ElementsAre("all opened"));
  Put(v1::LEVEL_ERROR);
  EXPECT_THAT(Decide(), ElementsAre("all escalated"));
  incident_table_.StepClosed("run1", 100);
  EXPECT_THAT(Decide(), ElementsAre("all resolved"));
  EXPECT_THAT(Decide(), ElementsAre());
  Put(v1::LEVEL_ERROR, 101);
  EXPECT_THAT(Decide(), ElementsAre("all returned"));
}

TEST_F(AlertDeciderTest, ALevelRaisedPastARoutesThresholdOpensThere) {
  config_.routes.push_back(RouteTo("errors"));
  config_.routes[1].level = v1::LEVEL_ERROR;
  Restart(0);
  Put(v1::LEVEL_WARNING);
  EXPECT_THAT(Decide(), ElementsAre("all opened"));
  Put(v1::LEVEL_ERROR);
  EXPECT_THAT(Decide(), ElementsAre("all escalated", "errors opened"));
}

TEST_F(AlertDeciderTest, StaysSilentWhileAcknowledgedOrSilenced) {
  Put(v1::LEVEL_WARNING);
  Decide();
  ASSERT_TRUE(incident_table_.Apply(AlertUpdate("f", Action::ACTION_SILENCE)).ok());
  EXPECT_THAT(Decide(), ElementsAre("all nothing"));  // recorded, not sent
  Put(v1::LEVEL_ERROR);
  EXPECT_THAT(Decide(), ElementsAre());
  Put(v1::LEVEL_ERROR, 1);
  EXPECT_THAT(Decide(), ElementsAre());
  ASSERT_TRUE(incident_table_.Apply(AlertUpdate("f", Action::ACTION_REOPEN)).ok());
  EXPECT_THAT(Decide(), ElementsAre("all escalated"));
  ASSERT_TRUE(incident_table_.Apply(AlertUpdate("f", Action::ACTION_ACKNOWLEDGE)).ok());
  EXPECT_THAT(Decide(), ElementsAre("all nothing"));
  ASSERT_TRUE(incident_table_.Apply(AlertUpdate("f", Action::ACTION_REOPEN)).ok());
  EXPECT_THAT(Decide(), ElementsAre("all reopened"));
}

TEST_F(AlertDeciderTest, OneThatWasSilencedBeforeItWasReportedIsReportedWhenTheSilenceEnds) {
  Put();
  ASSERT_TRUE(incident_table_.Apply(AlertUpdate("f", Action::ACTION_SILENCE)).ok());
  EXPECT_THAT(Decide(), ElementsAre());
  ASSERT_TRUE(incident_table_.Apply(AlertUpdate("f", Action::ACTION_REOPEN)).ok());
  EXPECT_THAT(Decide(), ElementsAre("all opened"));
}

TEST_F(AlertDeciderTest, WhatCameAndWentIsReportedOnceAndOldNewsIsNot) {
  Put();
  incident_table_.StepClosed("run1", 100);
  Restart(incident_table_.position());
  EXPECT_THAT(Decide(), ElementsAre());
  Restart(0);
  EXPECT_THAT(Decide(), ElementsAre("all resolved"));
  EXPECT_THAT(Decide(), ElementsAre());
}

TEST_F(AlertDeciderTest, ForgetsIncidentsThatTheBookDoesNotHave) {
  Put();
  Decide();
  EXPECT_TRUE(decider_->Stale(incident_table_).empty());
  IncidentTable other([] { return 0; });
  EXPECT_EQ(decider_->Stale(other).size(), 1u);
  config_.routes[0].name = "renamed";
  Restart(0);
  EXPECT_EQ(decider_->Stale(incident_table_).size(), 1u);
}

// ---- one cause at several sites ------------------------------------------------------------

// Decisions of route "all" (a webhook) and, if a test adds it, "am" (an Alertmanager).
class AlertSites : public AlertDeciderTest {
 protected:
  v1::Finding At(const std::string& layer, const std::string& cause,
                 v1::Level level = v1::LEVEL_WARNING) {
    v1::Finding finding = AlertFinding("finding-" + layer, level);
    finding.mutable_site()->set_layer(layer);
    finding.mutable_cause()->set_id(cause);
    return finding;
  }
  void AddAlertmanager() {
    AlertRoute route;
    route.name = "am";
    route.alertmanager = "http://127.0.0.1:9";
    config_.routes.push_back(route);
    Restart(0);
  }
  // Returns the decisions for every incident that changed, in the order of the deciding thread.
  std::vector<std::string> DecideAll() {
    std::vector<std::string> events;
    IncidentTable::Change change;
    for (uint64_t cursor = 0; incident_table_.Next({}, &cursor, &change);) {
      for (std::string& event : Applied(decider_->Decide(change, incident_table_)))
        events.push_back(std::move(event));
    }
    return events;
  }
};

TEST_F(AlertSites, TenSitesAreOneNotificationThatListsThem) {
  for (int i = 0; i < 10; ++i)
    incident_table_.Put(At("layers." + std::to_string(i), "rounding"), 1);
  EXPECT_THAT(DecideAll(), ElementsAre("all opened"));
  EXPECT_EQ(last_["incident"]["site_count"], 10);
  EXPECT_EQ(last_["incident"]["sites"][9]["layer"], "layers.9");
  EXPECT_EQ(last_["incident"]["cause"], "rounding");
  EXPECT_THAT(std::string(last_["text"]), HasSubstr("10 sites: layers.0"));
  incident_table_.Put(At("layers.10", "rounding"), 1);
  EXPECT_THAT(DecideAll(), ElementsAre()) << "one more site is no news";
}

TEST_F(AlertSites, ARefinedCauseIsNotReportedAgainUnlessItIsWorse) {
  AddAlertmanager();
  incident_table_.Put(At("a", "unknown"), 1);
  incident_table_.Put(At("b", "unknown"), 1);
  EXPECT_THAT(DecideAll(), ElementsAre("all opened", "am opened"));
  const std::string first = last_["incident"]["fingerprint"];
  incident_table_.Put(At("a", "rounding"), 2);
  incident_table_.Put(At("b", "rounding"), 2);
  // The old incident closes as merged: its receiver gets no message, and the alert is replaced.
  EXPECT_THAT(DecideAll(), ElementsAre("all nothing", "all nothing", "am moved", "am nothing"));
  EXPECT_EQ(last_["ended"][0]["fingerprint"], first);
  EXPECT_NE(last_["incident"]["fingerprint"], first);
  EXPECT_THAT(DecideAll(), ElementsAre());
  Restart(0);
  EXPECT_THAT(DecideAll(), ElementsAre()) << "after a restart neither";
  incident_table_.Put(At("a", "flush", v1::LEVEL_ERROR), 3);
  incident_table_.Put(At("b", "flush", v1::LEVEL_ERROR), 3);
  EXPECT_THAT(DecideAll(),
              ElementsAre("all escalated", "all nothing", "am escalated", "am nothing"));
  EXPECT_EQ(last_["previous_level"], "warning");
  incident_table_.StepClosed("run1", 1000);
  EXPECT_THAT(DecideAll(), ElementsAre("all resolved", "am resolved"));
}

TEST_F(AlertSites, AnotherCauseNextToTheFirstIsReported) {
  incident_table_.Put(At("a", "unknown"), 1);
  incident_table_.Put(At("b", "unknown"), 1);
  DecideAll();
  incident_table_.Put(At("a", "rounding"), 2);
  EXPECT_THAT(DecideAll(), ElementsAre("all opened"));
}

TEST_F(AlertSites, WhatCameAndWasMergedBeforeAnybodyLookedIsReportedOnce) {
  incident_table_.Put(At("a", "unknown"), 1);
  incident_table_.Put(At("a", "rounding"), 2);
  EXPECT_THAT(DecideAll(), ElementsAre("all opened"));
  EXPECT_EQ(last_["incident"]["cause"], "rounding");
}

TEST_F(AlertSites, AnAcknowledgementGoesOnWithTheFindings) {
  AddAlertmanager();
  incident_table_.Put(At("a", "unknown"), 1);
  DecideAll();
  ASSERT_TRUE(incident_table_.Apply(AlertUpdate("finding-a", Action::ACTION_ACKNOWLEDGE)).ok());
  EXPECT_THAT(DecideAll(), ElementsAre("all nothing", "am nothing"));
  incident_table_.Put(At("a", "rounding"), 2);
  DecideAll();
  const ReceiverState& reported = reported_[{"am", incident_table_.IncidentOf("finding-a")}];
  EXPECT_TRUE(reported.firing && reported.quiet);
  ASSERT_TRUE(incident_table_.Apply(AlertUpdate("finding-a", Action::ACTION_REOPEN)).ok());
  EXPECT_THAT(DecideAll(), ElementsAre("all reopened", "am reopened"));
}

// An older server reported each finding on its own.
TEST_F(AlertSites, WhatWasSentOfAFindingCountsForItsIncident) {
  incident_table_.Put(At("a", "x"), 1);
  incident_table_.Put(At("b", "x"), 1);
  ReceiverState before;
  before.firing = true;
  before.level = v1::LEVEL_WARNING;
  before.body = "{}";
  reported_[{"all", "finding-a"}] = reported_[{"all", "finding-b"}] = before;
  Restart(0);
  Applied(decider_->Stale(incident_table_));
  EXPECT_THAT(DecideAll(), ElementsAre());
  incident_table_.Put(At("a", "x", v1::LEVEL_ERROR), 2);
  EXPECT_THAT(DecideAll(), ElementsAre("all escalated"));
}

// Ids name training text: a route gets them only if its configuration asks for them.
TEST_F(AlertSites, ARouteGetsNoIdsUnlessItRequestsThem) {
  AlertRoute queries = RouteTo("asks");
  queries.raw_ids = true;
  config_.routes = {RouteTo("all"), queries};
  Restart(0);
  v1::Finding finding = At("a", "x", v1::LEVEL_ERROR);
  finding.set_explanation("Token 4 (sequence 778899, position 3) lost its place.");
  (*finding.mutable_witness()->mutable_fields())["sequence"].set_number_value(778899);
  incident_table_.Put(finding, 1);
  IncidentTable::Change change;
  uint64_t cursor = 0;
  ASSERT_TRUE(incident_table_.Next({}, &cursor, &change));
  int reported = 0;
  for (const AlertDecision& d : decider_->Decide(change, incident_table_)) {
    ASSERT_TRUE(d.notification.has_value());
    EXPECT_EQ(d.notification->body.find("778899") != std::string::npos, d.route == "asks");
    EXPECT_THAT(d.notification->body, HasSubstr("position 3"));
    EXPECT_EQ(d.reported.body.find("778899") != std::string::npos, d.route == "asks");
    ++reported;
  }
  EXPECT_EQ(reported, 2);
}

// A finding as its rule writes it, which names two token ids and a sequence.
TEST_F(AlertSites, TheTokensOfARetokenisedPromptAreForARouteThatRequestsThem) {
  AlertRoute queries = RouteTo("asks");
  queries.raw_ids = true;
  config_.routes = {RouteTo("all"), queries};
  Restart(0);
  analysis::TurnPrefixes turns;
  turns.compared = turns.retokenised = 1;
  turns.sequence = "conversation-778899";
  turns.position = 17;
  turns.logged_token = 50'257;
  turns.found_token = 31'337;
  v1::Finding finding = analysis::OtherPrompts(turns).finding();
  finding.set_rule("drift/record-invalid");
  finding.set_level(v1::LEVEL_ERROR);
  finding.set_fingerprint("0123abcd");
  finding.mutable_site()->set_run("r");
  incident_table_.Put(finding, 1);
  IncidentTable::Change change;
  uint64_t cursor = 0;
  ASSERT_TRUE(incident_table_.Next({}, &cursor, &change));
  int sent = 0;
  for (const AlertDecision& d : decider_->Decide(change, incident_table_)) {
    ASSERT_TRUE(d.notification.has_value());
    for (const char* id : {"50257", "31337", "778899"}) {
      EXPECT_EQ(d.notification->body.find(id) != std::string::npos, d.route == "asks")
          << d.route << ": " << d.notification->body;
    }
    ++sent;
  }
  EXPECT_EQ(sent, 2);
}

// ---- text ----------------------------------------------------------------------------------

TEST(AlertText, HasWhatAPersonNeedsAndNothingThatSteersATerminal) {
  IncidentTable incident_table([] { return int64_t{1'700'000'000'250'000'000}; });
  v1::Finding finding = AlertFinding("0123abcd");
  finding.set_title("title \x1b[31mred\n\xff");
  finding.mutable_measured()->set_name("leak_bits");
  finding.mutable_measured()->set_value(std::numeric_limits<double>::quiet_NaN());
  incident_table.Put(finding, 1);
  const std::string incident = incident_table.IncidentOf("0123abcd");
  const Notification n = MakeNotification(AlertEvent::kOpened, *incident_table.Get(incident),
                                          v1::LEVEL_UNSPECIFIED, "https://p.example/x", "r");
  const auto json = nlohmann::json::parse(n.body);
  EXPECT_EQ(n.id, incident + "-1");
  EXPECT_EQ(json["schema"], "plumbline.alert/1");
  EXPECT_EQ(json["status"], "firing");
  EXPECT_EQ(json["incident"]["opened"], "2023-11-14T22:13:20.250Z");
  EXPECT_EQ(json["finding"]["title"], "title \\x1b[31mred\\n\\xff");
  EXPECT_EQ(json["finding"]["measured"]["value"], "nan");
  EXPECT_EQ(json["finding"]["site"]["rank_text"], "0-7");
  EXPECT_EQ(json["link"], "https://p.example/x/#incident/" + incident);
  const std::string text = json["text"];
  for (const char* part :
       {"[ERROR] causality/moe-future-leak", "run run1", "layers.3", "8 ranks (0-7)", "proved",
        "Token 17 lost", "drop-by-score", "Drop by position", "plumb query incident ",
        "plumb explain causality/moe-future-leak"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

// ---- log -----------------------------------------------------------------------------------

AlertDecision DecisionOf(const std::string& route, const std::string& id, bool firing = true) {
  AlertDecision d;
  d.route = route;
  d.fingerprint = id;
  d.reported.firing = firing;
  d.reported.body = "{}";
  d.notification = Notification{id, id, 1, AlertEvent::kOpened, "{}"};
  return d;
}

TEST(AlertLog, KeepsWhatWasDecidedInOrderUntilItIsDone) {
  test::TempFolder folder;
  const std::string path = folder.File("alerts.sqlite");
  {
    auto log = AlertLog::Open(path);
    ASSERT_TRUE(log.ok()) << log.status();
    ASSERT_TRUE((*log)->Keep({DecisionOf("r", "a"), DecisionOf("r", "b")}, "book", 7, 10).ok());
    ASSERT_TRUE((*log)->Keep({DecisionOf("r", "a")}, "book", 8, 11).ok());  // the same id again
  }
  auto log = AlertLog::Open(path);
  ASSERT_TRUE(log.ok());
  EXPECT_EQ(*(*log)->Position(), std::make_pair(std::string("book"), uint64_t{8}));
  EXPECT_EQ((*log)->WaitingOf("r")->count, 2u);
  EXPECT_EQ((*log)->WaitingOf("r")->oldest_unix_ns, 10);
  EXPECT_EQ((*log)->OpenOf("r")->size(), 2u);
  auto next = (*log)->NextWaiting("r");
  ASSERT_TRUE(next.ok() && next->has_value());
  EXPECT_EQ((*next)->notification.id, "a");
  ASSERT_TRUE((*log)->Tried((*next)->row, "refused").ok());
  EXPECT_EQ((*(*log)->NextWaiting("r"))->tries, 1u);
  ASSERT_TRUE((*log)->Done((*next)->row, AlertDelivery::State::kDelivered, 20, "").ok());
  EXPECT_EQ((*(*log)->NextWaiting("r"))->notification.id, "b");
  const auto history = (*log)->History("a");
  ASSERT_EQ(history->size(), 1u);
  EXPECT_EQ(history->at(0).tries, 2u);
  EXPECT_EQ(history->at(0).done_unix_ns, 20);
  EXPECT_FALSE((*log)->NextWaiting("other")->has_value());
  ASSERT_TRUE((*log)->GiveUpOthers({"other"}, 30).ok());
  EXPECT_EQ((*log)->WaitingOf("r")->count, 0u);
  ASSERT_TRUE((*log)->Retain(100).ok());
  EXPECT_TRUE((*log)->History("a")->empty());
}

TEST(AlertLog, OpensADatabaseOfSchema1) {
  test::TempFolder folder;
  const std::string path = folder.File("alerts.sqlite");
  {
    auto log = AlertLog::Open(path);
    ASSERT_TRUE(log.ok()) << log.status();
    ASSERT_TRUE((*log)->Keep({DecisionOf("r", "a")}, "book", 7, 10).ok());
  }
  {
    auto database = Database::Open(path, Database::Mode::kReadWrite);
    ASSERT_TRUE(database.ok()) << database.status();
    const char* rename = "ALTER TABLE sent RENAME TO told";  // former name
    ASSERT_TRUE((*database)->Execute(rename).ok());
    ASSERT_TRUE((*database)->Execute("PRAGMA user_version=1").ok());
  }
  for (const char* opened : {"for the first time", "again"}) {
    SCOPED_TRACE(opened);
    auto log = AlertLog::Open(path);
    ASSERT_TRUE(log.ok()) << log.status();
    EXPECT_EQ((*log)->AllReported()->size(), 1u);
    EXPECT_EQ((*log)->OpenOf("r")->size(), 1u);
    EXPECT_EQ(*(*log)->Position(), std::make_pair(std::string("book"), uint64_t{7}));
  }
  EXPECT_FALSE(std::ifstream(path + ".aside").good());
}

// An earlier server opened this file after a later one: its state is not to be trusted.
TEST(AlertLog, AFileOfALaterSchemaIsSetAside) {
  test::TempFolder folder;
  const std::string path = folder.File("alerts.sqlite");
  ASSERT_TRUE(AlertLog::Open(path).ok());
  {
    auto database = Database::Open(path, Database::Mode::kReadWrite);
    ASSERT_TRUE(database.ok() && (*database)->Execute("PRAGMA user_version=3").ok());
  }
  EXPECT_TRUE(AlertLog::Open(path).ok());
  EXPECT_TRUE(std::ifstream(path + ".aside").good());
}

TEST(AlertLog, ADamagedFileIsSetAside) {
  test::TempFolder folder;
  const std::string path = folder.File("alerts.sqlite");
  std::ofstream(path) << std::string(8192, 'x');
  auto log = AlertLog::Open(path);
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_TRUE((*log)->AllReported()->empty());
  EXPECT_TRUE(std::ifstream(path + ".aside").good());
}

}  // namespace
}  // namespace plumbline::server
