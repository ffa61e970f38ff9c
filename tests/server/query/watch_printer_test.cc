#include "audit/live/watch_printer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace plumbline::audit {
namespace {

using testing::HasSubstr;
using testing::Not;

v1::IncidentEvent Event(v1::IncidentEvent::Kind kind, uint64_t count) {
  v1::IncidentEvent event;
  event.set_kind(kind);
  v1::Incident& incident = *event.mutable_incident();
  incident.set_id(7);
  incident.set_state(v1::Incident::STATE_OPEN);
  incident.set_count(count);
  incident.set_opened_unix_ns(1'700'000'000'123'000'000);
  incident.set_updated_unix_ns(1'700'000'001'000'000'000);
  v1::Finding& finding = *incident.mutable_finding();
  finding.set_rule("causality/moe-future-leak");
  finding.set_level(v1::LEVEL_WARNING);
  finding.set_strength(v1::STRENGTH_HEURISTIC);
  finding.set_title("routing depends on later tokens");
  finding.set_fingerprint("abc");
  finding.mutable_cause()->set_id("drop-by-score");
  finding.mutable_site()->set_run("demo");
  finding.mutable_site()->set_layer("layers.3");
  return event;
}

WatchPrinter Plain() { return WatchPrinter(WatchPrinter::Format::kText, {}); }

TEST(WatchPrinter, PrintsAnIncidentWholeWhenItOpens) {
  WatchPrinter printer = Plain();
  const std::string text = printer.Event(Event(v1::IncidentEvent::KIND_OPENED, 1));
  for (const char* part : {"incident 7 opened", "warning", "causality/moe-future-leak", "layers.3",
                           "run demo", "routing depends on later tokens", "abc"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

v1::IncidentEvent NonFinite(uint64_t id, const char* rule, const char* title, int64_t step) {
  v1::IncidentEvent event = Event(v1::IncidentEvent::KIND_OPENED, 1);
  event.mutable_incident()->set_id(id);
  v1::Finding& finding = *event.mutable_incident()->mutable_finding();
  finding.set_rule(rule);
  finding.set_level(v1::LEVEL_ERROR);
  finding.set_title(title);
  finding.set_fingerprint(rule);
  finding.mutable_site()->set_step_first(step);
  finding.mutable_site()->set_step_last(step);
  return event;
}

TEST(WatchPrinter, PrintsASymptomInOneLineOfItsRoot) {
  const auto weight = NonFinite(3, "precision/non-finite", "a weight is NaN", 60);
  const auto loss = NonFinite(4, "health/loss-non-finite", "the loss is NaN", 61);
  WatchPrinter printer = Plain();
  printer.Event(weight);
  EXPECT_EQ(printer.Open(), 1u);
  const std::string symptom = printer.Event(loss);
  EXPECT_THAT(symptom,
              HasSubstr("a symptom of incident 3: the loss is NaN: health/loss-non-finite"));
  EXPECT_EQ(std::count(symptom.begin(), symptom.end(), '\n'), 3);  // time, line, empty line
  EXPECT_EQ(printer.Open(), 1u);

  WatchPrinter reversed = Plain();
  EXPECT_THAT(reversed.Event(loss), Not(HasSubstr("symptom")));
  EXPECT_THAT(reversed.Event(weight), HasSubstr("the loss is NaN: health/loss-non-finite"));

  WatchPrinter json(WatchPrinter::Format::kJson, {});
  json.Event(weight);
  const auto line = nlohmann::json::parse(json.Event(loss));
  EXPECT_EQ(line["symptom_of"], "precision/non-finite");
}

TEST(WatchPrinter, IncidentsOfOtherRunsAndResolvedOnesHaveNoSymptoms) {
  const auto loss = NonFinite(4, "health/loss-non-finite", "the loss is NaN", 61);
  auto weight = NonFinite(3, "precision/non-finite", "a weight is NaN", 60);
  auto elsewhere = weight;
  elsewhere.mutable_incident()->mutable_finding()->mutable_site()->set_run("other");
  WatchPrinter printer = Plain();
  printer.Event(elsewhere);
  EXPECT_THAT(printer.Event(loss), Not(HasSubstr("symptom")));
  EXPECT_EQ(printer.Open(), 2u);

  WatchPrinter later = Plain();
  later.Event(weight);
  weight.set_kind(v1::IncidentEvent::KIND_RESOLVED);
  later.Event(weight);
  EXPECT_EQ(later.Open(), 0u);
  EXPECT_THAT(later.Event(loss), Not(HasSubstr("symptom")));
}

TEST(WatchPrinter, PrintsExistingRootsBeforeTheirSymptoms) {
  auto loss = NonFinite(3, "health/loss-non-finite", "the loss is NaN", 61);
  auto other = NonFinite(4, "health/overfit", "the evaluation rises", 500);
  auto weight = NonFinite(5, "precision/non-finite", "a weight is NaN", 60);
  for (auto* event : {&loss, &other, &weight}) event->set_kind(v1::IncidentEvent::KIND_EXISTING);
  v1::IncidentEvent caught_up;
  caught_up.set_kind(v1::IncidentEvent::KIND_CAUGHT_UP);

  WatchPrinter printer = Plain();
  for (const auto& event : {loss, other, weight}) EXPECT_EQ(printer.Event(event), "");
  EXPECT_EQ(printer.Open(), 2u);
  const std::string text = printer.Event(caught_up);
  const size_t symptom = text.find("a symptom of incident 5: the loss is NaN");
  ASSERT_NE(symptom, std::string::npos) << text;
  EXPECT_LT(text.find("incident 5, open since then"), symptom);
  EXPECT_EQ(text.find("the loss is NaN", symptom + 40), std::string::npos) << text;

  WatchPrinter json(WatchPrinter::Format::kJson, {});
  for (const auto& event : {loss, other, weight}) json.Event(event);
  const std::string lines = json.Event(caught_up);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 4) << lines;
  EXPECT_THAT(lines, HasSubstr("\"symptom_of\":\"precision/non-finite\""));
  EXPECT_THAT(lines.substr(lines.rfind('\n', lines.size() - 2)), HasSubstr("caught-up"));
}

TEST(WatchPrinter, PrintsAllOfAFindingIfVerbose) {
  TextStyle style;
  style.verbose = true;
  WatchPrinter printer(WatchPrinter::Format::kText, style);
  EXPECT_THAT(printer.Event(Event(v1::IncidentEvent::KIND_OPENED, 1)), HasSubstr("drop-by-score"));
}

TEST(WatchPrinter, IsSilentWhileNothingIsNewAndSpeaksWhenSomethingIs) {
  WatchPrinter printer = Plain();
  printer.Event(Event(v1::IncidentEvent::KIND_OPENED, 1));
  EXPECT_EQ(printer.Event(Event(v1::IncidentEvent::KIND_UPDATED, 2)), "");
  EXPECT_EQ(printer.Event(Event(v1::IncidentEvent::KIND_UPDATED, 9)), "");
  const std::string ten = printer.Event(Event(v1::IncidentEvent::KIND_UPDATED, 10));
  EXPECT_THAT(ten, HasSubstr("continues: seen 10 times"));
  EXPECT_EQ(std::count(ten.begin(), ten.end(), '\n'), 1);
  auto stronger = Event(v1::IncidentEvent::KIND_UPDATED, 11);
  stronger.mutable_incident()->mutable_finding()->set_strength(v1::STRENGTH_PROVED);
  EXPECT_THAT(printer.Event(stronger), HasSubstr("has a higher level or strength now"));
  EXPECT_EQ(printer.Event(stronger), "");
  stronger.mutable_incident()->mutable_finding()->mutable_cause()->set_id("expert-choice");
  EXPECT_THAT(printer.Event(stronger), HasSubstr("has a different cause now"));
}

TEST(WatchPrinter, DoesNotRepeatAfterABreakButAfterARestartOfTheServer) {
  WatchPrinter printer = Plain();
  printer.Event(Event(v1::IncidentEvent::KIND_OPENED, 1));
  EXPECT_EQ(printer.Event(Event(v1::IncidentEvent::KIND_EXISTING, 3)), "");
  EXPECT_EQ(printer.Existing(), "");
  auto again = Event(v1::IncidentEvent::KIND_EXISTING, 3);
  again.mutable_incident()->set_opened_unix_ns(1'800'000'000'000'000'000);
  EXPECT_EQ(printer.Event(again), "");
  EXPECT_THAT(printer.Existing(), HasSubstr("seen 3 times"));
  EXPECT_EQ(printer.Existing(), "");
}

TEST(WatchPrinter, NothingFromATrainerSteersTheTerminal) {
  WatchPrinter printer = Plain();
  auto event = Event(v1::IncidentEvent::KIND_OPENED, 1);
  v1::Finding& finding = *event.mutable_incident()->mutable_finding();
  finding.mutable_site()->set_run("\x1b[2Jrun\r\n");
  finding.mutable_site()->set_layer("layer\x07");
  finding.set_title("title\x1b]0;owned\x07");
  EXPECT_THAT(printer.Event(event),
              Not(testing::AnyOf(HasSubstr("\x1b"), HasSubstr("\x07"), HasSubstr("\r"))));
  auto resolved = event;
  resolved.set_kind(v1::IncidentEvent::KIND_RESOLVED);
  EXPECT_THAT(printer.Event(resolved), Not(HasSubstr("\x1b")));
}

TEST(WatchPrinter, JsonIsOneObjectALine) {
  WatchPrinter printer(WatchPrinter::Format::kJson, {});
  auto event = Event(v1::IncidentEvent::KIND_UPDATED, 4);
  event.set_missed(2);
  event.mutable_incident()->mutable_finding()->set_title("a\nb\"\xff");
  event.mutable_incident()->mutable_finding()->mutable_measured()->set_value(
      std::numeric_limits<double>::quiet_NaN());
  const std::string line = printer.Event(event);
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["event"], "updated");
  EXPECT_EQ(json["missed"], 2);
  EXPECT_EQ(json["incident"]["count"], 4);
  EXPECT_EQ(json["incident"]["state"], "open");
  EXPECT_EQ(json["incident"]["opened"], "2023-11-14T22:13:20.123Z");
  EXPECT_EQ(json["incident"]["finding"]["rule"], "causality/moe-future-leak");
  EXPECT_EQ(json["incident"]["finding"]["measured"]["value"], "nan");
}

}  // namespace
}  // namespace plumbline::audit
