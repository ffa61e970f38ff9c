#include "server/incidents/incident_table.h"

#include <gtest/gtest.h>

#include <vector>

namespace plumbline::server {
namespace {

v1::Finding Finding(const std::string& fingerprint, const std::string& run = "r",
                    v1::Level level = v1::LEVEL_ERROR) {
  v1::Finding f;
  f.set_fingerprint(fingerprint);
  f.set_rule("group/" + fingerprint);
  f.set_level(level);
  f.mutable_site()->set_run(run);
  return f;
}

TEST(IncidentTable, OneFindingIsOneIncidentHoweverOftenItIsFound) {
  int64_t now = 5;
  IncidentTable incident_table([&] { return now; });
  incident_table.Put(Finding("a"), 1);
  now = 9;
  incident_table.Put(Finding("a"), 2);
  const auto list = incident_table.List({});
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].incident.id(), 1u);
  EXPECT_EQ(list[0].incident.count(), 2u);
  EXPECT_EQ(list[0].incident.opened_unix_ns(), 5);
  EXPECT_EQ(list[0].incident.updated_unix_ns(), 9);
  EXPECT_EQ(list[0].incident.state(), v1::Incident::STATE_OPEN);
  EXPECT_EQ(incident_table.OpenIn("r"), 1u);
  EXPECT_EQ(incident_table.OpenIn("other"), 0u);
}

TEST(IncidentTable, WhatDoctorPlantsIsSeenAndNeverStaysOpen) {
  IncidentTable incident_table([] { return 0; });
  std::vector<v1::IncidentRevision::Change> stated;
  incident_table.SetOnRevision(
      [&](const std::string&, const v1::IncidentRevision& r) { stated.push_back(r.change()); });
  uint64_t cursor = 0;
  for (uint64_t times = 1; times <= 2; ++times) {
    EXPECT_TRUE(incident_table.Put(Finding("a", "plumb-doctor"), times).opened);
    IncidentTable::Change change;
    ASSERT_TRUE(incident_table.Next({}, &cursor, &change));  // a watcher gets it
    EXPECT_EQ(change.incident.finding().fingerprint(), "a");
    EXPECT_EQ(change.incident.state(), v1::Incident::STATE_RESOLVED);
    EXPECT_EQ(incident_table.OpenIn("plumb-doctor"), 0u);
    EXPECT_TRUE(incident_table.OpenByRule().empty());
  }
  using Revision = v1::IncidentRevision;
  EXPECT_EQ(stated,
            (std::vector<Revision::Change>{Revision::CHANGE_OPENED, Revision::CHANGE_RESOLVED,
                                           Revision::CHANGE_RETURNED, Revision::CHANGE_RESOLVED}));
}

// Incidents are resolved before they are removed, so that watchers are notified. The others keep
// their numbers.
TEST(IncidentTable, ForgetsTheIncidentsOfARun) {
  IncidentTable incident_table([] { return 0; });
  std::vector<v1::IncidentRevision::Change> changes;
  incident_table.Put(Finding("a", "gone"), 1);
  incident_table.Put(Finding("kept", "r"), 1);
  incident_table.Put(Finding("b", "gone"), 1);
  incident_table.SetOnRevision(
      [&](const std::string&, const v1::IncidentRevision& r) { changes.push_back(r.change()); });
  uint64_t cursor = incident_table.position();
  incident_table.RunForgotten("gone");
  incident_table.RunForgotten("gone");
  incident_table.RunForgotten("unknown");
  EXPECT_EQ(changes.size(), 2u);
  IncidentTable::Change change;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(incident_table.Next({}, &cursor, &change));
    EXPECT_EQ(change.incident.state(), v1::Incident::STATE_RESOLVED);
  }
  EXPECT_FALSE(incident_table.Next({}, &cursor, &change));
  const uint64_t position = incident_table.position();
  incident_table.Forget("gone");
  incident_table.Forget("gone");
  EXPECT_EQ(incident_table.position(), position);
  ASSERT_EQ(incident_table.List({}).size(), 1u);
  EXPECT_EQ(incident_table.List({})[0].incident.finding().fingerprint(), "kept");
  EXPECT_EQ(incident_table.IncidentOf("a"), "");
  EXPECT_EQ(incident_table.Checkpoint().incidents_size(), 1);
  incident_table.Put(Finding("a", "gone"), 1);
  ASSERT_TRUE(incident_table.Next({}, &cursor, &change));
  EXPECT_EQ(change.incident.id(), 4u);
}

TEST(IncidentTable, FiltersByRunRuleAndLevel) {
  IncidentTable incident_table([] { return 0; });
  incident_table.Put(Finding("a", "r1"), 1);
  incident_table.Put(Finding("b", "r2", v1::LEVEL_NOTE), 1);
  EXPECT_EQ(incident_table.List({"r1", "", v1::LEVEL_UNSPECIFIED}).size(), 1u);
  EXPECT_EQ(incident_table.List({"", "*/b", v1::LEVEL_UNSPECIFIED}).size(), 1u);
  EXPECT_EQ(incident_table.List({"", "group/*", v1::LEVEL_UNSPECIFIED}).size(), 2u);
  EXPECT_EQ(incident_table.List({"", "", v1::LEVEL_WARNING}).size(), 1u);
  EXPECT_EQ(incident_table.List({"r", "", v1::LEVEL_UNSPECIFIED}).size(), 0u);
}

TEST(IncidentTable, ASlowReaderGetsTheNewestStateOfEachIncidentAndCanCountWhatItMissed) {
  IncidentTable incident_table([] { return 0; });
  uint64_t cursor = 0;
  IncidentTable::Change change;
  incident_table.Put(Finding("a"), 1);
  ASSERT_TRUE(incident_table.Next({}, &cursor, &change));
  EXPECT_EQ(change.revision, 1u);
  incident_table.Put(Finding("b"), 1);
  for (uint64_t n = 2; n <= 50; ++n) incident_table.Put(Finding("a"), n);
  ASSERT_TRUE(incident_table.Next({}, &cursor, &change));
  EXPECT_EQ(change.incident.finding().fingerprint(), "b");
  ASSERT_TRUE(incident_table.Next({}, &cursor, &change));
  EXPECT_EQ(change.incident.finding().fingerprint(), "a");
  EXPECT_EQ(change.incident.count(), 50u);
  EXPECT_EQ(change.revision, 50u);
  EXPECT_FALSE(incident_table.Next({}, &cursor, &change));
  EXPECT_EQ(cursor, incident_table.position());
}

TEST(IncidentTable, ReportsEachChange) {
  IncidentTable incident_table([] { return 0; });
  int changes = 0;
  int others = 0;
  const int subscription = incident_table.Subscribe([&] { ++changes; });
  incident_table.Subscribe([&] { ++others; });
  incident_table.Put(Finding("a"), 1);
  incident_table.Put(Finding("a"), 2);
  EXPECT_EQ(changes, 2);
  incident_table.Unsubscribe(subscription);
  incident_table.Put(Finding("a"), 3);
  EXPECT_EQ(changes, 2);
  EXPECT_EQ(others, 3);
}

v1::IncidentUpdate Update(v1::IncidentUpdate::Action action, const std::string& fingerprint = "a") {
  v1::IncidentUpdate update;
  update.set_fingerprint(fingerprint);
  update.set_action(action);
  update.set_who("ann");
  update.set_reason("known");
  return update;
}

v1::Finding FoundAt(int64_t step, v1::Level level = v1::LEVEL_WARNING) {
  v1::Finding f = Finding("a", "r", level);
  f.mutable_site()->set_step_last(step);
  return f;
}

std::string Incident(const IncidentTable& incident_table) { return incident_table.IncidentOf("a"); }

// A table of one incident, and its recorded changes.
class Life : public testing::Test {
 protected:
  Life() {
    incident_table_.SetOnRevision([this](const std::string&, const v1::IncidentRevision& r) {
      changes_.push_back(r.change());
    });
    incident_table_.Put(FoundAt(100), 1);
  }
  v1::Incident::State state() {
    return incident_table_.Get(Incident(incident_table_))->incident.state();
  }

  using Revision = v1::IncidentRevision;
  IncidentTable incident_table_{[] { return 7; }, 50};
  std::vector<Revision::Change> changes_;
};

TEST_F(Life, QuietResolvesBySteps) {
  incident_table_.StepClosed("r", 150);
  EXPECT_EQ(state(), v1::Incident::STATE_OPEN);
  incident_table_.StepClosed("other", 1000);
  EXPECT_EQ(state(), v1::Incident::STATE_OPEN);
  incident_table_.StepClosed("r", 151);
  EXPECT_EQ(state(), v1::Incident::STATE_RESOLVED);
  EXPECT_EQ(incident_table_.OpenIn("r"), 0u);
  incident_table_.StepClosed("r", 500);
  incident_table_.Put(FoundAt(501), 2);
  EXPECT_EQ(state(), v1::Incident::STATE_OPEN);
  EXPECT_EQ(incident_table_.OpenIn("r"), 1u);
  EXPECT_EQ(changes_, (std::vector{Revision::CHANGE_OPENED, Revision::CHANGE_RESOLVED,
                                   Revision::CHANGE_RETURNED}));
}

// One step in 200 is sampled, and each of these is faulty.
TEST_F(Life, ARarelySampledIncidentIsResolvedLater) {
  incident_table_.StepClosed("r", 151);
  EXPECT_EQ(state(), v1::Incident::STATE_RESOLVED) << "the interval of the samples is unknown";
  int64_t step = 100;
  for (uint64_t i = 2; i < 7; ++i) {
    step += 200;
    incident_table_.Put(FoundAt(step), i);
    incident_table_.StepClosed("r", step + 199);
    EXPECT_EQ(state(), v1::Incident::STATE_OPEN) << step;
  }
  incident_table_.StepClosed("r", step + 400);
  EXPECT_EQ(state(), v1::Incident::STATE_OPEN);
  incident_table_.StepClosed("r", step + 401);
  EXPECT_EQ(state(), v1::Incident::STATE_RESOLVED);
  // If an incident returns after a very long time, it is not kept open for the same time again.
  incident_table_.Put(FoundAt(1'000'000), 7);
  incident_table_.StepClosed("r", 1'001'600);
  EXPECT_EQ(state(), v1::Incident::STATE_OPEN);
  incident_table_.StepClosed("r", 1'001'601);
  EXPECT_EQ(state(), v1::Incident::STATE_RESOLVED);
}

TEST_F(Life, AnAcknowledgedIncidentOpensAgainWhenItGrowsStronger) {
  ASSERT_TRUE(incident_table_.Apply(Update(v1::IncidentUpdate::ACTION_ACKNOWLEDGE)).ok());
  EXPECT_EQ(state(), v1::Incident::STATE_ACKNOWLEDGED);
  EXPECT_EQ(incident_table_.Get(Incident(incident_table_))->status.who(), "ann");
  incident_table_.Put(FoundAt(110), 2);
  EXPECT_EQ(state(), v1::Incident::STATE_ACKNOWLEDGED);
  incident_table_.Put(FoundAt(111, v1::LEVEL_ERROR), 3);
  EXPECT_EQ(state(), v1::Incident::STATE_OPEN);
  EXPECT_EQ(changes_.back(), Revision::CHANGE_STRONGER);
}

TEST_F(Life, ASilenceEndsAtItsStepOrTime) {
  v1::IncidentUpdate silence = Update(v1::IncidentUpdate::ACTION_SILENCE);
  EXPECT_EQ(incident_table_.Apply(silence).code(), absl::StatusCode::kInvalidArgument);
  silence.set_until_step(120);
  silence.set_until_unix_ns(1000);
  ASSERT_TRUE(incident_table_.Apply(silence).ok());
  incident_table_.Put(FoundAt(119, v1::LEVEL_ERROR), 2);
  incident_table_.StepClosed("r", 120);
  EXPECT_EQ(state(), v1::Incident::STATE_SILENCED);
  EXPECT_EQ(incident_table_.OpenIn("r"), 1u);
  incident_table_.StepClosed("r", 121);
  EXPECT_EQ(state(), v1::Incident::STATE_OPEN);
  EXPECT_FALSE(incident_table_.Get(Incident(incident_table_))->status.has_silenced_until_step());
  ASSERT_TRUE(incident_table_.Apply(silence).ok());
  EXPECT_TRUE(incident_table_.SilencesOver(999).empty());
  const auto over = incident_table_.SilencesOver(1000);
  ASSERT_EQ(over.size(), 1u);
  ASSERT_TRUE(incident_table_.Apply(over[0]).ok());
  EXPECT_EQ(state(), v1::Incident::STATE_OPEN);
  EXPECT_TRUE(incident_table_.SilencesOver(1000).empty());
}

TEST_F(Life, ASilenceUntilTheLastStepThereIsGoesOn) {
  v1::IncidentUpdate silence = Update(v1::IncidentUpdate::ACTION_SILENCE);
  silence.set_until_step(INT64_MAX);
  ASSERT_TRUE(incident_table_.Apply(silence).ok());
  incident_table_.Put(FoundAt(119, v1::LEVEL_ERROR), 2);
  incident_table_.StepClosed("r", 120);
  EXPECT_EQ(state(), v1::Incident::STATE_SILENCED);
}

TEST_F(Life, UpdatesNamePersonReasonAndIncident) {
  v1::IncidentUpdate update = Update(v1::IncidentUpdate::ACTION_ACKNOWLEDGE);
  update.clear_reason();
  EXPECT_EQ(incident_table_.Apply(update).code(), absl::StatusCode::kInvalidArgument);
  update = Update(v1::IncidentUpdate::ACTION_ACKNOWLEDGE, "b");
  EXPECT_EQ(incident_table_.Apply(update).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(incident_table_.Apply(Update(v1::IncidentUpdate::ACTION_UNSPECIFIED)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(state(), v1::Incident::STATE_OPEN);
}

TEST(IncidentTable, AFewDigitsNameAnIncident) {
  IncidentTable incident_table([] { return 0; });
  incident_table.Put(Finding("abcd1"), 1);
  incident_table.Put(Finding("abcd2"), 1);
  incident_table.Put(Finding("ffff1"), 1);
  EXPECT_EQ(incident_table.Resolve("ffff").value(), incident_table.IncidentOf("ffff1"));
  EXPECT_EQ(incident_table.Resolve("abcd").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(incident_table.Resolve("fff").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(incident_table.Resolve("eeee").status().code(), absl::StatusCode::kNotFound);
}

std::string Written(const IncidentTable& incident_table) {
  return incident_table.Checkpoint().DebugString();
}

TEST(IncidentTable, ARestoredBookGoesOnAsTheOldOneWould) {
  IncidentTable one([] { return 7; }, 50);
  one.Put(FoundAt(100), 1);
  one.Put(Finding("b"), 1);
  v1::IncidentUpdate silence = Update(v1::IncidentUpdate::ACTION_SILENCE);
  silence.set_until_step(130);
  ASSERT_TRUE(one.Apply(silence).ok());
  IncidentTable two([] { return 7; }, 50);
  two.Restore(one.Checkpoint());
  for (IncidentTable* incident_table : {&one, &two}) {
    incident_table->Put(FoundAt(101), 2);
    incident_table->StepClosed("r", 131);
    incident_table->Put(Finding("c"), 1);
    incident_table->StepClosed("r", 400);
  }
  EXPECT_EQ(Written(one), Written(two));
  EXPECT_EQ(one.identity(), two.identity());
  EXPECT_EQ(two.OpenIn("r"), 0u);
}

}  // namespace
}  // namespace plumbline::server
