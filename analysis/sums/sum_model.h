// A reconstructed sum: a tree, the format of each node, and the arithmetic. Also its replay.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "analysis/sums/arithmetic.h"
#include "analysis/sums/summation_tree.h"
#include "analysis/sums/target.h"

namespace plumbline::sums {

struct SumModel {
  Kind kind = Kind::kSum;
  DType input = DType::kF32;
  DType output = DType::kF32;
  SummationTree tree;
  std::vector<SumFormat> formats;  // of each inner node, in the tree's order
  std::vector<uint8_t> fused;      // [n]: 1 if a product enters its node unrounded
  SumFormat product;               // format that the other products are rounded to
  Arithmetic arithmetic;

  // Returns the format that most nodes have.
  SumFormat accumulator() const;
};

// Returns a model with one format at every node and all products rounded or all fused.
SumModel PlainModel(const Target& target, SummationTree tree, const SumFormat& format, bool fused);

// Returns a text such as "f32 adds, nearest-even; products fused; ..."
std::string ArithmeticInWords(const SumModel& model);

// Adds up one input as the model defines. Keeps scratch memory: not thread-safe, so use one replay
// per thread. The model must outlive the replay. Overflow gives infinities, which propagate as in
// IEEE 754.
class Replay {
 public:
  explicit Replay(const SumModel& model);
  double Run(absl::Span<const double> a, absl::Span<const double> b);

 private:
  Exact Leaf(size_t i) const;
  double JoinTwo(int node, int x, int y);
  double JoinAligned(const std::vector<int>& children, const Alignment& alignment,
                     const SumFormat& format, RoundingMode mode) const;
  double JoinExactly(const std::vector<int>& children, const SumFormat& format) const;
  double Flushed(double x, const SumFormat& format) const;
  int ExponentOf(int child) const;

  const SumModel& model_;
  std::vector<double> a_;  // as read by the function
  std::vector<double> b_;
  std::vector<Exact> values_;  // of leaves and nodes
};

}  // namespace plumbline::sums
