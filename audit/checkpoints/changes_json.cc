#include <cmath>
#include <nlohmann/json.hpp>

#include "audit/checkpoints/changes.h"
#include "audit/render/json_values.h"
#include "base/version/build_version.h"

namespace plumbline::audit {
namespace {

using Json = nlohmann::ordered_json;

const char* NameOf(TensorKind kind) {
  switch (kind) {
    case TensorKind::kModel:
      return "model";
    case TensorKind::kAverage:
      return "average";
    case TensorKind::kOptimizer:
      return "optimizer";
    case TensorKind::kOther:
      break;
  }
  return "other";
}

Json FromSide(const CheckpointSide& side) {
  Json problems = Json::array();
  for (const InputReport& input : side.inputs.reports) {
    for (const Problem& problem : input.problems)
      problems.push_back(ValidUtf8(input.Line(problem)));
  }
  return {{"path", ValidUtf8(side.path)}, {"run", ValidUtf8(side.run)},     {"step", side.step},
          {"steps", side.steps},          {"tensors", side.tensors.size()}, {"problems", problems}};
}

Json FromTensor(const TensorChange& change) {
  Json json = {{"name", ValidUtf8(change.name)},
               {"kind", NameOf(change.kind)},
               {"shape", change.shape},
               {"dtype_a", ValidUtf8(change.dtype_a)},
               {"dtype_b", ValidUtf8(change.dtype_b)}};
  if (change.name_b != change.name) json["name_b"] = ValidUtf8(change.name_b);
  if (!change.wrong.empty()) {
    json["wrong"] = ValidUtf8(change.wrong);
    return json;
  }
  json["elements"] = change.count;
  json["differ"] = change.differ;
  json["non_finite"] = change.non_finite;
  json["norm_a"] = JsonNumber(std::sqrt(change.squares_a));
  json["norm_b"] = JsonNumber(std::sqrt(change.squares_b));
  json["norm_change"] = JsonNumber(change.change());
  json["relative_change"] = JsonNumber(change.relative());
  if (change.largest > 0) {
    json["largest"] = {{"at", change.largest_at},
                       {"a", JsonNumber(change.largest_a)},
                       {"b", JsonNumber(change.largest_b)}};
  }
  if (change.cosine) json["cosine"] = JsonNumber(*change.cosine);
  if (change.rows > 0) {
    Json most = Json::array();
    for (const MovedRow& row : change.most)
      most.push_back({{"row", row.row},
                      {"change", JsonNumber(row.change)},
                      {"norm_a", JsonNumber(row.weight)}});
    json["rows"] = change.rows;
    json["rows_unmoved"] = change.rows_still;
    json["rows_most"] = most;
  }
  if (!change.spectrum.empty()) {
    Json values = Json::array();
    for (const SingularValue& one : change.spectrum)
      values.push_back({{"value", JsonNumber(one.value)}, {"error", JsonNumber(one.error)}});
    json["singular_values_of_change"] = values;
  }
  return json;
}

Json FromGroups(const std::vector<ChangeGroup>& groups) {
  Json list = Json::array();
  for (const ChangeGroup& group : groups) {
    Json& one = list.emplace_back(Json{{"name", ValidUtf8(group.name)},
                                       {"tensors", group.tensors},
                                       {"changed", group.changed},
                                       {"norm_a", JsonNumber(std::sqrt(group.squares_a))},
                                       {"norm_change", JsonNumber(std::sqrt(group.squares_change))},
                                       {"rows", group.rows},
                                       {"rows_unmoved", group.rows_still}});
    if (group.before > 0)
      one["cosine"] = JsonNumber(group.along / std::sqrt(group.before * group.with_before));
  }
  return list;
}

}  // namespace

std::string ChangesJson(const CheckpointSide& a, const CheckpointSide& b,
                        const CheckpointChanges& changes) {
  Json tensors = Json::array(), renamed = Json::array();
  for (const TensorChange& change : changes.tensors) tensors.push_back(FromTensor(change));
  for (const auto& [of_a, of_b] : changes.renamed)
    renamed.push_back({{"a", ValidUtf8(of_a)}, {"b", ValidUtf8(of_b)}});
  const Json json = {{"schema", "plumbline.checkpoint-diff/1"},
                     {"tool_version", BuildVersion()},
                     {"a", FromSide(a)},
                     {"b", FromSide(b)},
                     {"roles", FromGroups(changes.roles)},
                     {"layers", FromGroups(changes.layers)},
                     {"tensors", tensors},
                     {"only_a", JsonNames(changes.only_a)},
                     {"only_b", JsonNames(changes.only_b)},
                     {"renamed", renamed},
                     {"map_unfitted", JsonNames(changes.unfitted)}};
  return json.dump(2) + "\n";
}

}  // namespace plumbline::audit
