// Copies of one tensor on several ranks: who agrees with whom, and where two of them differ.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "analysis/frame/frame.h"
#include "base/archive.h"

namespace plumbline::rules {

// A tensor's content: two tensors of one digest, shape and dtype are the same bits.
struct Digest {
  uint64_t low = 0, high = 0;
  friend auto operator<=>(const Digest&, const Digest&) = default;
  void Persist(Archive& a) { a(low, high); }
};

// One call of one site, the ranks that say they hold copies (or say nothing), ascending.
struct Copies {
  std::string replicas;  // as declared; "": not declared
  uint32_t call = 0;
  std::vector<uint32_t> ranks;
  std::vector<const v1::TensorState*> states;  // parallel to ranks
  std::vector<Digest> digests;

  // Same dtype and shape, and each has a summary with a digest.
  bool comparable() const;
  bool equal() const;
  // Some value differs from another: a tensor of zeros or ones is the same wherever it is.
  bool varied() const;
  // Each holds NaN, and as many: of those the bits are anyone's.
  bool alike_in_nan() const;
  // The index of a rank of the strict majority; nullopt: there is none.
  std::optional<size_t> Majority() const;
};

// The tensors of a site and step by (replicas, call). Groups of one rank are left out.
std::vector<Copies> GroupCopies(const SiteStep& step);

// Sampled elements of two copies, bit by bit; NaN on both sides are the same whatever their bits.
struct Difference {
  uint64_t compared = 0;
  uint64_t telling = 0;        // of these, not zero in the first: zeros agree anywhere
  uint64_t agree = 0;          // of the telling ones, equal
  uint64_t differ = 0;         // of the compared ones
  bool whole = false;          // the sample is the tensor
  uint64_t element = 0;        // the first that differs, C order
  std::string bits_a, bits_b;  // hexadecimal, most significant first
  double value_a = 0, value_b = 0;
  int flipped_bits = 0;
};

// nullopt: not both sampled, or not at the same elements.
std::optional<Difference> Compare(const v1::TensorState& a, const v1::TensorState& b);

// "rank 3", "ranks 0, 1 and 12 more".
std::string RankList(const std::set<uint32_t>& ranks);

}  // namespace plumbline::rules
