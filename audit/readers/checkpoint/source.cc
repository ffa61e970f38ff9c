#include "audit/readers/checkpoint/source.h"

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "audit/readers/checkpoint/block_formats.h"
#include "audit/readers/checkpoint/index.h"
#include "audit/readers/checkpoint/master_check.h"
#include "audit/readers/checkpoint/measured.h"
#include "audit/readers/checkpoint/whole_checkpoint.h"
#include "kernels/evidence/tensor_state.h"

namespace plumbline::audit {
namespace {

class CheckpointSource : public Source {
 public:
  CheckpointSource(std::vector<PlannedFile> plans, bool block_fits)
      : plans_(std::move(plans)), block_fits_(block_fits) {
    for (const PlannedFile& plan : plans_) {
      ranks_[plan.run].insert(plan.rank);
      plan.report->runs.insert(plan.run);
      plan.report->only_step = plan.step;
    }
  }

  Position position() const override {
    if (next_ == plans_.size() && !open_) return {};
    const PlannedFile& plan = plans_[open_ ? first_ : next_];
    return {plan.run, 0, plan.step - 1};
  }

  // Returns one tensor per batch. The first tensor of a checkpoint comes with its numbers, and the
  // last tensor of a step with progress.
  bool Next(v1::Batch* batch) override {
    if (!open_ && next_ == plans_.size()) return false;
    batch->Clear();
    if (!open_) OpenNext();
    const PlannedFile& plan = plans_[first_];
    *batch->add_sources() = Process(plan.run, plan.rank);
    if (tensor_ == 0) AddNumbers(batch);
    if (tensor_ < whole_.tensors.size()) AddTensor(tensor_++, batch);
    if (tensor_ >= whole_.tensors.size()) Close(batch);
    return true;
  }

  void Refused(const absl::Status& why) override {
    plans_[first_].report->Add(0, "expected valid evidence, found: " + std::string(why.message()));
  }

  uint64_t bytes_read() const override { return bytes_read_; }
  size_t files_done() const override { return next_; }

  std::vector<v1::Source> processes() const override {
    std::vector<v1::Source> all;
    for (const auto& [run, ranks] : ranks_) {
      for (const uint32_t rank : ranks) all.push_back(Process(run, rank));
    }
    return all;
  }

 private:
  // Opens the files of the next (run, step, rank).
  void OpenNext() {
    first_ = next_;
    const PlannedFile& plan = plans_[first_];
    const auto same = [&](const PlannedFile& other) {
      return other.run == plan.run && other.step == plan.step && other.rank == plan.rank;
    };
    while (next_ < plans_.size() && same(plans_[next_])) ++next_;
    whole_ = ReadCheckpoint(std::span(plans_).subspan(first_, next_ - first_),
                            &known_[{plan.run, plan.rank}]);
    measurer_.Open(&whole_);
    tensor_ = 0;
    order_ = 0;
    open_ = true;
  }

  v1::Source Process(const std::string& run, uint32_t rank) const {
    const std::set<uint32_t>& ranks = ranks_.at(run);
    v1::Source process;
    process.set_run(run);
    process.set_role(v1::ROLE_TRAINER);
    process.set_rank(rank);
    if (*ranks.rbegin() + uint64_t{1} == ranks.size())
      process.set_world_size(static_cast<uint32_t>(ranks.size()));
    return process;
  }

  static std::string FileName(const std::string& path) {
    return std::filesystem::path(path).filename().string();
  }

  v1::Evidence* AddEvidence(const std::string& layer, const std::string& op, v1::Batch* batch) {
    v1::Evidence* evidence = batch->add_evidence();
    evidence->set_step(plans_[first_].step);
    evidence->mutable_site()->set_layer(layer);
    evidence->mutable_site()->set_op(op);
    return evidence;
  }

  void AddNumber(const std::string& layer, const std::string& name, double value,
                 v1::Batch* batch) {
    v1::Evidence* evidence = AddEvidence(layer, name, batch);
    evidence->mutable_scalar()->set_value(value);
    evidence->set_sample_size(1);
  }

  void AddNumbers(v1::Batch* batch) {
    for (size_t i = first_; i < next_; ++i) {
      if (plans_[i].reported_step)
        AddNumber(FileName(plans_[i].path), "content.step",
                  static_cast<double>(*plans_[i].reported_step), batch);
    }
    for (size_t i = 0; i < whole_.rates.size() && i < kMostRates; ++i)
      AddNumber("", i == 0 ? "lr" : "lr." + std::to_string(i), whole_.rates[i], batch);
    AddNumber("", "optimizer.named", whole_.named, batch);
    if (TiesEmbedding(plans_[first_].path)) AddNumber("", "tied.declared", 1, batch);
    if (whole_.parameters > 0)
      AddNumber("", "optimizer.held", static_cast<double>(whole_.parameters), batch);
    if (whole_.optimizer_step) AddNumber("", "optimizer.step", *whole_.optimizer_step, batch);
    if (whole_.scheduler_step) AddNumber("", "scheduler.step", *whole_.scheduler_step, batch);
  }

  void AddTensor(size_t index, v1::Batch* batch) {
    const SitedTensor& tensor = whole_.tensors[index];
    const WholeCheckpoint::Part& part = whole_.files[tensor.file];
    ++part.report->records;
    bytes_read_ += tensor.place.bytes();
    if (DTypeSize(tensor.place.dtype) == 0) {
      if (unread_.insert(tensor.place.dtype_name).second) {
        part.report->Note("tensors of dtype " + Quoted(tensor.place.dtype_name) +
                          " are listed but not read");
      }
      return;
    }
    MeasuredTensor measured = measurer_.Take(index);
    if (!measured.status.ok())
      return part.report->Add(tensor.place.begin, std::string(measured.status.message()));
    const TensorStats& stats = measured.stats;
    if (const char* why = NotJudged(tensor, stats))
      return part.report->Note(Quoted(tensor.layer) + why);
    TensorView view;
    view.dtype = tensor.place.dtype;
    view.rank = static_cast<int>(tensor.place.shape.size());
    for (size_t i = 0; i < tensor.place.shape.size(); ++i) view.shape[i] = tensor.place.shape[i];
    TensorStateOptions options;
    options.role = tensor.role;
    options.replicas = tensor.replicas;
    v1::Evidence* evidence = AddEvidence(tensor.layer, tensor.op, batch);
    evidence->set_call(tensor.call);
    evidence->set_order(++order_);
    evidence->set_sample_size(stats.count);
    evidence->set_exercised(v1::EXERCISED_YES);
    if (tensor.rate && tensor.call == 0) AddNumber(tensor.layer, "held", *tensor.rate, batch);
    if (tensor.shared)
      AddNumber(tensor.layer, "storage", static_cast<double>(*tensor.shared), batch);
    FillTensorFigures(view, stats, options, evidence->mutable_tensor());
    if (measured.sample) measured.sample->Fill(evidence->mutable_tensor()->mutable_sample());
    if (block_fits_ && tensor.role == "weight") {
      if (absl::Status status = MeasureBlocks(*part.file, tensor.place, &measurer_.scan(),
                                              evidence->mutable_tensor());
          !status.ok())
        return part.report->Add(tensor.place.begin, std::string(status.message()));
    }
    if (tensor.beta1) AddNumber(tensor.layer, "held.beta1", *tensor.beta1, batch);
    if (tensor.beta2) AddNumber(tensor.layer, "held.beta2", *tensor.beta2, batch);
    if (tensor.epsilon) AddNumber(tensor.layer, "held.eps", *tensor.epsilon, batch);
    if (measured.rows) AddRows(tensor, *measured.rows, batch);
    if (tensor.master) AddMaster(tensor, batch);
  }

  // Returns the reason if a tensor is not judged: its infinities are intended, or it is not part of
  // the model. Otherwise returns nullptr.
  static const char* NotJudged(const SitedTensor& tensor, const TensorStats& stats) {
    const uint64_t infinite = stats.pos_inf + stats.neg_inf;
    // A mask has -inf for hidden places and one value elsewhere. An observer of ranges begins at
    // +-inf.
    const bool rest_is_zero = stats.zero + infinite == stats.count;
    const bool hides = stats.pos_inf == 0 && 20 * stats.neg_inf >= stats.count;
    if (tensor.op == "weight" && !tensor.rate && infinite > 0 && stats.nan == 0 &&
        (rest_is_zero || hides))
      return ": infinite, and in no optimizer: treated as a mask or a bound, not judged";
    if (tensor.op == "state" && stats.count == 1 && infinite + stats.nan > 0)
      return ": a NaN or infinite number that is not part of the model: not judged";
    return nullptr;
  }

  // Adds the digests of a weight's rows as a separate tensor, with the repeated rows.
  void AddRows(const SitedTensor& tensor, const RowDigests& rows, v1::Batch* batch) {
    v1::Evidence* evidence = AddEvidence(tensor.layer, "rows", batch);
    evidence->set_call(tensor.call);
    evidence->set_sample_size(rows.looked_at());
    v1::TensorState& state = *evidence->mutable_tensor();
    state.set_dtype(v1::DTYPE_U64);
    state.set_role("row-digests");
    state.add_shape(tensor.place.shape[0]);
    std::vector<uint64_t> digests, indices;
    for (const RepeatedRow& row : rows.Repeated()) {
      digests.push_back(row.digest);
      indices.push_back(row.row);
    }
    if (digests.empty()) return;
    FillWords(digests, state.mutable_sample()->mutable_values());
    FillWords(indices, state.mutable_sample()->mutable_offsets());
  }

  void AddMaster(const SitedTensor& tensor, v1::Batch* batch) {
    const SitedTensor& master = whole_.tensors[*tensor.master];
    const WholeCheckpoint::Part& part = whole_.files[tensor.file];
    MasterCheck check;
    if (absl::Status status = CheckMaster(*part.file, tensor.place, *whole_.files[master.file].file,
                                          master.place, &check);
        !status.ok())
      return part.report->Add(tensor.place.begin, std::string(status.message()));
    AddNumber(tensor.layer, "master.compared", static_cast<double>(check.compared), batch);
    AddNumber(tensor.layer, "master.differ", static_cast<double>(check.differ), batch);
    if (check.differ == 0) return;
    AddNumber(tensor.layer, "master.beyond", static_cast<double>(check.beyond), batch);
    AddNumber(tensor.layer, "master.first", static_cast<double>(check.first), batch);
    AddNumber(tensor.layer, "master.weight", check.weight, batch);
    AddNumber(tensor.layer, "master.value", check.master, batch);
  }

  static void FillWords(const std::vector<uint64_t>& words, v1::Tensor* out) {
    out->set_dtype(v1::DTYPE_U64);
    out->add_shape(static_cast<int64_t>(words.size()));
    out->set_data(words.data(), words.size() * sizeof(uint64_t));
  }

  // Closes the checkpoint. If no other rank's checkpoint of this step follows, ends the step.
  void Close(v1::Batch* batch) {
    open_ = false;
    whole_ = {};
    const PlannedFile& plan = plans_[first_];
    if (next_ < plans_.size() && plans_[next_].run == plan.run && plans_[next_].step == plan.step)
      return;
    for (const uint32_t rank : ranks_.at(plan.run)) {
      if (rank != plan.rank) *batch->add_sources() = Process(plan.run, rank);
    }
    for (int i = 0; i < batch->sources_size(); ++i) {
      v1::Progress& progress = *batch->add_progress();
      progress.set_source(static_cast<uint32_t>(i));
      progress.set_any_step(true);
      progress.set_complete_through(plan.step);
      progress.set_newest_step(plan.step);
    }
  }

  static constexpr size_t kMostRates = 16;

  std::vector<PlannedFile> plans_;
  bool block_fits_;
  std::map<std::string, std::set<uint32_t>> ranks_;  // run -> its ranks
  // Index of the first plan that is not opened yet.
  size_t next_ = 0;
  size_t first_ = 0;  // first plan of the open checkpoint
  bool open_ = false;
  WholeCheckpoint whole_;
  size_t tensor_ = 0;   // next tensor of the open checkpoint
  uint64_t order_ = 0;  // number of observations of the open checkpoint
  std::map<std::pair<std::string, uint32_t>, KnownNames> known_;
  TensorMeasurer measurer_;
  std::set<std::string> unread_;
  uint64_t bytes_read_ = 0;
};

}  // namespace

std::unique_ptr<Source> OpenCheckpoints(std::vector<PlannedFile> plans, bool block_fits) {
  return std::make_unique<CheckpointSource>(std::move(plans), block_fits);
}

}  // namespace plumbline::audit
