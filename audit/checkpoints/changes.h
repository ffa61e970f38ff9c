// Compares two checkpoints: what changed, by tensor, layer and role.
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

// The tensors of one layer or of one role.
struct ChangeGroup {
  std::string name;
  uint64_t tensors = 0, changed = 0;
  double squares_a = 0, squares_change = 0;
  double along = 0, before = 0, with_before = 0;  // sums for the cosine over all tensors of the
                                                  // group
  uint64_t rows = 0, rows_still = 0;
};

struct CheckpointChanges {
  std::vector<TensorChange> tensors;  // tensors of both sides, in the order of A's files
  std::vector<std::string> only_a, only_b;
  std::vector<std::string> unfitted;  // patterns of the map that match none of A's names
  std::vector<std::pair<std::string, std::string>> renamed;  // pairs of `only_a` and `only_b` with
                                                             // the same bits
  std::vector<ChangeGroup> layers, roles;                    // groups of weights; layers in the
                                                             // order of A
  bool with_before = false;                                  // true if a third checkpoint was given

  bool compared() const { return !tensors.empty(); }
};

// Returns "layers.3" for "model.layers.3.mlp.weight"; if the name has no layer number, its first
// part.
std::string LayerOf(const std::string& name);
// Returns "attention", "mlp", "experts", "router", "norm", "bias", "embedding", "head" or "other".
std::string RoleOf(const std::string& name);

// Compares two checkpoints. `before` is the checkpoint before A, or nullptr. Computes spectra of
// the changes of the `spectra` weights that moved most. Calls `on_tensor` before each tensor with
// the number of tensors done.
absl::StatusOr<CheckpointChanges> CompareCheckpoints(const CheckpointSide& a,
                                                     const CheckpointSide& b,
                                                     const CheckpointSide* before,
                                                     const NamesMap& names, size_t spectra,
                                                     const std::function<void(size_t)>& on_tensor);

std::string ChangesText(const CheckpointSide& a, const CheckpointSide& b,
                        const CheckpointChanges& changes, const TextStyle& style);
// Returns strict JSON of schema "plumbline.checkpoint-diff/1" that ends with a newline.
std::string ChangesJson(const CheckpointSide& a, const CheckpointSide& b,
                        const CheckpointChanges& changes);

}  // namespace plumbline::audit
