#include "audit/readers/routing_dump.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "audit/readers/spelling.h"
#include "base/parallel.h"
#include "kernels/routing_evidence.h"

namespace plumbline::audit {
namespace {

// ---- metadata ------------------------------------------------------------------------------

class Metadata {
 public:
  Metadata(const SafetensorsHeader& header, std::vector<Problem>* problems)
      : header_(header), problems_(problems) {}

  std::string Text(const char* key) const {
    const MetadataEntry* entry = header_.Metadata(key);
    return entry == nullptr ? std::string() : entry->value;
  }

  // Decimal digits only; `fallback` when absent or wrong.
  uint64_t Whole(const char* key, uint64_t low, uint64_t high, uint64_t fallback) const {
    const MetadataEntry* entry = header_.Metadata(key);
    if (entry == nullptr) return fallback;
    uint64_t value = 0;
    const char* end = entry->value.data() + entry->value.size();
    const auto parsed = std::from_chars(entry->value.data(), end, value);
    if (parsed.ec == std::errc() && parsed.ptr == end && value >= low && value <= high)
      return value;
    Wrong(key, *entry,
          "a whole number from " + std::to_string(low) + " to " + std::to_string(high));
    return fallback;
  }

  // Index of the value among `choices`, `fallback` when absent or wrong.
  template <size_t n>
  int Choice(const char* key, const std::array<const char*, n>& choices, int fallback) const {
    const MetadataEntry* entry = header_.Metadata(key);
    if (entry == nullptr) return fallback;
    std::string expected;
    for (size_t i = 0; i < n; ++i) {
      if (entry->value == choices[i]) return static_cast<int>(i);
      expected += (i == 0 ? "" : i + 1 == n ? " or " : ", ") + std::string(choices[i]);
    }
    Wrong(key, *entry, expected);
    return fallback;
  }

  void Wrong(const char* key, const MetadataEntry& entry, const std::string& expected) const {
    problems_->push_back({entry.declared_at, std::string("expected metadata ") + key + " to be " +
                                                 expected + ", found " + Quoted(entry.value)});
  }

 private:
  const SafetensorsHeader& header_;
  std::vector<Problem>* problems_;
};

// ---- tensors -------------------------------------------------------------------------------

enum class Content { kFloating, kInteger, kMask };

bool Fits(DType dtype, Content content) {
  switch (content) {
    case Content::kFloating:
      return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kF16 ||
             dtype == DType::kBF16;
    case Content::kInteger:
      return IsInteger(dtype) && dtype != DType::kBool;
    case Content::kMask:
      return dtype == DType::kBool || dtype == DType::kU8;
  }
  return false;
}

const char* Expectation(Content content) {
  switch (content) {
    case Content::kFloating:
      return "F64, F32, F16 or BF16";
    case Content::kInteger:
      return "an integer dtype";
    case Content::kMask:
      return "BOOL or U8";
  }
  return "";
}

struct TensorRule {
  const char* name;
  Content content;
  const char* axes;  // "TE", "Tk", "T", "E"
  v1::Tensor* (v1::RoutingSample::*field)();
};

constexpr const char* kLogits = "router_logits";
constexpr const char* kScores = "router_scores";

constexpr TensorRule kOptionalTensors[] = {
    {"expert_bias", Content::kFloating, "E", &v1::RoutingSample::mutable_expert_bias},
    {"topk_indices", Content::kInteger, "Tk", &v1::RoutingSample::mutable_topk_indices},
    {"keep_mask", Content::kMask, "Tk", &v1::RoutingSample::mutable_keep_mask},
    {"routing_map", Content::kMask, "TE", &v1::RoutingSample::mutable_routing_map},
    {"sequence_id", Content::kInteger, "T", &v1::RoutingSample::mutable_sequence_id},
    {"position", Content::kInteger, "T", &v1::RoutingSample::mutable_position},
    {"padding_mask", Content::kMask, "T", &v1::RoutingSample::mutable_padding_mask},
    {"pool_id", Content::kInteger, "T", &v1::RoutingSample::mutable_pool_id},
};

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (const int64_t extent : shape) out += (out.size() > 1 ? "," : "") + std::to_string(extent);
  return out + "]";
}

struct Extents {
  int64_t tokens = 0, experts = 0, k = 0;

  std::vector<int64_t> Of(std::string_view axes) const {
    std::vector<int64_t> shape;
    for (const char axis : axes) shape.push_back(axis == 'T' ? tokens : axis == 'E' ? experts : k);
    return shape;
  }
};

void CheckDType(const TensorEntry& tensor, Content content, std::vector<Problem>* problems) {
  if (Fits(tensor.dtype, content)) return;
  problems->push_back(
      {tensor.declared_at,
       "expected " + tensor.name + " as " + Expectation(content) + ", found " + tensor.dtype_name});
}

void CheckShape(const TensorEntry& tensor, std::string_view axes, const Extents& extents,
                std::vector<Problem>* problems) {
  const std::vector<int64_t> expected = extents.Of(axes);
  if (tensor.shape == expected) return;
  std::string names;
  for (const char axis : axes) names += std::string(names.empty() ? "[" : ",") + axis;
  problems->push_back({tensor.declared_at, "expected " + tensor.name + " of shape " + names +
                                               "] = " + ShapeText(expected) + ", found " +
                                               ShapeText(tensor.shape)});
}

const TensorEntry* FindScores(const SafetensorsHeader& header, std::vector<Problem>* problems) {
  const TensorEntry* logits = header.Find(kLogits);
  const TensorEntry* scores = header.Find(kScores);
  if (logits != nullptr && scores != nullptr) {
    problems->push_back(
        {scores->declared_at, "expected router_logits or router_scores, found both"});
    return nullptr;
  }
  const TensorEntry* found = logits != nullptr ? logits : scores;
  if (found == nullptr) {
    problems->push_back(
        {0, "expected a tensor router_logits or router_scores of shape [T,E], found neither"});
    return nullptr;
  }
  CheckDType(*found, Content::kFloating, problems);
  if (found->shape.size() != 2 || found->shape[1] < 1) {
    problems->push_back(
        {found->declared_at, "expected " + found->name +
                                 " of shape [T,E] with at least one expert, found " +
                                 ShapeText(found->shape)});
    return nullptr;
  }
  return found;
}

void CheckProbs(const SafetensorsHeader& header, const Extents& extents,
                std::vector<Problem>* problems) {
  const TensorEntry* probs = header.Find("probs");
  if (probs == nullptr) return;
  CheckDType(*probs, Content::kFloating, problems);
  if (probs->shape != extents.Of("TE")) CheckShape(*probs, "Tk", extents, problems);
}

// A message of protobuf, and so an evidence item, ends at 2 GiB.
void CheckSize(const SafetensorsHeader& header, const TensorEntry& scores,
               std::vector<Problem>* problems) {
  constexpr uint64_t kMost = (uint64_t{1} << 31) - (uint64_t{1} << 20);
  uint64_t total = scores.bytes();
  for (const TensorRule& rule : kOptionalTensors) {
    if (const TensorEntry* tensor = header.Find(rule.name)) total += tensor->bytes();
  }
  if (const TensorEntry* probs = header.Find("probs")) total += probs->bytes();
  if (total <= kMost) return;
  problems->push_back({scores.declared_at, "expected at most " + std::to_string(kMost) +
                                               " bytes of routing tensors in one dump, found " +
                                               std::to_string(total) +
                                               " (dump fewer tokens a file)"});
}

// Without a usable top_k the tensors are still checked against each other.
int64_t Choices(const SafetensorsHeader& header, std::optional<uint32_t> top_k) {
  if (top_k) return *top_k;
  const TensorEntry* indices = header.Find("topk_indices");
  return indices != nullptr && indices->shape.size() == 2 ? indices->shape[1] : 1;
}

void CheckTensors(const SafetensorsHeader& header, std::optional<uint32_t> top_k,
                  v1::RoutingConfig* config, std::vector<Problem>* problems) {
  const TensorEntry* scores = FindScores(header, problems);
  if (scores == nullptr) return;
  const Extents extents{scores->shape[0], scores->shape[1], Choices(header, top_k)};
  if (extents.experts > std::numeric_limits<uint32_t>::max()) {
    problems->push_back({scores->declared_at,
                         "expected fewer than 2^32 experts, found " + ShapeText(scores->shape)});
    return;
  }
  config->set_experts(static_cast<uint32_t>(extents.experts));
  for (const TensorRule& rule : kOptionalTensors) {
    const TensorEntry* tensor = header.Find(rule.name);
    if (tensor == nullptr) continue;
    CheckDType(*tensor, rule.content, problems);
    CheckShape(*tensor, rule.axes, extents, problems);
  }
  CheckProbs(header, extents, problems);
  CheckSize(header, *scores, problems);
}

absl::Status LoadTensor(const InputFile& file, const TensorEntry& entry, v1::Tensor* tensor) {
  tensor->set_dtype(static_cast<v1::DType>(entry.dtype));
  for (const int64_t extent : entry.shape) tensor->add_shape(extent);
  std::string* data = tensor->mutable_data();
  data->resize(entry.bytes());
  return file.ReadAt(entry.begin, data->data(), data->size());
}

absl::Status LoadSample(const InputFile& file, const SafetensorsHeader& header,
                        v1::RoutingSample* sample) {
  const TensorEntry* logits = header.Find(kLogits);
  sample->set_scores_are_logits(logits != nullptr);
  const TensorEntry* scores = logits != nullptr ? logits : header.Find(kScores);
  if (absl::Status status = LoadTensor(file, *scores, sample->mutable_scores()); !status.ok())
    return status;
  for (const TensorRule& rule : kOptionalTensors) {
    const TensorEntry* tensor = header.Find(rule.name);
    if (tensor == nullptr) continue;
    if (absl::Status status = LoadTensor(file, *tensor, (sample->*rule.field)()); !status.ok())
      return status;
  }
  const TensorEntry* probs = header.Find("probs");
  return probs == nullptr ? absl::OkStatus() : LoadTensor(file, *probs, sample->mutable_probs());
}

// No summary where the content cannot be measured (an index out of range, k > E): the rules look at
// the sample themselves and say what is wrong with it.
void Measure(v1::Routing* routing) {
  const absl::StatusOr<RoutingInput> input = ViewRouting(*routing);
  RoutingStats stats;
  const int threads = ThreadsFor(routing->sample().scores().data().size());
  if (input.ok() && SummariseRouting(*input, &stats, threads).ok()) {
    FillRoutingSummary(stats, routing->mutable_summary());
  }
}

void ReadCapacity(const SafetensorsHeader& header, const Metadata& metadata,
                  v1::RoutingConfig* config) {
  const MetadataEntry* entry = header.Metadata("capacity");
  if (entry == nullptr) return;
  if (entry->value == "none") {
    config->set_capacity_kind(v1::RoutingConfig::CAPACITY_NONE);
    return;
  }
  uint64_t value = 0;
  const char* end = entry->value.data() + entry->value.size();
  const auto parsed = std::from_chars(entry->value.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || value == 0) {
    metadata.Wrong("capacity", *entry, "none or a whole number of at least 1");
    return;
  }
  config->set_capacity_kind(v1::RoutingConfig::CAPACITY_DECLARED);
  config->set_capacity(value);
}

constexpr std::string_view kMetadataKeys[] = {
    "kind",        "run",   "attempt", "layer",          "op",           "step",   "rank",
    "world_size",  "top_k", "mode",    "score_function", "capacity",     "groups", "top_groups",
    "group_score", "pool",  "flatten", "randomness",     "bias_captured"};
constexpr std::string_view kTensorNames[] = {
    "router_logits", "router_scores", "expert_bias", "topk_indices", "keep_mask", "routing_map",
    "probs",         "sequence_id",   "position",    "padding_mask", "pool_id"};

// Names that are not ours are left alone, misspelt ones are not: without them the rest would be
// judged as something it is not.
void CheckSpelling(const SafetensorsHeader& header, std::vector<Problem>* problems) {
  const auto check = [&](const char* what, const std::string& name, uint64_t declared_at,
                         std::span<const std::string_view> known) {
    const auto meant = MeantName(name, known);
    if (!meant) return;
    problems->push_back({declared_at, std::string("expected ") + what + " " + std::string(*meant) +
                                          ", found " + Quoted(name) + ", which is not read"});
  };
  for (const auto& [key, entry] : header.metadata) {
    check("metadata", key, entry.declared_at, kMetadataKeys);
  }
  for (const auto& [name, tensor] : header.tensors) {
    check("tensor", name, tensor.declared_at, kTensorNames);
  }
}

}  // namespace

DumpSite ReadDumpSite(const SafetensorsHeader& header, std::vector<Problem>* problems) {
  constexpr uint64_t kMaxU32 = std::numeric_limits<uint32_t>::max();
  constexpr uint64_t kMaxI64 = std::numeric_limits<int64_t>::max();
  const Metadata metadata(header, problems);
  DumpSite site;
  site.run = metadata.Text("run");
  site.layer = metadata.Text("layer");
  site.op = metadata.Text("op");
  site.attempt = static_cast<uint32_t>(metadata.Whole("attempt", 0, kMaxU32, 0));
  site.rank = static_cast<uint32_t>(metadata.Whole("rank", 0, kMaxU32, 0));
  site.step = static_cast<int64_t>(metadata.Whole("step", 0, kMaxI64, 0));
  const uint64_t least = uint64_t{site.rank} + 1;
  site.world_size = static_cast<uint32_t>(metadata.Whole("world_size", least, kMaxU32, 0));
  return site;
}

v1::RoutingConfig ReadRoutingConfig(const SafetensorsHeader& header,
                                    std::vector<Problem>* problems) {
  using Config = v1::RoutingConfig;
  constexpr uint64_t kMaxU32 = std::numeric_limits<uint32_t>::max();
  const Metadata metadata(header, problems);
  Config config;
  if (header.Metadata("top_k") == nullptr) {
    problems->push_back({0, "expected metadata top_k (choices a token), found none"});
  }
  const auto top_k =
      static_cast<uint32_t>(metadata.Whole("top_k", 1, std::numeric_limits<int32_t>::max(), 0));
  config.set_top_k(top_k);
  config.set_score_function(static_cast<v1::ScoreFunction>(metadata.Choice(
      "score_function", std::array{"identity", "softmax", "sigmoid"}, v1::SCORE_IDENTITY)));
  ReadCapacity(header, metadata, &config);
  config.set_groups(static_cast<uint32_t>(metadata.Whole("groups", 0, kMaxU32, 0)));
  config.set_top_groups(static_cast<uint32_t>(metadata.Whole("top_groups", 0, kMaxU32, 0)));
  // The enums' first value is "absent", so a choice's index is one less.
  config.set_group_score(static_cast<Config::GroupScore>(
      metadata.Choice("group_score", std::array{"max", "sum2"}, -1) + 1));
  config.set_pool(static_cast<Config::Pool>(
      metadata.Choice("pool", std::array{"microbatch", "sequence", "group", "rank", "world"}, -1) +
      1));
  config.set_flatten(static_cast<Config::Flatten>(
      metadata.Choice("flatten", std::array{"seq-major", "batch-major"}, -1) + 1));
  config.set_bias_captured(static_cast<Config::BiasCaptured>(
      metadata.Choice("bias_captured", std::array{"before", "after"}, -1) + 1));
  metadata.Choice("mode", std::array{"train", "eval"}, -1);
  config.set_mode(metadata.Text("mode"));
  config.set_randomness(metadata.Text("randomness"));
  CheckSpelling(header, problems);
  CheckTensors(header, top_k > 0 ? std::optional(top_k) : std::nullopt, &config, problems);
  return config;
}

bool LooksLikeRouting(const SafetensorsHeader& header) {
  return header.Find(kLogits) != nullptr || header.Find(kScores) != nullptr;
}

absl::Status LoadRouting(const InputFile& file, const SafetensorsHeader& header,
                         v1::RoutingConfig config, v1::Evidence* evidence) {
  v1::Routing* routing = evidence->mutable_routing();
  *routing->mutable_config() = std::move(config);
  if (absl::Status status = LoadSample(file, header, routing->mutable_sample()); !status.ok())
    return status;
  evidence->set_sample_size(static_cast<uint64_t>(routing->sample().scores().shape(0)));
  Measure(routing);
  evidence->set_exercised(RoutingExercised(*routing));
  return absl::OkStatus();
}

}  // namespace plumbline::audit
