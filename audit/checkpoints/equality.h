// Checks whether two checkpoints are equal in every bit of every tensor, even if their layouts and
// names differ.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "audit/checkpoints/names_map.h"
#include "audit/checkpoints/pieces.h"
#include "audit/checkpoints/side.h"

namespace plumbline::audit {

struct Unequal {
  std::string name;  // A's tensor; if A has none, B's
  std::string text;  // "element [3, 4] is 0.25 in A, 0.5 in B (12 of 64 differ)"
};

struct Equality {
  uint64_t tensors = 0;          // number of equal tensors, by name
  uint64_t bytes = 0;            // bytes of the equal tensors
  uint64_t values = 0;           // number of equal values that are not tensors
  std::vector<Unequal> unequal;  // in the order of A's files, then of B's
  // Kinds of tensors that only one side has, so that they cannot be compared, and tensors that the
  // map leaves out.
  std::vector<std::string> aside;
  std::vector<std::string> unread;  // tensors of both sides that could not be compared, with the
                                    // reason
  std::vector<std::string> notes;   // how tensors were joined; lines of the map that match nothing

  // True if one side is a converted form of the other (renamed, sharded, exported). Then values
  // other than tensors may be missing.
  bool conversion = false;
  bool kinds_aside = false;  // true if tensors of some kind were set aside

  // Returns true if everything that both sides have was compared and is equal.
  bool equal() const { return unequal.empty() && unread.empty(); }
};

// Compares two checkpoints for equality in dtype and bits. A's names are translated by the map.
// Calls `on_tensor` before each tensor with the number of tensors done.
// - If only one side has a whole kind (no optimizer in an export, no average), it is set aside and
//   reported.
// - If one side lacks a single value in a part that both have, that is a difference, unless one
//   side is a conversion.
// - Tensors of unsupported types are reported as unread.
// - All other values of the files (values.h) are compared too.
absl::StatusOr<Equality> ExpectEqual(const CheckpointSide& a, const CheckpointSide& b,
                                     const NamesMap& names,
                                     const std::function<void(size_t)>& on_tensor);

// Compares two tensors that must be equal. Returns true if they are. Otherwise adds an entry to
// `unequal` or `unread`.
absl::StatusOr<bool> CompareTensorPair(const ComparedTensor& a, const ComparedTensor& b,
                                       PieceReader* reader, Equality* out);

// Returns pairs (A's name, B's name) of tensors that each exist on one side only and have the same
// bits.
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> FindRenamed(
    const std::vector<const ComparedTensor*>& only_a,
    const std::vector<const ComparedTensor*>& only_b);

std::string EqualityText(const CheckpointSide& a, const CheckpointSide& b, const Equality& result);
// Returns strict JSON of schema "plumbline.equality/1" that ends with a newline.
std::string EqualityJson(const CheckpointSide& a, const CheckpointSide& b, const Equality& result);

}  // namespace plumbline::audit
