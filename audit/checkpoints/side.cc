#include "audit/checkpoints/side.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "audit/readers/checkpoint/plan.h"

namespace plumbline::audit {
namespace {

TensorKind KindOf(const std::string& op) {
  if (op == "weight" || op == "buffer") return TensorKind::kModel;
  if (op == "average") return TensorKind::kAverage;
  return op == "state" ? TensorKind::kOther : TensorKind::kOptimizer;
}

void Collect(CheckpointSide* side, const WholeCheckpoint& whole, uint32_t rank,
             std::map<std::string, size_t>* known) {
  std::map<std::string, uint32_t> seen;  // names of this rank; a name may repeat
  for (const SitedTensor& sited : whole.tensors) {
    const TensorKind kind = KindOf(sited.op);
    std::string name =
        kind == TensorKind::kModel ? sited.layer : absl::StrCat(sited.layer, "/", sited.op);
    const uint32_t again = seen[name]++;
    if (again > 0) absl::StrAppend(&name, " (", again + 1, ")");
    const auto [at, is_new] = known->emplace(name, side->tensors.size());
    if (is_new) side->tensors.push_back({std::move(name), sited.layer, kind, {}});
    side->tensors[at->second].parts.push_back(
        {whole.files[sited.file].file.get(), sited.place, rank});
  }
}

// Returns true for trainer_state.json in a checkpoint's folder: transformers stores the trainer's
// state and log there.
bool IsOfCheckpoint(const std::string& path) {
  const std::filesystem::path file(path);
  return file.filename() == "trainer_state.json" &&
         StepOfName(std::filesystem::absolute(file).parent_path().filename().string()).has_value();
}

}  // namespace

bool CheckpointSide::failed() const {
  return std::any_of(inputs.reports.begin(), inputs.reports.end(),
                     [](const InputReport& report) { return report.failed(); });
}

bool CheckpointSide::Has(TensorKind kind) const {
  return std::any_of(tensors.begin(), tensors.end(),
                     [&](const ComparedTensor& tensor) { return tensor.kind == kind; });
}

std::vector<std::string> CheckpointSide::Layers() const {
  std::vector<std::string> out;
  for (const ComparedTensor& tensor : tensors) out.push_back(tensor.layer);
  return out;
}

bool IsCheckpointPath(const std::string& path) {
  const Inputs inputs = FindInputs({path}, nullptr);
  bool checkpoints = false, others = false;
  for (const Inputs::Set& set : inputs.sets) {
    const bool is = set.reader->format() == "checkpoint";
    checkpoints |= is;
    for (const InputReport* report : set.files) others |= !is && !IsOfCheckpoint(report->path);
  }
  return checkpoints && !others;
}

absl::StatusOr<std::unique_ptr<CheckpointSide>> ReadCheckpointSide(const std::string& path) {
  auto side = std::make_unique<CheckpointSide>();
  side->path = path;
  side->inputs = FindInputs({path}, nullptr);
  std::vector<InputReport*> files;
  for (const Inputs::Set& set : side->inputs.sets) {
    if (set.reader->format() == "checkpoint") files = set.files;
  }
  std::vector<PlannedFile> plans = PlanCheckpoints(files);
  // If there are checkpoints with steps, a model without a step is ignored.
  const bool series =
      std::any_of(plans.begin(), plans.end(), [](const PlannedFile& plan) { return !plan.apart; });
  if (series) std::erase_if(plans, [](const PlannedFile& plan) { return plan.apart; });
  if (plans.empty()) {
    std::string why;
    for (const InputReport& report : side->inputs.reports) {
      if (!report.problems.empty()) why = absl::StrCat(": ", report.Line(report.problems[0]));
    }
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected a readable checkpoint, found none", why));
  }
  std::set<std::string> runs;
  std::set<int64_t> steps;
  for (const PlannedFile& plan : plans) {
    runs.insert(plan.run);
    steps.insert(plan.step);
  }
  if (runs.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": expected one checkpoint, found ",
                                                   runs.size(), " runs: ", *runs.begin(), ", ",
                                                   *std::next(runs.begin())));
  }
  side->run = plans[0].run;
  side->step = *steps.rbegin();
  side->steps = steps.size();
  // The plans are ordered by step and rank, so the newest step is last.
  std::map<std::string, size_t> known;
  size_t first = 0;
  while (plans[first].step != side->step) ++first;
  while (first < plans.size()) {
    size_t last = first;
    while (last < plans.size() && plans[last].rank == plans[first].rank) ++last;
    KnownNames names;
    WholeCheckpoint& whole = side->ranks.emplace_back(
        ReadCheckpoint(std::span(plans).subspan(first, last - first), &names));
    Collect(side.get(), whole, plans[first].rank, &known);
    if (!side->reported_step) side->reported_step = plans[first].reported_step;
    if (side->rates.empty()) side->rates = whole.rates;
    if (!side->optimizer_step) side->optimizer_step = whole.optimizer_step;
    if (!side->scheduler_step) side->scheduler_step = whole.scheduler_step;
    first = last;
  }
  // The name selected the files, but the step in the content takes precedence.
  if (side->reported_step) side->step = *side->reported_step;
  return side;
}

}  // namespace plumbline::audit
