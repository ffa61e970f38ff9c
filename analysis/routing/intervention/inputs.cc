#include "analysis/routing/intervention/inputs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"

namespace plumbline::analysis::intervention {
namespace {

absl::Status Bad(const std::string& text) { return absl::InvalidArgumentError(text); }

template <typename T>
absl::Status CheckLength(const char* name, const std::vector<T>& column, int32_t tokens) {
  if (column.empty() || column.size() == static_cast<size_t>(tokens)) return absl::OkStatus();
  return Bad(absl::StrCat(name, ": expected one value a row, ", tokens, ", found ", column.size()));
}

absl::Status CheckLogits(const RouterInputs& inputs) {
  for (size_t i = 0; i < inputs.logits.size(); ++i) {
    const double x = inputs.logits[i];
    if (!std::isnan(x) && !(std::isinf(x) && x > 0)) continue;
    const auto experts = static_cast<size_t>(inputs.experts);
    return Bad(absl::StrCat("logits: row ", i / experts, ", expert ", i % experts, " is ",
                            std::isnan(x) ? "NaN" : "+infinity",
                            "; expected finite numbers (-infinity masks an expert)"));
  }
  return absl::OkStatus();
}

bool IsPadding(const RouterInputs& inputs, int32_t row) {
  return !inputs.padding.empty() && inputs.padding[static_cast<size_t>(row)] != 0;
}

int64_t PositionOf(const RouterInputs& inputs, int32_t row) {
  return inputs.position.empty() ? row : inputs.position[static_cast<size_t>(row)];
}

double Strength(const double* row, int32_t experts) {
  return *std::max_element(row, row + experts);
}

}  // namespace

absl::Status CheckInputs(const RouterInputs& inputs) {
  if (inputs.tokens < 1 || inputs.experts < 1) {
    return Bad(absl::StrCat("logits: expected shape [T, E] with T, E >= 1, found [", inputs.tokens,
                            ", ", inputs.experts, "]"));
  }
  const auto size = static_cast<size_t>(inputs.tokens) * static_cast<size_t>(inputs.experts);
  if (inputs.logits.size() != size)
    return Bad(absl::StrCat("logits: expected ", size, " numbers, found ", inputs.logits.size()));
  for (const absl::Status& status :
       {CheckLength("sequence_id", inputs.sequence, inputs.tokens),
        CheckLength("position", inputs.position, inputs.tokens),
        CheckLength("padding_mask", inputs.padding, inputs.tokens),
        CheckLength("rank", inputs.rank, inputs.tokens), CheckLogits(inputs)}) {
    if (!status.ok()) return status;
  }
  std::set<std::pair<int64_t, int64_t>> places;
  std::map<int64_t, int64_t> rank_of;
  for (int32_t t = 0; t < inputs.tokens; ++t) {
    if (IsPadding(inputs, t)) continue;
    const auto row = static_cast<size_t>(t);
    const int64_t sequence = inputs.sequence.empty() ? 0 : inputs.sequence[row];
    if (!places.insert({sequence, PositionOf(inputs, t)}).second) {
      return Bad(absl::StrCat("position: row ", t, " is position ", PositionOf(inputs, t),
                              " of sequence ", sequence, " a second time"));
    }
    if (inputs.rank.empty()) continue;
    if (rank_of.try_emplace(sequence, inputs.rank[row]).first->second != inputs.rank[row])
      return Bad(absl::StrCat("rank: sequence ", sequence, " is on two ranks"));
  }
  return absl::OkStatus();
}

std::vector<Sequence> Sequences(const RouterInputs& inputs) {
  std::vector<Sequence> sequences;
  std::map<int64_t, size_t> index;
  for (int32_t t = 0; t < inputs.tokens; ++t) {
    if (IsPadding(inputs, t)) continue;
    const auto row = static_cast<size_t>(t);
    const int64_t id = inputs.sequence.empty() ? 0 : inputs.sequence[row];
    const auto [entry, fresh] = index.try_emplace(id, sequences.size());
    if (fresh) sequences.push_back({id, inputs.rank.empty() ? 0 : inputs.rank[row], {}});
    sequences[entry->second].rows.push_back(t);
  }
  for (Sequence& sequence : sequences) {
    std::sort(sequence.rows.begin(), sequence.rows.end(),
              [&](int32_t a, int32_t b) { return PositionOf(inputs, a) < PositionOf(inputs, b); });
  }
  return sequences;
}

std::vector<size_t> Spread(size_t count, size_t most) {
  std::set<size_t> chosen;
  const size_t n = std::min(count, std::max<size_t>(most, 1));
  for (size_t i = 0; i < n; ++i) chosen.insert(n == 1 ? 0 : i * (count - 1) / (n - 1));
  return {chosen.begin(), chosen.end()};
}

std::vector<int64_t> Cuts(int64_t length) {
  std::set<int64_t> cuts = {1, length - 1};
  for (int64_t power = 2; power < length; power *= 2) cuts.insert({power - 1, power, power + 1});
  std::erase_if(cuts, [&](int64_t cut) { return cut < 1 || cut >= length; });
  return {cuts.begin(), cuts.end()};
}

const char* Describe(Method method) {
  switch (method) {
    case Method::kRandom:
      return "random tokens";
    case Method::kCopies:
      return "copies of the strongest tokens before";
    default:
      return "tokens that all choose one expert";
  }
}

Replacement::Replacement(const RouterInputs& inputs, const Assignments& base,
                         const CheckOptions& options)
    : inputs_(inputs), base_(base), options_(options), rng_(options.seed) {
  // Welford's method over the finite values.
  const auto experts = static_cast<size_t>(inputs.experts);
  mean_.assign(experts, 0);
  deviation_.assign(experts, 0);
  std::vector<double> count(experts, 0);
  for (size_t i = 0; i < inputs.logits.size(); ++i) {
    const double x = inputs.logits[i];
    const size_t e = i % experts;
    if (!std::isfinite(x)) continue;
    const double delta = x - mean_[e];
    mean_[e] += delta / ++count[e];
    deviation_[e] += delta * (x - mean_[e]);
  }
  for (size_t e = 0; e < experts; ++e)
    deviation_[e] = count[e] > 1 ? std::sqrt(deviation_[e] / (count[e] - 1)) : 1;
}

void Replacement::Random(double* row) {
  std::normal_distribution<double> normal;
  for (size_t e = 0; e < mean_.size(); ++e) row[e] = mean_[e] + 1.5 * deviation_[e] * normal(rng_);
}

// Increases the distance from the row's mean, so that for any score function the row beats its
// model.
void Replacement::Sharpen(const double* model, double* row) const {
  double sum = 0;
  int finite = 0;
  for (int32_t e = 0; e < inputs_.experts; ++e) {
    if (!std::isfinite(model[e])) continue;
    sum += model[e];
    ++finite;
  }
  const double mean = finite > 0 ? sum / finite : 0;
  for (int32_t e = 0; e < inputs_.experts; ++e)
    row[e] = model[e] + 0.25 * (model[e] - mean) + 0.125;
}

int32_t Replacement::FloodedExpert(const std::vector<int32_t>& models, size_t turn) const {
  std::vector<int32_t> used;
  const auto experts = static_cast<size_t>(inputs_.experts);
  for (int32_t e = 0; e < inputs_.experts; ++e) {
    const bool any = std::any_of(models.begin(), models.end(), [&](int32_t t) {
      return base_[static_cast<size_t>(t) * experts + static_cast<size_t>(e)] != 0;
    });
    if (any) used.push_back(e);
  }
  return used.empty() ? static_cast<int32_t>(turn % experts) : used[turn % used.size()];
}

std::vector<double> Replacement::Make(Method method, const std::vector<int32_t>& rows,
                                      const std::vector<int32_t>& models, size_t turn) {
  std::vector<double> logits = inputs_.logits;
  const auto experts = static_cast<size_t>(inputs_.experts);
  const auto of = [&](int32_t t) { return &inputs_.logits[static_cast<size_t>(t) * experts]; };
  std::vector<int32_t> strongest = models;
  std::stable_sort(strongest.begin(), strongest.end(), [&](int32_t a, int32_t b) {
    return Strength(of(a), inputs_.experts) > Strength(of(b), inputs_.experts);
  });
  const int32_t flooded = method == Method::kFlood ? FloodedExpert(models, turn) : -1;
  for (size_t i = 0; i < rows.size(); ++i) {
    double* row = &logits[static_cast<size_t>(rows[i]) * experts];
    if (method == Method::kCopies) {
      Sharpen(of(strongest[i % strongest.size()]), row);
    } else {
      Random(row);
    }
    if (flooded >= 0) {
      row[flooded] =
          Strength(row, inputs_.experts) + 4 * (1 + deviation_[static_cast<size_t>(flooded)]);
    }
    for (size_t e = 0; e < experts; ++e) row[e] = Round(row[e]);
  }
  return logits;
}

}  // namespace plumbline::analysis::intervention
