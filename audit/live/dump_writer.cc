#include "audit/live/dump_writer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "audit/render/text_util.h"
#include "base/dtype.h"
#include "base/framed_log.h"

namespace plumbline::audit {
namespace {

using nlohmann::ordered_json;

const char* SafetensorsName(DType dtype) {
  constexpr const char* kNames[] = {"",        "F64", "F32", "F16", "BF16", "F8_E4M3",
                                    "F8_E5M2", "I64", "I32", "I16", "I8",   "U64",
                                    "U32",     "U16", "U8",  "BOOL"};
  const auto i = static_cast<size_t>(dtype);
  return i < std::size(kNames) ? kNames[i] : "";
}

// Builds a dump. Tensors stay in the order in which they were added.
class Dump {
 public:
  Dump(const char* kind, const v1::Source& source, const v1::Evidence& e) {
    Report("kind", kind);
    Report("run", source.run());
    Report("attempt", std::to_string(source.attempt()));
    Report("rank", std::to_string(source.rank()));
    if (source.world_size() > source.rank()) {
      Report("world_size", std::to_string(source.world_size()));
    }
    Report("layer", e.site().layer());
    Report("op", e.site().op());
    Report("step", std::to_string(e.step()));
    if (e.order() > 0) Report("order", std::to_string(e.order()));
    if (e.redacted_key() != 0) Report("redacted_key", absl::StrCat(absl::Hex(e.redacted_key())));
  }

  void Report(const char* key, const std::string& value) { metadata_[key] = ValidUtf8(value); }
  void DescribeUnless(const char* key, uint64_t value, uint64_t absent) {
    if (value != absent) Report(key, std::to_string(value));
  }
  void DescribeText(const char* key, const std::string& value) {
    if (!value.empty()) Report(key, value);
  }
  // Adds the shortest decimal that reads back as the same number.
  void DescribeNumber(const char* key, double value) { Report(key, ordered_json(value).dump()); }

  // Adds a tensor, if it is present.
  void Add(const char* name, bool present, const v1::Tensor& tensor) {
    if (!present) return;
    ordered_json entry;
    entry["dtype"] = SafetensorsName(static_cast<DType>(tensor.dtype()));
    entry["shape"] = ordered_json::array();
    for (const int64_t n : tensor.shape()) entry["shape"].push_back(n);
    entry["data_offsets"] = {data_.size(), data_.size() + tensor.data().size()};
    data_ += tensor.data();
    tensors_.emplace_back(name, std::move(entry));
  }

  std::string Bytes() const {
    ordered_json header;
    header["__metadata__"] = metadata_;
    for (const auto& [name, entry] : tensors_) header[name] = entry;
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    std::string bytes;
    for (int shift = 0; shift < 64; shift += 8) {
      bytes += static_cast<char>(static_cast<uint64_t>(text.size()) >> shift);
    }
    return bytes + text + data_;
  }

 private:
  ordered_json metadata_ = ordered_json::object();
  std::vector<std::pair<std::string, ordered_json>> tensors_;
  std::string data_;
};

void DescribeRouting(const v1::RoutingConfig& c, Dump* dump) {
  using Config = v1::RoutingConfig;
  dump->Report("top_k", std::to_string(c.top_k()));
  constexpr const char* kScores[] = {"identity", "softmax", "sigmoid"};
  dump->Report("score_function", kScores[std::clamp<int>(c.score_function(), 0, 2)]);
  if (c.capacity_kind() == Config::CAPACITY_NONE) dump->Report("capacity", "none");
  if (c.capacity_kind() == Config::CAPACITY_DECLARED) {
    dump->Report("capacity", std::to_string(c.capacity()));
  }
  dump->DescribeUnless("groups", c.groups(), 0);
  dump->DescribeUnless("top_groups", c.top_groups(), 0);
  constexpr const char* kGroupScores[] = {"", "max", "sum2"};
  dump->DescribeText("group_score", kGroupScores[std::clamp<int>(c.group_score(), 0, 2)]);
  constexpr const char* kPools[] = {"", "microbatch", "sequence", "group", "rank", "world"};
  dump->DescribeText("pool", kPools[std::clamp<int>(c.pool(), 0, 5)]);
  constexpr const char* kFlatten[] = {"", "seq-major", "batch-major"};
  dump->DescribeText("flatten", kFlatten[std::clamp<int>(c.flatten(), 0, 2)]);
  constexpr const char* kBias[] = {"", "before", "after"};
  dump->DescribeText("bias_captured", kBias[std::clamp<int>(c.bias_captured(), 0, 2)]);
  dump->DescribeText("randomness", c.randomness());
  dump->DescribeText("mode", c.mode());
  constexpr const char* kSources[] = {"", "declared", "inferred"};
  dump->DescribeText("capacity_source", kSources[std::clamp<int>(c.capacity_source(), 0, 2)]);
  dump->DescribeText("policy", c.policy());
}

void AddRouting(const v1::Routing& routing, Dump* dump) {
  DescribeRouting(routing.config(), dump);
  const v1::RoutingSample& s = routing.sample();
  dump->Add(s.scores_are_logits() ? "router_logits" : "router_scores", true, s.scores());
  dump->Add("expert_bias", s.has_expert_bias(), s.expert_bias());
  dump->Add("topk_indices", s.has_topk_indices(), s.topk_indices());
  dump->Add("keep_mask", s.has_keep_mask(), s.keep_mask());
  dump->Add("routing_map", s.has_routing_map(), s.routing_map());
  dump->Add("probs", s.has_probs(), s.probs());
  dump->Add("sequence_id", s.has_sequence_id(), s.sequence_id());
  dump->Add("sequence_order", s.has_sequence_order(), s.sequence_order());
  dump->Add("position", s.has_position(), s.position());
  dump->Add("padding_mask", s.has_padding_mask(), s.padding_mask());
  dump->Add("pool_id", s.has_pool_id(), s.pool_id());
  dump->Add("region", s.has_region(), s.region());
}

// Returns true for a sum or a mean whose site has that name: the metadata has one word for both.
bool HasDump(const v1::Reduction& reduction, const v1::Site& site) {
  const v1::ReductionCall& call = reduction.call();
  const char* op = call.op() == v1::ReductionCall::OP_SUM   ? "sum"
                   : call.op() == v1::ReductionCall::OP_AVG ? "avg"
                                                            : "";
  return reduction.has_sample() && site.op() == op && !call.variable_count();
}

void AddReduction(const v1::Reduction& reduction, Dump* dump) {
  const v1::ReductionCall& c = reduction.call();
  dump->DescribeText("group", c.group());
  if (c.sequence_known()) dump->Report("sequence", std::to_string(c.sequence()));
  if (c.wire_dtype() != v1::DTYPE_UNSPECIFIED) {
    dump->Report("wire_dtype", DTypeName(static_cast<DType>(c.wire_dtype())));
  }
  dump->DescribeUnless("count", c.count(), 0);
  dump->DescribeUnless("group_size", c.group_size(), 0);
  dump->Report("group_rank", std::to_string(c.group_rank()));
  if (c.prescale() != 0) dump->DescribeNumber("prescale", c.prescale());
  if (c.postscale() != 0) dump->DescribeNumber("postscale", c.postscale());
  std::string order;
  for (const uint32_t rank : c.ring_order()) {
    absl::StrAppend(&order, order.empty() ? "" : ",", rank);
  }
  dump->DescribeText("ring_order", order);
  dump->DescribeText("algorithm", c.algorithm());
  dump->DescribeUnless("channels", c.channels(), 0);
  dump->DescribeUnless("chunk", c.chunk(), 0);
  dump->DescribeText("transport", c.transport());
  dump->DescribeUnless("root", c.root(), 0);
  const v1::ReductionSample& s = reduction.sample();
  dump->Add("inputs", true, s.inputs());
  dump->Add("output", true, s.output());
  dump->Add("offsets", s.has_offsets(), s.offsets());
}

void AddMatmul(const v1::Matmul& matmul, Dump* dump) {
  const v1::MatmulConfig& c = matmul.config();
  dump->DescribeText("input_format", c.input_format());
  if (c.declared_accumulator() != v1::DTYPE_UNSPECIFIED) {
    dump->Report("declared_accumulator", DTypeName(static_cast<DType>(c.declared_accumulator())));
  }
  dump->DescribeUnless("rows", c.rows(), 0);
  dump->DescribeUnless("columns", c.columns(), 0);
  dump->DescribeText("library", c.library());
  if (c.scale() != 0) dump->DescribeNumber("scale", c.scale());
  dump->DescribeUnless("block", c.block(), 0);
  dump->DescribeText("scale_format", c.scale_format());
  dump->DescribeText("output_rounding", c.output_rounding());
  const v1::MatmulSample& s = matmul.sample();
  dump->Add("a", true, s.a());
  dump->Add("b", true, s.b());
  dump->Add("d", true, s.d());
  dump->Add("c", s.has_c(), s.c());
  dump->Add("offsets", s.has_offsets(), s.offsets());
  dump->Add("a_index", s.has_a_index(), s.a_index());
  dump->Add("b_index", s.has_b_index(), s.b_index());
  dump->Add("scale", s.has_scale(), s.scale());
  dump->Add("a_scale", s.has_a_scale(), s.a_scale());
  dump->Add("b_scale", s.has_b_scale(), s.b_scale());
  dump->Add("a_tensor_scale", s.has_a_tensor_scale(), s.a_tensor_scale());
  dump->Add("b_tensor_scale", s.has_b_tensor_scale(), s.b_tensor_scale());
}

}  // namespace

std::string KindOf(const v1::Evidence& e) {
  switch (e.what_case()) {
#define PLUMB_KIND(Name, NAME, name, number, op) \
  case v1::Evidence::k##Name:                    \
    return #name;
#include "proto/evidence_kinds.inc"
    default:
      return "";
  }
}

absl::StatusOr<std::string> DumpOf(const v1::Source& source, const v1::Evidence& e) {
  const absl::Status none = absl::UnimplementedError("no dump holds this evidence");
  if (source.role() == v1::ROLE_ROLLOUT) return none;  // dumps are for trainers only
  if (e.routing().has_sample()) {
    Dump dump("routing", source, e);
    AddRouting(e.routing(), &dump);
    return dump.Bytes();
  }
  if (e.has_reduction() && HasDump(e.reduction(), e.site())) {
    Dump dump("reduction", source, e);
    AddReduction(e.reduction(), &dump);
    return dump.Bytes();
  }
  if (e.matmul().has_sample()) {
    Dump dump("matmul", source, e);
    AddMatmul(e.matmul(), &dump);
    return dump.Bytes();
  }
  return none;
}

absl::Status WriteRecord(const std::string& path, const v1::Batch& batch) {
  auto log = FramedLogWriter::Open(path);
  if (!log.ok()) return log.status();
  v1::RecordHeader header;
  header.set_schema("plumbline.record/1");
  *header.mutable_source() = batch.sources(0);
  header.set_tool_version(batch.sources(0).tool_version());
  if (auto s = (*log)->Append(FrameType::kRecordHeader, header.SerializeAsString()); !s.ok()) {
    return s;
  }
  return (*log)->Append(FrameType::kBatch, batch.SerializeAsString());
}

}  // namespace plumbline::audit
