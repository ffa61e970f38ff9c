#include "server/journal/stream_positions.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>

#include "plumbline/v1/journal.pb.h"

namespace plumbline::server {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr uint32_t kSetsTag = (v1::Batch::kSeriesSetsFieldNumber << 3) | 2;
constexpr uint32_t kSourcesTag = (v1::Batch::kSourcesFieldNumber << 3) | 2;

SetRecord SetOf(std::string_view record, std::string_view set_bytes) {
  v1::SeriesSet set;
  if (!set.ParseFromArray(set_bytes.data(), static_cast<int>(set_bytes.size()))) return {};
  return {set.id(), std::string(record)};
}

}  // namespace

SourceRecord RecordOf(const v1::Source& source) {
  v1::Source named;
  named.set_run(source.run());
  named.set_role(source.role());
  named.set_rank(source.rank());
  named.set_attempt(source.attempt());
  return named.SerializeAsString();
}

StreamFacts FactsOf(std::string_view batch_wire) {
  StreamFacts facts;
  CodedInputStream in(reinterpret_cast<const uint8_t*>(batch_wire.data()),
                      static_cast<int>(batch_wire.size()));
  v1::Source source;
  for (;;) {
    const auto start = static_cast<size_t>(in.CurrentPosition());
    const uint32_t tag = in.ReadTag();
    if (tag == 0) return facts;
    if (tag != kSetsTag && tag != kSourcesTag) {
      if (!WireFormatLite::SkipField(&in, tag)) return facts;
      continue;
    }
    uint32_t size = 0;
    if (!in.ReadVarint32(&size)) return facts;
    const auto body = static_cast<size_t>(in.CurrentPosition());
    if (!in.Skip(static_cast<int>(size))) return facts;
    const std::string_view bytes = batch_wire.substr(body, size);
    if (tag == kSourcesTag) {
      if (source.ParseFromArray(bytes.data(), static_cast<int>(size))) {
        facts.sources.push_back(RecordOf(source));
      }
      continue;
    }
    SetRecord record = SetOf(batch_wire.substr(start, body + size - start), bytes);
    if (record.first != 0) facts.sets.push_back(std::move(record));
  }
}

void StreamPositions::Note(uint64_t stream_id, uint64_t sequence,
                           const std::vector<SetRecord>& sets,
                           const std::vector<SourceRecord>& sources) {
  Stream& stream = streams_[stream_id];
  by_age_.erase(stream.age);
  stream.age = ++clock_;
  by_age_.emplace(stream.age, stream_id);
  stream.sequence = std::max(stream.sequence, sequence);
  for (const auto& [id, record] : sets) stream.sets[id] = record;
  for (const SourceRecord& record : sources) {
    if (stream.sources.size() < kMostSources) stream.sources.insert(record);
  }
  if (streams_.size() > max_streams_) {
    streams_.erase(by_age_.begin()->second);
    by_age_.erase(by_age_.begin());
  }
}

std::vector<std::string> StreamPositions::Encode(size_t frame_bytes) const {
  std::vector<std::string> frames;
  std::string frame;
  for (const auto& [age, id] : by_age_) {
    const Stream& stream = streams_.at(id);
    v1::Batch head;
    head.set_stream_id(id);
    head.set_sequence(stream.sequence);
    for (const SourceRecord& record : stream.sources) head.add_sources()->ParseFromString(record);
    std::string batch = head.SerializeAsString();
    for (const auto& [set, record] : stream.sets) batch += record;
    // Write a message field of v1::JournalStreams: its tag, its length, its bytes.
    uint8_t prefix[16];
    uint8_t* at = WireFormatLite::WriteTagToArray(
        v1::JournalStreams::kStreamsFieldNumber, WireFormatLite::WIRETYPE_LENGTH_DELIMITED, prefix);
    at = google::protobuf::io::CodedOutputStream::WriteVarint32ToArray(
        static_cast<uint32_t>(batch.size()), at);
    frame.append(reinterpret_cast<const char*>(prefix), static_cast<size_t>(at - prefix));
    frame += batch;
    if (frame.size() >= frame_bytes) frames.push_back(std::exchange(frame, {}));
  }
  if (!frame.empty()) frames.push_back(std::move(frame));
  return frames;
}

bool StreamPositions::Add(std::string_view payload) {
  v1::JournalStreams streams;
  if (!streams.ParseFromArray(payload.data(), static_cast<int>(payload.size()))) return false;
  for (v1::Batch& stream : *streams.mutable_streams()) {
    std::vector<SetRecord> sets;
    for (v1::SeriesSet& set : *stream.mutable_series_sets()) {
      v1::Batch one;
      const uint64_t id = set.id();
      one.add_series_sets()->Swap(&set);
      sets.emplace_back(id, one.SerializeAsString());
    }
    std::vector<SourceRecord> sources;
    for (const v1::Source& source : stream.sources()) sources.push_back(RecordOf(source));
    Note(stream.stream_id(), stream.sequence(), sets, sources);
  }
  return true;
}

}  // namespace plumbline::server
