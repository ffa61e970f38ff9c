#include "analysis/product/analysis.h"

#include <algorithm>
#include <cmath>

#include "analysis/frame/frame.h"
#include "analysis/product/terms.h"
#include "base/half.h"

namespace plumbline::analysis {
namespace {

constexpr int kTf32Bits = 11;

bool IsCut(const MatmulModel& m) { return m.cut != InputCut::kNone; }

// Returns the cut of the class, if all of it cuts.
InputCut CutOf(const MatmulReplay& replay) {
  return replay.Holds(IsCut) ? replay.accepted[0].cut : InputCut::kNone;
}

class Measure {
 public:
  Measure(MatmulAnalysis& a, InputCut cut) : a_(a), cut_(cut) { a_.cut = cut != InputCut::kNone; }

  void Run() {
    for (int i = 0; i < a_.c.samples; ++i) Take(i);
    a_.effective_bits = measured_ == 0 ? 0 : -0.5 * std::log2(squares_ / measured_);
    a_.toward_zero = inexact_ == 0 ? 0 : static_cast<double>(small_) / inexact_;
    a_.stochastic_z = spread_ > 0 ? surplus_ / std::sqrt(spread_) : 0;
    if (a_.beyond > 0) a_.common_factor = CommonFactor();
  }

 private:
  // The value of D without any rounding, and the quantities that bound its error.
  struct Exact {
    ExactSum sum;
    double mass = 0, squares = 0;
  };

  void Take(int i) {
    terms_.Load(a_.c, i, cut_);
    const double c = a_.c.c.empty() ? 0 : a_.c.c[static_cast<size_t>(i)];
    const bool apart = a_.c.apart[static_cast<size_t>(i)];
    if (!terms_.finite || !std::isfinite(c)) return apart ? a_.errors.TakeAside() : void();
    Exact exact;
    if (a_.c.scaled()) {
      exact = Scaled(i);
    } else {
      exact = {terms_.exact, terms_.total, terms_.squares};
    }
    exact.sum.Add(c);
    exact.mass += std::abs(c);
    exact.squares += c * c;
    const double d = a_.c.d[static_cast<size_t>(i)];
    SumError error = ErrorOf(d, exact.sum, exact.squares, a_.c.d_dtype);
    error.e *= BiasUnitScale(a_.c.d_dtype);
    if (apart) a_.errors.Take(error);
    Compare(i, d, exact.sum, exact.mass);
  }

  // Computes every product with the scales of its blocks and of D, as the part that a double holds
  // plus the rest.
  Exact Scaled(int i) const {
    const MatmulCase& c = a_.c;
    Exact out;
    const double whole = c.Scale(i);
    for (int k = 0; k < c.inner; ++k) {
      const double p = CutInput(cut_, c.A(i, k)) * CutInput(cut_, c.B(i, k));
      const int j = c.block == 0 ? 0 : k / c.block;
      const double scale = c.block == 0 ? 1 : c.AScale(i, j) * c.BScale(i, j);
      const double high = p * scale, low = std::fma(p, scale, -high);
      const double x = high * whole, rest = std::fma(high, whole, -x) + low * whole;
      if (!std::isfinite(x) || !std::isfinite(rest)) continue;
      out.sum.Add(x);
      out.sum.Add(rest);
      out.mass += std::abs(x);
      out.squares += x * x;
    }
    return out;
  }

  void Compare(int i, double d, const ExactSum& sum, double total) {
    const double s = sum.Value();
    if (!std::isfinite(d) || total == 0) return;
    const bool narrow = FormatOf(a_.c.d_dtype).precision < FormatOf(DType::kF32).precision;
    const double off = std::abs(d - s), ulp = narrow ? UlpOf(d, a_.c.d_dtype) : 0;
    // The addend counts as one more product, and each scale as one more rounding. Subnormal results
    // round by up to half of the smallest value.
    const int roundings = a_.c.inner + 2 + (a_.c.scaled() ? 6 : 0);
    const double sums =
        roundings * PowerOfTwo(-24) * total + a_.c.inner * PowerOfTwo(-149) * Largest(i);
    const double bound = sums + (a_.c.stochastic ? ulp : ulp / 2);
    elements_.push_back({d, s, sums});
    squares_ += (off / total) * (off / total);
    ++measured_;
    inexact_ += off > 0;
    small_ += off > 0 && (d - s) * (s > 0 ? 1 : -1) < 0;
    if (narrow) TakeChoice(d, sum, off > sums + ulp);
    if (!(off > bound)) return;
    ++a_.beyond;
    if (off / bound > a_.worst.excess()) a_.worst = {i, d, s, bound};
  }

  struct Element {
    double d, sum, error;  // error: the error bound of f32 sums, without the store
  };

  // Returns the factor of least squares, if every element follows it. Sums that are truncated, or
  // stored away from zero, have a factor near 1 in common, too: then only the rounding of the
  // result may be left.
  double CommonFactor() const {
    constexpr size_t kFewest = 8;
    constexpr double kNearOne = 1e-3;
    double products = 0, squares = 0, largest = 0;
    for (const Element& e : elements_) largest = std::max(largest, std::abs(e.sum));
    if (elements_.size() < kFewest || !(largest > 0)) return 0;
    for (const Element& e : elements_) {
      products += e.d / largest * (e.sum / largest);
      squares += e.sum / largest * (e.sum / largest);
    }
    const double factor = products / squares;
    const int bits = FormatOf(a_.c.d_dtype).precision;
    const bool near = std::abs(factor - 1) < std::max(kNearOne, 4 * PowerOfTwo(-bits));
    const bool wide = bits >= FormatOf(DType::kF32).precision;
    const double roundings = near && !wide ? 0.6 : 2, errors = near && wide ? 0 : 2;
    const bool follow = std::all_of(elements_.begin(), elements_.end(), [&](const Element& e) {
      // The factor itself is only known to a rounding of the elements.
      const double store = roundings * UlpOf(factor * e.sum, a_.c.d_dtype);
      return std::abs(e.d - factor * e.sum) <= errors * std::abs(factor) * e.error + store;
    });
    return follow && std::isfinite(factor) ? factor : 0;
  }

  // Subnormal partial sums grow with the scales that follow.
  double Largest(int i) const {
    double largest = std::max(1.0, std::abs(a_.c.Scale(i)));
    for (int j = 0; j < a_.c.blocks(); ++j)
      largest = std::max(largest, std::abs(a_.c.Scale(i) * a_.c.AScale(i, j) * a_.c.BScale(i, j)));
    return largest;
  }

  // Records whether the upper or the lower neighbour was taken, and how likely that was.
  void TakeChoice(double d, const ExactSum& sum, bool neither) {
    a_.beyond_neighbours += neither;
    const double low = sum.RoundTo(a_.c.d_dtype, RoundingMode::kDown);
    const double high = sum.RoundTo(a_.c.d_dtype, RoundingMode::kUp);
    if (low == high || (d != low && d != high)) return;
    const double share = (sum.Value() - low) / (high - low);
    surplus_ += (d == high ? 1 : 0) - share;
    spread_ += share * (1 - share);
  }

  MatmulAnalysis& a_;
  const InputCut cut_;
  MatmulTerms terms_;
  std::vector<Element> elements_;
  double squares_ = 0, surplus_ = 0, spread_ = 0;
  int64_t measured_ = 0, inexact_ = 0, small_ = 0;
};

std::shared_ptr<const MatmulAnalysis> Analyse(const v1::Matmul& matmul) {
  auto a = std::make_shared<MatmulAnalysis>();
  auto decoded = DecodeMatmul(matmul);
  if (!decoded.ok()) {
    a->blocked = std::string(decoded.status().message());
    return a;
  }
  a->c = std::move(*decoded);
  a->replay = ReplayMatmul(a->c);
  const InputCut cut = a->replay.explained() ? CutOf(a->replay)
                       : a->c.tf32_declared  ? InputCut::kTf32Nearest
                                             : InputCut::kNone;
  Measure(*a, cut).Run();
  return a;
}

}  // namespace

double BoundBreak::excess() const { return sample < 0 ? 0 : std::abs(d - exact) / bound; }

bool MatmulAnalysis::looks_stochastic() const {
  const bool narrow = FormatOf(c.d_dtype).precision < FormatOf(DType::kF32).precision;
  return narrow && !replay.explained() && beyond > 0 && beyond_neighbours == 0 &&
         std::abs(stochastic_z) < 5;
}

bool MatmulAnalysis::f32_factors() const { return c.factor_bits() > kTf32Bits; }

bool MatmulAnalysis::cuts() const { return !c.tf32_declared && replay.Proves(IsCut); }

void MatmulAnalysis::AddDetails(google::protobuf::Struct& details) const {
  replay.AddDetails(details);
  Put(details, "inner", c.inner);
  Put(details, "effective_bits", effective_bits);
  Put(details, "toward_zero_share", toward_zero);
  const auto judged = errors.judged.size() + errors.zero_sum.size();
  if (judged > 0)
    Put(details, "misround_rate",
        static_cast<double>(errors.misrounded) / static_cast<double>(judged));
  Put(details, "beyond_bound", beyond);
  if (c.block > 0) Put(details, "scale_block", c.block);
  if (c.stochastic) PutFlag(details, "stochastic", true);
  if (replay.aside > 0) Put(details, "non_finite_samples", replay.aside);
}

std::vector<std::shared_ptr<const MatmulAnalysis>> AnalyseMatmuls(const SiteStep& step) {
  using List = std::vector<std::shared_ptr<const MatmulAnalysis>>;
  const auto analyse = [&] {
    auto list = std::make_shared<List>();
    for (const Item& item : step.items)
      list->push_back(item.evidence->has_matmul() ? Analyse(item.evidence->matmul()) : nullptr);
    return list;
  };
  return *step.cache.Get<const List>(analyse);
}

void JudgeMatmuls(const SiteStep& step, const MatmulJudge& judge, VerdictSink& out) {
  const auto all = AnalyseMatmuls(step);
  size_t at = 0;
  const auto one = [&](const Item& item) -> std::optional<v1::Verdict> {
    const auto& a = all[at++];
    if (a == nullptr) return std::nullopt;
    if (!a->blocked.empty()) return Inconclusive(a->blocked);
    std::optional<v1::Verdict> verdict = judge(item, *a);
    if (!verdict) return std::nullopt;
    a->AddDetails(*verdict->mutable_details());
    if (verdict->has_finding()) *verdict->mutable_finding()->mutable_details() = verdict->details();
    return verdict;
  };
  JudgeItems(step, one, out);
}

}  // namespace plumbline::analysis
