#include "server/journal/lost_end.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace plumbline::server {

uint64_t NewestEntryOf(const CheckpointName& name) { return std::max(name.entry, name.event); }

uint64_t NewestEntryOf(const std::vector<CheckpointName>& checkpoints) {
  uint64_t newest = 0;
  for (const CheckpointName& name : checkpoints) newest = std::max(newest, NewestEntryOf(name));
  return newest;
}

void AddLostEnd(const std::string& journal, const std::vector<CheckpointName>& checkpoints,
                const Checkpoint& restored, size_t max_streams, JournalScan* scan) {
  const uint64_t newest = NewestEntryOf(checkpoints);
  if (newest <= scan->last) return;
  const bool kept = std::max(restored.entry, restored.event) > scan->last;
  const std::string where =
      absl::StrCat(journal, ": it ends at entry ", scan->last, ", but there is a checkpoint of ",
                   newest, kept ? ": the findings are kept, the evidence is lost" : "");
  if (!scan->lost.empty() && scan->lost.back().last == scan->last) {  // the end is damaged, too
    scan->lost.back().last = newest;
    scan->lost.back().where += absl::StrCat("; ", where);
  } else {
    scan->lost.push_back({scan->last + 1, newest, where});
  }
  // A used number is never used again.
  scan->last = newest;
  const auto judged = restored.parts.find(kCheckpointStreams);
  if (judged == restored.parts.end()) return;
  // If the journal has the stream, the journal's position is newer or equal.
  StreamPositions streams(max_streams);
  streams.Add(judged->second);
  for (const std::string& held : scan->streams.Encode(SIZE_MAX)) streams.Add(held);
  scan->streams = std::move(streams);
}

}  // namespace plumbline::server
