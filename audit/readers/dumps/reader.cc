#include "audit/readers/dumps/reader.h"

#include <algorithm>
#include <map>
#include <new>
#include <set>
#include <tuple>
#include <utility>

#include "audit/readers/dumps/kind.h"
#include "audit/readers/dumps/metadata.h"
#include "audit/readers/safetensors/header.h"

namespace plumbline::audit {
namespace {

// A dump that can be judged, and its place in the run. The dump itself is read later.
struct Plan {
  InputReport* file = nullptr;
  DumpSite site;
  uint32_t call = 0;  // index among the dumps of this site, rank and step
  bool last_of_step = false;
};

auto PlanOrder(const Plan& plan) {
  const DumpSite& site = plan.site;
  return std::tie(site.run, site.attempt, site.step, site.rank, site.layer, site.op,
                  plan.file->path);
}

// Reads and checks the header. If the file gives no evidence, returns nullptr and adds the reason
// to the report.
const DumpKind* ReadHeader(const InputFile& file, InputReport* report, SafetensorsHeader* header,
                           DumpSite* site) {
  if (std::optional<Problem> problem = ReadSafetensorsHeader(file, header)) {
    report->Add(problem->offset, std::move(problem->text));
    return nullptr;
  }
  const DumpKind* kind = KindOf(*header, report);
  if (kind == nullptr) return nullptr;
  std::vector<Problem> problems;
  *site = ReadDumpSite(*header, &problems);
  kind->check(*header, &problems);
  for (Problem& problem : problems) report->Add(problem.offset, std::move(problem.text));
  if (site->op.empty()) site->op = kind->default_op(*header);
  return problems.empty() ? kind : nullptr;
}

// Reads the dumps of all runs. The world size of a run is the largest that its dumps state. If no
// dump states it and the ranks are 0..n-1, it is n.
using Group = std::pair<std::string, uint32_t>;  // (run, attempt)

class DumpSource : public Source {
 public:
  explicit DumpSource(std::vector<Plan> plans) : plans_(std::move(plans)) {
    std::sort(plans_.begin(), plans_.end(),
              [](const Plan& a, const Plan& b) { return PlanOrder(a) < PlanOrder(b); });
    for (size_t i = 0; i < plans_.size(); ++i) Place(i);
  }

  Position position() const override {
    if (next_ == plans_.size()) return {};
    const DumpSite& site = plans_[next_].site;
    return {site.run, site.attempt, site.step - 1};
  }

  // Returns one dump. If it cannot be read any more, returns a batch with only progress, so that
  // the step still ends.
  bool Next(v1::Batch* batch) override {
    if (next_ == plans_.size()) return false;
    const Plan& plan = plans_[next_++];
    batch->Clear();
    for (const v1::Source& process : ProcessesOf(plan)) *batch->add_sources() = process;
    Load(plan, batch);
    if (plan.last_of_step) AddProgress(plan, batch);
    return true;
  }

  void Refused(const absl::Status& why) override {
    plans_[next_ - 1].file->Add(0, "expected valid evidence, found: " + std::string(why.message()));
  }

  uint64_t bytes_read() const override { return bytes_read_; }
  size_t files_done() const override { return next_; }

  std::vector<v1::Source> processes() const override {
    std::vector<v1::Source> all;
    for (const auto& [group, ranks] : ranks_) {
      for (const uint32_t rank : ranks) all.push_back(Process(group, rank));
    }
    return all;
  }

 private:
  void Place(size_t i) {
    Plan& plan = plans_[i];
    const DumpSite& site = plan.site;
    ranks_[{site.run, site.attempt}].insert(site.rank);
    uint32_t& world = world_[{site.run, site.attempt}];
    world = std::max(world, site.world_size);
    const auto same = [](const DumpSite& a, const DumpSite& b) {
      return std::tie(a.run, a.attempt, a.step, a.rank, a.layer, a.op) ==
             std::tie(b.run, b.attempt, b.step, b.rank, b.layer, b.op);
    };
    if (i > 0 && same(plans_[i - 1].site, site)) plan.call = plans_[i - 1].call + 1;
    const bool last = i + 1 == plans_.size();
    const DumpSite& next = last ? site : plans_[i + 1].site;
    plan.last_of_step = last || std::tie(site.run, site.attempt, site.step) !=
                                    std::tie(next.run, next.attempt, next.step);
  }

  v1::Source Process(const Group& group, uint32_t rank) const {
    const std::set<uint32_t>& ranks = ranks_.at(group);
    v1::Source process;
    process.set_run(group.first);
    process.set_attempt(group.second);
    process.set_role(v1::ROLE_TRAINER);
    process.set_rank(rank);
    const bool complete = *ranks.rbegin() + uint64_t{1} == ranks.size();
    const uint32_t declared = world_.at(group);
    // A declared world size that does not cover its ranks is ignored.
    if (declared > *ranks.rbegin()) {
      process.set_world_size(declared);
    } else if (complete) {
      process.set_world_size(static_cast<uint32_t>(ranks.size()));
    }
    return process;
  }

  // Returns the dump's own process. At the end of a step, returns all processes of the run, because
  // the batch then has their progress.
  std::vector<v1::Source> ProcessesOf(const Plan& plan) const {
    const Group group{plan.site.run, plan.site.attempt};
    std::vector<v1::Source> processes = {Process(group, plan.site.rank)};
    if (!plan.last_of_step) return processes;
    for (const uint32_t rank : ranks_.at(group)) {
      if (rank != plan.site.rank) processes.push_back(Process(group, rank));
    }
    return processes;
  }

  static void AddProgress(const Plan& plan, v1::Batch* batch) {
    for (int i = 0; i < batch->sources_size(); ++i) {
      v1::Progress& progress = *batch->add_progress();
      progress.set_source(static_cast<uint32_t>(i));
      progress.set_any_step(true);
      progress.set_complete_through(plan.site.step);
      progress.set_newest_step(plan.site.step);
    }
  }

  // Reads the file and its header again: it may have changed since it was placed.
  void Load(const Plan& plan, v1::Batch* batch) {
    InputReport& report = *plan.file;
    absl::StatusOr<InputFile> file = InputFile::Open(report.path);
    if (!file.ok()) {
      report.Add(0, std::string(file.status().message()));
      return;
    }
    SafetensorsHeader header;
    DumpSite site;
    const DumpKind* kind = ReadHeader(*file, &report, &header, &site);
    if (kind == nullptr) return;
    v1::Evidence evidence;
    evidence.set_source(0);
    evidence.mutable_site()->set_layer(plan.site.layer);
    evidence.mutable_site()->set_op(plan.site.op);
    evidence.set_step(plan.site.step);
    evidence.set_call(plan.call);
    evidence.set_order(plan.site.order);
    absl::Status status;
    try {
      status = kind->load(*file, header, &evidence);
    } catch (const std::bad_alloc&) {
      status = absl::ResourceExhaustedError("expected memory for " + std::to_string(file->size()) +
                                            " bytes of tensors, found too little");
    }
    if (!status.ok()) {
      report.Add(ByteOf(status), std::string(status.message()));
      return;
    }
    report.records += header.tensors.size();
    bytes_read_ += file->size();
    *batch->add_evidence() = std::move(evidence);
  }

  std::vector<Plan> plans_;
  std::map<Group, std::set<uint32_t>> ranks_;
  std::map<Group, uint32_t> world_;  // (run, attempt) -> declared world size
  size_t next_ = 0;
  uint64_t bytes_read_ = 0;
};

}  // namespace

bool SafetensorsReader::Recognise(std::string_view path, std::string_view head) const {
  // Checks for a plausible header length and the opening brace only, because a damaged dump is
  // still a dump. In a text with a brace at this place, the "length" would be 2^56 or more.
  const bool named_so = path.ends_with(".safetensors");
  if (head.size() <= kHeaderLengthBytes) return named_so;
  const bool plausible = head[7] == '\0' && head[6] == '\0';
  return (head[kHeaderLengthBytes] == '{' && plausible) || named_so;
}

std::vector<std::unique_ptr<Source>> SafetensorsReader::Open(
    const std::vector<InputReport*>& files) const {
  std::vector<Plan> plans;
  for (InputReport* report : files) {
    absl::StatusOr<InputFile> file = InputFile::Open(report->path);
    if (!file.ok()) {
      report->Add(0, std::string(file.status().message()));
      continue;
    }
    SafetensorsHeader header;
    Plan plan;
    plan.file = report;
    if (ReadHeader(*file, report, &header, &plan.site) == nullptr) continue;
    report->runs.insert(plan.site.run);
    report->only_step = plan.site.step;
    plans.push_back(std::move(plan));
  }
  std::vector<std::unique_ptr<Source>> sources;
  if (!plans.empty()) sources.push_back(std::make_unique<DumpSource>(std::move(plans)));
  return sources;
}

}  // namespace plumbline::audit
