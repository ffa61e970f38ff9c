// Tests that one cause gives one incident, and that a report does not depend on the order of
// verdicts.
#include "rules/engine/incidents.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <set>

#include "rules/engine/report.h"
#include "rules/rule.h"

namespace plumbline::rules {
namespace {

v1::Verdict Reported(const std::string& rule, const std::string& layer, const std::string& cause,
                     int64_t step = 0, double confidence = 0.5,
                     v1::Strength strength = v1::STRENGTH_BOUNDED) {
  v1::Verdict verdict;
  verdict.set_kind(v1::Verdict::KIND_FINDING);
  verdict.set_rule(rule);
  v1::FindingSite& site = *verdict.mutable_site();
  site.set_run("run");
  site.set_layer(layer);
  site.set_op("weight");
  site.set_step_first(step);
  site.set_step_last(step);
  site.add_ranks(0);
  v1::Finding& finding = *verdict.mutable_finding();
  finding.set_rule(rule);
  finding.set_level(v1::LEVEL_ERROR);
  finding.set_strength(strength);
  finding.mutable_cause()->set_id(cause);
  finding.mutable_cause()->set_confidence(confidence);
  *finding.mutable_site() = site;
  finding.set_explanation(layer + " at " + std::to_string(step));
  finding.set_fingerprint(Fingerprint(rule, site));
  return verdict;
}

TEST(Incidents, TenTensorsWithOneCauseAreOneWithTenSites) {
  Report report;
  for (int i = 9; i >= 0; --i)
    report.Add(Reported("precision/lost-update", "layers." + std::to_string(i), "no-master-weights",
                        i == 4 ? 2 : 3));
  report.Add(Reported("precision/lost-update", "embedding", "another"));
  report.Add(Reported("precision/ema-stall", "layers.0", "no-master-weights"));
  const auto incidents = IncidentsOf(report.findings());
  ASSERT_EQ(incidents.size(), 3u);
  const auto ten = std::max_element(
      incidents.begin(), incidents.end(),
      [](const auto& a, const auto& b) { return a.findings.size() < b.findings.size(); });
  EXPECT_EQ(ten->findings.size(), 10u);
  EXPECT_EQ(ten->shown().site().layer(), "layers.4") << "the earliest of equals";
  EXPECT_EQ(ten->findings[1]->site().layer(), "layers.0");
  EXPECT_EQ(ten->fingerprint, IncidentFingerprint(ten->shown()));
  EXPECT_EQ(ten->fingerprint.size(), 32u);
}

TEST(Incidents, WhatShowsIsUnsuppressedThenStrongestThenEarliest) {
  v1::Finding a = Reported("g/r", "a", "c", 9).finding();
  v1::Finding b = Reported("g/r", "b", "c", 5).finding();
  EXPECT_TRUE(ShowsBefore(b, a));
  a.set_strength(v1::STRENGTH_PROVED);
  EXPECT_TRUE(ShowsBefore(a, b));
  b.set_level(v1::LEVEL_ERROR);
  a.set_level(v1::LEVEL_WARNING);
  EXPECT_TRUE(ShowsBefore(b, a));
  b.set_suppressed(true);
  EXPECT_TRUE(ShowsBefore(a, b));
}

TEST(Incidents, AFingerprintIsOfRuleRunAndCause) {
  v1::Finding a = Reported("g/r", "a", "c").finding();
  v1::Finding b = Reported("g/r", "b", "c").finding();
  EXPECT_EQ(IncidentFingerprint(a), IncidentFingerprint(b));
  b.mutable_cause()->set_id("d");
  EXPECT_NE(IncidentFingerprint(a), IncidentFingerprint(b));
  b = a;
  b.mutable_site()->set_run("other");
  EXPECT_NE(IncidentFingerprint(a), IncidentFingerprint(b));
  EXPECT_NE(IncidentFingerprint(a), a.fingerprint());
}

// Returns the findings of a report as text, independent of their order of arrival.
std::string Stated(const Report& report) {
  std::string text;
  for (const Incident& incident : IncidentsOf(report.findings())) {
    text += incident.fingerprint + "\n";
    for (const v1::Finding* finding : incident.findings) text += finding->DebugString();
  }
  return text;
}

TEST(Incidents, DoNotDependOnTheOrderOfVerdicts) {
  std::mt19937_64 rng(7);
  const auto pick = [&rng](auto... values) {
    const std::vector all{values...};
    return all[rng() % all.size()];
  };
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<v1::Verdict> verdicts;
    for (int site = 0; site < 6; ++site) {
      for (int64_t step = 0; step < static_cast<int64_t>(1 + rng() % 6); ++step) {
        verdicts.push_back(Reported(pick(std::string("g/a"), std::string("g/b")),
                                    "layers." + std::to_string(site),
                                    pick(std::string(), std::string("x"), std::string("y")), step,
                                    pick(0.0, 0.3, 0.9, std::numeric_limits<double>::quiet_NaN()),
                                    pick(v1::STRENGTH_HEURISTIC, v1::STRENGTH_PROVED)));
        verdicts.back().mutable_finding()->set_level(pick(v1::LEVEL_WARNING, v1::LEVEL_ERROR));
        verdicts.back().mutable_finding()->set_suppressed(pick(true, false));
      }
    }
    std::string reference;
    for (int order = 0; order < 6; ++order) {
      Report report;
      for (const v1::Verdict& verdict : verdicts) report.Add(verdict);
      if (order == 0) reference = Stated(report);
      ASSERT_EQ(Stated(report), reference) << "trial " << trial;
      std::shuffle(verdicts.begin(), verdicts.end(), rng);
    }
  }
}

// Tests that the most certain cause is reported, in the words of the earliest finding that named
// it.
TEST(Report, AFindingIsReportedByTheFirstThatNamedItsCause) {
  Report report;
  report.Add(Reported("g/r", "a", "x", 4, 0.5));
  EXPECT_TRUE(report.Add(Reported("g/r", "a", "y", 5, 0.7)).refined);
  EXPECT_TRUE(report.Add(Reported("g/r", "a", "x", 6, 0.9)).refined);
  const v1::Finding& finding = *report.findings()[0];
  EXPECT_EQ(finding.cause().id(), "x");
  EXPECT_EQ(finding.cause().confidence(), 0.9);
  EXPECT_EQ(finding.explanation(), "a at 4");
  EXPECT_EQ(finding.site().step_first(), 4);
  EXPECT_EQ(finding.site().step_last(), 6);
  EXPECT_FALSE(report.Add(Reported("g/r", "a", "y", 7, 0.8)).refined);
}

TEST(Report, ARestoredOneGoesOnAsTheOldOneWould) {
  const auto first = {Reported("g/r", "a", "x", 4, 0.5), Reported("g/r", "a", "y", 5, 0.7)};
  const v1::Verdict then = Reported("g/r", "a", "x", 6, 0.9);
  Report one, two;
  for (const v1::Verdict& verdict : first) one.Add(verdict);
  Archive write;
  one.Persist(write);
  const std::string bytes = write.Take();
  Archive read(bytes);
  two.Persist(read);
  read.End();
  ASSERT_TRUE(read.ok()) << read.error();
  one.Add(then);
  two.Add(then);
  EXPECT_EQ(Stated(one), Stated(two));
  EXPECT_EQ(two.findings()[0]->explanation(), "a at 4");
}

v1::Finding Seen(const std::string& rule, const std::string& cause, int64_t first, int64_t last,
                 v1::Level level = v1::LEVEL_ERROR, const std::string& run = "run") {
  v1::Finding finding = Reported(rule, rule, cause, first).finding();
  finding.mutable_site()->set_run(run);
  finding.mutable_site()->set_step_last(last);
  finding.set_level(level);
  finding.set_fingerprint(Fingerprint(rule, finding.site()));
  return finding;
}

// Returns "root: symptom symptom; root" by rule and cause, whatever the order of the findings.
std::string Folded(std::vector<v1::Finding> findings) {
  std::set<std::string> texts;
  for (size_t turn = 0; turn < findings.size(); ++turn) {
    std::rotate(findings.begin(), findings.begin() + 1, findings.end());
    std::vector<const v1::Finding*> all;
    for (const v1::Finding& one : findings) all.push_back(&one);
    std::string text;
    for (const Incident& incident : IncidentsOf(all)) {
      text += (text.empty() ? "" : "; ") + incident.shown().rule();
      for (const Incident& symptom : incident.symptoms)
        text += (&symptom == &incident.symptoms[0] ? ": " : " ") + symptom.shown().rule() + "/" +
                symptom.shown().cause().id();
    }
    texts.insert(text);
  }
  EXPECT_EQ(texts.size(), 1u);
  return *texts.begin();
}

TEST(Causes, WeightsThatAreNaNLeadTheLossThatIs) {
  EXPECT_EQ(Folded({Seen("health/loss-non-finite", "nan", 61, 90),
                    Seen("precision/non-finite", "write", 60, 90)}),
            "precision/non-finite: health/loss-non-finite/nan");
  // The weight is NaN long after the loss: the loss is not its symptom.
  EXPECT_EQ(Folded({Seen("health/loss-non-finite", "nan", 61, 90),
                    Seen("precision/non-finite", "write", 70, 90)}),
            "health/loss-non-finite; precision/non-finite");
  // The weight was not observed between steps 60 and 70.
  v1::Finding sampled = Seen("precision/non-finite", "write", 70, 90);
  (*sampled.mutable_details()->mutable_fields())["clean_step"].set_number_value(60);
  EXPECT_EQ(Folded({Seen("health/loss-non-finite", "nan", 61, 90), sampled}),
            "precision/non-finite: health/loss-non-finite/nan");
  EXPECT_EQ(Folded({Seen("health/loss-non-finite", "nan", 60, 90), sampled}),
            "health/loss-non-finite; precision/non-finite");
  EXPECT_EQ(Folded({Seen("health/loss-non-finite", "nan", 100, 120),
                    Seen("precision/non-finite", "write", 60, 90)}),
            "health/loss-non-finite; precision/non-finite");
  EXPECT_EQ(Folded({Seen("health/loss-non-finite", "nan", 61, 90, v1::LEVEL_ERROR, "other"),
                    Seen("precision/non-finite", "write", 60, 90)}),
            "health/loss-non-finite; precision/non-finite");
}

TEST(Causes, ALossThatJumpsAndDivergesIsOne) {
  EXPECT_EQ(Folded({Seen("health/loss-divergence", "divergence", 403, 530),
                    Seen("health/gradient-spike", "gradient-jump", 402, 529, v1::LEVEL_WARNING),
                    Seen("health/loss-spike", "level-shift", 408, 535, v1::LEVEL_WARNING)}),
            "health/loss-divergence: health/gradient-spike/gradient-jump "
            "health/loss-spike/level-shift");
  // An earlier spike is a fault of its own.
  EXPECT_EQ(Folded({Seen("health/loss-divergence", "divergence", 403, 530),
                    Seen("health/loss-spike", "spike", 200, 210, v1::LEVEL_WARNING)}),
            "health/loss-divergence; health/loss-spike");
}

TEST(Causes, AGradientThatIsNeverClearedLeadsTheDriftThatItMakes) {
  EXPECT_EQ(Folded({Seen("health/loss-divergence", "divergence", 40, 90),
                    Seen("health/update-ratio", "updates-too-large", 20, 90, v1::LEVEL_WARNING),
                    Seen("precision/stale-gradient", "not-cleared", 1, 64)}),
            "precision/stale-gradient: health/loss-divergence/divergence "
            "health/update-ratio/updates-too-large");
}

// The rule reports the first two steps, and the drift begins much later.
TEST(Causes, AGradientThatIsNeverClearedLeadsWhatBeginsLater) {
  EXPECT_EQ(Folded({Seen("precision/stale-gradient", "not-cleared", 2, 3),
                    Seen("health/gradient-spike", "gradient-jump", 34, 149, v1::LEVEL_NOTE),
                    Seen("health/loss-divergence", "divergence", 90, 149)}),
            "precision/stale-gradient: health/loss-divergence/divergence "
            "health/gradient-spike/gradient-jump");
  EXPECT_EQ(Folded({Seen("precision/stale-gradient", "not-cleared", 50, 51),
                    Seen("health/gradient-spike", "gradient-jump", 34, 149, v1::LEVEL_NOTE)}),
            "precision/stale-gradient; health/gradient-spike")
      << "it began before";
  EXPECT_EQ(Folded({Seen("precision/stale-gradient", "against-another", 2, 3),
                    Seen("health/loss-divergence", "divergence", 90, 149)}),
            "health/loss-divergence; precision/stale-gradient")
      << "another fault of the same rule";
}

TEST(Causes, AMissingSumIsOneWhateverTheShareOfElementsThatDiffer) {
  EXPECT_EQ(Folded({Seen("precision/replica-divergence", "part", 4, 64),
                    Seen("precision/replica-divergence", "unsynchronised", 4, 64)}),
            "precision/replica-divergence: precision/replica-divergence/unsynchronised");
  EXPECT_EQ(Folded({Seen("precision/replica-divergence", "bit-flip", 40, 64),
                    Seen("precision/replica-divergence", "unsynchronised", 4, 64)}),
            "precision/replica-divergence; precision/replica-divergence");
}

TEST(Causes, WaitsForDataAreOneAndOtherGapsAreNot) {
  EXPECT_EQ(Folded({Seen("performance/idle-comb", "data-loading", 10, 60, v1::LEVEL_WARNING),
                    Seen("performance/data-stall", "data-loading", 12, 60, v1::LEVEL_WARNING)}),
            "performance/idle-comb: performance/data-stall/data-loading");
  EXPECT_EQ(Folded({Seen("performance/idle-comb", "unknown", 10, 60, v1::LEVEL_WARNING),
                    Seen("performance/data-stall", "data-loading", 12, 60, v1::LEVEL_WARNING)}),
            "performance/data-stall; performance/idle-comb");
}

TEST(Causes, ASuppressedFindingHidesNoOther) {
  v1::Finding root = Seen("precision/non-finite", "write", 60, 90);
  root.set_suppressed(true);
  EXPECT_EQ(Folded({root, Seen("health/loss-non-finite", "nan", 61, 90)}),
            "health/loss-non-finite; precision/non-finite");
}

}  // namespace
}  // namespace plumbline::rules
