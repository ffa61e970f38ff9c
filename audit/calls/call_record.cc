#include "audit/calls/call_record.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "audit/calls/agents.h"
#include "audit/calls/collective_calls.h"
#include "audit/calls/hung_calls.h"
#include "audit/calls/product_calls.h"
#include "base/clock.h"
#include "base/framed_log.h"
#include "base/version/build_version.h"

namespace plumbline::audit {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostEvidence = 4096;  // of a batch

// Makes a run record of the calls of all processes of a job: a source for each process and rank,
// the evidence by step, and in the last batch the progress and the end.
class RecordBuilder {
 public:
  RecordBuilder(const CallRecord& record, const std::vector<ProcessCalls>& processes)
      : record_(record), processes_(processes), agents_(processes) {
    AddCollectives(processes_, agents_, &evidence_);
    AddProducts(processes_, agents_, &evidence_);
    if (record.blocked_seconds)
      AddHungCalls(processes_, agents_, *record.blocked_seconds, LastStep(), &evidence_);
    std::stable_sort(
        evidence_.begin(), evidence_.end(),
        [](const v1::Evidence& a, const v1::Evidence& b) { return a.step() < b.step(); });
  }

  bool empty() const { return evidence_.empty(); }

  absl::Status Write(const std::string& path, const std::vector<UnseenLibrary>& unseen) {
    auto log = FramedLogWriter::Open(path);
    if (!log.ok()) return log.status();
    v1::RecordHeader header;
    header.set_schema("plumbline.record/1");
    header.set_tool_version(BuildVersion());
    *header.mutable_source() = SourceOf(0);
    header.set_created_unix_ns(static_cast<int64_t>(UnixNs()));
    if (absl::Status s = (*log)->Append(FrameType::kRecordHeader, header.SerializeAsString());
        !s.ok())
      return s;
    for (size_t first = 0; first == 0 || first < evidence_.size(); first += kMostEvidence) {
      v1::Batch batch = BatchFrom(first);
      if (first == 0) Declare(unseen, &batch);
      if (first + kMostEvidence >= evidence_.size()) Finish(&batch);
      if (absl::Status s = (*log)->Append(FrameType::kBatch, batch.SerializeAsString()); !s.ok())
        return s;
    }
    return absl::OkStatus();
  }

 private:
  v1::Source SourceOf(uint32_t agent) const {
    v1::Source source;
    source.set_run(record_.run);
    source.set_role(v1::ROLE_TRAINER);
    source.set_tool_version(BuildVersion());
    source.set_pid(record_.trainer);
    if (agent >= agents_.size()) return source;  // no process has a table
    source.set_rank(agents_.rank(agent));
    source.set_pid(processes_[agents_.process(agent)].pid);
    return source;
  }

  int64_t LastStep() const {
    int64_t last = 0;
    for (const v1::Evidence& one : evidence_) last = std::max(last, one.step());
    return last;
  }

  uint32_t sources() const { return std::max<uint32_t>(1, static_cast<uint32_t>(agents_.size())); }

  v1::Batch BatchFrom(size_t first) {
    v1::Batch batch;
    batch.set_stream_id(stream_);
    batch.set_sequence(++sequence_);
    for (uint32_t i = 0; i < sources(); ++i) *batch.add_sources() = SourceOf(i);
    const size_t end = std::min(evidence_.size(), first + kMostEvidence);
    for (size_t i = first; i < end; ++i) *batch.add_evidence() = evidence_[i];
    return batch;
  }

  // A site that is declared and has no evidence is what meta/probe-coverage reports.
  static void Declare(const std::vector<UnseenLibrary>& unseen, v1::Batch* batch) {
    for (const UnseenLibrary& library : unseen) {
      v1::SiteDeclaration& declared = *batch->add_declarations();
      declared.mutable_site()->set_layer(library.layer);
      declared.mutable_site()->set_op(library.op);
      declared.set_kind("reduction");
    }
  }

  // All steps are complete. Only the trainer's own process has an ending that is known.
  void Finish(v1::Batch* batch) const {
    const int64_t last = LastStep();
    for (uint32_t i = 0; i < sources(); ++i) {
      v1::Progress& progress = *batch->add_progress();
      progress.set_source(i);
      progress.set_any_step(true);
      progress.set_complete_through(last);
      progress.set_newest_step(last);
      progress.set_finished(true);
      if (record_.ending && SourceOf(i).pid() == record_.trainer)
        *progress.mutable_ending() = *record_.ending;
    }
  }

  const CallRecord& record_;
  const std::vector<ProcessCalls>& processes_;
  const CallAgents agents_;
  std::vector<v1::Evidence> evidence_;
  const uint64_t stream_ = std::random_device()() | (uint64_t{std::random_device()()} << 32) | 1;
  uint64_t sequence_ = 0;
};

std::string WithCommas(uint64_t number) {
  std::string text = absl::StrCat(number);
  for (size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

// Returns only the processes that made calls: the others of a tree are no ranks.
std::vector<ProcessCalls> Callers(const std::vector<ProcessCalls>& processes) {
  std::vector<ProcessCalls> callers;
  for (const ProcessCalls& process : processes)
    if (CallsOf(process, CallFamily::kNccl) + CallsOf(process, CallFamily::kCublas) > 0)
      callers.push_back(process);
  return callers;
}

}  // namespace

absl::Status WriteCallRecord(const CallRecord& record, const std::vector<ProcessCalls>& processes,
                             const std::vector<UnseenLibrary>& unseen, bool* written) {
  *written = false;
  const std::vector<ProcessCalls> callers = Callers(processes);
  RecordBuilder builder(record, callers);
  if (builder.empty() && unseen.empty()) return absl::OkStatus();
  std::error_code error;
  fs::create_directories(record.folder, error);
  if (error) return absl::UnavailableError(record.folder + ": " + error.message());
  const fs::path path = fs::path(record.folder) / absl::StrCat("calls-", record.trainer, ".plr");
  absl::Status status = builder.Write(path, unseen);
  *written = status.ok();
  return status;
}

std::string CountsInWords(const std::vector<ProcessCalls>& processes) {
  std::map<CallFunction, uint64_t> counts;
  uint64_t uncounted = 0;
  for (const ProcessCalls& process : processes) {
    for (const CountedCall& call : process.counted) counts[call.kind.function] += call.calls;
    uncounted += process.uncounted;
  }
  std::string words;
  for (const auto& [function, calls] : counts)
    absl::StrAppend(&words, words.empty() ? "" : ", ", NameOf(function), " ", WithCommas(calls));
  if (uncounted > 0) absl::StrAppend(&words, ", other kinds ", WithCommas(uncounted));
  return words;
}

}  // namespace plumbline::audit
