// An arithmetic by which a dot product may have been computed: its treatment of the factors,
// partial sums, parts and result.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/archive.h"
#include "base/dtype.h"
#include "base/half.h"

namespace plumbline::analysis {

// The format to which f32 factors are cut before they are multiplied.
enum class InputCut : uint8_t {
  kNone,
  kTf32Nearest,
  kTf32Away,
  kTf32Zero,
  kBf16Nearest,
  kBf16Zero
};

// Where one scale per block of products (MXFP8, NVFP4, 128 x 128 tiles) is applied. kFactors,
// kFactorsBf16: to the factors, which are rounded to f32 or bf16 before they are multiplied.
// kFused, kRounded, kTwice: to each block's sum of unscaled products, before it is added to an f32
// sum. This is done in one operation, after rounding the product of sum and scale, or first with
// A's scale and then with B's. kInside: each block's exact scaled sum is aligned and added, as in
// tensor cores that take scales (NVFP4, MXFP4, MXFP8).
enum class BlockScaling : uint8_t { kFactors, kFactorsBf16, kFused, kRounded, kTwice, kInside };
// How the factor of a finished sum (D = scale A B) is applied: in f32 and then stored, in one
// rounding with the store, or as two factors in sequence.
enum class Scaling : uint8_t { kRounded, kOnce, kTwice };

// Returns one factor after the cut. Finite.
double CutInput(InputCut cut, double x);
// Returns the significand bits that the cut leaves; without a cut, those of `dtype`.
int CutBits(InputCut cut, DType dtype);

// A dot product of K products p_i, to which `c` may be added. Every partial sum is rounded to
// `accumulator` by `rounding`.
struct MatmulModel {
  enum class Sum : uint8_t {
    kExact,       // the exact sum, rounded once
    kSequential,  // one product after the other
    kPairwise,    // a tree over leaves of `leaf` products, each summed in sequence
    // Blocks of `block` products, as in tensor cores. Every product (and, if `addend_inside`, the
    // accumulator) is aligned to the block's largest exponent, and bits below 2^-fraction_bits of
    // it are cut. The sum of these terms is exact and rounded once. A product's exponent is the sum
    // of its factors' exponents, not normalised. A subnormal factor has the smallest exponent. With
    // BlockScaling::kInside a term is a block's scaled sum with its own exponent.
    kAligned,
  };
  // kSequential with a correction for the rounding loss (Kahan 1965; Neumaier 1974). It is so close
  // to the exact sum that it must be a separate candidate. Without it, the exact sum would be
  // named.
  enum class Compensation : uint8_t { kNone, kKahan, kNeumaier };
  // Shape of the tree: neighbours joined, then neighbours of those; or halves, where the first is
  // the larger, whether or not K is a power of two.
  enum class Tree : uint8_t { kNeighbours, kHalves };

  InputCut cut = InputCut::kNone;
  Sum sum = Sum::kSequential;
  DType accumulator = DType::kF32;
  RoundingMode rounding = RoundingMode::kNearestEven;
  bool fused = false;  // kSequential: products are not rounded before the addition
  Compensation compensation = Compensation::kNone;
  Tree tree = Tree::kNeighbours;
  int leaf = 1;
  int fraction_bits = 24;  // F
  int block = 8;           // g
  bool addend_inside = true;
  bool floored = false;  // aligned terms are cut towards minus infinity instead of zero
  int promote = 0;  // n: partial sums of n products are added to an f32 sum, to nearest; 0 means no
  int part = 0;     // split-K: products per part, each summed separately; 0 means no split
  DType part_dtype = DType::kF32;    // dtype in which parts are stored
  DType reduce_dtype = DType::kF32;  // dtype in which the parts are added, in sequence
  bool addend_last = false;          // c is added to the finished sum, instead of being its start
  RoundingMode store = RoundingMode::kNearestEven;  // into D's dtype
  // Significand bits that the accumulator keeps between blocks if they are fewer than its dtype's,
  // cut toward zero (e8m13: 14). 0 means all.
  int kept = 0;
  BlockScaling blocks = BlockScaling::kFactors;
  Scaling scaling = Scaling::kRounded;

  bool scales_sums() const {
    return blocks >= BlockScaling::kFused && blocks != BlockScaling::kInside;
  }
  bool operator==(const MatmulModel&) const = default;
  void Persist(Archive& a) {
    a(cut, sum, accumulator, rounding, fused, compensation, tree, leaf, fraction_bits, block);
    a(addend_inside, floored, promote, part, part_dtype, reduce_dtype, addend_last, store, kept);
    a(blocks, scaling);
  }
};

// Returns "exact", "sequential", "pairwise", "aligned", "promoted", "split-k" or "tf32" (any cut).
std::string FamilyOf(const MatmulModel& model);
// Returns the model's parameters by key of the contract: dtype, rounding, block, fraction_bits, ...
std::map<std::string, std::string> ParametersOf(const MatmulModel& model);
// Returns "fp32 one after the other", "aligned blocks of 8, 24 fraction bits, toward zero".
std::string Words(const MatmulModel& model);

// Returns true if partial sums keep fewer than `bits` bits below the largest term.
bool KeepsFewerBits(const MatmulModel& model, int bits);
// Returns true if parts of a split are stored in 16 bits or fewer.
bool NarrowParts(const MatmulModel& model);

}  // namespace plumbline::analysis
