// Are two checkpoints equal, in every bit of every tensor, whatever their layouts and names?
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
  std::string name;  // of A's tensor, or of B's where A has none
  std::string text;  // "element [3, 4] is 0.25 in A, 0.5 in B (12 of 64 differ)"
};

struct Equality {
  uint64_t tensors = 0;          // equal ones, by name
  uint64_t bytes = 0;            // of these
  uint64_t values = 0;           // equal ones beside them
  std::vector<Unequal> unequal;  // in the order of A's files, then of B's
  // What only one side has, so that nothing can be held against it; what the map leaves out.
  std::vector<std::string> aside;
  std::vector<std::string> unread;  // tensors of both sides that could not be compared, and why
  std::vector<std::string> notes;  // how tensors were laid together; lines of the map that fit none

  // One side is another form of the other (renamed, cut into shards, exported): values beside its
  // tensors may be missing.
  bool conversion = false;
  bool kinds_aside = false;  // tensors of some kind were set aside

  // All that both sides have was compared, and is the same.
  bool equal() const { return unequal.empty() && unread.empty(); }
};

// What only one side has at all (no optimizer in an export, no average) is set aside and said; a
// value that one side lacks beside others that both have is a difference, but of a conversion;
// tensors of types that are not read leave the answer open. Whatever both sides tell beside their
// tensors (values.h) counts as tensors do. Names: A's as the map has them. Equal is equal in dtype
// and bits. `on_tensor` is called before each with the number that are done.
absl::StatusOr<Equality> ExpectEqual(const CheckpointSide& a, const CheckpointSide& b,
                                     const NamesMap& names,
                                     const std::function<void(size_t)>& on_tensor);

// Of two tensors that are to be the same. True: they are; else one more is told as unequal or
// unread.
absl::StatusOr<bool> CompareTensorPair(const ComparedTensor& a, const ComparedTensor& b,
                                       PieceReader* reader, Equality* out);

// Of tensors that only one side has: those whose bits another name has on the other side, as pairs
// of A's name and B's.
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> FindRenamed(
    const std::vector<const ComparedTensor*>& only_a,
    const std::vector<const ComparedTensor*>& only_b);

std::string EqualityText(const CheckpointSide& a, const CheckpointSide& b, const Equality& result);
// Schema "plumbline.equality/1". Strict JSON, ends with a newline.
std::string EqualityJson(const CheckpointSide& a, const CheckpointSide& b, const Equality& result);

}  // namespace plumbline::audit
