#include "audit/plan/model_file.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace plumbline::audit {
namespace {

using ConfigJson = nlohmann::json;

constexpr size_t kMostModelBytes = 16u << 20;
// Returns the families whose feed-forward layers have two matrices. All other known families have
// three.
const std::set<std::string>& Ungated() {
  static const auto* names = new std::set<std::string>{
      "gpt2", "gpt_neo", "gpt_neox", "gptj",       "opt",         "bloom", "falcon",
      "phi",  "codegen", "mpt",      "starcoder2", "gpt_bigcode", "bert",  "roberta"};
  return *names;
}

class Counter {
 public:
  Counter(const ConfigJson& config, const std::string& path) : config_(config), path_(path) {}

  absl::StatusOr<CountedModel> Count() {
    hidden_ = Need({"hidden_size", "n_embd", "d_model", "dim"});
    layers_ = Need({"num_hidden_layers", "n_layer", "num_layers", "n_layers"});
    vocabulary_ = Need({"vocab_size"});
    heads_ = Need({"num_attention_heads", "n_head", "n_heads", "num_heads"});
    sequence_ = Need({"max_position_embeddings", "n_positions", "max_seq_len", "seq_length",
                      "max_sequence_length"});
    if (!missing_.empty()) return absl::InvalidArgumentError(missing_);
    if (hidden_ < 1 || layers_ < 1 || layers_ > 100000)
      return absl::InvalidArgumentError(
          absl::StrCat(path_, ": expected hidden and layer counts above 0"));
    ReadType();
    CountedModel out;
    const double shared = Embeddings() + layers_ * Attention();
    double all = 0, used = 0;
    FeedForward(&all, &used);
    if (!missing_.empty()) return absl::InvalidArgumentError(missing_);
    out.shape.parameters = shared + all;
    out.shape.active = shared + used;
    out.shape.layers = static_cast<int64_t>(layers_);
    out.shape.hidden = static_cast<int64_t>(hidden_);
    out.shape.heads = static_cast<int64_t>(heads_);
    out.shape.sequence = static_cast<int64_t>(sequence_);
    out.notes = std::move(notes_);
    return out;
  }

 private:
  using Names = std::initializer_list<const char*>;

  std::optional<double> Get(Names names) const {
    for (const char* name : names) {
      const auto found = config_.find(name);
      if (found == config_.end() || !found->is_number()) continue;
      const double value = found->get<double>();
      if (value >= 0 && value < 1e12) return value;
    }
    return std::nullopt;
  }
  double Need(Names names) {
    const auto value = Get(names);
    if (!value && missing_.empty())
      missing_ = absl::StrCat(path_, ": expected \"", *names.begin(),
                              "\" with a number from 0 on; give the model by --parameters, "
                              "--layers and --sequence instead");
    return value.value_or(0);
  }
  bool Flag(const char* name, bool otherwise) const {
    const auto found = config_.find(name);
    return found != config_.end() && found->is_boolean() ? found->get<bool>() : otherwise;
  }

  void ReadType() {
    const auto type = config_.find("model_type");
    type_ = type != config_.end() && type->is_string() ? type->get<std::string>() : "";
    gated_ = !Ungated().contains(type_);
    if (type_.empty())
      notes_.push_back(
          "no model_type: feed-forward layers are assumed to be gated (three matrices)");
  }

  double Embeddings() {
    // The default depends on the family: these families share one table for input and output
    // embeddings.
    const bool ties = type_ == "gpt2" || type_.rfind("gemma", 0) == 0 || type_ == "opt" ||
                      type_ == "bloom" || type_ == "falcon" || type_ == "mpt" ||
                      type_ == "starcoder2" || type_ == "gpt_bigcode";
    const double tables = Flag("tie_word_embeddings", ties) ? 1 : 2;
    const bool learned = type_ == "gpt2" || type_ == "opt" || type_ == "gpt_bigcode";
    return tables * vocabulary_ * hidden_ + (learned ? sequence_ * hidden_ : 0);
  }

  double Attention() {
    if (Get({"kv_lora_rank"})) return LatentAttention();
    const double groups = Get({"num_key_value_heads", "num_kv_heads", "n_head_kv"})
                              .value_or(Flag("multi_query", false) ? 1 : heads_);
    const double size = Get({"head_dim"}).value_or(heads_ > 0 ? hidden_ / heads_ : 0);
    return 2 * hidden_ * heads_ * size + 2 * hidden_ * groups * size;
  }

  // Counts keys and values through a low-rank projection (DeepSeek-V2, -V3).
  double LatentAttention() {
    const double kv = *Get({"kv_lora_rank"}), rope = Need({"qk_rope_head_dim"});
    const double nope = Need({"qk_nope_head_dim"}), value = Need({"v_head_dim"});
    const double query = Get({"q_lora_rank"}).value_or(0);
    const double queries = heads_ * (nope + rope);
    return (query > 0 ? query * (hidden_ + queries) : hidden_ * queries) + hidden_ * (kv + rope) +
           kv * heads_ * (nope + value) + heads_ * value * hidden_;
  }

  double Matrices(double width) const { return (gated_ ? 3 : 2) * hidden_ * width; }

  void FeedForward(double* all, double* used) {
    const double experts =
        Get({"n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts"})
            .value_or(0);
    if (experts <= 1) {
      *all = *used = layers_ * Matrices(Width());
      return;
    }
    const double k = Need({"num_experts_per_tok", "num_experts_per_token", "moe_top_k", "top_k"});
    const double width = Get({"moe_intermediate_size"}).value_or(0);
    const double each = Matrices(width > 0 ? width : Width());
    const double adjacent =
        Matrices(Get({"shared_expert_intermediate_size", "shared_intermediate_size"})
                     .value_or(Get({"n_shared_experts"}).value_or(0) * width));
    const double dense = DenseLayers();
    const double mixtures = layers_ - dense;
    const double plain = dense > 0 ? dense * Matrices(Width()) : 0;
    *all = plain + mixtures * (experts * each + adjacent + hidden_ * experts);
    *used = plain + mixtures * (std::min(k, experts) * each + adjacent + hidden_ * experts);
  }

  // Returns the number of layers without experts: the first ones, or all but each n-th.
  double DenseLayers() const {
    const double first = std::min(layers_, Get({"first_k_dense_replace"}).value_or(0));
    const auto named = config_.find("mlp_only_layers");
    if (named != config_.end() && named->is_array() && !named->empty())
      return std::min(layers_, static_cast<double>(named->size()));
    const double stride = std::max(
        1.0,
        Get({"decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step"}).value_or(1));
    return first + (layers_ - first) - std::floor((layers_ - first) / stride);
  }

  double Width() {
    const auto width = Get({"intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"});
    if (width && *width > 0) return *width;
    if (gated_) return Need({"intermediate_size"});
    notes_.push_back(
        "no width of the feed-forward layers: assumed to be four times the hidden size");
    return 4 * hidden_;
  }

  const ConfigJson& config_;
  const std::string& path_;
  std::string type_, missing_;
  bool gated_ = true;
  double hidden_ = 0, layers_ = 0, vocabulary_ = 0, heads_ = 0, sequence_ = 0;
  std::vector<std::string> notes_;
};

absl::StatusOr<std::string> ReadBounded(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(path + ": expected a config.json, found no readable file");
  std::string text(kMostModelBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMostModelBytes)
    return absl::InvalidArgumentError(path + ": expected a config.json of at most 16 MiB");
  return text;
}

}  // namespace

absl::StatusOr<CountedModel> ReadModel(const std::string& path) {
  const auto text = ReadBounded(path);
  if (!text.ok()) return text.status();
  ConfigJson config;
  try {
    config = ConfigJson::parse(*text);
  } catch (const ConfigJson::parse_error& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": at byte ", error.byte, ": expected JSON"));
  }
  // In models of images and text, the language model's values are in a sub-object.
  for (const char* part : {"text_config", "llm_config", "language_config"}) {
    if (config.is_object() && config.contains(part) && config[part].is_object()) {
      const ConfigJson inner = config[part];
      config = inner;
    }
  }
  if (!config.is_object())
    return absl::InvalidArgumentError(path + ": expected a JSON object of a model's configuration");
  return Counter(config, path).Count();
}

}  // namespace plumbline::audit
