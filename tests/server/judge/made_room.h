// Reads the steps that plumbd closed for lack of memory from its journal.
#pragma once

#include <string>
#include <vector>

#include "plumbline/v1/journal.pb.h"
#include "server/journal/journal_reader.h"

namespace plumbline::test {

// Returns the events of the journal in `data`, in order. The server must have stopped, or be idle.
inline std::vector<v1::JudgeEvent> MadeRoom(const std::string& data) {
  using Result = server::JournalReader::Result;
  std::vector<v1::JudgeEvent> made;
  auto reader = server::JournalReader::Open(data + "/journal", 1);
  server::StoredEntry entry;
  for (Result result; (result = (*reader)->Next(&entry)) != Result::kEnd;) {
    v1::JournalEvent event;
    if (result == Result::kEntry && entry.type == FrameType::kJournalEvent &&
        event.ParseFromString(std::string(entry.body())) && event.event().has_make_room())
      made.push_back(event.event());
  }
  return made;
}

}  // namespace plumbline::test
