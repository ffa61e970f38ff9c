#include <gtest/gtest.h>

#include "server/incidents/incident_book.h"

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

TEST(IncidentBook, OneFindingIsOneIncidentHoweverOftenItIsFound) {
  int64_t now = 5;
  IncidentBook book([&] { return now; });
  book.Put(Finding("a"), 1);
  now = 9;
  book.Put(Finding("a"), 2);
  const auto list = book.List({});
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].incident.id(), 1u);
  EXPECT_EQ(list[0].incident.count(), 2u);
  EXPECT_EQ(list[0].incident.opened_unix_ns(), 5);
  EXPECT_EQ(list[0].incident.updated_unix_ns(), 9);
  EXPECT_EQ(list[0].incident.state(), v1::Incident::STATE_OPEN);
  EXPECT_EQ(book.OpenIn("r"), 1u);
  EXPECT_EQ(book.OpenIn("other"), 0u);
}

TEST(IncidentBook, FiltersByRunRuleAndLevel) {
  IncidentBook book([] { return 0; });
  book.Put(Finding("a", "r1"), 1);
  book.Put(Finding("b", "r2", v1::LEVEL_NOTE), 1);
  EXPECT_EQ(book.List({"r1", "", v1::LEVEL_UNSPECIFIED}).size(), 1u);
  EXPECT_EQ(book.List({"", "*/b", v1::LEVEL_UNSPECIFIED}).size(), 1u);
  EXPECT_EQ(book.List({"", "group/*", v1::LEVEL_UNSPECIFIED}).size(), 2u);
  EXPECT_EQ(book.List({"", "", v1::LEVEL_WARNING}).size(), 1u);
  EXPECT_EQ(book.List({"r", "", v1::LEVEL_UNSPECIFIED}).size(), 0u);
}

TEST(IncidentBook, ASlowReaderGetsTheNewestStateOfEachIncidentAndCanCountWhatItMissed) {
  IncidentBook book([] { return 0; });
  uint64_t cursor = 0;
  IncidentBook::Change change;
  book.Put(Finding("a"), 1);
  ASSERT_TRUE(book.Next({}, &cursor, &change));
  EXPECT_EQ(change.revision, 1u);
  book.Put(Finding("b"), 1);
  for (uint64_t n = 2; n <= 50; ++n) book.Put(Finding("a"), n);
  ASSERT_TRUE(book.Next({}, &cursor, &change));
  EXPECT_EQ(change.incident.finding().fingerprint(), "b");
  ASSERT_TRUE(book.Next({}, &cursor, &change));
  EXPECT_EQ(change.incident.finding().fingerprint(), "a");
  EXPECT_EQ(change.incident.count(), 50u);
  EXPECT_EQ(change.revision, 50u);
  EXPECT_FALSE(book.Next({}, &cursor, &change));
  EXPECT_EQ(cursor, book.position());
}

TEST(IncidentBook, TellsOfEachChange) {
  IncidentBook book([] { return 0; });
  int changes = 0;
  int others = 0;
  const int subscription = book.Subscribe([&] { ++changes; });
  book.Subscribe([&] { ++others; });
  book.Put(Finding("a"), 1);
  book.Put(Finding("a"), 2);
  EXPECT_EQ(changes, 2);
  book.Unsubscribe(subscription);
  book.Put(Finding("a"), 3);
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

std::string Incident(const IncidentBook& book) { return book.IncidentOf("a"); }

// A book of one incident, and what was said of it.
class Life : public testing::Test {
 protected:
  Life() {
    book_.SetOnRevision([this](const std::string&, const v1::IncidentRevision& r) {
      changes_.push_back(r.change());
    });
    book_.Put(FoundAt(100), 1);
  }
  v1::Incident::State state() { return book_.Get(Incident(book_))->incident.state(); }

  using Revision = v1::IncidentRevision;
  IncidentBook book_{[] { return 7; }, 50};
  std::vector<Revision::Change> changes_;
};

TEST_F(Life, QuietResolvesBySteps) {
  book_.StepClosed("r", 150);
  EXPECT_EQ(state(), v1::Incident::STATE_OPEN);
  book_.StepClosed("other", 1000);
  EXPECT_EQ(state(), v1::Incident::STATE_OPEN);
  book_.StepClosed("r", 151);
  EXPECT_EQ(state(), v1::Incident::STATE_RESOLVED);
  EXPECT_EQ(book_.OpenIn("r"), 0u);
  book_.StepClosed("r", 500);
  book_.Put(FoundAt(501), 2);
  EXPECT_EQ(state(), v1::Incident::STATE_OPEN);
  EXPECT_EQ(book_.OpenIn("r"), 1u);
  EXPECT_EQ(changes_, (std::vector{Revision::CHANGE_OPENED, Revision::CHANGE_RESOLVED,
                                   Revision::CHANGE_RETURNED}));
}

TEST_F(Life, AnAcknowledgedIncidentOpensAgainWhenItGrowsStronger) {
  ASSERT_TRUE(book_.Apply(Update(v1::IncidentUpdate::ACTION_ACKNOWLEDGE)).ok());
  EXPECT_EQ(state(), v1::Incident::STATE_ACKNOWLEDGED);
  EXPECT_EQ(book_.Get(Incident(book_))->status.who(), "ann");
  book_.Put(FoundAt(110), 2);
  EXPECT_EQ(state(), v1::Incident::STATE_ACKNOWLEDGED);
  book_.Put(FoundAt(111, v1::LEVEL_ERROR), 3);
  EXPECT_EQ(state(), v1::Incident::STATE_OPEN);
  EXPECT_EQ(changes_.back(), Revision::CHANGE_STRONGER);
}

TEST_F(Life, ASilenceEndsAtItsStepOrTime) {
  v1::IncidentUpdate silence = Update(v1::IncidentUpdate::ACTION_SILENCE);
  EXPECT_EQ(book_.Apply(silence).code(), absl::StatusCode::kInvalidArgument);
  silence.set_until_step(120);
  silence.set_until_unix_ns(1000);
  ASSERT_TRUE(book_.Apply(silence).ok());
  book_.Put(FoundAt(119, v1::LEVEL_ERROR), 2);
  book_.StepClosed("r", 120);
  EXPECT_EQ(state(), v1::Incident::STATE_SILENCED);
  EXPECT_EQ(book_.OpenIn("r"), 1u);
  book_.StepClosed("r", 121);
  EXPECT_EQ(state(), v1::Incident::STATE_OPEN);
  EXPECT_FALSE(book_.Get(Incident(book_))->status.has_silenced_until_step());
  ASSERT_TRUE(book_.Apply(silence).ok());
  EXPECT_TRUE(book_.SilencesOver(999).empty());
  const auto over = book_.SilencesOver(1000);
  ASSERT_EQ(over.size(), 1u);
  ASSERT_TRUE(book_.Apply(over[0]).ok());
  EXPECT_EQ(state(), v1::Incident::STATE_OPEN);
  EXPECT_TRUE(book_.SilencesOver(1000).empty());
}

TEST_F(Life, ASilenceUntilTheLastStepThereIsGoesOn) {
  v1::IncidentUpdate silence = Update(v1::IncidentUpdate::ACTION_SILENCE);
  silence.set_until_step(INT64_MAX);
  ASSERT_TRUE(book_.Apply(silence).ok());
  book_.Put(FoundAt(119, v1::LEVEL_ERROR), 2);
  book_.StepClosed("r", 120);
  EXPECT_EQ(state(), v1::Incident::STATE_SILENCED);
}

TEST_F(Life, UpdatesSayWhoAndWhyAndNameAnIncident) {
  v1::IncidentUpdate update = Update(v1::IncidentUpdate::ACTION_ACKNOWLEDGE);
  update.clear_reason();
  EXPECT_EQ(book_.Apply(update).code(), absl::StatusCode::kInvalidArgument);
  update = Update(v1::IncidentUpdate::ACTION_ACKNOWLEDGE, "b");
  EXPECT_EQ(book_.Apply(update).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(book_.Apply(Update(v1::IncidentUpdate::ACTION_UNSPECIFIED)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(state(), v1::Incident::STATE_OPEN);
}

TEST(IncidentBook, AFewDigitsNameAnIncident) {
  IncidentBook book([] { return 0; });
  book.Put(Finding("abcd1"), 1);
  book.Put(Finding("abcd2"), 1);
  book.Put(Finding("ffff1"), 1);
  EXPECT_EQ(book.Resolve("ffff").value(), book.IncidentOf("ffff1"));
  EXPECT_EQ(book.Resolve("abcd").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(book.Resolve("fff").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(book.Resolve("eeee").status().code(), absl::StatusCode::kNotFound);
}

std::string Written(const IncidentBook& book) { return book.Checkpoint().DebugString(); }

TEST(IncidentBook, ARestoredBookGoesOnAsTheOldOneWould) {
  IncidentBook one([] { return 7; }, 50);
  one.Put(FoundAt(100), 1);
  one.Put(Finding("b"), 1);
  v1::IncidentUpdate silence = Update(v1::IncidentUpdate::ACTION_SILENCE);
  silence.set_until_step(130);
  ASSERT_TRUE(one.Apply(silence).ok());
  IncidentBook two([] { return 7; }, 50);
  two.Restore(one.Checkpoint());
  for (IncidentBook* book : {&one, &two}) {
    book->Put(FoundAt(101), 2);
    book->StepClosed("r", 131);
    book->Put(Finding("c"), 1);
    book->StepClosed("r", 400);
  }
  EXPECT_EQ(Written(one), Written(two));
  EXPECT_EQ(one.identity(), two.identity());
  EXPECT_EQ(two.OpenIn("r"), 0u);
}

}  // namespace
}  // namespace plumbline::server
