// Compares copies of one tensor on several ranks: which agree, and where two of them differ.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "analysis/frame/frame.h"
#include "base/archive.h"

namespace plumbline::analysis {

// A hash of a tensor's content: two tensors with the same digest, shape and dtype have the same
// bits.
struct Digest {
  uint64_t low = 0, high = 0;
  friend auto operator<=>(const Digest&, const Digest&) = default;
  void Persist(Archive& a) { a(low, high); }
};

// One call of one site, with the ranks that declare copies (or declare nothing), ascending.
struct Copies {
  std::string replicas;  // as declared; "" if not declared
  uint32_t call = 0;
  std::vector<uint32_t> ranks;
  std::vector<const v1::TensorState*> states;  // parallel to ranks
  std::vector<Digest> digests;

  // True if dtypes and shapes are equal, and each has a summary with a digest.
  bool comparable() const;
  bool equal() const;
  // True if some values differ: a tensor of zeros or ones is equal everywhere.
  bool varied() const;
  // True if each has equally many NaN, whose bits may differ.
  bool alike_in_nan() const;
  // Returns the index of a rank of the strict majority. If there is none, returns nullopt.
  std::optional<size_t> Majority() const;
};

// Returns the tensors of a site and step by (replicas, call). Groups of one rank are left out.
std::vector<Copies> GroupCopies(const SiteStep& step);

// Bitwise comparison of the sampled elements of two copies. NaN on both sides are equal for any
// bits.
struct Difference {
  uint64_t compared = 0;
  uint64_t informative =
      0;                 // of `compared`: non-zero in the first copy, because zeros agree anyway
  uint64_t agree = 0;    // of `informative`: those that are equal
  uint64_t differ = 0;   // of `compared`: those that differ
  bool whole = false;    // the sample is the whole tensor
  uint64_t element = 0;  // the first that differs, C order
  std::string bits_a, bits_b;  // hexadecimal, most significant first
  double value_a = 0, value_b = 0;
  int flipped_bits = 0;
};

// Returns nullopt if not both are sampled, or not at the same elements.
std::optional<Difference> Compare(const v1::TensorState& a, const v1::TensorState& b);

// Returns "rank 3" or "ranks 0, 1 and 12 more".
std::string RankList(const std::set<uint32_t>& ranks);

}  // namespace plumbline::analysis
