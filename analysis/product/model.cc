#include "analysis/product/model.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace plumbline::analysis {
namespace {

using Sum = MatmulModel::Sum;

// Products after which a short sum is added to a wide one often enough: DeepSeek-V3 uses 128.
constexpr int kPromotedOften = 256;

// Returns an f32 value with its significand rounded to `bits` bits. f32's exponents are kept;
// subnormals have fewer bits.
double CutTo(double x, int bits, RoundingMode mode) {
  if (x == 0 || !std::isfinite(x)) return x;
  const int e = std::max(std::ilogb(x), FormatOf(DType::kF32).min_exponent);
  const double unit = PowerOfTwo(e - bits + 1);
  const double q = std::abs(x) / unit;
  const double whole = std::floor(q);
  const bool up = internal::RoundsUp(q - whole, std::fmod(whole, 2) != 0, x < 0, mode);
  return std::copysign((whole + (up ? 1 : 0)) * unit, x);
}

const char* CutName(InputCut cut) {
  switch (cut) {
    case InputCut::kNone:
      return "";
    case InputCut::kTf32Nearest:
      return "tf32-nearest";
    case InputCut::kTf32Away:
      return "tf32-nearest-away";
    case InputCut::kTf32Zero:
      return "tf32-truncated";
    case InputCut::kBf16Nearest:
      return "bf16-nearest";
    case InputCut::kBf16Zero:
      return "bf16-truncated";
  }
  return "";
}

const char* RoundingWord(RoundingMode mode) {
  return mode == RoundingMode::kTowardZero ? "toward-zero" : "nearest";
}

const char* SumName(Sum sum) {
  switch (sum) {
    case Sum::kExact:
      return "exact";
    case Sum::kSequential:
      return "sequential";
    case Sum::kPairwise:
      return "pairwise";
    case Sum::kAligned:
      return "aligned";
  }
  return "";
}

const char* CompensationWords(const MatmulModel& m) {
  switch (m.compensation) {
    case MatmulModel::Compensation::kNone:
      return "";
    case MatmulModel::Compensation::kKahan:
      return ", compensated (Kahan)";
    case MatmulModel::Compensation::kNeumaier:
      return ", compensated (Neumaier)";
  }
  return "";
}

// Returns "f32", or "e8m13" if fewer bits are kept between blocks.
std::string AccumulatorName(const MatmulModel& m) {
  return m.kept > 0 ? absl::StrCat("e8m", m.kept - 1) : DTypeName(m.accumulator);
}

const char* BlockWords(BlockScaling blocks) {
  switch (blocks) {
    case BlockScaling::kFactors:
      return "";
    case BlockScaling::kFactorsBf16:
      return ", factors scaled in bf16";
    case BlockScaling::kFused:
      return ", each block's sum scaled as it is added";
    case BlockScaling::kRounded:
      return ", each block's sum scaled and then added";
    case BlockScaling::kTwice:
      return ", each block's sum scaled twice and then added";
    case BlockScaling::kInside:
      return ", of each scale's sum of products, scaled";
  }
  return "";
}

std::string SumWords(const MatmulModel& m) {
  const std::string dtype = AccumulatorName(m);
  const std::string rounding =
      m.rounding == RoundingMode::kTowardZero ? ", rounded toward zero" : "";
  switch (m.sum) {
    case Sum::kExact:
      return absl::StrCat("exact, rounded once to ", dtype, rounding);
    case Sum::kSequential:
      return absl::StrCat(dtype, " one product after the other", m.fused ? " (fused)" : "",
                          CompensationWords(m), rounding);
    case Sum::kPairwise:
      return absl::StrCat(dtype, " pairwise",
                          m.tree == MatmulModel::Tree::kHalves ? " by halves" : " by neighbours",
                          m.leaf > 1 ? absl::StrCat(", leaves of ", m.leaf) : "", rounding);
    case Sum::kAligned:
      return absl::StrCat("aligned blocks of ", m.block, ", ", m.fraction_bits, " fraction bits",
                          m.addend_inside ? "" : ", accumulator outside",
                          m.floored ? ", floored" : "", ", ", dtype,
                          m.rounding == RoundingMode::kTowardZero ? " toward zero" : " to nearest");
  }
  return "";
}

}  // namespace

double CutInput(InputCut cut, double x) {
  switch (cut) {
    case InputCut::kNone:
      return x;
    case InputCut::kTf32Nearest:
      return CutTo(x, 11, RoundingMode::kNearestEven);
    case InputCut::kTf32Away:
      return CutTo(x, 11, RoundingMode::kNearestAway);
    case InputCut::kTf32Zero:
      return CutTo(x, 11, RoundingMode::kTowardZero);
    case InputCut::kBf16Nearest:
      return CutTo(x, 8, RoundingMode::kNearestEven);
    case InputCut::kBf16Zero:
      return CutTo(x, 8, RoundingMode::kTowardZero);
  }
  return x;
}

int CutBits(InputCut cut, DType dtype) {
  const int bits = FormatOf(dtype).precision;
  if (cut == InputCut::kNone) return bits;
  const bool bf16 = cut == InputCut::kBf16Nearest || cut == InputCut::kBf16Zero;
  return std::min(bits, bf16 ? 8 : 11);
}

std::string FamilyOf(const MatmulModel& m) {
  if (m.cut != InputCut::kNone) return "tf32";
  if (m.part > 0) return "split-k";
  if (m.promote > 0) return "promoted";
  return SumName(m.sum);
}

std::map<std::string, std::string> ParametersOf(const MatmulModel& m) {
  std::map<std::string, std::string> p;
  p["sum"] = SumName(m.sum);
  p["dtype"] = AccumulatorName(m);
  p["rounding"] = RoundingWord(m.rounding);
  if (m.cut != InputCut::kNone) p["inputs"] = CutName(m.cut);
  if (m.sum == Sum::kSequential) p["products"] = m.fused ? "fused" : "rounded";
  if (m.compensation != MatmulModel::Compensation::kNone) {
    const bool kahan = m.compensation == MatmulModel::Compensation::kKahan;
    p["compensation"] = kahan ? "Kahan" : "Neumaier";
  }
  if (m.sum == Sum::kPairwise) {
    p["tree"] = m.tree == MatmulModel::Tree::kHalves ? "halves" : "neighbours";
    p["leaf"] = absl::StrCat(m.leaf);
  }
  if (m.sum == Sum::kAligned) {
    p["fraction_bits"] = absl::StrCat(m.fraction_bits);
    p["block"] = absl::StrCat(m.block);
    p["addend"] = m.addend_inside ? "inside" : "outside";
    if (m.floored) p["alignment"] = "floored";
  }
  if (m.promote > 0) p["promote"] = absl::StrCat(m.promote);
  if (m.part > 0) {
    p["part"] = absl::StrCat(m.part);
    p["partials"] = DTypeName(m.part_dtype);
    p["reduce"] = DTypeName(m.reduce_dtype);
  }
  if (m.blocks == BlockScaling::kFactorsBf16) p["scaled"] = "factors in bf16";
  if (m.scales_sums()) p["scaled"] = "block sums";
  if (m.blocks == BlockScaling::kInside) p["scaled"] = "block sums, inside";
  if (m.addend_last) p["c"] = "last";
  p["output"] = RoundingWord(m.store);
  return p;
}

std::string Words(const MatmulModel& m) {
  std::string words = SumWords(m);
  if (m.cut != InputCut::kNone) words = absl::StrCat("inputs cut to ", CutName(m.cut), ", ", words);
  if (m.promote > 0) absl::StrAppend(&words, ", added in f32 every ", m.promote);
  if (m.part > 0) {
    absl::StrAppend(&words, ", in parts of ", m.part, " stored in ", DTypeName(m.part_dtype),
                    " and added in ", DTypeName(m.reduce_dtype));
  }
  words += BlockWords(m.blocks);
  if (m.scaling == Scaling::kOnce) words += ", scaled and stored in one rounding";
  if (m.scaling == Scaling::kTwice) words += ", scaled twice";
  if (m.addend_last) words += ", the addend last";
  if (m.store == RoundingMode::kTowardZero) words += ", stored toward zero";
  return words;
}

bool KeepsFewerBits(const MatmulModel& m, int bits) {
  // An exact sum keeps all bits; its output dtype is a separate matter. A compensated sum carries
  // as many bits again.
  if (m.sum == Sum::kExact || m.compensation != MatmulModel::Compensation::kNone) return false;
  if (FormatOf(m.accumulator).precision - 1 < bits) return true;
  // If a short sum is added in f32 every few products, its loss does not grow with K.
  if (m.promote > 0 && m.promote <= kPromotedOften) return false;
  if (m.kept > 0 && m.kept - 1 < bits) return true;
  return m.sum == Sum::kAligned && m.fraction_bits < bits;
}

bool NarrowParts(const MatmulModel& m) {
  return m.part > 0 && FormatOf(m.part_dtype).precision <= FormatOf(DType::kF16).precision;
}

}  // namespace plumbline::analysis
