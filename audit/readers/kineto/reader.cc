#include "audit/readers/kineto/reader.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "audit/readers/input/file.h"
#include "audit/readers/input/line_reader.h"
#include "audit/readers/kineto/trace_file.h"

namespace plumbline::audit {
namespace {

constexpr const char* kOp = "timeline";
constexpr uint32_t kMostTraceRank = (1u << 17) - 1;

// The reduced data of one file.
struct ReadTrace {
  InputReport* report = nullptr;
  int64_t rank = -1;
  int64_t world_size = 0;
  std::string device;  // "" for the main device of its process
  v1::Timeline timeline;
  std::vector<timeline::CollectiveTimes> collectives;
};

// Returns the number after the last "rank" in "trace_rank3.json" or "rank-12/trace.json"; -1 if
// there is none.
int64_t RankInName(std::string_view path) {
  const size_t at = path.rfind("rank");
  if (at == path.npos) return -1;
  size_t digit = at + 4;
  while (digit < path.size() && (path[digit] == '_' || path[digit] == '-' || path[digit] == '='))
    ++digit;
  int64_t rank = -1;
  for (; digit < path.size() && path[digit] >= '0' && path[digit] <= '9' && rank < 1 << 20; ++digit)
    rank = std::max<int64_t>(rank, 0) * 10 + (path[digit] - '0');
  return rank <= kMostTraceRank ? rank : -1;
}

// Returns 3 for "trace_3.json.gz"; -1 if the name does not end in a number that can be a rank.
int64_t NumberAtEnd(std::string_view path) {
  std::string_view name = path.substr(path.rfind('/') + 1);
  for (const std::string_view ending : {".gz", ".zst", ".json", ".trace", ".pt"}) {
    if (name.ends_with(ending)) name.remove_suffix(ending.size());
  }
  size_t begin = name.size();
  while (begin > 0 && name[begin - 1] >= '0' && name[begin - 1] <= '9') --begin;
  if (begin == name.size() || name.size() - begin > 6) return -1;
  return std::stoll(std::string(name.substr(begin)));
}

int64_t FirstStep(const v1::Timeline& timeline) {
  return timeline.steps_size() == 0 ? 0 : std::max<int64_t>(0, timeline.steps(0).number());
}

// Reads one file after another and reduces each; then returns the results rank by rank.
class KinetoSource : public Source {
 public:
  explicit KinetoSource(const std::vector<InputReport*>& files) : files_(files) {}

  Position position() const override { return {"", 0, INT64_MIN}; }

  // Returns a batch without evidence while the files are read.
  bool Next(v1::Batch* batch) override {
    if (open_.has_value() || next_file_ < files_.size()) {
      ReadOn();
      return true;
    }
    if (!placed_) Place();
    if (next_trace_ == traces_.size()) return false;
    Give(batch);
    return true;
  }

  void Refused(const absl::Status& why) override {
    files_[0]->Add(0, "expected valid times, found: " + std::string(why.message()));
  }
  uint64_t bytes_read() const override {
    return done_bytes_ + (open_.has_value() ? open_->bytes_read() : 0);
  }
  size_t files_done() const override { return next_file_ - (open_.has_value() ? 1 : 0); }

  std::vector<v1::Source> processes() const override {
    std::vector<v1::Source> all;
    if (!placed_) return all;
    for (const ReadTrace& trace : traces_) {
      const auto rank = static_cast<uint32_t>(trace.rank);
      if (all.empty() || all.back().rank() != rank) all.push_back(Process(rank));
    }
    return all;
  }

 private:
  void ReadOn() {
    if (!open_.has_value()) {
      InputReport* report = files_[next_file_++];
      absl::StatusOr<InputFile> file = InputFile::Open(report->path);
      if (!file.ok()) {
        report->Add(0, std::string(file.status().message()));
        return;
      }
      open_.emplace(ByteStream::Open(std::move(*file)), report);
      open_report_ = report;
    }
    if (open_->ReadOn()) return;
    ReadTrace trace;
    trace.report = open_report_;
    trace.rank = open_->keeper().rank();
    trace.world_size = open_->world_size();
    // Without torch.distributed, each process of a job records rank 0 of 1.
    const bool alone = trace.rank == 0 && trace.world_size <= 1;
    if (const int64_t named = RankInName(trace.report->path);
        trace.rank < 0 || (alone && named > 0))
      trace.rank = named;
    open_->keeper().SetRank(trace.rank);
    timeline::Columns columns = open_->keeper().TakeColumns();
    done_bytes_ += open_->bytes_read();
    open_.reset();
    if (trace.report->records > 0) TakeDevices(std::move(columns), trace);
  }

  // Adds each GPU of a process as a separate trace.
  void TakeDevices(timeline::Columns columns, const ReadTrace& of) {
    timeline::Devices devices = timeline::ByDevice(std::move(columns));
    for (timeline::OfDevice& device : devices.kept) {
      ReadTrace trace = of;
      trace.device = std::move(device.name);
      trace.timeline = timeline::Reduce(&device.columns);
      trace.collectives = timeline::CollectivesIn(device.columns);
      if (trace.timeline.gpu_events() == 0)
        trace.report->Note("no GPU events: the trace does not show what the GPU waited for");
      traces_.push_back(std::move(trace));
    }
    for (const std::string& name : devices.left_out)
      of.report->Note("GPU " + name + " is busy less than 1 % of the time: ignored");
  }

  // Assigns ranks and steps. Ranks without a name get numbers in the order of the files. Joins the
  // n-th trace of a rank with the n-th traces of the other ranks.
  void Place() {
    placed_ = true;
    NumberByNames();
    int64_t unnamed = 0;
    const ReadTrace* before_it = nullptr;
    for (ReadTrace& trace : traces_) {
      const ReadTrace* other = std::exchange(before_it, &trace);
      if (trace.rank >= 0) continue;
      // This trace is of another GPU of the preceding trace's process.
      if (!trace.device.empty() && other != nullptr && other->report == trace.report) {
        trace.rank = other->rank;
        continue;
      }
      while (Taken(unnamed)) ++unnamed;
      trace.rank = unnamed;
      if (files_.size() > 1) {
        trace.report->Note("neither the trace nor its name contains a rank: treated as rank " +
                           std::to_string(unnamed));
      }
    }
    std::stable_sort(traces_.begin(), traces_.end(), [](const ReadTrace& a, const ReadTrace& b) {
      return std::tie(a.rank, a.device) < std::tie(b.rank, b.device) ||
             (std::tie(a.rank, a.device) == std::tie(b.rank, b.device) &&
              std::make_tuple(FirstStep(a.timeline), a.timeline.start_ns()) <
                  std::make_tuple(FirstStep(b.timeline), b.timeline.start_ns()));
    });
    for (size_t i = 0; i < traces_.size(); ++i) {
      const bool again = i > 0 && traces_[i - 1].rank == traces_[i].rank &&
                         traces_[i - 1].device == traces_[i].device;
      nth_.push_back(again ? nth_.back() + 1 : 0);
      const auto [step, fresh] = steps_.try_emplace(nth_[i], FirstStep(traces_[i].timeline));
      if (!fresh) step->second = std::min(step->second, FirstStep(traces_[i].timeline));
      world_ = std::max({world_, traces_[i].world_size, traces_[i].rank + 1});
    }
    // Make the steps distinct and ascending.
    int64_t before = -1;
    for (auto& [nth, step] : steps_) before = step = std::max(step, before + 1);
  }

  // Uses numbers at the end of file names as ranks if they are 0 to n - 1. Other numbers may be
  // steps or times.
  void NumberByNames() {
    std::map<int64_t, std::vector<ReadTrace*>> by_number;
    std::set<const InputReport*> unnamed;
    for (ReadTrace& trace : traces_) {
      if (trace.rank >= 0) return;
      unnamed.insert(trace.report);
      by_number[NumberAtEnd(trace.report->path)].push_back(&trace);
    }
    const bool all = unnamed.size() > 1 && by_number.size() == unnamed.size() &&
                     by_number.begin()->first == 0 &&
                     by_number.rbegin()->first == static_cast<int64_t>(unnamed.size()) - 1;
    if (!all) return;
    for (const auto& [number, traces] : by_number) {
      for (ReadTrace* trace : traces) trace->rank = number;
    }
  }

  bool Taken(int64_t rank) const {
    return std::any_of(traces_.begin(), traces_.end(),
                       [&](const ReadTrace& trace) { return trace.rank == rank; });
  }

  void Give(v1::Batch* batch) {
    constexpr size_t kMostBytes = 16u << 20;
    size_t bytes = 0;
    while (next_trace_ < traces_.size() && bytes < kMostBytes) {
      ReadTrace& trace = traces_[next_trace_];
      *batch->add_sources() = Process(static_cast<uint32_t>(trace.rank));
      v1::Evidence& evidence = *batch->add_evidence();
      evidence.set_source(static_cast<uint32_t>(batch->sources_size()) - 1);
      evidence.mutable_site()->set_op(kOp);
      if (!trace.device.empty()) evidence.mutable_site()->set_layer("GPU " + trace.device);
      evidence.set_step(steps_.at(nth_[next_trace_]));
      evidence.set_sample_size(trace.timeline.gpu_events());
      evidence.set_exercised(v1::EXERCISED_YES);
      *evidence.mutable_timeline() = std::move(trace.timeline);
      bytes += evidence.ByteSizeLong();
      bytes += GiveCollectives(trace, batch);
      ++next_trace_;
    }
  }

  // Adds the collectives of the main GPU, because only it has the rank that collectives use.
  // Returns their bytes.
  size_t GiveCollectives(const ReadTrace& trace, v1::Batch* batch) const {
    size_t bytes = 0;
    std::map<std::string, uint32_t> calls;  // site -> number of calls
    for (const timeline::CollectiveTimes& times : trace.collectives) {
      if (!trace.device.empty()) break;
      v1::Evidence& evidence = *batch->add_evidence();
      evidence.set_source(static_cast<uint32_t>(batch->sources_size()) - 1);
      evidence.set_step(steps_.at(nth_[next_trace_]));
      evidence.set_exercised(v1::EXERCISED_YES);
      timeline::PutCollective(times, &evidence);
      evidence.set_call(calls[evidence.site().layer() + "/" + times.op]++);
      bytes += evidence.ByteSizeLong();
    }
    return bytes;
  }

  v1::Source Process(uint32_t rank) const {
    v1::Source process;
    process.set_role(v1::ROLE_TRAINER);
    process.set_rank(rank);
    process.set_world_size(static_cast<uint32_t>(world_));
    return process;
  }

  std::vector<InputReport*> files_;
  size_t next_file_ = 0;
  std::optional<TraceFile> open_;
  InputReport* open_report_ = nullptr;
  uint64_t done_bytes_ = 0;
  std::vector<ReadTrace> traces_;      // sorted by rank, then time, after Place
  std::vector<uint32_t> nth_;          // for each trace: its index among the traces of its rank
  std::map<uint32_t, int64_t> steps_;  // n -> step of the n-th traces
  int64_t world_ = 0;
  bool placed_ = false;
  size_t next_trace_ = 0;
};

}  // namespace

bool KinetoReader::Recognise(std::string_view path, std::string_view head) const {
  // The file may describe many devices and groups before the events, so reads this many bytes.
  constexpr size_t kLook = 1u << 20;
  const bool packed = IsCompressed(head);
  if (!packed) {
    if (head.starts_with(kByteOrderMark)) head.remove_prefix(kByteOrderMark.size());
    const size_t begin = head.find_first_not_of(" \t\r\n");
    if (begin == head.npos || (head[begin] != '{' && head[begin] != '[')) return false;
    if (TraceFile::Recognise(head)) return true;
    if (head.size() < kHeadBytes) return false;
  }
  return TraceFile::Recognise(FirstBytes(path, head, kLook));
}

std::vector<std::unique_ptr<Source>> KinetoReader::Open(
    const std::vector<InputReport*>& files) const {
  std::vector<std::unique_ptr<Source>> sources;
  if (!files.empty()) sources.push_back(std::make_unique<KinetoSource>(files));
  return sources;
}

}  // namespace plumbline::audit
