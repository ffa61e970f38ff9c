#include "audit/readers/dumps/reduction.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "audit/readers/dumps/metadata.h"
#include "audit/readers/dumps/tensors.h"
#include "base/load.h"

namespace plumbline::audit {
namespace {

using Call = v1::ReductionCall;

constexpr const char* kInputs = "inputs";
constexpr const char* kOutput = "output";
constexpr const char* kOffsets = "offsets";
constexpr uint64_t kMostCount = uint64_t{1} << 44;  // a limit of the rules, like kMostChannels
constexpr uint64_t kMostChannels = 1 << 10;
constexpr std::array<const char*, 2> kOps = {"sum", "avg"};
constexpr std::string_view kReductionKeys[] = {
    "wire_dtype", "count",    "group",      "prescale",   "postscale", "ring_order", "algorithm",
    "channels",   "sequence", "group_size", "group_rank", "chunk",     "transport",  "root"};
constexpr std::string_view kReductionTensors[] = {kInputs, kOutput, kOffsets};

Call::Op OpOf(const DumpMetadata& metadata) {
  return metadata.Choice("op", kOps, 0) == 1 ? Call::OP_AVG : Call::OP_SUM;
}

// Parses "3,0,1,2". If absent or wrong, returns an empty list.
std::vector<uint32_t> RingOrder(const SafetensorsHeader& header, const DumpMetadata& metadata) {
  std::vector<uint32_t> order;
  const MetadataEntry* entry = header.Metadata("ring_order");
  if (entry == nullptr) return order;
  const char* at = entry->value.data();
  const char* end = at + entry->value.size();
  while (at < end) {
    while (at < end && (*at == ' ' || *at == ',' || *at == ';')) ++at;
    if (at == end) break;
    uint32_t rank = 0;
    const auto parsed = std::from_chars(at, end, rank);
    if (parsed.ec != std::errc()) {
      metadata.Wrong("ring_order", *entry, "a comma list of ranks");
      return {};
    }
    order.push_back(rank);
    at = parsed.ptr;
  }
  if (order.empty()) metadata.Wrong("ring_order", *entry, "a comma list of ranks");
  return order;
}

// Returns a factor that the trainer applied; 1 if absent.
double Factor(const SafetensorsHeader& header, const DumpMetadata& metadata, const char* key) {
  const double factor = metadata.Number(key, 1);
  if (factor == 0) metadata.Wrong(key, *header.Metadata(key), "a factor that is not 0");
  return factor;
}

// Reads and checks the call.
Call ReadCall(const SafetensorsHeader& header, std::vector<Problem>* problems) {
  const DumpMetadata metadata(header, problems);
  Call call;
  call.set_op(OpOf(metadata));
  call.set_group(metadata.Text("group"));
  call.set_sequence_known(metadata.Has("sequence"));
  call.set_sequence(metadata.Whole("sequence", 0, kMaxI64, 0));
  call.set_wire_dtype(static_cast<v1::DType>(metadata.DTypeNamed("wire_dtype")));
  call.set_count(metadata.Whole("count", 1, kMostCount, 0));
  call.set_group_size(static_cast<uint32_t>(metadata.Whole("group_size", 1, kMaxU32, 0)));
  const uint64_t rank = metadata.Has("group_rank") ? metadata.Whole("group_rank", 0, kMaxU32, 0)
                                                   : metadata.Whole("rank", 0, kMaxU32, 0);
  call.set_group_rank(static_cast<uint32_t>(rank));
  call.set_prescale(Factor(header, metadata, "prescale"));
  call.set_postscale(Factor(header, metadata, "postscale"));
  for (const uint32_t r : RingOrder(header, metadata)) call.add_ring_order(r);
  call.set_algorithm(metadata.Text("algorithm"));
  call.set_channels(static_cast<uint32_t>(metadata.Whole("channels", 1, kMostChannels, 0)));
  call.set_chunk(metadata.Whole("chunk", 1, kMaxI64, 0));
  call.set_transport(metadata.Text("transport"));
  call.set_root(static_cast<uint32_t>(metadata.Whole("root", 0, kMaxU32, 0)));
  return call;
}

bool LooksLikeReduction(const SafetensorsHeader& header) {
  return header.Find(kInputs) != nullptr && header.Find(kOutput) != nullptr;
}

// Checks the shape of the inputs: [m] of one rank, or [N,m] of all ranks.
bool CheckInputs(const TensorEntry& inputs, std::vector<Problem>* problems) {
  CheckDType(inputs, Content::kAnyFloating, problems);
  const size_t axes = inputs.shape.size();
  if ((axes == 1 || axes == 2) && inputs.shape[0] >= 1) return true;
  problems->push_back(
      {inputs.declared_at,
       "expected inputs of shape [N,m] or, for one rank, [m], found " + ShapeText(inputs.shape)});
  return false;
}

void CheckOutput(const TensorEntry& inputs, const TensorEntry& output,
                 std::vector<Problem>* problems) {
  CheckDType(output, Content::kAnyFloating, problems);
  const bool all = inputs.shape.size() == 2;
  if (all && output.shape.size() == 2) {
    CheckShape(output, "[N,m]", inputs.shape, problems);
  } else {
    CheckShape(output, "[m]", {inputs.shape.back()}, problems);
  }
  if (output.dtype == inputs.dtype) return;
  problems->push_back({output.declared_at, "expected output in the dtype of inputs, " +
                                               inputs.dtype_name + ", found " + output.dtype_name});
}

// Checks the metadata against the tensors.
void CheckAgainst(const SafetensorsHeader& header, const Call& call, const TensorEntry& inputs,
                  std::vector<Problem>* problems) {
  const auto wrong = [&](const char* key, const std::string& expected) {
    const MetadataEntry* entry = header.Metadata(key);
    problems->push_back({entry->declared_at, std::string("expected metadata ") + key + " to be " +
                                                 expected + ", found \"" + entry->value + "\""});
  };
  const auto m = static_cast<uint64_t>(inputs.shape.back());
  if (call.count() > 0 && call.count() < m)
    wrong("count", "at least the " + std::to_string(m) + " elements of inputs");
  const auto wire = static_cast<DType>(call.wire_dtype());
  if (call.wire_dtype() != v1::DTYPE_UNSPECIFIED && !IsFloating(wire))
    wrong("wire_dtype", "a floating dtype");
  if (inputs.shape.size() != 2) return;
  const auto n = static_cast<uint64_t>(inputs.shape[0]);
  if (call.group_size() > 0 && call.group_size() != n)
    wrong("group_size", "the " + std::to_string(n) + " rows of inputs");
  const auto order = static_cast<uint64_t>(call.ring_order_size());
  if (order > 0 && (order % n != 0 || order < n))
    wrong("ring_order",
          "the " + std::to_string(n) + " ranks of inputs, or this number per channel");
}

void CheckReductionDump(const SafetensorsHeader& header, std::vector<Problem>* problems) {
  const Call call = ReadCall(header, problems);
  CheckSpelling(header, kReductionKeys, kReductionTensors, problems);
  const TensorEntry* inputs = Required(header, kInputs, "[N,m]", problems);
  const TensorEntry* output = Required(header, kOutput, "[m]", problems);
  if (inputs == nullptr || !CheckInputs(*inputs, problems)) return;
  if (output != nullptr) CheckOutput(*inputs, *output, problems);
  const TensorEntry* offsets = header.Find(kOffsets);
  if (offsets != nullptr) {
    CheckDType(*offsets, Content::kInteger, problems);
    CheckShape(*offsets, "[m]", {inputs->shape.back()}, problems);
  }
  CheckAgainst(header, call, *inputs, problems);
  CheckTotalSize({inputs, output, offsets}, "reduction tensors", "dump fewer samples per file",
                 problems);
}

std::string ReductionOp(const SafetensorsHeader& header) {
  std::vector<Problem> none;
  return kOps[OpOf(DumpMetadata(header, &none)) == Call::OP_AVG ? 1 : 0];
}

// Checks that offsets are indices into the flattened buffer.
absl::Status CheckOffsets(const TensorEntry& entry, const v1::Tensor& offsets, uint64_t count) {
  const uint64_t most = count > 0 ? count - 1 : kMaxI64;
  const size_t width = DTypeSize(entry.dtype);
  for (size_t i = 0; i < offsets.data().size() / width; ++i) {
    const auto at = static_cast<int64_t>(i);
    const int64_t value = LoadInt64(offsets.data().data(), entry.dtype, at);
    if (value >= 0 && static_cast<uint64_t>(value) <= most) continue;
    const std::string text = "expected offsets from 0 to " + std::to_string(most) +
                             (count > 0 ? " (count - 1)" : "") + ", found " +
                             std::to_string(value) + " at sample " + std::to_string(i);
    return AtByte(absl::InvalidArgumentError(text), entry.begin + i * width);
  }
  return absl::OkStatus();
}

absl::Status LoadReductionDump(const InputFile& file, const SafetensorsHeader& header,
                               v1::Evidence* evidence) {
  std::vector<Problem> none;  // stays empty, because the header was checked before
  v1::Reduction& reduction = *evidence->mutable_reduction();
  *reduction.mutable_call() = ReadCall(header, &none);
  v1::ReductionSample& sample = *reduction.mutable_sample();
  const TensorEntry& inputs = *header.Find(kInputs);
  if (absl::Status s = LoadTensor(file, inputs, sample.mutable_inputs()); !s.ok()) return s;
  if (absl::Status s = LoadTensor(file, *header.Find(kOutput), sample.mutable_output()); !s.ok())
    return s;
  if (const TensorEntry* offsets = header.Find(kOffsets)) {
    if (absl::Status s = LoadTensor(file, *offsets, sample.mutable_offsets()); !s.ok()) return s;
    if (absl::Status s = CheckOffsets(*offsets, sample.offsets(), reduction.call().count());
        !s.ok())
      return s;
  }
  if (inputs.shape.size() == 2)
    reduction.mutable_call()->set_group_size(static_cast<uint32_t>(inputs.shape[0]));
  evidence->set_sample_size(static_cast<uint64_t>(inputs.shape.back()));
  evidence->set_exercised(v1::EXERCISED_YES);
  return absl::OkStatus();
}

}  // namespace

const DumpKind kReductionDump = {"reduction", LooksLikeReduction, CheckReductionDump, ReductionOp,
                                 LoadReductionDump};

}  // namespace plumbline::audit
