#include "audit/readers/rollout/source.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <set>
#include <string>
#include <utility>

#include "audit/readers/rollout/batch.h"
#include "audit/readers/rollout/file.h"

namespace plumbline::audit {
namespace {

constexpr uint64_t kBatchBytes = 4u << 20;
constexpr v1::Role kRoles[] = {v1::ROLE_TRAINER, v1::ROLE_ROLLOUT};

class RolloutSource : public Source {
 public:
  RolloutSource(std::string run, std::vector<std::unique_ptr<RolloutFile>> files,
                uint64_t step_bytes)
      : run_(std::move(run)), files_(std::move(files)), step_bytes_(step_bytes) {
    newest_.reserve(files_.size());
    for (size_t i = 0; i < files_.size(); ++i) {
      newest_.push_back(files_[i]->step());
      frontier_.insert(files_[i]->step());
      queue_.emplace(files_[i]->step(), i);
    }
    started_.resize(files_.size(), false);
  }

  Position position() const override {
    if (complete_ != kNone) return {run_, 0, complete_};
    const int64_t first = queue_.empty() ? kNone : queue_.top().first;
    return {run_, 0, first == kNone ? kNone : first - 1};
  }

  bool Next(v1::Batch* batch) override {
    v1::Batch filled;
    for (const v1::Role role : kRoles) *filled.add_sources() = Process(role);
    RolloutBatch items(&filled, &calls_);
    bool progress = false;
    while (!queue_.empty() && !progress && items.bytes() < kBatchBytes) {
      Take(&items);
      progress = Advance();
    }
    if (queue_.empty() && !finished_) {
      progress = finished_ = true;
      ReportLeftOut(newest_step_);
    }
    if (filled.evidence().empty() && !progress) return false;
    for (const v1::Evidence& item : filled.evidence()) seen_[item.source()] = true;
    if (progress && newest_step_ != kNone) AddProgress(&filled);
    *batch = std::move(filled);
    return true;
  }

  void Refused(const absl::Status& why) override {
    files_[last_]->report().Add(0, "expected valid evidence, found: " + std::string(why.message()));
  }

  uint64_t bytes_read() const override {
    uint64_t bytes = 0;
    for (const auto& file : files_) bytes += file->bytes_read();
    return bytes;
  }
  size_t files_done() const override {
    return static_cast<size_t>(
        std::count_if(files_.begin(), files_.end(), [](const auto& f) { return f->ended(); }));
  }

  std::vector<v1::Source> processes() const override {
    std::vector<v1::Source> all;
    for (const v1::Role role : kRoles) {
      if (seen_[SourceIndex(role)]) all.push_back(Process(role));
    }
    return all;
  }

 private:
  static constexpr int64_t kNone = INT64_MIN;
  using Entry = std::pair<int64_t, size_t>;  // (step of the file's next record, index of the file)

  // Takes one record of the file with the smallest step, or opens that file.
  void Take(RolloutBatch* items) {
    const auto [step, i] = queue_.top();
    queue_.pop();
    RolloutFile& file = *files_[i];
    if (started_[i]) {
      last_ = i;
      if (step <= complete_) {
        file.Refuse("a step of at least " + std::to_string(complete_ + 1) +
                        " (steps may go back by " + std::to_string(kStepLookBack) + ")",
                    std::to_string(step));
      } else if (held_[step] >= step_bytes_) {
        LeaveOut(step, i);
      } else {
        held_[step] += items->Add(step, file.DefaultId(), file.columns(), file.shape());
        newest_step_ = std::max(newest_step_, step);
      }
    }
    started_[i] = true;
    const bool more = file.Next();
    if (!more || file.step() > newest_[i]) frontier_.erase(frontier_.find(newest_[i]));
    if (!more) return;
    if (file.step() > newest_[i]) frontier_.insert(newest_[i] = file.step());
    queue_.emplace(file.step(), i);
  }

  void LeaveOut(int64_t step, size_t i) {
    RolloutFile& file = *files_[i];
    --file.report().records;
    const auto [at, first] = left_out_.try_emplace(step);
    if (first) at->second = {i, file.line_offset(), file.line_number(), 0};
    ++at->second.sequences;
  }

  // Reports the records that were left out of the complete steps up to `last`.
  void ReportLeftOut(int64_t last) {
    const auto end = left_out_.upper_bound(last);
    for (auto at = left_out_.begin(); at != end; ++at) {
      const LeftOut& over = at->second;
      files_[over.file]->report().Add(
          over.offset, "expected at most " + std::to_string(step_bytes_ >> 10) +
                           " KiB of values in step " + std::to_string(at->first) +
                           ", found more in line " + std::to_string(over.line) + ": " +
                           std::to_string(over.sequences) +
                           " sequences from there on were not read (split the step, and write it "
                           "in an order that does not depend on the samples)");
    }
    left_out_.erase(left_out_.begin(), end);
  }

  // Updates complete_, the newest step that can get no more records. Returns true if it changed.
  bool Advance() {
    // No file has more records; the last batch then closes all steps.
    if (queue_.empty()) return false;
    const int64_t floor = std::min(newest_step_, *frontier_.begin());
    const int64_t before = complete_;
    if (floor >= kStepLookBack) complete_ = std::max(complete_, floor - kStepLookBack);
    uint64_t bytes = 0;
    for (const auto& [step, size] : held_) bytes += step > complete_ ? size : 0;
    for (const auto& [step, size] : held_) {
      if (bytes <= kLookBackBytes || step >= queue_.top().first) break;
      if (step <= complete_) continue;
      complete_ = step;
      bytes -= size;
    }
    if (complete_ == before) return false;
    held_.erase(held_.begin(), held_.upper_bound(complete_));
    ReportLeftOut(complete_);
    std::erase_if(calls_, [&](const auto& call) { return std::get<0>(call.first) <= complete_; });
    return true;
  }

  void AddProgress(v1::Batch* batch) {
    if (finished_) complete_ = newest_step_;
    for (const v1::Role role : kRoles) {
      if (!seen_[SourceIndex(role)]) continue;
      v1::Progress& progress = *batch->add_progress();
      progress.set_source(SourceIndex(role));
      progress.set_any_step(true);
      progress.set_complete_through(complete_);
      progress.set_newest_step(newest_step_);
    }
  }

  // Returns the process of a role. Files are not ranks, because several workers may write to one
  // file, or one worker to several files.
  v1::Source Process(v1::Role role) const {
    v1::Source process;
    process.set_run(run_);
    process.set_role(role);
    process.set_world_size(1);
    return process;
  }

  std::string run_;
  std::vector<std::unique_ptr<RolloutFile>> files_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
  std::vector<int64_t> newest_;      // newest step read of each file
  std::multiset<int64_t> frontier_;  // steps of the files that have not ended
  std::vector<bool> started_;
  std::map<int64_t, uint64_t> held_;  // incomplete step -> its bytes
  // The part of a step that is too large and was left out: the first line, and the number of
  // sequences.
  struct LeftOut {
    size_t file = 0;
    uint64_t offset = 0, line = 0, sequences = 0;
  };
  std::map<int64_t, LeftOut> left_out_;
  uint64_t step_bytes_;
  RolloutCalls calls_;
  int64_t complete_ = kNone;
  int64_t newest_step_ = kNone;
  size_t last_ = 0;
  bool seen_[2] = {false, false};
  bool finished_ = false;
};

}  // namespace

std::vector<std::unique_ptr<Source>> OpenRollouts(const ColumnMap& map,
                                                  const std::vector<InputReport*>& files,
                                                  uint64_t step_bytes) {
  std::map<std::string, std::vector<std::unique_ptr<RolloutFile>>> runs;
  for (InputReport* report : files) {
    auto file = std::make_unique<RolloutFile>(map, report);
    if (!file->Peek()) continue;
    report->runs.insert(file->run());
    runs[file->run()].push_back(std::move(file));
  }
  std::vector<std::unique_ptr<Source>> sources;
  sources.reserve(runs.size());
  for (auto& [run, members] : runs)
    sources.push_back(std::make_unique<RolloutSource>(run, std::move(members), step_bytes));
  return sources;
}

}  // namespace plumbline::audit
