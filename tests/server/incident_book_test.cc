#include "server/incidents/incident_book.h"

#include <gtest/gtest.h>

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

TEST(IncidentBook, OneFingerprintIsOneIncident) {
  int64_t now = 5;
  IncidentBook book([&] { return now; });
  book.Put(Finding("a"), 1);
  now = 9;
  book.Put(Finding("a"), 2);
  const auto list = book.List({});
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].id(), 1u);
  EXPECT_EQ(list[0].count(), 2u);
  EXPECT_EQ(list[0].opened_unix_ns(), 5);
  EXPECT_EQ(list[0].updated_unix_ns(), 9);
  EXPECT_EQ(list[0].state(), v1::Incident::STATE_OPEN);
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
  book.SetOnChange([&] { ++changes; });
  book.Put(Finding("a"), 1);
  book.Put(Finding("a"), 2);
  EXPECT_EQ(changes, 2);
  book.SetOnChange(nullptr);
  book.Put(Finding("a"), 3);
  EXPECT_EQ(changes, 2);
}

}  // namespace
}  // namespace plumbline::server
