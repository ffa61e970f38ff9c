#include "audit/readers/dumps/routing.h"

#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>

#include "audit/readers/dumps/metadata.h"
#include "audit/readers/dumps/tensors.h"
#include "base/parallel.h"
#include "kernels/evidence/routing.h"

namespace plumbline::audit {
namespace {

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
    {"sequence_order", Content::kInteger, "T", &v1::RoutingSample::mutable_sequence_order},
    {"position", Content::kInteger, "T", &v1::RoutingSample::mutable_position},
    {"padding_mask", Content::kMask, "T", &v1::RoutingSample::mutable_padding_mask},
    {"pool_id", Content::kInteger, "T", &v1::RoutingSample::mutable_pool_id},
    {"region", Content::kMask, "T", &v1::RoutingSample::mutable_region},
};

struct Extents {
  int64_t tokens = 0, experts = 0, k = 0;

  std::vector<int64_t> Of(std::string_view axes) const {
    std::vector<int64_t> shape;
    for (const char axis : axes) shape.push_back(axis == 'T' ? tokens : axis == 'E' ? experts : k);
    return shape;
  }
};

// Checks a shape, such as [T,k] for "Tk".
void CheckAxes(const TensorEntry& tensor, std::string_view axes, const Extents& extents,
               std::vector<Problem>* problems) {
  std::string names;
  for (const char axis : axes) names += std::string(names.empty() ? "[" : ",") + axis;
  CheckShape(tensor, names + "]", extents.Of(axes), problems);
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
  if (probs->shape != extents.Of("TE")) CheckAxes(*probs, "Tk", extents, problems);
}

void CheckSize(const SafetensorsHeader& header, const TensorEntry& scores,
               std::vector<Problem>* problems) {
  std::vector<const TensorEntry*> all = {&scores, header.Find("probs")};
  for (const TensorRule& rule : kOptionalTensors) all.push_back(header.Find(rule.name));
  CheckTotalSize(all, "routing tensors", "dump fewer tokens per file", problems);
}

// Returns k. If top_k is unusable, takes k from the tensors, so that they are still checked against
// each other.
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
    CheckAxes(*tensor, rule.axes, extents, problems);
  }
  CheckProbs(header, extents, problems);
  CheckSize(header, *scores, problems);
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

// Adds the summary. If the content cannot be measured (an index out of range, k > E), adds none.
// The rules then judge the sample and report the error.
void Measure(v1::Routing* routing) {
  const absl::StatusOr<RoutingInput> input = ViewRouting(*routing);
  RoutingStats stats;
  const int threads = ThreadsFor(routing->sample().scores().data().size());
  if (input.ok() && SummariseRouting(*input, &stats, threads).ok()) {
    FillRoutingSummary(stats, routing->mutable_summary());
  }
}

void ReadCapacity(const SafetensorsHeader& header, const DumpMetadata& metadata,
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

// Reads the policy, by one of the names that verdicts use (`policy` in the details of a routing
// verdict).
void ReadPolicy(const SafetensorsHeader& header, const DumpMetadata& metadata,
                v1::RoutingConfig* config) {
  constexpr std::array kPolicies = {"token-choice",   "fifo-capacity",   "rank-major-capacity",
                                    "score-capacity", "random-capacity", "tie-order-capacity",
                                    "expert-choice",  "sequence-top-k",  "balanced-assignment",
                                    "unknown"};
  if (header.Metadata("policy") == nullptr) return;
  const int policy = metadata.Choice("policy", kPolicies, -1);
  if (policy >= 0) config->set_policy(kPolicies[static_cast<size_t>(policy)]);
}

constexpr std::string_view kMetadataKeys[] = {"top_k",       "mode",          "score_function",
                                              "capacity",    "groups",        "top_groups",
                                              "group_score", "pool",          "flatten",
                                              "randomness",  "bias_captured", "capacity_source",
                                              "policy",      "redacted_key"};
constexpr std::string_view kTensorNames[] = {
    "router_logits", "router_scores",  "expert_bias", "topk_indices", "keep_mask",
    "routing_map",   "probs",          "sequence_id", "position",     "padding_mask",
    "pool_id",       "sequence_order", "region"};

// Reads and checks the configuration.
v1::RoutingConfig ReadRoutingConfig(const SafetensorsHeader& header,
                                    std::vector<Problem>* problems) {
  using Config = v1::RoutingConfig;
  const DumpMetadata metadata(header, problems);
  Config config;
  if (header.Metadata("top_k") == nullptr) {
    problems->push_back({0, "expected metadata top_k (choices per token), found none"});
  }
  const auto top_k =
      static_cast<uint32_t>(metadata.Whole("top_k", 1, std::numeric_limits<int32_t>::max(), 0));
  config.set_top_k(top_k);
  config.set_score_function(static_cast<v1::ScoreFunction>(metadata.Choice(
      "score_function", std::array{"identity", "softmax", "sigmoid"}, v1::SCORE_IDENTITY)));
  ReadCapacity(header, metadata, &config);
  config.set_groups(static_cast<uint32_t>(metadata.Whole("groups", 0, kMaxU32, 0)));
  config.set_top_groups(static_cast<uint32_t>(metadata.Whole("top_groups", 0, kMaxU32, 0)));
  // The enums' first value is "absent", so the index of a choice is one less.
  config.set_group_score(static_cast<Config::GroupScore>(
      metadata.Choice("group_score", std::array{"max", "sum2"}, -1) + 1));
  config.set_pool(static_cast<Config::Pool>(
      metadata.Choice("pool", std::array{"microbatch", "sequence", "group", "rank", "world"}, -1) +
      1));
  config.set_flatten(static_cast<Config::Flatten>(
      metadata.Choice("flatten", std::array{"seq-major", "batch-major"}, -1) + 1));
  config.set_bias_captured(static_cast<Config::BiasCaptured>(
      metadata.Choice("bias_captured", std::array{"before", "after"}, -1) + 1));
  config.set_capacity_source(static_cast<Config::CapacitySource>(
      metadata.Choice("capacity_source", std::array{"declared", "inferred"}, -1) + 1));
  ReadPolicy(header, metadata, &config);
  metadata.Choice("mode", std::array{"train", "eval"}, -1);
  config.set_mode(metadata.Text("mode"));
  config.set_randomness(metadata.Text("randomness"));
  CheckSpelling(header, kMetadataKeys, kTensorNames, problems);
  CheckTensors(header, top_k > 0 ? std::optional(top_k) : std::nullopt, &config, problems);
  return config;
}

// Reads the fingerprint of the key with which ids were hashed, as `plumb capsule` writes it.
uint64_t ReadRedactedKey(const SafetensorsHeader& header, std::vector<Problem>* problems) {
  const MetadataEntry* entry = header.Metadata("redacted_key");
  if (entry == nullptr) return 0;
  uint64_t key = 0;
  const char* end = entry->value.data() + entry->value.size();
  const auto parsed = std::from_chars(entry->value.data(), end, key, 16);
  if (parsed.ec == std::errc() && parsed.ptr == end && key != 0) return key;
  DumpMetadata(header, problems).Wrong("redacted_key", *entry, "1 to 16 hexadecimal digits, not 0");
  return 0;
}

bool LooksLikeRouting(const SafetensorsHeader& header) {
  return header.Find(kLogits) != nullptr || header.Find(kScores) != nullptr;
}

void CheckRouting(const SafetensorsHeader& header, std::vector<Problem>* problems) {
  ReadRoutingConfig(header, problems);
  ReadRedactedKey(header, problems);
}

std::string RoutingOp(const SafetensorsHeader& /*header*/) { return "routing"; }

absl::Status LoadRouting(const InputFile& file, const SafetensorsHeader& header,
                         v1::Evidence* evidence) {
  std::vector<Problem> none;  // stays empty, because the header was checked before
  v1::Routing* routing = evidence->mutable_routing();
  *routing->mutable_config() = ReadRoutingConfig(header, &none);
  if (absl::Status status = LoadSample(file, header, routing->mutable_sample()); !status.ok())
    return status;
  evidence->set_sample_size(static_cast<uint64_t>(routing->sample().scores().shape(0)));
  Measure(routing);
  evidence->set_exercised(RoutingExercised(*routing));
  evidence->set_redacted_key(ReadRedactedKey(header, &none));
  return absl::OkStatus();
}

}  // namespace

const DumpKind kRoutingDump = {"routing", LooksLikeRouting, CheckRouting, RoutingOp, LoadRouting};

}  // namespace plumbline::audit
