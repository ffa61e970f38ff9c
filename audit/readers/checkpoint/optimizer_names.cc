#include "audit/readers/checkpoint/optimizer_names.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>

namespace plumbline::audit {
namespace {

using Shape = std::vector<int64_t>;

bool IsRunning(std::string_view name) {
  return name.ends_with("running_mean") || name.ends_with("running_var") ||
         name.ends_with("num_batches_tracked");
}

// Kept in the shape of the parameter, whatever the optimizer.
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

// One group's parameters among the candidates, in order; nothing: they do not fit. Of a parameter
// without state the shape is not known, and any fits.
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

}  // namespace

std::map<int64_t, Shape> ShapesOfState(const std::vector<const NamedTensor*>& state) {
  std::map<int64_t, Shape> shapes;
  for (const NamedTensor* tensor : state) {
    if (tensor->parameter && HasShapeOfParameter(tensor->name))
      shapes.emplace(*tensor->parameter, tensor->place.shape);
  }
  return shapes;
}

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

}  // namespace plumbline::audit
