#include "server/samples/sample_retention.h"

#include <utility>

#include "plumbline/v1/journal.pb.h"
#include "proto/evidence_samples.h"
#include "server/journal/entry.h"
#include "server/process/log.h"

namespace plumbline::server {
namespace {

constexpr char kReason[] = "retention: older than journal.keep_sample_days";

// Returns the segment's header; an empty one if it cannot be read.
v1::JournalHeader HeaderOf(const Segment& segment) {
  auto log = FramedLogReader::Open(segment.path, JournalLogOptions());
  FrameType type;
  std::string payload;
  v1::JournalHeader header;
  if (!log.ok() || (*log)->Next(&type, &payload) != FramedLogReader::Result::kFrame ||
      type != FrameType::kJournalHeader || !header.ParseFromString(payload)) {
    return {};
  }
  return header;
}

}  // namespace

void NeededSamples::Add(const v1::Finding& finding) {
  const v1::FindingSite& site = finding.site();
  const bool everywhere = site.layer().empty() && site.op().empty();
  // Such findings concern the run as a whole and come from series, times and losses.
  if (everywhere &&
      (finding.rule().starts_with("meta/") || finding.rule().starts_with("performance/")))
    return;
  by_run_[site.run()].push_back(
      {site.layer(), site.op(), site.step_first() - kBefore, site.step_last()});
}

bool NeededSamples::Needs(const std::string& run, const v1::Evidence& e) const {
  const auto places = by_run_.find(run);
  if (places == by_run_.end()) return false;
  for (const Place& place : places->second) {
    const bool here = (place.layer.empty() || place.layer == e.site().layer()) &&
                      (place.op.empty() || place.op == e.site().op());
    if (here && e.step() >= place.first && e.step() <= place.last) return true;
  }
  return false;
}

bool SampleRetention::Due(const Segment& segment, const Segment& next) {
  if (options_.keep.count() == 0 || done_.contains(segment.first)) return false;
  const int64_t ended = HeaderOf(next).created_unix_ns();
  const bool old = ended > 0 && options_.unix_ns() - ended > options_.keep.count();
  if (!old) {
    old_since_.erase(segment.first);
    return false;
  }
  const auto [seen, fresh] = old_since_.try_emplace(segment.first, options_.now());
  if (options_.now() - seen->second < options_.second_look) return false;
  const v1::JournalHeader header = HeaderOf(segment);
  if (header.schema().empty() || header.samples_removed()) {
    done_.insert(segment.first);
    return false;
  }
  return true;
}

void SampleRetention::Begin() {
  needed_ = options_.needed();
  removed_ = kept_ = 0;
}

bool SampleRetention::Edit(FrameType type, std::string_view payload, std::string* instead) {
  if (type != FrameType::kJournalBatch) return false;
  const std::string_view body = payload.substr(EntryPrefix::kSize);
  v1::Batch batch;
  if (!batch.ParseFromArray(body.data(), static_cast<int>(body.size()))) return false;
  uint64_t removed = 0;
  for (v1::Evidence& e : *batch.mutable_evidence()) {
    if (!HasSample(e)) continue;
    const auto source = static_cast<int>(e.source());
    const bool needed =
        source < batch.sources_size() && needed_.Needs(batch.sources(source).run(), e);
    kept_ += needed ? 1 : 0;
    if (!needed && RemoveSample(&e, kReason)) ++removed;
  }
  removed_ += removed;
  if (removed == 0) return false;
  instead->assign(payload.substr(0, EntryPrefix::kSize));
  instead->append(batch.SerializeAsString());
  return true;
}

void SampleRetention::Done(const Segment& segment, bool replaced) {
  done_.insert(segment.first);
  old_since_.erase(segment.first);
  if (!replaced) return;
  counters_->samples_expired += removed_;
  LogInfo("retention: samples of {} items removed in entries from {} on, {} kept for findings",
          removed_, segment.first, kept_);
}

}  // namespace plumbline::server
