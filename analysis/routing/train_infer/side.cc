#include "analysis/routing/train_infer/side.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/load.h"
#include "base/router/scores.h"

namespace plumbline::analysis {
namespace {

constexpr size_t kMaxSequences = 1 << 16;
constexpr size_t kRowBytes = 256 << 10;  // rows kept of a layer

// Returns the number of tokens whose rows are kept.
size_t MostRows(int32_t experts) {
  return kRowBytes / (sizeof(float) * static_cast<size_t>(std::max(experts, 1)));
}

// A fixed hash of a token's key (splitmix64's finaliser), which decides the rows to keep.
uint64_t Mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
uint64_t HashOf(const TokenKey& key) {
  return Mixed(Mixed(static_cast<uint64_t>(key.sequence)) + 0x9e3779b97f4a7c15u +
               static_cast<uint64_t>(key.position));
}

bool Holds(const v1::Tensor& t, int64_t rows, int64_t columns, bool floating) {
  const auto dtype = static_cast<DType>(t.dtype());
  if (DTypeSize(dtype) == 0 || IsFloating(dtype) != floating) return false;
  const bool vector = columns == 0;
  if (t.shape_size() != (vector ? 1 : 2) || t.shape(0) != rows) return false;
  if (!vector && t.shape(1) != columns) return false;
  const auto elements = static_cast<size_t>(rows) * static_cast<size_t>(vector ? 1 : columns);
  return t.data().size() == elements * DTypeSize(dtype);
}

int64_t Whole(const v1::Tensor& t, int64_t i) {
  return LoadInt64(t.data().data(), static_cast<DType>(t.dtype()), i);
}
double Number(const v1::Tensor& t, int64_t i) {
  return LoadDouble(t.data().data(), static_cast<DType>(t.dtype()), i);
}

// Reads one call's rows.
class CallReader {
 public:
  CallReader(const v1::Routing& routing, RoutedSide* side)
      : config_(routing.config()), s_(routing.sample()), side_(side) {}

  // Returns what is wrong with the call. If its rows can be read, returns an empty string.
  std::string Open() {
    if (!s_.has_scores() && !s_.has_topk_indices())
      return "no-choices: neither scores nor topk_indices were recorded";
    const v1::Tensor& first = s_.has_topk_indices() ? s_.topk_indices() : s_.scores();
    if (first.shape_size() != 2) return "bad-tensor: expected two axes";
    rows_ = first.shape(0);
    experts_ = s_.has_scores() && s_.scores().shape_size() == 2
                   ? s_.scores().shape(1)
                   : static_cast<int64_t>(config_.experts());
    k_ = static_cast<int64_t>(config_.top_k());
    if (rows_ < 0 || rows_ > (int64_t{1} << 28) || experts_ < 1 || experts_ > kMaxExperts ||
        k_ < 1 || k_ > std::min<int64_t>(kMaxTopK, experts_))
      return "bad-shape: rows, experts or top_k are out of range";
    if (!s_.has_sequence_id()) return "no-sequence-ids: tokens cannot be identified";
    if (!s_.has_position()) return "no-positions: tokens cannot be identified";
    if (std::string bad = BadTensor(); !bad.empty())
      return absl::StrCat("bad-tensor: ", bad, " does not have its shape, dtype and bytes");
    if (side_->rows > 0 && (side_->experts != experts_ || side_->top_k != k_))
      return "calls-differ: calls of one step have different numbers of experts or choices";
    side_->experts = static_cast<int32_t>(experts_);
    side_->top_k = static_cast<int32_t>(k_);
    return OpenScores();
  }

  // If there are many rows, only those with the lowest hashes are kept. The others are counted, not
  // scored.
  void ReadRows(size_t max_tokens) {
    const double share = 2 * static_cast<double>(max_tokens) / static_cast<double>(rows_);
    const uint64_t limit =
        share < 0.5 ? static_cast<uint64_t>(std::ldexp(share, 64)) : ~uint64_t{0};
    const double kept = 2 * static_cast<double>(MostRows(side_->experts)) /
                        static_cast<double>(std::max<int64_t>(rows_, 1));
    row_limit_ = kept < 0.5 ? static_cast<uint64_t>(std::ldexp(kept, 64)) : ~uint64_t{0};
    for (int64_t row = 0; row < rows_; ++row) {
      if (s_.has_padding_mask() && Whole(s_.padding_mask(), row) != 0) continue;
      RoutedToken token;
      token.key = {Whole(s_.sequence_id(), row), Whole(s_.position(), row)};
      Count(token.key);
      if (HashOf(token.key) > limit) continue;
      Score(row, token);
      Choose(row, token);
      Weigh(row, token);
      side_->tokens.push_back(std::move(token));
    }
  }

 private:
  std::string BadTensor() const {
    const auto check = [](bool has, bool good) { return !has || good; };
    if (!check(s_.has_scores(), Holds(s_.scores(), rows_, experts_, true))) return "scores";
    if (!check(s_.has_expert_bias(), Holds(s_.expert_bias(), experts_, 0, true)))
      return "expert_bias";
    if (!check(s_.has_topk_indices(), Holds(s_.topk_indices(), rows_, k_, false)))
      return "topk_indices";
    if (!check(s_.has_keep_mask(), Holds(s_.keep_mask(), rows_, k_, false))) return "keep_mask";
    if (!check(s_.has_routing_map(), Holds(s_.routing_map(), rows_, experts_, false)))
      return "routing_map";
    if (!check(s_.has_probs(),
               Holds(s_.probs(), rows_, experts_, true) || Holds(s_.probs(), rows_, k_, true)))
      return "probs";
    if (!Holds(s_.sequence_id(), rows_, 0, false)) return "sequence_id";
    if (!Holds(s_.position(), rows_, 0, false)) return "position";
    if (!check(s_.has_padding_mask(), Holds(s_.padding_mask(), rows_, 0, false)))
      return "padding_mask";
    return "";
  }

  std::string OpenScores() {
    if (!s_.has_scores()) return SetKind("");
    rule_.experts = static_cast<int>(experts_);
    rule_.dtype = static_cast<DType>(s_.scores().dtype());
    const auto groups = static_cast<int64_t>(config_.groups());
    const auto top = static_cast<int64_t>(config_.top_groups());
    if (groups > 1) {
      if (experts_ % groups != 0 || top < 1 || top > groups || top * (experts_ / groups) < k_)
        return "bad-groups: the group limit does not fit";
      rule_.groups = static_cast<int>(groups);
      rule_.top_groups = static_cast<int>(top);
      rule_.group_score = static_cast<GroupScore>(config_.group_score());
    }
    for (int64_t e = 0; s_.has_expert_bias() && e < experts_; ++e) {
      bias_.push_back(Number(s_.expert_bias(), e));
      rule_.has_bias = rule_.has_bias || bias_[static_cast<size_t>(e)] != bias_[0];
    }
    // If nothing else decides, compare logits directly: rounding changes them by equal amounts,
    // unlike a softmax's large and small values.
    const bool function = s_.scores_are_logits() && (rule_.has_bias || rule_.limited());
    rule_.function =
        function ? static_cast<ScoreFunction>(config_.score_function()) : ScoreFunction::kIdentity;
    const bool logits = s_.scores_are_logits() && rule_.function == ScoreFunction::kIdentity;
    return SetKind(absl::StrCat(logits ? "logits" : "scores", rule_.has_bias ? " and bias" : "",
                                rule_.limited() ? " within groups" : ""));
  }

  RecordedRule Recorded() const {
    RecordedRule rule{.scores = s_.has_scores(), .logits = s_.scores_are_logits()};
    rule.function = config_.score_function();
    rule.dtype = s_.scores().dtype();
    if (rule_.limited()) {
      rule.groups = rule_.groups;
      rule.top_groups = rule_.top_groups;
      rule.group_score = static_cast<int32_t>(rule_.group_score);
    }
    if (rule_.has_bias) rule.bias = bias_;
    return rule;
  }

  std::string SetKind(std::string kind) {
    RecordedRule rule = Recorded();
    if (side_->rows > 0 && !(rule == side_->rule)) side_->one_rule = false;
    if (side_->rows == 0) side_->rule = std::move(rule);
    if (side_->rows > 0 && side_->kind != kind)
      return "calls-differ: calls of one step record different kinds of scores";
    side_->kind = std::move(kind);
    return "";
  }

  void Count(const TokenKey& key) {
    ++side_->rows;
    if (side_->sequences.size() >= kMaxSequences && !side_->sequences.contains(key.sequence)) {
      side_->whole = false;
      return;
    }
    auto [at, fresh] = side_->sequences.try_emplace(key.sequence);
    Extent& e = at->second;
    e.first = fresh ? key.position : std::min(e.first, key.position);
    e.last = fresh ? key.position : std::max(e.last, key.position);
    ++e.rows;
  }

  void Score(int64_t row, RoutedToken& token) {
    if (!s_.has_scores()) return;
    x_.resize(static_cast<size_t>(experts_));
    for (int64_t e = 0; e < experts_; ++e)
      x_[static_cast<size_t>(e)] = Number(s_.scores(), row * experts_ + e);
    const double* bias = rule_.has_bias ? bias_.data() : nullptr;
    // Call with the wider list first, because the choice of the second call is judged.
    rule_.top_k = std::min({static_cast<int>(2 * k_ + 4), kMaxTopK, rule_.admitted()});
    ChooseExperts(rule_, x_.data(), bias, scratch_.get(), &choice_);
    if (choice_.finite) {
      for (int i = 0; i < choice_.count; ++i)
        token.ranked.push_back(
            {static_cast<int16_t>(choice_.expert[i]), static_cast<float>(choice_.value[i])});
    }
    rule_.top_k = static_cast<int>(k_);
    ChooseExperts(rule_, x_.data(), bias, scratch_.get(), &choice_);
    const double* values = rule_.ranks_recorded() ? x_.data() : scratch_->value;
    values_.assign(values, values + experts_);
    token.spread = choice_.finite ? static_cast<float>(SpreadOf(values_)) : 0;
    token.tied = !choice_.finite || choice_.tied;
    // If another group is admitted, experts flip by any margin.
    const double margin = std::min(choice_.margin, choice_.group_margin);
    token.margin =
        choice_.finite ? static_cast<float>(margin) : std::numeric_limits<float>::quiet_NaN();
    if (choice_.finite) KeepRow(token);
  }

  void KeepRow(RoutedToken& token) const {
    if (side_->rule.plain() && s_.scores_are_logits()) {
      const double peak = *std::max_element(x_.begin(), x_.end());
      double sum = 0;
      for (const double x : x_) sum += std::exp(x - peak);
      token.log_sum = static_cast<float>(peak + std::log(sum));
    } else if (!side_->rule.plain() && HashOf(token.key) <= row_limit_) {
      token.row.assign(x_.begin(), x_.end());
    }
  }

  bool InMap(int64_t row, int64_t e) const {
    return Whole(s_.routing_map(), row * experts_ + e) != 0;
  }

  void Choose(int64_t row, RoutedToken& token) {
    if (s_.has_topk_indices()) {
      for (int64_t j = 0; j < k_; ++j) {
        const int64_t e = Whole(s_.topk_indices(), row * k_ + j);
        token.chosen.push_back(e >= 0 && e < experts_ ? static_cast<int16_t>(e) : int16_t{-1});
      }
      return;
    }
    // A map shows what was kept. If that is part of the side's own choice, the other experts were
    // dropped.
    const bool own = s_.has_scores() && choice_.finite;
    std::vector<int16_t> kept;
    for (int64_t e = 0; s_.has_routing_map() && e < experts_; ++e) {
      if (InMap(row, e)) kept.push_back(static_cast<int16_t>(e));
    }
    const int32_t* own_experts = choice_.expert;
    const int32_t* end = own_experts + choice_.count;
    const bool explained = own && std::all_of(kept.begin(), kept.end(), [&](int16_t e) {
                             return std::find(own_experts, end, e) != end;
                           });
    if (explained) {
      for (const int32_t* e = own_experts; e != end; ++e)
        token.chosen.push_back(static_cast<int16_t>(*e));
    } else {
      kept.resize(static_cast<size_t>(k_), -1);
      token.chosen = std::move(kept);
    }
  }

  // Returns true if a record shows that not all of the row's choices were kept, or if that record
  // is absent.
  bool MayBeDropped(int64_t row) const {
    if (s_.has_keep_mask()) {
      for (int64_t j = 0; j < k_; ++j) {
        if (Whole(s_.keep_mask(), row * k_ + j) == 0) return true;
      }
      return false;
    }
    if (s_.has_routing_map()) {
      int64_t kept = 0;
      for (int64_t e = 0; e < experts_; ++e) kept += InMap(row, e) ? 1 : 0;
      return kept < k_;
    }
    return config_.capacity_kind() == v1::RoutingConfig::CAPACITY_DECLARED;
  }

  void Weigh(int64_t row, RoutedToken& token) {
    if (!s_.has_probs()) return;
    const int64_t columns = s_.probs().shape(1);
    bool zero = true;
    for (int64_t j = 0; j < columns; ++j) zero = zero && Number(s_.probs(), row * columns + j) == 0;
    token.zero_gates = zero && !MayBeDropped(row);
    // [T,k] without indices, or with k = E, cannot be assigned to experts.
    const bool by_rank = columns == k_ && k_ != experts_;
    if (by_rank && !s_.has_topk_indices()) return;
    for (int64_t j = 0; j < k_; ++j) {
      const int16_t e = token.chosen[static_cast<size_t>(j)];
      const double g = by_rank  ? Number(s_.probs(), row * k_ + j)
                       : e >= 0 ? Number(s_.probs(), row * columns + e)
                                : 0;
      token.gates.push_back(static_cast<float>(g));
    }
  }

  const v1::RoutingConfig& config_;
  const v1::RoutingSample& s_;
  RoutedSide* side_;
  int64_t rows_ = 0;
  int64_t experts_ = 0;
  int64_t k_ = 0;
  uint64_t row_limit_ = 0;  // the rows of tokens up to this hash are kept
  RouterRule rule_;
  std::vector<double> bias_;
  std::vector<double> x_;
  std::vector<double> values_;
  RouterChoice choice_;
  std::unique_ptr<RouterScratch> scratch_ = std::make_unique<RouterScratch>();
};

}  // namespace

double SpreadOf(std::vector<double>& values) {
  std::erase_if(values, [](double x) { return !std::isfinite(x); });
  if (values.size() < 2) return 0;
  const auto quantile = [&](size_t quarters) {
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(quarters * values.size() / 4);
    std::nth_element(values.begin(), at, values.end());
    return *at;
  };
  // For a normal distribution, in deviations.
  constexpr double kQuartiles = 1.349, kMeanDistance = 0.798;
  const double low = quantile(1), middle = quantile(2), high = quantile(3);
  if (high > low) return (high - low) / kQuartiles;
  double distance = 0;
  for (const double x : values) distance += std::fabs(x - middle);
  return distance / static_cast<double>(values.size()) / kMeanDistance;
}

void RoutedSide::Add(const v1::Routing& routing, bool dump, size_t max_tokens,
                     uint64_t redacted_key) {
  if (!blocked.empty()) return;
  if (rows > 0 && key != redacted_key) {
    blocked = "keys-differ: processes of one side redacted their ids with different keys";
    return;
  }
  key = redacted_key;
  whole = whole && dump;
  CallReader reader(routing, this);
  blocked = reader.Open();
  if (!blocked.empty()) return;
  reader.ReadRows(max_tokens);
  if (tokens.size() > 2 * max_tokens) Finish(max_tokens);
}

void RoutedSide::Finish(size_t max_tokens) {
  std::sort(tokens.begin(), tokens.end(), [](const RoutedToken& a, const RoutedToken& b) {
    return std::tie(a.key, a.chosen) < std::tie(b.key, b.chosen);
  });
  // Replicas of a row (tensor parallel) are one row. Rows that disagree are counted.
  const auto last = std::unique(tokens.begin(), tokens.end(), [this](const auto& a, const auto& b) {
    if (a.key != b.key) return false;
    conflicting += a.chosen == b.chosen ? 0 : 1;
    return true;
  });
  tokens.erase(last, tokens.end());
  const auto lower = [](const RoutedToken& a, const RoutedToken& b) {
    return std::make_pair(HashOf(a.key), a.key) < std::make_pair(HashOf(b.key), b.key);
  };
  const size_t rows_kept = MostRows(experts);
  if (!rule.plain() && tokens.size() > rows_kept) {
    const auto end = tokens.begin() + static_cast<std::ptrdiff_t>(rows_kept);
    std::nth_element(tokens.begin(), end, tokens.end(), lower);
    for (auto at = end; at != tokens.end(); ++at) std::vector<float>().swap(at->row);
  }
  const auto by_key = [](const RoutedToken& a, const RoutedToken& b) { return a.key < b.key; };
  if (tokens.size() <= max_tokens) {
    std::sort(tokens.begin(), tokens.end(), by_key);
    return;
  }
  std::nth_element(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(max_tokens),
                   tokens.end(), lower);
  tokens.resize(max_tokens);
  std::sort(tokens.begin(), tokens.end(), by_key);
}

size_t RoutedSide::bytes() const {
  size_t total = sizeof(*this) + sequences.size() * (sizeof(Extent) + 48);
  for (const RoutedToken& t : tokens) {
    total += sizeof(t) + t.chosen.size() * sizeof(int16_t) + t.gates.size() * sizeof(float) +
             t.ranked.size() * sizeof(EdgeScore) + t.row.size() * sizeof(float);
  }
  return total;
}

}  // namespace plumbline::analysis
