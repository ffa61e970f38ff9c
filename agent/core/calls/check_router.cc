#include "agent/core/calls/check_router.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/core/calls/copy_text.h"
#include "agent/core/calls/dlpack.h"
#include "analysis/routing/intervention/intervention.h"
#include "base/half.h"
#include "base/load.h"

namespace plumbline::agent {
namespace {

using analysis::RouterCheck;

double ToF32(double x) { return static_cast<float>(x); }
double ToF16(double x) { return F16ToFloat(FloatToF16(static_cast<float>(x))); }
double ToBF16(double x) { return BF16ToFloat(FloatToBF16(static_cast<float>(x))); }

// Returns the rounding of a value to the router's dtype; nullptr: it stays a double.
using Rounding = double (*)(double);
Rounding RoundingOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return ToF32;
    case DType::kF16:
      return ToF16;
    case DType::kBF16:
      return ToBF16;
    default:
      return nullptr;
  }
}

template <typename T>
void Store(T value, char* at) {
  std::memcpy(at, &value, sizeof(T));
}

void StoreAs(DType dtype, double x, char* at) {
  switch (dtype) {
    case DType::kF32:
      return Store(static_cast<float>(x), at);
    case DType::kF16:
      return Store(FloatToF16(static_cast<float>(x)), at);
    case DType::kBF16:
      return Store(FloatToBF16(static_cast<float>(x)), at);
    default:
      return Store(x, at);
  }
}

absl::Status OnHost(const char* name, const TensorView& view) {
  if (view.on_host()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": expected a tensor in host memory, found one of device ", view.device));
}

absl::Status ReadLogits(const DLTensor* tensor, TensorView* view, analysis::RouterInputs* inputs) {
  if (absl::Status s = ViewOf(tensor, "logits", view); !s.ok()) return s;
  if (absl::Status s = OnHost("logits", *view); !s.ok()) return s;
  const bool wide = view->dtype == DType::kF64 || RoundingOf(view->dtype) != nullptr;
  if (view->rank != 2 || !wide) {
    return absl::InvalidArgumentError(
        absl::StrCat("logits: expected [T, E] of f64, f32, f16 or bf16, found ", view->rank,
                     " axes of ", DTypeName(view->dtype)));
  }
  constexpr int64_t kMost = int64_t{1} << 28;
  if (view->shape[0] > kMost || view->shape[1] > kMost || view->elements() > kMost) {
    return absl::InvalidArgumentError("logits: expected at most 2^28 numbers");
  }
  inputs->tokens = static_cast<int32_t>(view->shape[0]);
  inputs->experts = static_cast<int32_t>(view->shape[1]);
  inputs->logits.reserve(static_cast<size_t>(view->elements()));
  for (int64_t t = 0; t < view->shape[0]; ++t) {
    for (int64_t e = 0; e < view->shape[1]; ++e)
      inputs->logits.push_back(
          LoadDouble(view->data, view->dtype, t * view->stride[0] + e * view->stride[1]));
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status ReadColumn(const DLTensor* tensor, const char* name, std::vector<T>* column) {
  if (tensor == nullptr) return absl::OkStatus();
  TensorView view;
  if (absl::Status s = ViewOf(tensor, name, &view); !s.ok()) return s;
  if (absl::Status s = OnHost(name, view); !s.ok()) return s;
  if (view.rank != 1 || IsFloating(view.dtype)) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": expected [T] of integers, found ",
                                                   view.rank, " axes of ", DTypeName(view.dtype)));
  }
  for (int64_t t = 0; t < view.shape[0]; ++t) {
    const int64_t value = LoadInt64(view.data, view.dtype, t * view.stride[0]);
    column->push_back(sizeof(T) == 1 ? static_cast<T>(value != 0) : static_cast<T>(value));
  }
  return absl::OkStatus();
}

// Reads the caller's columns about the tokens, one value per row of the logits. An absent column
// stays empty.
absl::Status ReadInputs(const plumbline_router_check_t& check, TensorView* logits,
                        analysis::RouterInputs* inputs) {
  for (const absl::Status& status :
       {ReadLogits(check.logits, logits, inputs),
        ReadColumn(check.sequence_id, "sequence_id", &inputs->sequence),
        ReadColumn(check.position, "position", &inputs->position),
        ReadColumn(check.padding_mask, "padding_mask", &inputs->padding),
        ReadColumn(check.rank, "rank", &inputs->rank)}) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// Calls the caller's function on a fresh copy of the logits, in its dtype.
class Callback {
 public:
  Callback(const plumbline_router_check_t& check, const TensorView& logits)
      : check_(check), dtype_(logits.dtype), shape_{logits.shape[0], logits.shape[1]} {
    tensor_ = *check.logits;
    tensor_.strides = nullptr;
    tensor_.byte_offset = 0;
  }

  absl::StatusOr<analysis::Assignments> operator()(const std::vector<double>& logits) {
    const size_t width = DTypeSize(dtype_);
    data_.resize(logits.size() * width);
    for (size_t i = 0; i < logits.size(); ++i) StoreAs(dtype_, logits[i], &data_[i * width]);
    tensor_.data = data_.data();
    tensor_.shape = shape_;
    analysis::Assignments fates(logits.size(), 0);
    const int32_t failed = check_.route(check_.context, &tensor_, check_.seed, fates.data());
    if (failed != 0) return absl::FailedPreconditionError(absl::StrCat("route returned ", failed));
    return fates;
  }

 private:
  const plumbline_router_check_t& check_;
  DType dtype_;
  int64_t shape_[2];
  DLTensor tensor_;
  std::vector<char> data_;
};

void SetKind(const RouterCheck& found, plumbline_router_verdict_t* verdict) {
  switch (found.row) {
    case RouterCheck::Row::kFutureLeak:
    case RouterCheck::Row::kBatchDependent:
      verdict->verdict = PLUMBLINE_VERDICT_FINDING;
      verdict->level = found.row == RouterCheck::Row::kFutureLeak ? PLUMBLINE_LEVEL_ERROR
                                                                  : PLUMBLINE_LEVEL_WARNING;
      verdict->strength = PLUMBLINE_STRENGTH_PROVED;
      return;
    case RouterCheck::Row::kClean:
      verdict->verdict = PLUMBLINE_VERDICT_PASS;
      return;
    default:
      verdict->verdict = PLUMBLINE_VERDICT_INCONCLUSIVE;
  }
}

void Fill(const RouterCheck& found, plumbline_router_verdict_t* verdict) {
  SetKind(found, verdict);
  verdict->future_share = found.future.value();
  verdict->earlier_share = found.earlier.value();
  verdict->later_share = found.later.value();
  verdict->other_rank_share = found.other_rank.value();
  verdict->calls = found.calls;
  verdict->witness_row = found.witness.token;
  verdict->witness_sequence = found.witness.sequence;
  verdict->witness_position = found.witness.position;
  verdict->changed_sequence = found.witness.changed_sequence;
  verdict->changed_from = found.witness.cut;
  verdict->lost_expert = found.witness.lost;
  verdict->gained_expert = found.witness.gained;
  CopyText(found.row_name(), verdict->row);
  CopyText(found.witness.text, verdict->witness);
  CopyText(found.Explanation(), verdict->explanation);
  CopyText(absl::StrJoin(found.assumptions, "; "), verdict->assumptions);
}

}  // namespace

absl::Status CheckRouter(const plumbline_router_check_t& check,
                         plumbline_router_verdict_t* verdict) {
  analysis::RouterInputs inputs;
  TensorView logits;
  if (absl::Status s = ReadInputs(check, &logits, &inputs); !s.ok()) return s;
  analysis::CheckOptions options{.seed = check.seed, .round = RoundingOf(logits.dtype)};
  if (check.max_calls != 0)
    options.max_calls = static_cast<int>(std::min<uint32_t>(check.max_calls, 1u << 30));
  if (check.max_sequences != 0)
    options.max_sequences = static_cast<int>(std::min<uint32_t>(check.max_sequences, 1u << 20));
  auto found = analysis::CheckRouter(Callback(check, logits), inputs, options);
  if (!found.ok()) return found.status();
  Fill(*found, verdict);
  return absl::OkStatus();
}

}  // namespace plumbline::agent
