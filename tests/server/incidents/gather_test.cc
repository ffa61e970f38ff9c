// Findings of one cause are gathered into one incident. The live result equals that of a report.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "rules/engine/incidents.h"
#include "rules/engine/report.h"
#include "server/incidents/incident_table.h"

namespace plumbline::server {
namespace {

using Change = v1::IncidentRevision;

v1::Finding Found(const std::string& layer, const std::string& cause, int64_t step = 0,
                  v1::Level level = v1::LEVEL_WARNING) {
  v1::Finding f;
  f.set_rule("precision/lost-update");
  f.set_level(level);
  f.set_strength(v1::STRENGTH_BOUNDED);
  f.mutable_cause()->set_id(cause);
  f.mutable_site()->set_run("r");
  f.mutable_site()->set_layer(layer);
  f.mutable_site()->set_step_first(step);
  f.mutable_site()->set_step_last(step);
  f.set_explanation("of " + layer);
  f.set_fingerprint("finding-" + layer);
  return f;
}

v1::IncidentUpdate Acknowledge(const std::string& fingerprint) {
  v1::IncidentUpdate update;
  update.set_fingerprint(fingerprint);
  update.set_action(v1::IncidentUpdate::ACTION_ACKNOWLEDGE);
  update.set_who("ann");
  update.set_reason("known");
  return update;
}

class Gather : public testing::Test {
 protected:
  Gather() {
    incident_table_.SetOnRevision([this](const std::string& fingerprint, const Change& r) {
      changes_.emplace_back(fingerprint, r.change());
    });
  }
  IncidentTable::Change Get(const std::string& cause) {
    const auto change = incident_table_.Get(rules::IncidentFingerprint(Found("", cause)));
    return change.ok() ? *change : IncidentTable::Change();
  }
  v1::Incident Of(const std::string& cause) { return Get(cause).incident; }
  v1::IncidentStatus StatusOf(const std::string& cause) { return Get(cause).status; }

  IncidentTable incident_table_{[] { return 7; }, 50};
  std::vector<std::pair<std::string, Change::Change>> changes_;
};

TEST_F(Gather, TenSitesWithOneCauseAreOneIncident) {
  for (int i = 9; i >= 0; --i) {
    const auto placed =
        incident_table_.Put(Found("layers." + std::to_string(i), "rounding", i == 4 ? 1 : 2), 3);
    EXPECT_EQ(placed.opened, i == 9);
  }
  ASSERT_EQ(incident_table_.List({}).size(), 1u);
  const v1::IncidentStatus status = StatusOf("rounding");
  EXPECT_EQ(status.site_count(), 10u);
  EXPECT_EQ(status.sites_size(), 10);
  EXPECT_EQ(Of("rounding").count(), 30u);
  EXPECT_EQ(Of("rounding").finding().site().layer(), "layers.4");
  EXPECT_EQ(status.newest().layer(), "layers.0");
  EXPECT_EQ(status.cause(), "rounding");
  EXPECT_EQ(incident_table_.OpenIn("r"), 1u);
  EXPECT_EQ(changes_.size(), 1u) << "one line of history";
}

TEST_F(Gather, OnlyTheFindingThatShowsIsNews) {
  EXPECT_TRUE(incident_table_.Put(Found("b", "c", 2), 1).shows);
  EXPECT_FALSE(incident_table_.Put(Found("d", "c", 2), 1).shows);
  EXPECT_FALSE(incident_table_.Put(Found("b", "c", 2), 2).shows) << "again";
  EXPECT_TRUE(incident_table_.Put(Found("a", "c", 3, v1::LEVEL_ERROR), 1).shows) << "stronger";
  EXPECT_EQ(Of("c").finding().site().layer(), "a");
}

TEST_F(Gather, ARefinedCauseMovesTheFindingAndAnEmptyIncidentIsMerged) {
  incident_table_.Put(Found("a", "unknown"), 1);
  incident_table_.Put(Found("b", "unknown", 5), 4);
  incident_table_.Put(Found("a", "rounding"), 2);
  EXPECT_EQ(StatusOf("unknown").site_count(), 1u);
  EXPECT_EQ(Of("unknown").count(), 4u);
  EXPECT_EQ(Of("unknown").finding().site().layer(), "b");
  EXPECT_EQ(Of("rounding").count(), 2u);
  incident_table_.Put(Found("b", "rounding", 5), 5);
  EXPECT_EQ(Of("unknown").state(), v1::Incident::STATE_RESOLVED);
  EXPECT_EQ(StatusOf("unknown").merged_into(), StatusOf("rounding").fingerprint());
  EXPECT_EQ(StatusOf("rounding").site_count(), 2u);
  EXPECT_EQ(Of("rounding").count(), 7u);
  EXPECT_EQ(incident_table_.OpenIn("r"), 1u);
  ASSERT_EQ(incident_table_.List({}).size(), 1u);
  EXPECT_EQ(changes_.back().second, Change::CHANGE_MERGED);
  // The incident is not resolved a second time.
  incident_table_.StepClosed("r", 1000);
  EXPECT_EQ(changes_.back().second, Change::CHANGE_RESOLVED);
  EXPECT_EQ(changes_.back().first, StatusOf("rounding").fingerprint());
  EXPECT_EQ(Of("rounding").state(), v1::Incident::STATE_RESOLVED);
  // Later evidence changes the cause again.
  incident_table_.Put(Found("b", "unknown", 1001), 6);
  EXPECT_EQ(Of("unknown").state(), v1::Incident::STATE_OPEN);
  EXPECT_EQ(StatusOf("unknown").merged_into(), "");
  EXPECT_EQ(StatusOf("rounding").absorbed_size(), 0);
}

TEST_F(Gather, WhatPeopleDecidedHoldsForWhatHasItsFindingsAndNoOthers) {
  incident_table_.Put(Found("a", "unknown"), 1);
  ASSERT_TRUE(incident_table_.Apply(Acknowledge("finding-a")).ok()) << "by the finding";
  incident_table_.Put(Found("a", "rounding"), 2);
  EXPECT_EQ(Of("rounding").state(), v1::Incident::STATE_ACKNOWLEDGED);
  EXPECT_EQ(incident_table_.Get(StatusOf("rounding").fingerprint())->status.who(), "ann");
  incident_table_.Put(Found("b", "other"), 1);
  ASSERT_TRUE(incident_table_.Apply(Acknowledge(StatusOf("other").fingerprint())).ok());
  incident_table_.Put(Found("c", "third"), 1);
  incident_table_.Put(Found("b", "third"), 2);
  EXPECT_EQ(Of("third").state(), v1::Incident::STATE_OPEN) << "c is news";
  // An update of a merged incident applies to the one that has its findings.
  ASSERT_TRUE(incident_table_.Apply(Acknowledge(StatusOf("other").fingerprint())).ok());
  EXPECT_EQ(Of("third").state(), v1::Incident::STATE_ACKNOWLEDGED);
}

TEST_F(Gather, AnIncidentHasManyNames) {
  incident_table_.Put(Found("aa", "x"), 1);
  incident_table_.Put(Found("ab", "x"), 1);
  incident_table_.Put(Found("ac", "y"), 1);
  const std::string x = StatusOf("x").fingerprint();
  EXPECT_EQ(incident_table_.Resolve(x.substr(0, 12)).value(), x);
  EXPECT_EQ(incident_table_.Resolve("finding-aa").value(), x);
  EXPECT_EQ(incident_table_.Resolve("#1").value(), x);
  EXPECT_EQ(incident_table_.Resolve("#2").value(), StatusOf("y").fingerprint());
  EXPECT_EQ(incident_table_.Resolve("#3").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(incident_table_.Resolve("finding-a").status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(incident_table_.FindingOf("finding-ab")->site().layer(), "ab");
  EXPECT_EQ(incident_table_.FindingOf("#1")->site().layer(), "aa");
  EXPECT_EQ(incident_table_.List({"", "", {}, "finding-ab"})[0].incident.finding().site().layer(),
            "ab");
}

TEST_F(Gather, ASuppressedFindingShowsOnlyWhereAllAre) {
  v1::Finding quiet = Found("a", "x", 0, v1::LEVEL_ERROR);
  quiet.set_suppressed(true);
  incident_table_.Put(quiet, 1);
  EXPECT_EQ(incident_table_.OpenIn("r"), 0u);
  EXPECT_TRUE(incident_table_.Put(Found("b", "x", 9), 1).shows);
  EXPECT_EQ(incident_table_.OpenIn("r"), 1u);
  EXPECT_EQ(Of("x").finding().site().layer(), "b");
  EXPECT_TRUE(StatusOf("x").sites(1).suppressed());
}

TEST_F(Gather, ManySitesAreCountedAndFewAreKeptWhole) {
  for (int i = 0; i < 1000; ++i) {
    v1::Finding f = Found("layers." + std::to_string(i), "x", i);
    for (uint32_t rank = 0; rank < 100; ++rank) f.mutable_site()->add_ranks(rank);
    incident_table_.Put(f, 1);
  }
  const v1::IncidentStatus status = StatusOf("x");
  EXPECT_EQ(status.site_count(), 1000u);
  EXPECT_EQ(status.sites_size(), 64);
  EXPECT_EQ(status.newest().layer(), "layers.999");
  EXPECT_EQ(status.newest().ranks(), 100u);
  EXPECT_EQ(Of("x").finding().explanation(), "of layers.0");
  size_t whole = 0;
  const v1::IncidentBookState state = incident_table_.Checkpoint();
  for (const v1::IncidentMember& member : state.incidents(0).members())
    whole += member.finding().explanation().empty() ? 0 : 1;
  EXPECT_EQ(whole, 64u);
  // A finding that becomes the representative is complete again.
  incident_table_.Put(Found("layers.500", "x", 500, v1::LEVEL_ERROR), 2);
  EXPECT_EQ(Of("x").finding().explanation(), "of layers.500");
}

// The state of an older server: one incident per finding.
TEST_F(Gather, AnOldCheckpointIsGathered) {
  v1::IncidentBookState old;
  old.set_book("b");
  old.set_position(9);
  for (uint64_t i = 1; i <= 3; ++i) {
    v1::IncidentState& in = *old.add_incidents();
    in.mutable_incident()->set_id(i);
    in.mutable_incident()->set_count(i);
    in.mutable_incident()->set_state(i == 2 ? v1::Incident::STATE_OPEN
                                            : v1::Incident::STATE_ACKNOWLEDGED);
    *in.mutable_incident()->mutable_finding() = Found("l" + std::to_string(i), i < 3 ? "x" : "y");
    in.mutable_status()->set_revision(i);
    in.set_opened_at(i);
    in.set_changed_at(i + 3);
  }
  incident_table_.Restore(old);
  EXPECT_EQ(incident_table_.List({}).size(), 2u);
  EXPECT_EQ(StatusOf("x").site_count(), 2u);
  EXPECT_EQ(Of("x").count(), 3u);
  EXPECT_EQ(Of("x").id(), 1u);
  EXPECT_EQ(Of("x").state(), v1::Incident::STATE_OPEN);
  EXPECT_EQ(Of("y").state(), v1::Incident::STATE_ACKNOWLEDGED);
  EXPECT_EQ(incident_table_.position(), 9u);
  incident_table_.Put(Found("l4", "z"), 1);
  EXPECT_EQ(Of("z").id(), 4u);
}

// ---- live results equal offline results ------------------------------------------------------

// Returns an incident as both sides compare it: its findings and its representative.
std::string Line(const std::string& fingerprint, const v1::Finding& shown,
                 std::vector<std::string> findings) {
  std::string text = fingerprint + " " + shown.SerializeAsString();
  for (const std::string& finding : findings) text += " " + finding;
  return text;
}

std::set<std::string> Live(const IncidentTable& incident_table) {
  std::set<std::string> lines;
  for (const auto& change : incident_table.List({})) {
    std::vector<std::string> findings;
    for (const auto& site : change.status.sites()) findings.push_back(site.fingerprint());
    lines.insert(Line(change.status.fingerprint(), change.incident.finding(), findings));
  }
  return lines;
}

std::set<std::string> Offline(const rules::Report& report) {
  std::set<std::string> lines;
  for (const rules::Incident& incident : rules::IncidentsOf(report.findings())) {
    std::vector<std::string> findings;
    for (const v1::Finding* finding : incident.findings) findings.push_back(finding->fingerprint());
    lines.insert(Line(incident.fingerprint, incident.shown(), findings));
  }
  return lines;
}

// Returns verdicts of a few sites with random causes and confidences.
std::vector<v1::Verdict> RandomVerdicts(std::mt19937_64* rng) {
  constexpr const char* kCauses[] = {"", "rounding", "flush", "overflow"};
  std::vector<v1::Verdict> verdicts;
  for (int site = 0; site < 8; ++site) {
    const auto count = static_cast<int64_t>((*rng)() % 5);
    for (int64_t step = 0; step < count; ++step) {
      v1::Verdict& verdict = verdicts.emplace_back();
      verdict.set_kind(v1::Verdict::KIND_FINDING);
      v1::Finding& f = *verdict.mutable_finding();
      f = Found("layers." + std::to_string(site), kCauses[(*rng)() % 4], step,
                (*rng)() % 4 == 0 ? v1::LEVEL_ERROR : v1::LEVEL_WARNING);
      f.set_rule(site % 2 == 0 ? "g/even" : "g/odd");
      f.mutable_cause()->set_confidence(static_cast<double>((*rng)() % 4) / 4);
      f.set_suppressed((*rng)() % 5 == 0);
      f.mutable_site()->add_ranks(static_cast<uint32_t>((*rng)() % 3));
      *verdict.mutable_site() = f.site();
      verdict.set_rule(f.rule());
    }
  }
  return verdicts;
}

TEST(Gathering, IncidentsFollowFromTheFindingsWhateverCameFirst) {
  std::mt19937_64 rng(26);
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<v1::Verdict> verdicts = RandomVerdicts(&rng);
    std::set<std::string> reference;
    for (int order = 0; order < 4; ++order) {
      rules::Report report;
      auto incident_table = std::make_unique<IncidentTable>([] { return 7; }, 50);
      const size_t killed = verdicts.empty() ? 0 : rng() % verdicts.size();
      for (size_t i = 0; i < verdicts.size(); ++i) {
        if (i == killed) {  // another process continues
          const v1::IncidentBookState state = incident_table->Checkpoint();
          incident_table = std::make_unique<IncidentTable>([] { return 7; }, 50);
          incident_table->Restore(state);
          ASSERT_EQ(incident_table->Checkpoint().SerializeAsString(), state.SerializeAsString());
        }
        const auto change = report.Add(verdicts[i]);
        incident_table->Put(*change.finding, change.count);
        ASSERT_EQ(Live(*incident_table), Offline(report)) << "trial " << trial << ", verdict " << i;
      }
      if (order == 0) reference = Offline(report);
      ASSERT_EQ(Live(*incident_table), reference) << "trial " << trial << ", order " << order;
      std::shuffle(verdicts.begin(), verdicts.end(), rng);
    }
  }
}

}  // namespace
}  // namespace plumbline::server
