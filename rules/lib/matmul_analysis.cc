#include "rules/lib/matmul_analysis.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "rules/lib/item_verdicts.h"
#include "rules/lib/matmul_terms.h"
#include "rules/lib/verdicts.h"

namespace plumbline::rules {
namespace {

constexpr int kTf32Bits = 11;

bool IsCut(const MatmulModel& m) { return m.cut != InputCut::kNone; }

// The cut of the class, if all of it cuts.
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
  }

 private:
  void Take(int i) {
    terms_.Load(a_.c, i, cut_);
    const double c = a_.c.c.empty() ? 0 : a_.c.c[static_cast<size_t>(i)];
    const bool apart = a_.c.apart[static_cast<size_t>(i)];
    if (!terms_.finite || !std::isfinite(c)) return apart ? a_.errors.TakeAside() : void();
    ExactSum sum = terms_.exact;
    sum.Add(c);
    const double d = a_.c.d[static_cast<size_t>(i)];
    SumError error = ErrorOf(d, sum, terms_.squares + c * c, a_.c.d_dtype);
    error.e *= BiasUnitScale(a_.c.d_dtype);
    if (apart) a_.errors.Take(error);
    Compare(i, d, sum, terms_.total + std::abs(c));
  }

  void Compare(int i, double d, const ExactSum& sum, double total) {
    const double s = sum.Value();
    if (!std::isfinite(d) || total == 0) return;
    const bool narrow = FormatOf(a_.c.d_dtype).precision < FormatOf(DType::kF32).precision;
    const double off = std::abs(d - s);
    // The addend is one more product. Subnormal results round by up to half of the least value.
    const double bound = (a_.c.inner + 2) * PowerOfTwo(-24) * total +
                         (narrow ? UlpOf(d, a_.c.d_dtype) / 2 : 0) + a_.c.inner * PowerOfTwo(-149);
    squares_ += (off / total) * (off / total);
    ++measured_;
    inexact_ += off > 0;
    small_ += off > 0 && (d - s) * (s > 0 ? 1 : -1) < 0;
    if (!(off > bound)) return;
    ++a_.beyond;
    if (off / bound > a_.worst.excess()) a_.worst = {i, d, s, bound};
  }

  MatmulAnalysis& a_;
  const InputCut cut_;
  MatmulTerms terms_;
  double squares_ = 0;
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
  if (replay.aside > 0) Put(details, "non_finite_samples", replay.aside);
}

std::vector<std::shared_ptr<const MatmulAnalysis>> AnalyseMatmuls(const SiteStep& step) {
  using List = std::vector<std::shared_ptr<const MatmulAnalysis>>;
  auto& slot = (*step.shared)["matmul"];
  if (slot == nullptr) {
    auto list = std::make_shared<List>();
    for (const Item& item : step.items)
      list->push_back(item.evidence->has_matmul() ? Analyse(item.evidence->matmul()) : nullptr);
    slot = list;
  }
  return *static_cast<const List*>(slot.get());
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

}  // namespace plumbline::rules
