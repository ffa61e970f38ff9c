// A test's journals: written by the real writer, read back by the real reader.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "server/journal/journal.h"
#include "server/journal/journal_reader.h"
#include "server/journal/journal_scan.h"
#include "tests/server/support.h"
#include "tests/support/files.h"

namespace plumbline::server {

constexpr size_t kManyStreams = 1000;

using test::ReadFile;
using test::WriteFile;

class JournalFolder {
 public:
  JournalFolder() { std::filesystem::create_directories(path()); }
  std::string path() const { return folder_.File("journal"); }
  std::vector<Segment> Segments() const { return *ListSegments(path()); }

  JournalOptions Options() const {
    JournalOptions options;
    options.segments.directory = path();
    options.commit_delay = std::chrono::milliseconds(1);
    options.unix_ns = [] { return int64_t{1234567}; };
    return options;
  }
  // Opens a journal that continues after the last one.
  std::unique_ptr<Journal> Open(Counters* counters) { return Open(counters, Options()); }
  std::unique_ptr<Journal> Open(Counters* counters, JournalOptions options) {
    auto scan = ScanJournal(path(), 1, kManyStreams);
    EXPECT_TRUE(scan.ok()) << scan.status();
    return std::make_unique<Journal>(std::move(options), scan->last, scan->streams, counters);
  }

 private:
  test::TempFolder folder_;
};

inline JournalEntry EntryOf(uint64_t stream, uint64_t sequence, const std::string& body) {
  JournalEntry entry;
  entry.stream_id = stream;
  entry.sequence = sequence;
  entry.body = WireBytes(body);
  return entry;
}

// Appends and waits until it is held.
inline EntryPrefix Keep(Journal& journal, uint64_t stream, uint64_t sequence,
                        const std::string& body) {
  auto kept = journal.AppendAndWait(EntryOf(stream, sequence, body));
  EXPECT_TRUE(kept.ok()) << kept.status();
  return kept.ok() ? *kept : EntryPrefix();
}

struct Everything {
  std::vector<std::string> bodies;
  std::vector<uint64_t> numbers;
  std::vector<LostEntries> lost;
  std::string damaged_end;
};

inline Everything ReadJournal(const std::string& directory, uint64_t from = 1,
                              uint64_t to = JournalReader::kAll) {
  Everything all;
  auto reader = JournalReader::Open(directory, from, to);
  EXPECT_TRUE(reader.ok()) << reader.status();
  if (!reader.ok()) return all;
  StoredEntry entry;
  for (;;) {
    const JournalReader::Result result = (*reader)->Next(&entry);
    if (result == JournalReader::Result::kEnd) break;
    if (result == JournalReader::Result::kLost) all.lost.push_back((*reader)->lost());
    if (result != JournalReader::Result::kEntry) continue;
    all.bodies.emplace_back(entry.body());
    all.numbers.push_back(entry.prefix.number);
  }
  all.damaged_end = (*reader)->damaged_end();
  return all;
}

}  // namespace plumbline::server
