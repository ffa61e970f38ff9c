#include "analysis/product/candidates.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace plumbline::analysis {
namespace {

using Sum = MatmulModel::Sum;
constexpr RoundingMode kNearest = RoundingMode::kNearestEven;
constexpr RoundingMode kZero = RoundingMode::kTowardZero;
constexpr int kLeastFraction = 10, kMostFraction = 36;
constexpr int kMostBlock = 64;

class Candidates {
 public:
  explicit Candidates(const MatmulCase& c)
      : c_(c),
        wide_(c.factor_bits() > FormatOf(DType::kF16).precision),
        wide_products_(wide_ || (c.block > 0 && !c.exact_blocks)) {
    const auto exact = [](double x) { return x != 0 && std::abs(x) == PowerOfTwo(std::ilogb(x)); };
    if (c.scale.empty() || std::all_of(c.scale.begin(), c.scale.end(), exact)) return;
    const bool narrow = FormatOf(c.d_dtype).precision < FormatOf(DType::kF32).precision;
    if (narrow || !c.c.empty()) scalings_.push_back(Scaling::kOnce);
    if (!c.scale_a.empty()) scalings_.push_back(Scaling::kTwice);
  }

  std::vector<MatmulModel> List() {
    if (c_.block > 0) ListBlocks();
    ListExact(InputCut::kNone);
    ListSequential();
    ListPairwise(InputCut::kNone);
    for (int g = 1; g <= kMostBlock; g *= 2) ListAligned(InputCut::kNone, g);
    ListPromoted();
    ListSplit();
    if (wide_) {
      for (const InputCut cut : {InputCut::kTf32Nearest, InputCut::kTf32Away, InputCut::kTf32Zero,
                                 InputCut::kBf16Nearest, InputCut::kBf16Zero})
        ListCut(cut);
    }
    return std::move(models_);
  }

 private:
  // Adds the model with every way to add the addend and to store.
  void Add(const MatmulModel& model) {
    for (const bool last : {false, true}) {
      if (Possible(last)) AddStored(model, last);
    }
  }

  // An addend comes last or not. After a scale it can only come last.
  bool Possible(bool last) const { return last ? !c_.c.empty() : c_.c.empty() || c_.scale.empty(); }

  void AddStored(const MatmulModel& model, bool last) {
    for (const RoundingMode store : {kNearest, kZero}) {
      const bool stores = FormatOf(c_.d_dtype).precision < FormatOf(model.accumulator).precision;
      if (store != kNearest && !stores) continue;
      for (const Scaling scaling : scalings_) {
        if (scaling != Scaling::kRounded && store != kNearest) continue;
        models_.push_back(model);
        models_.back().addend_last = last;
        models_.back().store = store;
        models_.back().scaling = scaling;
      }
    }
  }

  // Lists sums of the bare products of each block, scaled as they are added in f32; and factors
  // that were converted to bf16 with their scales.
  void ListBlocks() {
    std::vector<BlockScaling> ways = {BlockScaling::kRounded};
    if (!c_.exact_blocks)
      ways = {BlockScaling::kFused, BlockScaling::kRounded, BlockScaling::kTwice};
    for (const BlockScaling way : ways) {
      Add({.sum = Sum::kExact, .promote = c_.block, .blocks = way});
      Add({.sum = Sum::kSequential, .promote = c_.block, .blocks = way});
      for (int g = 4; g <= std::min(kMostBlock, c_.block); g *= 2) {
        MatmulModel m{.sum = Sum::kAligned, .rounding = kZero, .block = g, .promote = c_.block};
        m.blocks = way;
        AddFractions(m);
      }
    }
    ListInside();
    if (c_.exact_blocks) return;
    MatmulModel m{.sum = Sum::kExact, .accumulator = DType::kF32};
    m.blocks = BlockScaling::kFactorsBf16;
    Add(m);
    m.sum = Sum::kSequential;
    Add(m);
    m.sum = Sum::kAligned;
    m.rounding = kZero;
    for (int g = 4; g <= 32; g *= 2) {
      m.block = g;
      AddFractions(m);
    }
  }

  // Lists instructions that take blocks of several scales at once: 16 or 32 products each, of at
  // most 4 bits per factor, whose sum is exact.
  void ListInside() {
    constexpr int kMostInside = 8;
    if (c_.factor_bits() > FormatOf(DType::kE4M3).precision || c_.block > 32) return;
    for (int g = 1; g <= kMostInside && (g == 1 || g / 2 < c_.blocks()); g *= 2) {
      for (const RoundingMode rounding : {kZero, kNearest}) {
        MatmulModel m{.sum = Sum::kAligned, .rounding = rounding, .block = g};
        m.blocks = BlockScaling::kInside;
        AddFractions(m);
      }
    }
  }

  void ListExact(InputCut cut) {
    MatmulModel m{.cut = cut, .sum = Sum::kExact};
    m.accumulator = c_.d_dtype;
    for (const RoundingMode rounding : {kNearest, kZero}) {
      m.rounding = rounding;
      Add(m);
    }
    if (c_.d_dtype == DType::kF32) return;
    m.accumulator = DType::kF32;
    m.rounding = kNearest;
    Add(m);
  }

  // Returns the dtypes in which the sums may be kept.
  std::vector<DType> Accumulators() const {
    return {DType::kF32, DType::kF16, DType::kBF16, DType::kE4M3, DType::kE5M2};
  }
  // Products of factors of at most 11 bits are exact in f32, unless they are below its range.
  std::vector<bool> Fusions(DType accumulator) const {
    if (accumulator == DType::kF32 && !wide_products_) return {false};
    return {false, true};
  }

  void ListSequential() {
    for (const DType accumulator : Accumulators()) {
      for (const bool fused : Fusions(accumulator)) {
        Add({.sum = Sum::kSequential, .accumulator = accumulator, .fused = fused});
        if (accumulator != DType::kF32) continue;
        Add({.sum = Sum::kSequential, .rounding = kZero, .fused = fused});
      }
    }
    Add({.sum = Sum::kSequential, .accumulator = DType::kF64, .fused = true});
    for (const DType accumulator : Accumulators()) {
      for (const auto compensation :
           {MatmulModel::Compensation::kKahan, MatmulModel::Compensation::kNeumaier})
        Add({.sum = Sum::kSequential, .accumulator = accumulator, .compensation = compensation});
    }
  }

  void ListPairwise(InputCut cut) {
    for (const DType accumulator : Accumulators()) {
      if (cut != InputCut::kNone && accumulator != DType::kF32) continue;
      for (int leaf = 1; leaf <= 128 && leaf < c_.inner; leaf *= 2) {
        for (const auto tree : {MatmulModel::Tree::kNeighbours, MatmulModel::Tree::kHalves}) {
          // A power of two is split into the same halves.
          if (tree == MatmulModel::Tree::kHalves && (c_.inner & (c_.inner - 1)) == 0) continue;
          Add({.cut = cut,
               .sum = Sum::kPairwise,
               .accumulator = accumulator,
               .tree = tree,
               .leaf = leaf});
        }
      }
    }
  }

  // Blocks of K or more products are one model, and an accumulator that starts at zero has no
  // effect.
  bool WholeBlock(int g) const { return g >= c_.inner; }
  bool Redundant(int g) const { return g > 1 && g / 2 >= c_.inner; }

  void ListAligned(InputCut cut, int g) {
    if (Redundant(g)) return;
    for (const bool inside : {true, false}) {
      if (!inside && WholeBlock(g) && c_.c.empty()) continue;
      MatmulModel m{.cut = cut, .sum = Sum::kAligned, .block = g, .addend_inside = inside};
      for (const RoundingMode rounding : {kZero, kNearest}) {
        m.rounding = rounding;
        AddFractions(m);
      }
      AddShort(m);
      if (c_.d_dtype != DType::kF16 || cut != InputCut::kNone) continue;
      m.accumulator = DType::kF16;
      AddFractions(m);
    }
  }

  // Adds the accumulator cut to e8m13 between blocks, as in 8-bit tensor cores.
  void AddShort(MatmulModel m) {
    constexpr int kShort = 14;
    if (c_.factor_bits() > FormatOf(DType::kE4M3).precision || m.cut != InputCut::kNone) return;
    m.rounding = kZero;
    m.kept = kShort;
    AddFractions(m);
  }

  void AddFractions(MatmulModel model) {
    for (const bool last : {false, true}) {
      if (!Possible(last)) continue;
      for (int f = kLeastFraction; f <= kMostFraction; ++f) {
        model.fraction_bits = f;
        AddStored(model, last);
      }
    }
  }

  // Returns lengths after which partial sums may be stored: powers of two, the multiples of 8 up to
  // 1,024 that blocked products use, and equal shares of K.
  std::vector<int> Lengths() const {
    std::set<int> lengths;
    for (int n = 4; n < c_.inner; n *= 2) lengths.insert(n);
    for (int n = 8; n <= 1024 && n < c_.inner; n += 8) lengths.insert(n);
    for (const int n : Shares()) lengths.insert(n);
    return {lengths.begin(), lengths.end()};
  }

  std::vector<int> Shares() const {
    std::set<int> shares;
    for (const int parts : {2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 18, 20, 24, 28, 32, 48, 64}) {
      const int share = (c_.inner + parts - 1) / parts;
      for (const int unit : {1, 8, 16, 32, 64, 128}) {
        const int length = (share + unit - 1) / unit * unit;
        if (length < c_.inner) shares.insert(length);
      }
    }
    return {shares.begin(), shares.end()};
  }

  void ListPromoted() {
    for (const int n : Lengths()) {
      for (const bool fused : Fusions(DType::kF32))
        Add({.sum = Sum::kSequential, .fused = fused, .promote = n});
      if (n < 16 || (n & (n - 1)) != 0) continue;
      for (int g = 4; g <= std::min(kMostBlock, n); g *= 2)
        AddFractions({.sum = Sum::kAligned, .rounding = kZero, .block = g, .promote = n});
    }
  }

  // Parts in f32 are promoted sums. Parts in 16 bits are the loss that split-K can cause.
  void ListSplit() {
    const DType narrow = c_.d_dtype;
    if (FormatOf(narrow).precision > FormatOf(DType::kF16).precision) return;
    for (const int part : Shares()) {
      for (const DType reduce : {DType::kF32, narrow})
        Add({.sum = Sum::kExact, .part = part, .part_dtype = narrow, .reduce_dtype = reduce});
    }
  }

  void ListCut(InputCut cut) {
    ListExact(cut);
    Add({.cut = cut, .sum = Sum::kSequential});
    Add({.cut = cut, .sum = Sum::kSequential, .rounding = kZero});
    ListPairwise(cut);
    for (int g = 4; g <= 32; g *= 2) ListAligned(cut, g);
  }

  const MatmulCase& c_;
  const bool wide_;
  const bool wide_products_;  // of factors with scales that are not powers of two
  std::vector<Scaling> scalings_ = {Scaling::kRounded};
  std::vector<MatmulModel> models_;
};

}  // namespace

std::vector<MatmulModel> CandidateModels(const MatmulCase& c) { return Candidates(c).List(); }

std::vector<MatmulModel> PartVariants(const MatmulCase& c, const MatmulModel& split) {
  std::vector<MatmulModel> variants;
  MatmulModel m = split;
  m.sum = Sum::kSequential;
  variants.push_back(m);
  if (c.factor_bits() > FormatOf(DType::kF16).precision) {
    m.fused = true;
    variants.push_back(m);
  }
  m = split;
  m.sum = Sum::kAligned;
  m.rounding = kZero;
  for (int g = 4; g <= 32; g *= 2) {
    m.block = g;
    for (const int f : {13, 14, 22, 23, 24, 25, 26}) {
      m.fraction_bits = f;
      variants.push_back(m);
    }
  }
  return variants;
}

uint64_t VariantCount(const MatmulCase& c, const std::vector<MatmulModel>& models) {
  uint64_t count = 0;
  for (const MatmulModel& model : models)
    count += model.part > 0 ? PartVariants(c, model).size() : 0;
  return count;
}

}  // namespace plumbline::analysis
