#include "audit/checkpoints/changes.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "analysis/weights/weights.h"
#include "audit/checkpoints/equality.h"

namespace plumbline::audit {
namespace {

bool IsNumber(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

bool Holds(const std::string& name, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return name.find(word) != std::string::npos; });
}

// Returns the group of this name. If there is none yet, appends it, so that groups stay in the
// order of the tensors.
ChangeGroup* GroupOf(std::vector<ChangeGroup>* groups, std::map<std::string, size_t>* known,
                     const std::string& name) {
  const auto [at, is_new] = known->emplace(name, groups->size());
  if (is_new) groups->push_back({.name = name});
  return &(*groups)[at->second];
}

// Adds a tensor to its group. Squares add up; the group's cosine is computed from inner products.
void AddTo(const TensorChange& change, ChangeGroup* group) {
  ++group->tensors;
  group->changed += change.differ > 0 ? 1 : 0;
  group->squares_a += change.squares_a;
  group->squares_change += change.squares_change;
  group->rows += change.rows;
  group->rows_still += change.rows_still;
  if (!change.cosine || !(change.squares_before > 0)) return;
  group->along += *change.cosine * std::sqrt(change.squares_before * change.squares_change);
  group->before += change.squares_before;
  group->with_before += change.squares_change;
}

void Group(CheckpointChanges* changes) {
  std::map<std::string, size_t> layers, roles;
  for (const TensorChange& change : changes->tensors) {
    if (change.kind != TensorKind::kModel || !change.wrong.empty()) continue;
    AddTo(change, GroupOf(&changes->layers, &layers, LayerOf(change.name)));
    AddTo(change, GroupOf(&changes->roles, &roles, RoleOf(change.name)));
  }
}

// Computes singular values of the changes of the `most` matrices with the largest relative change.
absl::Status AddSpectra(
    const std::map<std::string, std::pair<const ComparedTensor*, const ComparedTensor*>>& pairs,
    size_t most, PieceReader* reader, CheckpointChanges* changes) {
  std::vector<TensorChange*> moved;
  for (TensorChange& change : changes->tensors) {
    if (change.kind == TensorKind::kModel && change.shape.size() == 2 && change.squares_change > 0)
      moved.push_back(&change);
  }
  std::stable_sort(moved.begin(), moved.end(), [](const TensorChange* x, const TensorChange* y) {
    return x->relative() > y->relative();
  });
  std::vector<float> matrix;
  for (TensorChange* change : moved) {
    if (most == 0) break;
    const auto& [a, b] = pairs.at(change->name);
    if (absl::Status s = ReadChangeMatrix(*a, *b, reader, &matrix); !s.ok()) return s;
    if (matrix.empty()) continue;
    change->spectrum = LargestSingularValues(matrix, change->shape[0], change->shape[1]);
    --most;
  }
  return absl::OkStatus();
}

}  // namespace

std::string LayerOf(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '.');
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    if (IsNumber(parts[i + 1])) return absl::StrCat(parts[i], ".", parts[i + 1]);
  }
  // "model.embed_tokens.weight", "lm_head.weight"
  return parts.size() > 2 &&
                 (parts[0] == "model" || parts[0] == "module" || parts[0] == "transformer")
             ? parts[1]
             : parts[0];
}

std::string RoleOf(const std::string& name) {
  const std::string lower = absl::AsciiStrToLower(name);
  if (Holds(lower, {"norm", ".ln", "ln_"})) return "norm";
  if (lower.ends_with("bias")) return "bias";
  if (analysis::IsWordEmbedding(name) || analysis::IsPositionTable(name)) return "embedding";
  if (analysis::IsWordHead(name)) return "head";
  if (Holds(lower, {"router", "gate.weight", "gating"})) return "router";
  if (Holds(lower, {"expert"})) return "experts";
  if (Holds(lower, {"attn", "attention", "q_proj", "k_proj", "v_proj", "o_proj", "qkv"}))
    return "attention";
  if (Holds(lower, {"mlp", "ffn", "feed_forward", "fc", "_proj", "dense"})) return "mlp";
  return "other";
}

absl::StatusOr<CheckpointChanges> CompareCheckpoints(const CheckpointSide& a,
                                                     const CheckpointSide& b,
                                                     const CheckpointSide* before,
                                                     const NamesMap& names, size_t spectra,
                                                     const std::function<void(size_t)>& on_tensor) {
  CheckpointChanges out;
  out.with_before = before != nullptr;
  out.unfitted = names.Unfitted(a.Layers());
  std::map<std::string, const ComparedTensor*> of_b, of_before;
  for (const ComparedTensor& tensor : b.tensors) of_b[tensor.name] = &tensor;
  if (before != nullptr) {
    for (const ComparedTensor& tensor : before->tensors) of_before[tensor.name] = &tensor;
  }
  std::map<std::string, std::pair<const ComparedTensor*, const ComparedTensor*>> pairs;
  std::set<const ComparedTensor*> met;
  std::vector<const ComparedTensor*> only_a, only_b;
  // Pair the tensors by name (through the map) and measure each pair.
  PieceReader reader;
  size_t done = 0;
  for (const ComparedTensor& tensor : a.tensors) {
    on_tensor(done++);
    if (names.LeavesOut(tensor.layer) != nullptr) continue;
    const auto at = of_b.find(names.OfB(tensor.name, tensor.layer.size()));
    if (at == of_b.end()) {
      only_a.push_back(&tensor);
      continue;
    }
    met.insert(at->second);
    pairs[tensor.name] = {&tensor, at->second};
    const auto was = of_before.find(tensor.name);
    if (absl::Status s =
            MeasureChange(tensor, *at->second, was == of_before.end() ? nullptr : was->second,
                          &reader, &out.tensors.emplace_back());
        !s.ok())
      return s;
  }
  for (const ComparedTensor& tensor : b.tensors) {
    if (!met.contains(&tensor) && names.LeavesOut(tensor.layer) == nullptr)
      only_b.push_back(&tensor);
  }
  // Report unpaired tensors, and those that have the same bits under another name.
  for (const ComparedTensor* tensor : only_a) out.only_a.push_back(tensor->name);
  for (const ComparedTensor* tensor : only_b) out.only_b.push_back(tensor->name);
  auto renamed = FindRenamed(only_a, only_b);
  if (!renamed.ok()) return renamed.status();
  out.renamed = *std::move(renamed);
  if (absl::Status s = AddSpectra(pairs, spectra, &reader, &out); !s.ok()) return s;
  Group(&out);
  return out;
}

}  // namespace plumbline::audit
