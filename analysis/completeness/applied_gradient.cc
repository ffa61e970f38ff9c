#include "analysis/completeness/applied_gradient.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/half.h"
#include "base/load.h"

namespace plumbline::analysis {
namespace {

// Returns true for a floating tensor [size], or [rows, size] if there are rows.
bool HasShape(const v1::Tensor& tensor, size_t rows, size_t size) {
  const auto dtype = static_cast<DType>(tensor.dtype());
  const bool shaped =
      rows == 0 ? tensor.shape_size() == 1
                : tensor.shape_size() == 2 && tensor.shape(0) == static_cast<int64_t>(rows);
  return IsFloating(dtype) && shaped &&
         tensor.shape(tensor.shape_size() - 1) == static_cast<int64_t>(size) &&
         tensor.data().size() == std::max<size_t>(rows, 1) * size * DTypeSize(dtype);
}

GradientValues ValuesIn(const v1::Tensor& tensor, size_t row, size_t size) {
  GradientValues values(std::min(size, AppliedGradient::kMostElements));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = LoadDouble(tensor.data().data(), static_cast<DType>(tensor.dtype()),
                           static_cast<int64_t>(row * size + i));
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
    const v1::Tensor& inputs = sample.inputs();
    // One record may hold all ranks: [N, m].
    const bool whole = inputs.shape_size() == 2 && inputs.shape(0) > 0 && out_.ranks.empty();
    const size_t rows = whole ? static_cast<size_t>(inputs.shape(0)) : 0;
    const size_t size = inputs.shape_size() == (whole ? 2 : 1)
                            ? static_cast<size_t>(inputs.shape(inputs.shape_size() - 1))
                            : 0;
    std::vector<uint64_t> places = PlacesIn(sample, size);
    const bool one_output = sample.output().shape_size() == 1;
    if (rows > AppliedGradient::kMostRows)
      return Refuse("malformed: one record holds more than 1,024 ranks");
    if (size == 0 || places.empty() || !HasShape(inputs, rows, size) ||
        (sample.has_output() && !HasShape(sample.output(), one_output ? 0 : rows, size)))
      return Refuse(absl::StrCat("malformed: the tensors of rank ", rank,
                                 " are not floating-point vectors of one length"));
    if (!out_.ranks.empty() && places != out_.elements)
      return Refuse(absl::StrCat("other-elements: rank ", rank,
                                 " reported other elements: shards need names of their own"));
    out_.elements = std::move(places);
    for (size_t row = 0; row < std::max<size_t>(rows, 1); ++row)
      Add(whole ? static_cast<uint32_t>(row) : rank, reduction, row, one_output ? 0 : row, size);
  }

  AppliedGradient Result() { return std::move(out_); }

 private:
  void Refuse(std::string why) { out_.problem = std::move(why); }

  void Add(uint32_t rank, const v1::Reduction& reduction, size_t row, size_t output_row,
           size_t size) {
    const v1::ReductionSample& sample = reduction.sample();
    out_.ranks.push_back(rank);
    out_.own.push_back(ValuesIn(sample.inputs(), row, size));
    out_.unit = std::max(out_.unit, UnitOf(sample.inputs()));
    out_.applied.emplace_back();
    if (sample.has_output()) {
      out_.applied.back() = ValuesIn(sample.output(), output_row, size);
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
