#include "analysis/completeness/applied_gradient.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/half.h"
#include "base/load.h"

namespace plumbline::analysis {
namespace {

bool IsVector(const v1::Tensor& tensor, size_t size) {
  const auto dtype = static_cast<DType>(tensor.dtype());
  return IsFloating(dtype) && tensor.shape_size() == 1 &&
         tensor.shape(0) == static_cast<int64_t>(size) &&
         tensor.data().size() == size * DTypeSize(dtype);
}

GradientValues ValuesIn(const v1::Tensor& tensor, size_t size) {
  GradientValues values(std::min(size, AppliedGradient::kMostElements));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = LoadDouble(tensor.data().data(), static_cast<DType>(tensor.dtype()),
                           static_cast<int64_t>(i));
  return values;
}

// Returns the places of the elements; empty if the tensor is malformed.
std::vector<uint64_t> PlacesIn(const v1::ReductionSample& sample, size_t size) {
  const auto dtype = static_cast<DType>(sample.offsets().dtype());
  std::vector<uint64_t> places(std::min(size, AppliedGradient::kMostElements));
  if (sample.has_offsets() &&
      (!IsInteger(dtype) || sample.offsets().data().size() != size * DTypeSize(dtype)))
    return {};
  for (size_t i = 0; i < places.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    places[i] = sample.has_offsets()
                    ? static_cast<uint64_t>(LoadInt64(sample.offsets().data().data(), dtype, at))
                    : i;
  }
  return places;
}

bool AllFinite(const GradientValues& values) {
  return std::all_of(values.begin(), values.end(), [](double x) { return std::isfinite(x); });
}

double UnitOf(const v1::Tensor& tensor) {
  return std::ldexp(1.0, -FormatOf(static_cast<DType>(tensor.dtype())).precision);
}

class AppliedDecoder {
 public:
  explicit AppliedDecoder(const SiteStep& step) {
    out_.layer = step.site.layer();
    out_.op = step.site.op();
  }

  void Take(const Item& item) {
    if (!out_.problem.empty()) return;
    const v1::Reduction& reduction = item.evidence->reduction();
    const uint32_t rank = item.source->rank();
    if (!out_.ranks.empty() && out_.ranks.back() == rank)
      return Refuse(absl::StrCat("reported-twice: rank ", rank, " reported this parameter twice"));
    if (!reduction.has_sample())
      return Refuse(absl::StrCat("no-sample: rank ", rank, " reported no elements"));
    const v1::ReductionSample& sample = reduction.sample();
    const size_t size =
        sample.inputs().shape_size() == 1 ? static_cast<size_t>(sample.inputs().shape(0)) : 0;
    const bool holds = sample.has_output();
    std::vector<uint64_t> places = PlacesIn(sample, size);
    if (size == 0 || !IsVector(sample.inputs(), size) || places.empty() ||
        (holds && !IsVector(sample.output(), size)))
      return Refuse(absl::StrCat("malformed: the tensors of rank ", rank,
                                 " are not floating-point vectors of one length"));
    if (!out_.ranks.empty() && places != out_.elements)
      return Refuse(absl::StrCat("other-elements: rank ", rank,
                                 " reported other elements: shards need names of their own"));
    Add(rank, reduction, sample, size);
    out_.elements = std::move(places);
  }

  AppliedGradient Result() { return std::move(out_); }

 private:
  void Refuse(std::string why) { out_.problem = std::move(why); }

  void Add(uint32_t rank, const v1::Reduction& reduction, const v1::ReductionSample& sample,
           size_t size) {
    out_.ranks.push_back(rank);
    out_.own.push_back(ValuesIn(sample.inputs(), size));
    out_.unit = std::max(out_.unit, UnitOf(sample.inputs()));
    out_.applied.emplace_back();
    if (sample.has_output()) {
      out_.applied.back() = ValuesIn(sample.output(), size);
      out_.unit = std::max(out_.unit, UnitOf(sample.output()));
    }
    const v1::ReductionCall& call = reduction.call();
    out_.count = std::max(out_.count, call.count());
    out_.declared |=
        call.op() == v1::ReductionCall::OP_SUM || call.op() == v1::ReductionCall::OP_AVG;
    if (!AllFinite(out_.own.back()) || !AllFinite(out_.applied.back()))
      Refuse("poisoned: gradients are NaN or infinite");
  }

  AppliedGradient out_;
};

}  // namespace

std::optional<AppliedGradient> DecodeApplied(const SiteStep& step) {
  AppliedDecoder decoder(step);
  bool any = false;
  for (const Item& item : step.items) {
    if (!item.evidence->has_reduction() ||
        item.evidence->reduction().call().algorithm() != kAppliedGradient)
      continue;
    any = true;
    decoder.Take(item);
  }
  if (!any) return std::nullopt;
  return decoder.Result();
}

}  // namespace plumbline::analysis
