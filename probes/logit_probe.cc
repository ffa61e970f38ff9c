#include "probes/logit_probe.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>
#include <string_view>

#include "kernels/evidence/logits.h"
#include "kernels/evidence/tensor.h"
#include "kernels/sample/gather.h"
#include "probes/calls/call_slot.h"
#include "probes/calls/tensor_checks.h"

namespace plumbline::probes {
namespace {

// A row's figures and both log-moment columns; a raw row, if one is kept.
constexpr uint64_t kRowBytes = 420;

struct LogitParts {
  explicit LogitParts(const LogitsCall& call)
      : tensors{call.input.train, call.input.rollout, call.input.tokens, call.input.allowed,
                call.rows},
        all{std::as_bytes(std::span(&call.fields, 1)), {}, tensors} {}
  std::array<TensorView, 5> tensors;
  CallParts all;
};

int64_t RowsOf(const LogitInput& in) {
  int64_t rows = 1;
  for (int i = 0; i + 1 < in.train.rank; ++i) rows *= in.train.shape[static_cast<size_t>(i)];
  return rows;
}

int64_t VocabularyOf(const LogitInput& in) {
  return in.train.shape[static_cast<size_t>(in.train.rank - 1)];
}

uint32_t RowsMeasured(const LogitInput& in) {
  const int64_t fit = std::clamp<int64_t>(kLogitsMeasured / VocabularyOf(in), 1, kLogitRows);
  return static_cast<uint32_t>(std::min(fit, RowsOf(in)));
}

uint64_t RowPairBytes(const LogitInput& in) {
  return static_cast<uint64_t>(VocabularyOf(in)) *
         (DTypeSize(in.train.dtype) + DTypeSize(in.rollout.dtype));
}

size_t Aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Returns row `row` of a tensor whose last `inner` axes make a row.
TensorView RowOf(const TensorView& whole, int inner, uint64_t row) {
  TensorView leading = whole;
  leading.rank = whole.rank - inner;
  TensorView out = whole;
  out.rank = inner;
  for (int i = 0; i < inner; ++i) {
    const auto from = static_cast<size_t>(leading.rank + i), to = static_cast<size_t>(i);
    out.shape[to] = whole.shape[from];
    out.stride[to] = whole.stride[from];
  }
  out.data = static_cast<const std::byte*>(whole.data) +
             AxesOf(leading).Offset(static_cast<int64_t>(row)) *
                 static_cast<int64_t>(DTypeSize(whole.dtype));
  return out;
}

// Copies rows to `to`, one after another; returns their view.
TensorView Gather(const TensorView& whole, int inner, std::span<const uint64_t> rows,
                  std::byte* to) {
  TensorView out;
  if (!whole.present()) return out;
  const auto m = static_cast<int64_t>(rows.size());
  out = inner == 0 ? TensorView::Dense(to, whole.dtype, m)
                   : TensorView::Dense(to, whole.dtype, m,
                                       whole.shape[static_cast<size_t>(whole.rank - 1)]);
  for (const uint64_t row : rows) {
    const TensorView one = RowOf(whole, inner, row);
    CopyDense(one, to);
    to += PackedBytes(one);
  }
  return out;
}

// Notes the shape of the whole, before the rows are taken out.
void NoteShape(LogitsCall* call) {
  LogitsCall::Fields& f = call->fields;
  f.vocabulary = static_cast<uint64_t>(VocabularyOf(call->input));
  f.train_dtype = static_cast<int32_t>(call->input.train.dtype);
  f.rollout_dtype = static_cast<int32_t>(call->input.rollout.dtype);
  f.rows_seen = static_cast<uint64_t>(RowsOf(call->input));
  f.exercised = f.rows_seen > 0;
}

// Chooses the rows; returns false if the step measures none.
bool ChooseRows(const MeasureOptions& options, LogitScratch* scratch, LogitsCall* call) {
  NoteShape(call);
  if (!options.sampled || call->fields.rows_seen == 0) {
    call->input = {};
    return false;
  }
  scratch->rows = SampleIndices(options.key, call->fields.rows_seen, RowsMeasured(call->input));
  call->rows = TensorView::Dense(scratch->rows.data(), DType::kU64,
                                 static_cast<int64_t>(scratch->rows.size()));
  return true;
}

uint64_t GatheredBytes(const LogitInput& in, uint64_t rows) {
  uint64_t bytes = Aligned(rows * DTypeSize(in.tokens.dtype));
  const auto vocabulary = static_cast<uint64_t>(VocabularyOf(in));
  for (const TensorView* view : {&in.train, &in.rollout, &in.allowed})
    bytes += Aligned(rows * vocabulary * DTypeSize(view->dtype));
  return bytes;
}

void GatherRows(LogitScratch* scratch, LogitsCall* call) {
  LogitInput& in = call->input;
  const uint64_t rows = scratch->rows.size();
  const auto vocabulary = static_cast<uint64_t>(VocabularyOf(in));
  scratch->memory.resize(GatheredBytes(in, rows));
  std::byte* to = scratch->memory.data();
  for (TensorView* view : {&in.train, &in.rollout, &in.allowed}) {
    const size_t bytes = Aligned(rows * vocabulary * DTypeSize(view->dtype));
    *view = Gather(*view, 1, scratch->rows, to);
    to += bytes;
  }
  in.tokens = Gather(in.tokens, 0, scratch->rows, to);
  call->fields.gathered = true;
}

}  // namespace

absl::Status CheckCall(const LogitsCall& call) {
  const LogitInput& in = call.input;
  if (absl::Status s = CheckTensor("train", in.train, Content::kNumber, Place::kAny); !s.ok())
    return s;
  if (absl::Status s = CheckTensor("rollout", in.rollout, Content::kNumber, Place::kAny); !s.ok())
    return s;
  if (absl::Status s = CheckTensor("tokens", in.tokens, Content::kNumber, Place::kAny); !s.ok())
    return s;
  if (absl::Status s = CheckTensor("allowed", in.allowed, Content::kNumber, Place::kAny); !s.ok())
    return s;
  if (absl::Status s = CheckLogits(in); !s.ok()) return s;
  const LogitsCall::Fields& f = call.fields;
  if (f.mode < 0 || f.mode > v1::LOGPROB_MODE_PROCESSED) {
    return absl::InvalidArgumentError("mode = " + std::to_string(f.mode) +
                                      ": expected one of PLUMBLINE_LOGPROBS_*");
  }
  if (std::isnan(f.temperature) || (f.temperature > 0 && std::isfinite(f.temperature)))
    return absl::OkStatus();
  return absl::InvalidArgumentError("temperature: expected a number above 0, or NaN, found " +
                                    std::to_string(f.temperature));
}

void Sample(const MeasureOptions& options, LogitScratch* scratch, LogitsCall* call) {
  if (!ChooseRows(options, scratch, call)) return;
  if (GatheredBytes(call->input, scratch->rows.size()) <= kCopyBytes / 2) GatherRows(scratch, call);
}

void Carry(const MeasureOptions& options, LogitScratch* scratch, LogitsCall* call,
           std::vector<CarriedCopy>* copies) {
  const LogitInput whole = call->input;
  if (!ChooseRows(options, scratch, call)) return;
  // The call in the form of its slot: only the rows, dense, not yet copied.
  const auto m = static_cast<int64_t>(scratch->rows.size());
  LogitInput& in = call->input;
  for (TensorView* view : {&in.train, &in.rollout, &in.tokens, &in.allowed}) {
    if (!view->present()) continue;
    const int device = view->device;
    *view = view == &in.tokens ? TensorView::Dense(nullptr, view->dtype, m)
                               : TensorView::Dense(nullptr, view->dtype, m, VocabularyOf(whole));
    view->device = device;
  }
  call->fields.gathered = true;
  // The sources of the rows.
  const LogitParts parts(*call);
  const std::array<const TensorView*, 4> from = {&whole.train, &whole.rollout, &whole.tokens,
                                                 &whole.allowed};
  for (size_t i = 0; i < from.size(); ++i) {
    if (!from[i]->present()) continue;
    const bool of_tokens = from[i] == &whole.tokens;
    uint64_t to = PlaceInSlot(parts.all, i);
    for (const uint64_t row : scratch->rows) {
      TensorView one = RowOf(*from[i], of_tokens ? 0 : 1, row);
      if (of_tokens) {
        one = TensorView::Dense(one.data, one.dtype, 1);
        one.device = from[i]->device;
      }
      copies->push_back({one, to});
      to += PackedBytes(one);
    }
  }
}

uint64_t SampleBytes(const LogitsCall& call) {
  const uint64_t pair = RowPairBytes(call.input);
  const uint64_t rows = RowsMeasured(call.input);
  return rows * kRowBytes + (rows > 0 && pair <= kLogitWitnessBytes ? pair : 0);
}

uint64_t SummaryBytes(const LogitsCall& /*call*/) {
  constexpr uint64_t kFixed = 120;
  return kFixed;
}

size_t SlotBytes(const LogitsCall& call) { return CallBytes(LogitParts(call).all); }

void StoreCall(const LogitsCall& call, std::byte* slot) { StoreCall(LogitParts(call).all, slot); }

LogitsCall LoadLogitsCall(const std::byte* slot) {
  CallReader reader(slot);
  LogitsCall call;
  call.fields = reader.fields<LogitsCall::Fields>();
  LogitInput& in = call.input;
  for (TensorView* view : {&in.train, &in.rollout, &in.tokens, &in.allowed, &call.rows})
    *view = reader.NextTensor();
  return call;
}

absl::Status Measure(const LogitsCall& call, const MeasureOptions& options, v1::Evidence* out) {
  const LogitsCall::Fields& f = call.fields;
  v1::Logits& logits = *out->mutable_logits();
  out->set_exercised(f.exercised ? v1::EXERCISED_YES : v1::EXERCISED_NO);
  if (call.rows.present()) {
    const std::span<const uint64_t> rows(static_cast<const uint64_t*>(call.rows.data),
                                         Elements(call.rows));
    LogitOptions measure;
    if (f.gathered) {
      measure.names = rows;
    } else {
      measure.rows = rows;
    }
    measure.max_rows = static_cast<uint32_t>(rows.size());
    measure.key = options.key;
    measure.max_witnesses = 1;
    measure.witness_bytes = std::min(kLogitWitnessBytes, options.sample_max_bytes);
    if (absl::Status s = FillLogits(call.input, measure, &logits); !s.ok()) return s;
    out->set_sample_size(rows.size());
  }
  if (f.rows_seen > logits.summary().rows()) logits.mutable_summary()->set_rows_seen(f.rows_seen);
  v1::LogitsConfig& config = *logits.mutable_config();
  config.set_vocabulary(f.vocabulary);
  config.set_train_dtype(static_cast<v1::DType>(f.train_dtype));
  config.set_rollout_dtype(static_cast<v1::DType>(f.rollout_dtype));
  config.set_mode(static_cast<v1::LogprobMode>(f.mode));
  if (!std::isnan(f.temperature)) config.set_temperature(f.temperature);
  return absl::OkStatus();
}

}  // namespace plumbline::probes
