#include "audit/readers/checkpoint/optimizer_names.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

namespace plumbline::audit {
namespace {

using Shape = std::vector<int64_t>;

bool IsRunning(std::string_view name) {
  return name.ends_with("running_mean") || name.ends_with("running_var") ||
         name.ends_with("num_batches_tracked");
}

// Returns true for state that has the shape of its parameter in every optimizer.
bool HasShapeOfParameter(std::string_view kept) {
  constexpr std::string_view kKept[] = {"exp_avg",         "exp_avg_sq", "max_exp_avg_sq",
                                        "momentum_buffer", "square_avg", "sum",
                                        "exp_inf",         "acc_delta",  "master_param"};
  return std::find(std::begin(kKept), std::end(kKept), kept) != std::end(kKept);
}

std::vector<const NamedTensor*> Candidates(const std::vector<const NamedTensor*>& model) {
  std::vector<const NamedTensor*> out;
  std::set<std::tuple<uint64_t, Shape, Shape>> seen;
  for (const NamedTensor* tensor : model) {
    const StoredTensor& place = tensor->place;
    if (!IsFloating(place.dtype) || IsRunning(tensor->name)) continue;
    if (seen.emplace(place.begin, place.shape, place.stride).second) out.push_back(tensor);
  }
  return out;
}

// Fits one group's parameters to the candidates, in order. If they do not fit, returns nothing. A
// parameter without state has no known shape and fits any candidate.
class OrderedFit {
 public:
  OrderedFit(const std::vector<const NamedTensor*>& model, const std::map<int64_t, Shape>& shapes,
             const std::vector<int64_t>& parameters)
      : model_(model), shapes_(shapes), parameters_(parameters) {}

  std::optional<std::vector<size_t>> First() const {
    std::vector<size_t> out;
    size_t at = 0;
    for (const int64_t parameter : parameters_) {
      while (at < model_.size() && !Fits(parameter, at)) ++at;
      if (at == model_.size()) return std::nullopt;
      out.push_back(at++);
    }
    return out;
  }

  std::optional<std::vector<size_t>> Last() const {
    std::vector<size_t> out(parameters_.size());
    size_t at = model_.size();
    for (size_t i = parameters_.size(); i-- > 0;) {
      while (at > 0 && !Fits(parameters_[i], at - 1)) --at;
      if (at == 0) return std::nullopt;
      out[i] = --at;
    }
    return out;
  }

 private:
  bool Fits(int64_t parameter, size_t at) const {
    const auto shape = shapes_.find(parameter);
    return shape == shapes_.end() || shape->second == model_[at]->place.shape;
  }

  const std::vector<const NamedTensor*>& model_;
  const std::map<int64_t, Shape>& shapes_;
  const std::vector<int64_t>& parameters_;
};

std::map<int64_t, Shape> ShapesOfState(const std::vector<const NamedTensor*>& state) {
  std::map<int64_t, Shape> shapes;
  for (const NamedTensor* tensor : state) {
    if (tensor->parameter && HasShapeOfParameter(tensor->name))
      shapes.emplace(*tensor->parameter, tensor->place.shape);
  }
  return shapes;
}

// ---- the order of transformers ------------------------------------------------------------------

// The rank of a part of a name among its siblings. It is the same in all known families. Families
// with another order of these parts (OPT, Bart) also have parts that are not in this table.
constexpr std::pair<std::string_view, int> kRanks[] = {
    {"base_model", 0},
    {"model", 0},
    {"transformer", 0},
    {"bert", 0},
    {"embed_tokens", 10},
    {"wte", 10},
    {"embeddings", 10},
    {"wpe", 11},
    {"word_embeddings", 12},
    {"position_embeddings", 13},
    {"token_type_embeddings", 14},
    {"encoder", 20},
    {"layers", 20},
    {"layer", 20},
    {"h", 20},
    {"norm", 30},
    {"ln_f", 30},
    {"pooler", 31},
    {"ln_1", 40},
    {"attn", 41},
    {"self_attn", 41},
    {"attention", 41},
    {"ln_2", 42},
    {"mlp", 43},
    {"intermediate", 43},
    {"input_layernorm", 44},
    {"post_attention_layernorm", 45},
    {"pre_feedforward_layernorm", 46},
    {"post_feedforward_layernorm", 47},
    {"self", 50},
    {"q_proj", 50},
    {"query", 50},
    {"c_attn", 50},
    {"k_proj", 51},
    {"key", 51},
    {"v_proj", 52},
    {"value", 52},
    {"o_proj", 53},
    {"q_norm", 54},
    {"k_norm", 55},
    {"qkv_proj", 56},
    {"dense", 60},
    {"gate_proj", 60},
    {"c_fc", 60},
    {"up_proj", 61},
    {"gate_up_proj", 62},
    {"down_proj", 63},
    {"c_proj", 70},
    {"output", 80},
    {"LayerNorm", 81},
    {"lm_head", 90},
    {"classifier", 90},
    {"score", 90},
    {"weight", 0},
    {"bias", 1},
    {"lora_A", 2},
    {"lora_B", 3},
};

std::optional<int> RankOf(std::string_view part) {
  for (const auto& [known, rank] : kRanks) {
    if (part == known) return rank;
  }
  int number = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
  if (error != std::errc() || end != part.data() + part.size()) return std::nullopt;
  return number;
}

// Returns the sort key of a name. If a part is unknown, returns nothing.
std::optional<std::vector<int>> OrderOf(std::string_view name) {
  std::vector<int> order;
  while (true) {
    const size_t dot = name.find('.');
    const std::optional<int> rank = RankOf(name.substr(0, dot));
    if (!rank) return std::nullopt;
    order.push_back(*rank);
    if (dot == std::string_view::npos) return order;
    name.remove_prefix(dot + 1);
  }
}

using Ordered = std::vector<const NamedTensor*>;

std::optional<Ordered> InOrder(const std::vector<const NamedTensor*>& model) {
  std::vector<std::pair<std::vector<int>, const NamedTensor*>> keyed;
  for (const NamedTensor* tensor : model) {
    std::optional<std::vector<int>> order = OrderOf(tensor->name);
    if (!order) return std::nullopt;
    keyed.emplace_back(*std::move(order), tensor);
  }
  std::stable_sort(keyed.begin(), keyed.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  Ordered out;
  for (size_t i = 0; i < keyed.size(); ++i) {
    if (i > 0 && keyed[i].first == keyed[i - 1].first)
      return std::nullopt;  // the order is ambiguous
    out.push_back(keyed[i].second);
  }
  return out;
}

// Returns the parameters of each group. One group has all; of two groups, the first has the
// matrices and the second the rest.
std::vector<Ordered> Divided(const Ordered& model, size_t groups) {
  if (groups == 1) return {model};
  std::vector<Ordered> out(2);
  for (const NamedTensor* tensor : model)
    out[tensor->place.shape.size() > 1 ? 0 : 1].push_back(tensor);
  return out;
}

}  // namespace

std::map<int64_t, std::string> NamesOfParameters(const std::vector<const NamedTensor*>& model,
                                                 const std::vector<const NamedTensor*>& state,
                                                 const std::vector<ParameterGroup>& groups) {
  const std::map<int64_t, Shape> shapes = ShapesOfState(state);
  const std::vector<const NamedTensor*> candidates = Candidates(model);
  std::map<int64_t, std::string> names;
  for (const ParameterGroup& group : groups) {
    const OrderedFit fit(candidates, shapes, group.parameters);
    const auto first = fit.First(), last = fit.Last();
    if (!first || !last) continue;
    for (size_t i = 0; i < group.parameters.size(); ++i) {
      if ((*first)[i] != (*last)[i]) continue;
      names[group.parameters[i]] = candidates[(*first)[i]]->name;
    }
  }
  return names;
}

std::map<int64_t, std::string> NamesInTransformersOrder(
    const std::vector<const NamedTensor*>& model, const std::vector<const NamedTensor*>& state,
    const std::vector<ParameterGroup>& groups) {
  std::vector<const ParameterGroup*> filled;
  for (const ParameterGroup& group : groups) {
    if (!group.parameters.empty()) filled.push_back(&group);
  }
  const std::optional<Ordered> ordered = InOrder(model);
  if (!ordered || filled.empty() || filled.size() > 2) return {};
  const std::vector<Ordered> parts = Divided(*ordered, filled.size());
  const std::map<int64_t, std::vector<int64_t>> shapes = ShapesOfState(state);
  std::map<int64_t, std::string> names;
  for (size_t g = 0; g < filled.size(); ++g) {
    if (parts[g].size() != filled[g]->parameters.size()) return {};
    for (size_t i = 0; i < parts[g].size(); ++i) {
      const int64_t parameter = filled[g]->parameters[i];
      const auto shape = shapes.find(parameter);
      if (shape != shapes.end() && shape->second != parts[g][i]->place.shape) return {};
      names[parameter] = parts[g][i]->name;
    }
  }
  return names;
}

}  // namespace plumbline::audit
