#include "server/judge/stream_marks.h"

#include <algorithm>
#include <map>

#include "plumbline/v1/journal.pb.h"
#include "server/journal/stream_positions.h"

namespace plumbline::server {

void StreamMarks::Note(uint64_t stream_id, uint64_t sequence) {
  Mark& mark = marks_[stream_id];
  mark.sequence = std::max(mark.sequence, sequence);
  mark.age = ++clock_;
  // Forgets half of them at once, so that the cost per batch is negligible.
  if (marks_.size() > 2 * max_streams_) ForgetTheOldest();
}

void StreamMarks::ForgetTheOldest() {
  std::vector<uint64_t> ages;
  ages.reserve(marks_.size());
  for (const auto& [id, mark] : marks_) ages.push_back(mark.age);
  const auto kept = ages.begin() + static_cast<std::ptrdiff_t>(ages.size() - max_streams_);
  std::nth_element(ages.begin(), kept, ages.end());
  const uint64_t oldest = kept == ages.end() ? clock_ + 1 : *kept;
  std::erase_if(marks_, [&](const auto& mark) { return mark.second.age < oldest; });
}

std::string StreamMarks::Encode(const std::vector<KnownRank>& ranks) const {
  std::unordered_map<uint64_t, std::vector<const v1::Source*>> speaks_for;
  for (const KnownRank& rank : ranks) {
    auto& sources = speaks_for[rank.stream_id];
    if (sources.size() < StreamPositions::kMostSources) sources.push_back(&rank.source);
  }
  std::map<uint64_t, uint64_t> by_age;
  for (const auto& [id, mark] : marks_) by_age.emplace(mark.age, id);
  v1::JournalStreams streams;
  for (const auto& [age, id] : by_age) {
    v1::Batch& stream = *streams.add_streams();
    stream.set_stream_id(id);
    stream.set_sequence(marks_.at(id).sequence);
    const auto sources = speaks_for.find(id);
    if (sources == speaks_for.end()) continue;
    for (const v1::Source* source : sources->second) {
      stream.add_sources()->ParseFromString(RecordOf(*source));
    }
  }
  return streams.SerializeAsString();
}

bool StreamMarks::Restore(std::string_view payload) {
  v1::JournalStreams streams;
  if (!streams.ParseFromArray(payload.data(), static_cast<int>(payload.size()))) return false;
  for (const v1::Batch& stream : streams.streams()) Note(stream.stream_id(), stream.sequence());
  return true;
}

}  // namespace plumbline::server
