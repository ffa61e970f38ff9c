// What a restart must know of a journal before it may serve: read once, judged later.
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

// By the entry behind which they are applied. Runs are judged beside each other, so that of two
// runs the one that is further may have written first; of one run the order stays as it was.
void InJudgedOrder(std::vector<StoredEvent>* events);

// An event without content: from here to the next checkpoint entries of some runs are judged before
// earlier ones of others. It changes no verdict; the order of incidents of different runs is then
// not that of the journal.
inline bool TellsAhead(const v1::JudgeEvent& event) {
  return event.what_case() == v1::JudgeEvent::WHAT_NOT_SET;
}

struct JournalScan {
  explicit JournalScan(size_t max_streams) : streams(max_streams) {}

  uint64_t oldest = 0;      // number of the oldest entry that is kept; 0: the journal is empty
  uint64_t last = 0;        // numbers up to here are used, by entries or by what was lost
  StreamPositions streams;  // as of `last`
  std::vector<StoredEvent> events;  // with numbers above `from`, as InJudgedOrder leaves them
  std::vector<LostEntries> lost;    // among the entries that were read
  uint64_t bytes = 0;               // of the entries that were read
};

// Reads the entries from number `from` on, and those before it in the same segment. Leaves the
// files as they are but for the last one, whose torn tail is cut off. Errors are the file system's
// alone: damage is in `lost`.
absl::StatusOr<JournalScan> ScanJournal(const std::string& directory, uint64_t from,
                                        size_t max_streams);

}  // namespace plumbline::server
