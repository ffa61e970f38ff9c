#include "audit/readers/checkpoint/whole_checkpoint.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "audit/readers/checkpoint/master_check.h"
#include "audit/readers/checkpoint/optimizer_names.h"
#include "base/dtype.h"

namespace plumbline::audit {
namespace {

bool Holds(std::string_view name, std::string_view part) {
  return name.find(part) != std::string_view::npos;
}

// The effect of tensor parallelism (Megatron's layout) on a weight. These are replicated: norms,
// biases that are added after a sum over the ranks, routers, position embeddings.
enum class Layout { kUnknown, kReplicated, kShard };

Layout LayoutOf(std::string_view name) {
  constexpr std::string_view kRowBiases[] = {"dense.bias",       "dense_4h_to_h.bias",
                                             "linear_proj.bias", "linear_fc2.bias",
                                             "o_proj.bias",      "down_proj.bias"};
  constexpr std::string_view kColumnBiases[] = {
      "query_key_value.bias", "dense_h_to_4h.bias", "linear_qkv.bias",
      "linear_fc1.bias",      "q_proj.bias",        "k_proj.bias",
      "v_proj.bias",          "up_proj.bias",       "gate_proj.bias"};
  for (const std::string_view bias : kRowBiases) {
    if (name.ends_with(bias)) return Layout::kReplicated;
  }
  for (const std::string_view bias : kColumnBiases) {
    if (name.ends_with(bias)) return Layout::kShard;
  }
  // A fused norm is stored next to a sharded weight: "linear_qkv.layer_norm_weight".
  if (Holds(name, "norm") || Holds(name, "router") || Holds(name, "position_embeddings"))
    return Layout::kReplicated;
  return Layout::kUnknown;
}

// The content of one file, while the checkpoint is assembled.
struct Share {
  const PlannedFile* plan = nullptr;
  size_t file = 0;
  CheckpointContents contents;
};

class Assembly {
 public:
  Assembly(std::span<const PlannedFile> plans, KnownNames* known) : plans_(plans), known_(*known) {}

  WholeCheckpoint Take() {
    for (const PlannedFile& plan : plans_) Open(plan);
    NameOptimizers();
    NameAverages();
    RateParameters();
    for (const Share& share : shares_) {
      for (const NamedTensor* tensor : Of(share, Part::kModel))
        named_with_module_ |= tensor->name.starts_with("module.");
    }
    for (Share& share : shares_) Site(share);
    FindMasters();
    FindShared();
    return std::move(out_);
  }

 private:
  void Open(const PlannedFile& plan) {
    absl::StatusOr<InputFile> file = InputFile::Open(plan.path);
    if (!file.ok()) return plan.report->Add(0, std::string(file.status().message()));
    Share share;
    share.plan = &plan;
    share.file = out_.files.size();
    auto kept = std::make_unique<InputFile>(*std::move(file));
    FileFindings reported;  // not used: the planner has reported these findings
    if (auto problem = ReadContents(plan.path, *kept, &share.contents, &reported))
      return plan.report->Add(problem->offset, std::move(problem->text));
    out_.files.push_back({plan.report, std::move(kept), plan.path});
    shares_.push_back(std::move(share));
  }

  // The states of random generators (rng_state.pth) are tensors of bytes, and no model.
  static bool HasOrderedModel(const Share& share) {
    if (!share.contents.ordered) return false;
    const std::vector<const NamedTensor*> model = Of(share, Part::kModel);
    return std::any_of(model.begin(), model.end(),
                       [](const NamedTensor* tensor) { return IsFloating(tensor->place.dtype); });
  }
  const Share* OrderedModel() const {
    const auto found = std::find_if(shares_.begin(), shares_.end(), HasOrderedModel);
    return found == shares_.end() ? nullptr : &*found;
  }

  // Names optimizer state. If its file has no model, uses the model of another file.
  void NameOptimizers() {
    const Share* model = OrderedModel();
    for (Share& share : shares_) {
      const Share* from = HasOrderedModel(share) ? &share : model;
      const std::vector<const NamedTensor*> state = Of(share, Part::kOptimizer);
      if (state.empty() || share.contents.groups.empty()) continue;
      std::map<int64_t, std::string> names;
      if (from != nullptr)
        names = NamesOfParameters(Of(*from, Part::kModel), state, share.contents.groups);
      const bool sorted = names.empty() && from == nullptr;
      if (sorted) names = NamesInTransformersOrder(SortedModel(), state, share.contents.groups);
      Recall(share, &names);
      size_t parameters = 0;
      for (const ParameterGroup& group : share.contents.groups)
        parameters += group.parameters.size();
      if (parameters > 0) {
        share.plan->report->Note("optimizer state: " + std::to_string(names.size()) + " of " +
                                 std::to_string(parameters) +
                                 (sorted && !names.empty()
                                      ? " parameters named by the module order of transformers"
                                      : " parameters named by order and shape"));
      }
      names_[&share] = std::move(names);
    }
  }

  // Returns the tensors of all model files that are sorted by name.
  std::vector<const NamedTensor*> SortedModel() const {
    std::vector<const NamedTensor*> model;
    for (const Share& share : shares_) {
      if (share.contents.ordered) continue;
      const std::vector<const NamedTensor*> part = Of(share, Part::kModel);
      model.insert(model.end(), part.begin(), part.end());
    }
    return model;
  }

  // Names averages that are a list (diffusers' and torch_ema's shadow_params), by the order of the
  // parameters, like optimizer state.
  void NameAverages() {
    const Share* model = OrderedModel();
    for (Share& share : shares_) {
      const Share* from = Of(share, Part::kModel).empty() ? model : &share;
      if (from == nullptr) continue;
      std::vector<NamedTensor> listed;
      ParameterGroup all;
      for (const NamedTensor* tensor : Of(share, Part::kAverage)) {
        if (!tensor->parameter) continue;
        listed.push_back({Part::kOptimizer, "exp_avg", tensor->parameter, "", tensor->place});
        all.parameters.push_back(*tensor->parameter);
      }
      if (listed.empty()) continue;
      std::vector<const NamedTensor*> state;
      for (const NamedTensor& tensor : listed) state.push_back(&tensor);
      const std::map<int64_t, std::string> names =
          NamesOfParameters(Of(*from, Part::kModel), state, {all});
      for (NamedTensor& tensor : share.contents.tensors) {
        if (tensor.part != Part::kAverage || !tensor.parameter) continue;
        const auto name = names.find(*tensor.parameter);
        if (name != names.end()) tensor.name = name->second;
      }
      share.plan->report->Note("averages: " + std::to_string(names.size()) + " of " +
                               std::to_string(listed.size()) +
                               " parameters named by order and shape");
    }
  }

  // If the groups are equal to those of the preceding checkpoint, uses the names that were found
  // there.
  void Recall(const Share& share, std::map<int64_t, std::string>* names) {
    std::vector<std::vector<int64_t>> groups;
    for (const ParameterGroup& group : share.contents.groups) groups.push_back(group.parameters);
    KnownNames::OfFile& known = known_.files[share.file];
    if (known.groups == groups) {
      std::set<std::string> taken;
      for (const auto& [number, name] : *names) taken.insert(name);
      for (const auto& [number, name] : known.names) {
        if (!taken.contains(name)) names->emplace(number, name);
      }
    }
    known.groups = std::move(groups);
    known.names = *names;
  }

  // Sets the learning rate of each parameter, and counts those with a name.
  void RateParameters() {
    size_t held = 0, named = 0;
    for (const Share& share : shares_) {
      std::set<int64_t> numbers;
      std::set<std::string> keys;
      for (const NamedTensor* tensor : Of(share, Part::kOptimizer)) {
        if (tensor->parameter) {
          numbers.insert(*tensor->parameter);
        } else if (keys.insert(tensor->parameter_name).second) {
          ++held;  // if the name is "", the parameter is unknown (a flat master of many parameters)
          named += tensor->parameter_name.empty() ? 0 : 1;
        }
      }
      for (const ParameterGroup& group : share.contents.groups) {
        for (const std::string& name : group.names) groups_[Staged(*share.plan, name)] = group;
      }
      if (numbers.empty()) continue;
      const std::map<int64_t, std::string>& names = names_[&share];
      for (const ParameterGroup& group : share.contents.groups) {
        numbers.insert(group.parameters.begin(), group.parameters.end());
        for (const int64_t parameter : group.parameters) {
          const auto name = names.find(parameter);
          const std::string layer =
              name != names.end() ? name->second : "optimizer." + std::to_string(parameter);
          groups_[Staged(*share.plan, layer)] = group;
        }
      }
      held += numbers.size();
      named += names.size();
    }
    out_.named = held == 0 ? 0 : static_cast<double>(named) / static_cast<double>(held);
  }

  static std::string Staged(const PlannedFile& plan, const std::string& name) {
    return plan.tag.stage > 0 ? "stage" + std::to_string(plan.tag.stage) + "." + name : name;
  }

  static std::vector<const NamedTensor*> Of(const Share& share, Part part) {
    std::vector<const NamedTensor*> out;
    for (const NamedTensor& tensor : share.contents.tensors) {
      if (tensor.part == part) out.push_back(&tensor);
    }
    return out;
  }

  void Site(Share& share) {
    for (NamedTensor& tensor : share.contents.tensors) {
      SitedTensor sited;
      sited.file = share.file;
      Name(share, tensor, &sited);
      sited.layer = Staged(*share.plan, sited.layer);
      if (const auto group = groups_.find(sited.layer); group != groups_.end())
        Hold(group->second, tensor, &sited);
      if (share.plan->tag.ranked) sited.replicas = ReplicasOf(*share.plan, tensor);
      sited.place = std::move(tensor.place);
      sited.call = calls_[{sited.layer, sited.op}]++;
      out_.tensors.push_back(std::move(sited));
    }
    for (const ParameterGroup& group : share.contents.groups) {
      if (group.rated) out_.rates.push_back(group.rate);
      out_.parameters += group.parameters.size() + group.names.size();
    }
    if (!out_.optimizer_step) out_.optimizer_step = share.contents.optimizer_step;
    if (!out_.scheduler_step) out_.scheduler_step = share.contents.scheduler_step;
  }

  static void Hold(const ParameterGroup& group, const NamedTensor& tensor, SitedTensor* sited) {
    if (tensor.part == Part::kModel && group.rated) sited->rate = group.rate;
    if (tensor.part != Part::kOptimizer || tensor.name != "exp_avg_sq") return;
    sited->beta1 = group.beta1;
    sited->beta2 = group.beta2;
    sited->epsilon = group.epsilon;
  }

  // Returns true for the names that optimizers use for the fp32 copy of a parameter.
  static bool IsMaster(std::string_view op) {
    return op == "master_param" || op == "master_weight" || op == "master" || op == "fp32_param";
  }

  void FindMasters() {
    std::map<std::string, size_t> masters;
    for (size_t i = 0; i < out_.tensors.size(); ++i) {
      if (IsMaster(out_.tensors[i].op)) masters.emplace(out_.tensors[i].layer, i);
    }
    for (SitedTensor& tensor : out_.tensors) {
      const auto master = masters.find(tensor.layer);
      if (tensor.role != "weight" || tensor.call > 0 || master == masters.end()) continue;
      if (CanCheckMaster(tensor.place, out_.tensors[master->second].place))
        tensor.master = master->second;
    }
  }

  // Finds weights that are one tensor under several names.
  void FindShared() {
    using Where = std::tuple<size_t, uint64_t, DType, std::vector<int64_t>, std::vector<int64_t>>;
    std::map<Where, size_t> first;
    for (size_t i = 0; i < out_.tensors.size(); ++i) {
      SitedTensor& tensor = out_.tensors[i];
      if (tensor.role != "weight" || tensor.place.elements() < 2) continue;
      const StoredTensor& place = tensor.place;
      const auto [at, is_new] =
          first.try_emplace({tensor.file, place.begin, place.dtype, place.shape, place.stride}, i);
      if (is_new) continue;
      out_.tensors[at->second].shared = tensor.shared = at->second;
    }
  }

  void Name(const Share& share, const NamedTensor& tensor, SitedTensor* sited) const {
    sited->layer = tensor.name;
    switch (tensor.part) {
      case Part::kModel:
        sited->op = IsFloating(tensor.place.dtype) ? "weight" : "buffer";
        sited->role = IsFloating(tensor.place.dtype) ? "weight" : "";
        return;
      case Part::kAverage:
        sited->op = "average";
        // torch.optim.swa_utils.AveragedModel has the model as its member `module`.
        if (sited->layer.starts_with("module.") && !named_with_module_)
          sited->layer.erase(0, std::string_view("module.").size());
        return;
      case Part::kOther:
        sited->op = "state";
        return;
      case Part::kOptimizer:
        break;
    }
    sited->op = "optimizer";
    if (!tensor.parameter && tensor.parameter_name.empty()) return;
    sited->op = tensor.name;
    sited->layer = tensor.parameter_name;
    if (!tensor.parameter) return;
    const auto names = names_.find(&share);
    sited->layer = "optimizer." + std::to_string(*tensor.parameter);
    if (names == names_.end()) return;
    const auto name = names->second.find(*tensor.parameter);
    if (name != names->second.end()) sited->layer = name->second;
  }

  // Returns the replica group of a tensor, or "" if unknown. Ranks of one group hold copies. A
  // shard has its own group.
  static std::string ReplicasOf(const PlannedFile& plan, const NamedTensor& tensor) {
    const std::string own = "shard of rank " + std::to_string(plan.rank);
    if (plan.tag.shard || tensor.part == Part::kOther || !IsFloating(tensor.place.dtype))
      return own;
    if (plan.tag.plain) return tensor.part == Part::kModel ? "" : own;
    // Optimizer state has the name of its parameter.
    const std::string& name = tensor.part == Part::kOptimizer && !tensor.parameter_name.empty()
                                  ? tensor.parameter_name
                                  : tensor.name;
    switch (LayoutOf(name)) {
      case Layout::kReplicated:
        return "tensor parallelism";
      case Layout::kShard:
        return own;
      case Layout::kUnknown:
        return tensor.part == Part::kModel ? "" : own;
    }
    return "";
  }

  std::span<const PlannedFile> plans_;
  KnownNames& known_;
  WholeCheckpoint out_;
  std::vector<Share> shares_;
  std::map<const Share*, std::map<int64_t, std::string>> names_;
  std::map<std::string, ParameterGroup> groups_;  // layer -> group
  // True if names of the model's own tensors begin with "module.".
  bool named_with_module_ = false;
  std::map<std::pair<std::string, std::string>, uint32_t> calls_;
};

}  // namespace

WholeCheckpoint ReadCheckpoint(std::span<const PlannedFile> plans, KnownNames* known) {
  return Assembly(plans, known).Take();
}

}  // namespace plumbline::audit
