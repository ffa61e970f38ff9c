// Two checkpoints side by side: what changed, by tensor, layer and role.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "audit/checkpoints/names_map.h"
#include "audit/checkpoints/side.h"
#include "audit/checkpoints/tensor_change.h"
#include "audit/render/text_util.h"

namespace plumbline::audit {

// Tensors that belong together: a layer's, a role's.
struct ChangeGroup {
  std::string name;
  uint64_t tensors = 0, changed = 0;
  double squares_a = 0, squares_change = 0;
  double along = 0, before = 0, with_before = 0;  // of the cosine over all of them
  uint64_t rows = 0, rows_still = 0;
};

struct CheckpointChanges {
  std::vector<TensorChange> tensors;  // of both sides, in the order of A's files
  std::vector<std::string> only_a, only_b;
  std::vector<std::string> unfitted;  // patterns of the map that fit no name of A
  std::vector<std::pair<std::string, std::string>> renamed;  // of these, those with the same bits
  std::vector<ChangeGroup> layers, roles;                    // of weights; layers in the order of A
  bool with_before = false;                                  // a third checkpoint was given

  bool compared() const { return !tensors.empty(); }
};

// "layers.3" of "model.layers.3.mlp.weight", else the first part of the name.
std::string LayerOf(const std::string& name);
// "attention", "mlp", "experts", "router", "norm", "bias", "embedding", "head", "other".
std::string RoleOf(const std::string& name);

// `before`: the checkpoint before A, or nullptr. Spectra of the changes of `spectra` weights that
// moved most. `on_tensor` is called before each tensor with the number that are done.
absl::StatusOr<CheckpointChanges> CompareCheckpoints(const CheckpointSide& a,
                                                     const CheckpointSide& b,
                                                     const CheckpointSide* before,
                                                     const NamesMap& names, size_t spectra,
                                                     const std::function<void(size_t)>& on_tensor);

std::string ChangesText(const CheckpointSide& a, const CheckpointSide& b,
                        const CheckpointChanges& changes, const TextStyle& style);
// Schema "plumbline.checkpoint-diff/1". Strict JSON, ends with a newline.
std::string ChangesJson(const CheckpointSide& a, const CheckpointSide& b,
                        const CheckpointChanges& changes);

}  // namespace plumbline::audit
