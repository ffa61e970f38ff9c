#include "probes/reduction_probe.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/load.h"
#include "kernels/core/sample_index.h"
#include "kernels/evidence/tensor.h"
#include "kernels/sample/gather.h"
#include "probes/calls/call_slot.h"
#include "probes/calls/tensor_checks.h"

namespace plumbline::probes {
namespace {

constexpr const char* kTooLarge = "the sampled elements exceed the sample's bytes";

// Returns the rows of a whole input: 1, or the number of addends or ranks if the buffer stacks
// them. If neither fits the output, returns 0.
int64_t WholeRows(const TensorView& input, const TensorView& output) {
  const int64_t in = input.elements();
  const int64_t out = output.elements();
  if (in == out) return 1;
  const int64_t rows = input.rank >= 2 ? input.shape[0] : 0;
  return rows > 0 && out > 0 && in == rows * out ? rows : 0;
}

absl::Status CheckWhole(const ReductionCall& call) {
  if (WholeRows(call.input, call.output) == 0) {
    return Expected(
        "output", call.output,
        "as many elements as the input, " + Describe(call.input) + ", or as each of its rows");
  }
  const uint64_t count = call.fields.count;
  if (count != 0 && count != Elements(call.output)) {
    return Expected("output", call.output, std::to_string(count) + " elements (count), or offsets");
  }
  return absl::OkStatus();
}

bool LastIs(const TensorView& v, int64_t m) {
  return (v.rank == 1 || v.rank == 2) && v.shape[static_cast<size_t>(v.rank - 1)] == m;
}

absl::Status CheckSampled(const ReductionCall& call) {
  const TensorView& offsets = call.offsets;
  if (offsets.rank != 1 || offsets.shape[0] < 1 || offsets.shape[0] > kMaxSamples) {
    return Expected("offsets", offsets, "[m] with m from 1 to " + std::to_string(kMaxSamples));
  }
  const int64_t m = offsets.shape[0];
  const std::string shape = "[" + std::to_string(m) + "] or [rows," + std::to_string(m) + "]";
  if (!LastIs(call.input, m)) return Expected("input", call.input, shape);
  if (call.output.present() && !LastIs(call.output, m))
    return Expected("output", call.output, shape);
  return absl::OkStatus();
}

absl::Status CheckTensors(const ReductionCall& call) {
  absl::Status s = CheckTensor("input", call.input, Content::kNumber, Place::kAny);
  if (s.ok()) s = CheckTensor("output", call.output, Content::kNumber, Place::kAny);
  if (s.ok()) s = CheckTensor("offsets", call.offsets, Content::kInteger, Place::kAny);
  if (s.ok() && call.input.present() && call.output.present())
    s = CheckSamePlace("output", call.output, "input", call.input.device);
  if (s.ok() && call.input.present() && !call.offsets.on_host())
    s = CheckSamePlace("offsets", call.offsets, "input", call.input.device);
  if (!s.ok()) return s;
  // After a reduction to one rank, the other ranks have no result.
  const bool alone = call.input.present() && call.offsets.present();
  if (call.input.present() != call.output.present() && !alone) {
    return absl::InvalidArgumentError(
        "input and output: expected both or neither, or an input with offsets");
  }
  if (!call.input.present()) {
    return call.offsets.present()
               ? absl::InvalidArgumentError("offsets: expected an input and an output with them")
               : absl::OkStatus();
  }
  return call.offsets.present() ? CheckSampled(call) : CheckWhole(call);
}

// Returns the view of row `row` of an input with `rows` rows.
TensorView Row(const TensorView& input, int64_t rows, int64_t row) {
  if (rows == 1) return input;
  TensorView v = input;
  v.data = static_cast<const std::byte*>(input.data) +
           row * input.stride[0] * static_cast<int64_t>(DTypeSize(input.dtype));
  v.rank = input.rank - 1;
  for (int i = 0; i < v.rank; ++i) {
    const auto a = static_cast<size_t>(i);
    v.shape[a] = input.shape[a + 1];
    v.stride[a] = input.stride[a + 1];
  }
  return v;
}

// Gathers [rows, m] elements of a whole buffer, dense in `memory`.
absl::Status Gather(const TensorView& from, int64_t rows, const std::vector<uint64_t>& at,
                    std::vector<std::byte>* memory, TensorView* out) {
  const size_t row_bytes = at.size() * DTypeSize(from.dtype);
  memory->resize(std::max<size_t>(static_cast<size_t>(rows) * row_bytes, 1));
  for (int64_t row = 0; row < rows; ++row) {
    if (absl::Status s = GatherSamples(Row(from, rows, row), at,
                                       memory->data() + static_cast<size_t>(row) * row_bytes);
        !s.ok()) {
      return s;
    }
  }
  const auto m = static_cast<int64_t>(at.size());
  *out = rows == 1 ? TensorView::Dense(memory->data(), from.dtype, m)
                   : TensorView::Dense(memory->data(), from.dtype, rows, m);
  return absl::OkStatus();
}

// Chooses the step's sampled elements of `count`.
void ChooseOffsets(const MeasureOptions& options, uint64_t count, ReductionScratch* scratch) {
  scratch->offsets.resize(std::min<uint64_t>(count, kReductionSamples));
  for (uint64_t i = 0; i < scratch->offsets.size(); ++i)
    scratch->offsets[i] = SampleIndex(options.key, count, i);
}

TensorView OffsetsOf(uint64_t count, ReductionScratch* scratch) {
  const auto extent = static_cast<int64_t>(scratch->offsets.size());
  if (count > uint64_t{UINT32_MAX} + 1)
    return TensorView::Dense(scratch->offsets.data(), DType::kU64, extent);
  scratch->narrow.assign(scratch->offsets.begin(), scratch->offsets.end());  // halves the traffic
  return TensorView::Dense(scratch->narrow.data(), DType::kU32, extent);
}

absl::Status SampleWhole(const MeasureOptions& options, ReductionScratch* scratch,
                         ReductionCall* call) {
  const uint64_t count = Elements(call->output);
  const int64_t rows = WholeRows(call->input, call->output);
  ChooseOffsets(options, count, scratch);
  TensorView input, output;
  absl::Status s = Gather(call->input, rows, scratch->offsets, &scratch->input, &input);
  if (s.ok()) s = Gather(call->output, 1, scratch->offsets, &scratch->output, &output);
  if (!s.ok()) return s;
  call->input = input;
  call->output = output;
  call->offsets = OffsetsOf(count, scratch);
  return absl::OkStatus();
}

absl::Status CheckOffsets(const ReductionCall& call) {
  const int64_t m = call.offsets.shape[0];
  const bool is_signed = call.offsets.dtype < DType::kU64;
  const auto count = static_cast<double>(call.fields.count);
  for (int64_t i = 0; i < m; ++i) {
    const double at = LoadDouble(call.offsets.data, call.offsets.dtype, i * call.offsets.stride[0]);
    if ((is_signed && at < 0) || (count != 0 && at >= count)) {
      return absl::InvalidArgumentError(
          "offsets: expected indices from 0 to below count, " + std::to_string(call.fields.count) +
          ", found " + std::to_string(static_cast<int64_t>(at)) + " at " + std::to_string(i));
    }
  }
  return absl::OkStatus();
}

// Returns elements [m] or [rows,m] of a slot, which a device will fill.
TensorView Awaited(const TensorView& whole, int64_t rows, int64_t m) {
  TensorView v = rows == 1 ? TensorView::Dense(nullptr, whole.dtype, m)
                           : TensorView::Dense(nullptr, whole.dtype, rows, m);
  if (v.elements() > 0) v.device = whole.device;
  return v;
}

void DropSample(std::string_view reason, ReductionCall* call) {
  call->input = call->output = call->offsets = TensorView();
  call->no_sample_reason = reason;
}

uint64_t HeldBytes(const ReductionCall& call) {
  return PackedBytes(call.input) + PackedBytes(call.output) + PackedBytes(call.offsets);
}

struct ReductionParts {
  explicit ReductionParts(const ReductionCall& call)
      : texts{call.group, call.algorithm, call.transport, call.no_sample_reason},
        tensors{call.input, call.output, call.offsets, call.ring_order},
        all{std::as_bytes(std::span(&call.fields, 1)), texts, tensors} {}
  std::array<std::string_view, 4> texts;
  std::array<TensorView, 4> tensors;
  CallParts all;
};

// Gathers the elements of whole tensors on their device.
void CarryWhole(const MeasureOptions& options, ReductionScratch* scratch, ReductionCall* call,
                ReductionCarry* carry) {
  const TensorView input = call->input, output = call->output;
  const uint64_t count = Elements(output);
  const int64_t rows = WholeRows(input, output);
  ChooseOffsets(options, count, scratch);
  const auto m = static_cast<int64_t>(scratch->offsets.size());
  call->input = Awaited(input, rows, m);
  call->output = Awaited(output, 1, m);
  call->offsets = OffsetsOf(count, scratch);
  if (m == 0) return;
  const ReductionParts parts(*call);
  const uint64_t row_bytes = static_cast<uint64_t>(m) * DTypeSize(input.dtype);
  for (int64_t row = 0; row < rows; ++row) {
    carry->gathers.push_back({Row(input, rows, row),
                              PlaceInSlot(parts.all, 0) + static_cast<uint64_t>(row) * row_bytes});
  }
  carry->gathers.push_back({output, PlaceInSlot(parts.all, 1)});
}

absl::Status FillSample(const ReductionCall& call, v1::ReductionSample* out) {
  if (absl::Status s = PackTensor(call.input, out->mutable_inputs()); !s.ok()) return s;
  if (call.output.present()) {
    if (absl::Status s = PackTensor(call.output, out->mutable_output()); !s.ok()) return s;
  }
  return PackTensor(call.offsets, out->mutable_offsets());
}

void FillCall(const ReductionCall& call, v1::ReductionCall* out) {
  const ReductionCall::Fields& f = call.fields;
  out->set_group(std::string(call.group));
  out->set_sequence(f.sequence);
  out->set_sequence_known(f.sequence_known);
  out->set_op(static_cast<v1::ReductionCall::Op>(f.op));
  out->set_wire_dtype(static_cast<v1::DType>(f.wire_dtype));
  out->set_count(f.count);
  out->set_group_size(f.group_size);
  out->set_group_rank(f.group_rank);
  out->set_prescale(f.prescale);
  out->set_postscale(f.postscale);
  for (int64_t i = 0; i < (call.ring_order.present() ? call.ring_order.shape[0] : 0); ++i) {
    out->add_ring_order(LoadRaw<uint32_t>(call.ring_order.data, i));
  }
  out->set_algorithm(std::string(call.algorithm));
  out->set_channels(f.channels);
  out->set_chunk(f.chunk);
  out->set_variable_count(f.variable_count);
  out->set_root(f.root);
  out->set_transport(std::string(call.transport));
}

}  // namespace

absl::Status CheckCall(const ReductionCall& call) {
  const ReductionCall::Fields& f = call.fields;
  if (!v1::ReductionCall::Op_IsValid(f.op)) {
    return absl::InvalidArgumentError("op = " + std::to_string(f.op) +
                                      ": expected one of PLUMBLINE_REDUCE_*");
  }
  if (f.group_size != 0 && f.group_rank >= f.group_size) {
    return absl::InvalidArgumentError("group_rank = " + std::to_string(f.group_rank) +
                                      ": expected less than group_size, " +
                                      std::to_string(f.group_size));
  }
  constexpr int64_t kMaxRing = 65536;
  if (call.ring_order.present() && call.ring_order.shape[0] > kMaxRing) {
    return Expected("ring_order", call.ring_order, "at most 65536 ranks");
  }
  if (absl::Status s = CheckDeclared("wire_dtype", f.wire_dtype); !s.ok()) return s;
  if (absl::Status s = CheckText("group", call.group); !s.ok()) return s;
  if (absl::Status s = CheckText("algorithm", call.algorithm); !s.ok()) return s;
  if (absl::Status s = CheckText("transport", call.transport); !s.ok()) return s;
  return CheckTensors(call);
}

void Complete(ReductionCall* call) {
  if (!call->input.present()) return;
  if (call->fields.wire_dtype == 0) {
    call->fields.wire_dtype = static_cast<int32_t>(call->input.dtype);
  }
  if (call->fields.count == 0 && !call->offsets.present()) {
    call->fields.count = Elements(call->output);
  }
}

namespace {

// Returns true if the call's elements are kept; otherwise drops them.
bool Keeps(const MeasureOptions& options, ReductionCall* call) {
  if (!call->input.present()) return false;
  const bool fits = SampleBytes(*call) <= options.sample_max_bytes;
  if (!options.sampled || !fits) DropSample(options.sampled ? kTooLarge : "", call);
  return call->input.present();
}

}  // namespace

absl::Status Carry(const MeasureOptions& options, ReductionScratch* scratch, ReductionCall* call,
                   ReductionCarry* carry) {
  if (!Keeps(options, call)) return absl::OkStatus();
  if (!call->offsets.present()) {
    CarryWhole(options, scratch, call, carry);
    return absl::OkStatus();
  }
  scratch->offsets.clear();
  if (call->offsets.on_host()) {
    if (absl::Status s = CheckOffsets(*call); !s.ok()) return s;
  }
  CarryTensors(ReductionParts(*call).all, &carry->copies);  // of two axes at most
  return absl::OkStatus();
}

absl::Status Sample(const MeasureOptions& options, ReductionScratch* scratch, ReductionCall* call) {
  if (!Keeps(options, call)) return absl::OkStatus();
  return call->offsets.present() ? CheckOffsets(*call) : SampleWhole(options, scratch, call);
}

uint64_t SampleBytes(const ReductionCall& call) {
  if (!call.input.present()) return 0;
  if (call.offsets.present()) return HeldBytes(call);
  const uint64_t m = std::min<uint64_t>(Elements(call.output), kReductionSamples);
  const auto rows = static_cast<uint64_t>(WholeRows(call.input, call.output));
  return m * (rows * DTypeSize(call.input.dtype) + DTypeSize(call.output.dtype) + 4);
}

uint64_t SummaryBytes(const ReductionCall& call) {
  constexpr uint64_t kFixed = 64;
  const auto ring = call.ring_order.present() ? Elements(call.ring_order) : 0;
  return kFixed + call.group.size() + call.algorithm.size() + call.transport.size() + 2 * ring;
}

size_t SlotBytes(const ReductionCall& call) { return CallBytes(ReductionParts(call).all); }

void StoreCall(const ReductionCall& call, std::byte* slot) {
  StoreCall(ReductionParts(call).all, slot);
}

ReductionCall LoadReductionCall(const std::byte* slot) {
  CallReader reader(slot);
  ReductionCall call;
  call.fields = reader.fields<ReductionCall::Fields>();
  for (std::string_view* text :
       {&call.group, &call.algorithm, &call.transport, &call.no_sample_reason}) {
    *text = reader.NextText();
  }
  for (TensorView* view : {&call.input, &call.output, &call.offsets, &call.ring_order}) {
    *view = reader.NextTensor();
  }
  return call;
}

absl::Status Measure(const ReductionCall& call, const MeasureOptions&, v1::Evidence* out) {
  v1::Reduction* reduction = out->mutable_reduction();
  FillCall(call, reduction->mutable_call());
  reduction->set_no_sample_reason(std::string(call.no_sample_reason));
  const uint32_t ranks = call.fields.group_size;
  out->set_exercised(ranks == 0   ? v1::EXERCISED_UNKNOWN
                     : ranks == 1 ? v1::EXERCISED_NO
                                  : v1::EXERCISED_YES);
  if (!call.input.present()) return absl::OkStatus();
  if (absl::Status s = CheckOffsets(call); !s.ok()) return s;  // they may come from a device
  out->set_sample_size(Elements(call.offsets));
  return FillSample(call, reduction->mutable_sample());
}

}  // namespace plumbline::probes
