// Reads from a journal, once, the data that a restart needs before it may serve. The entries are
// judged later.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plumbline/v1/journal.pb.h"
#include "server/journal/journal_reader.h"
#include "server/journal/stream_positions.h"

namespace plumbline::server {

struct StoredEvent {
  uint64_t number = 0;
  int64_t unix_ns = 0;
  v1::JournalEvent event;
};

// Sorts events by the entry after which they are applied. Runs are judged at the same time, so the
// run that was judged further may have written its event first. The order within a run stays.
void InJudgedOrder(std::vector<StoredEvent>* events);

// Returns true for an event without content. From it to the next checkpoint, entries of some runs
// are judged before earlier ones of others. It changes no verdict, but the order of incidents of
// different runs may differ from the journal.
inline bool ReportsAhead(const v1::JudgeEvent& event) {
  return event.what_case() == v1::JudgeEvent::WHAT_NOT_SET;
}

struct JournalScan {
  explicit JournalScan(size_t max_streams) : streams(max_streams) {}

  uint64_t oldest = 0;              // number of the oldest entry; 0: the journal is empty
  uint64_t last = 0;                // numbers up to here are used, also by lost entries
  StreamPositions streams;          // as of `last`
  std::vector<StoredEvent> events;  // with numbers above `from`, ordered by InJudgedOrder
  std::vector<LostEntries> lost;    // among the entries that were read
  uint64_t bytes = 0;               // of the entries that were read
};

// Reads the entries from number `from` on, and those before it in the same segment. Changes no
// file, except that it cuts off the torn tail of the last one. Returns only errors of the file
// system: damage is in `lost`.
absl::StatusOr<JournalScan> ScanJournal(const std::string& directory, uint64_t from,
                                        size_t max_streams);

}  // namespace plumbline::server
