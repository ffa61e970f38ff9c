#include "analysis/rollout/sequence.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_map>

#include "analysis/sample/sample.h"
#include "base/half.h"
#include "base/load.h"

namespace plumbline::analysis {
namespace {

// A checked tensor of one sequence, or an absent one.
struct ColumnView {
  const char* data = nullptr;
  DType dtype = DType::kUnspecified;

  double At(size_t i) const {
    if (data == nullptr) return kNotRecorded;
    if (dtype == DType::kF32) return LoadRaw<float>(data, static_cast<int64_t>(i));
    if (dtype == DType::kF64) return LoadRaw<double>(data, static_cast<int64_t>(i));
    return LoadDouble(data, dtype, static_cast<int64_t>(i));
  }
  int64_t IntegerAt(size_t i, int64_t missing) const {
    return data == nullptr ? missing : LoadInt64(data, dtype, static_cast<int64_t>(i));
  }
};

absl::Status View(const char* name, bool has, const v1::Tensor& tensor, uint64_t length,
                  bool floating, ColumnView* out) {
  if (!has) return absl::OkStatus();
  auto status = CheckTensor(name, tensor, {static_cast<int64_t>(length)}, floating);
  if (!status.ok()) return status;
  *out = {tensor.data().data(), static_cast<DType>(tensor.dtype())};
  return absl::OkStatus();
}

// The columns of one half.
struct Half {
  size_t length = 0;
  int64_t first_position = 0;
  const std::string* mask = nullptr;
  ColumnView logprobs, entropy, varentropy;
  ColumnView positions, tokens, versions, advantages, turns, behaviour;

  int64_t Position(size_t i) const {
    return positions.IntegerAt(i, first_position + static_cast<int64_t>(i));
  }
  bool Unmasked(size_t i) const { return mask->empty() || (*mask)[i] != 0; }
};

absl::Status Read(const v1::LogprobsSequence& s, const v1::LogprobsSide& side, Half* half) {
  constexpr uint64_t kMost = uint64_t{1} << 40;
  if (s.length() > kMost) return Cannot("bad-tensor: length: expected less than 2^40");
  half->length = s.length();
  half->first_position = s.first_position();
  half->mask = &s.mask();
  if (!s.mask().empty() && s.mask().size() != s.length())
    return Cannot("bad-tensor: mask: expected one byte per token");
  const uint64_t n = s.length();
  for (const absl::Status& status :
       {View("logprobs", side.has_logprobs(), side.logprobs(), n, true, &half->logprobs),
        View("entropy", side.has_entropy(), side.entropy(), n, true, &half->entropy),
        View("varentropy", side.has_varentropy(), side.varentropy(), n, true, &half->varentropy),
        View("positions", s.has_positions(), s.positions(), n, false, &half->positions),
        View("tokens", s.has_tokens(), s.tokens(), n, false, &half->tokens),
        View("weight_versions", s.has_weight_versions(), s.weight_versions(), n, false,
             &half->versions),
        View("advantages", s.has_advantages(), s.advantages(), n, true, &half->advantages),
        View("turns", s.has_turns(), s.turns(), n, false, &half->turns),
        View("behaviour", s.behaviour().has_logprobs(), s.behaviour().logprobs(), n, true,
             &half->behaviour)}) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// Finds the rows of the rollout's half that have the trainer's positions.
class RowMatch {
 public:
  RowMatch(const Half& train, const Half& rollout) {
    const bool counted = train.positions.data == nullptr && rollout.positions.data == nullptr;
    if (counted) {
      offset_ = train.first_position - rollout.first_position;
      length_ = rollout.length;
      return;
    }
    rows_.emplace();
    for (size_t i = 0; i < rollout.length; ++i) rows_->emplace(rollout.Position(i), i);
  }
  std::optional<size_t> Row(const Half& train, size_t i) const {
    if (!rows_.has_value()) {
      const int64_t row = static_cast<int64_t>(i) + offset_;
      if (row < 0 || row >= static_cast<int64_t>(length_)) return std::nullopt;
      return static_cast<size_t>(row);
    }
    const auto found = rows_->find(train.Position(i));
    return found == rows_->end() ? std::nullopt : std::optional<size_t>(found->second);
  }

 private:
  int64_t offset_ = 0;
  size_t length_ = 0;
  std::optional<std::unordered_map<int64_t, size_t>> rows_;
};

// Tests whether all finite values so far are on the grid.
class GridCheck {
 public:
  void See(double value) {
    if (!bf16_ && !f16_) return;
    if (!std::isfinite(value)) return;
    any_ |= value != 0;
    const auto f = static_cast<float>(value);
    if (static_cast<double>(f) != value) {
      bf16_ = f16_ = false;
      return;
    }
    bf16_ = bf16_ && (__builtin_bit_cast(uint32_t, f) & 0xffff) == 0;
    f16_ = f16_ && RoundToFormat(value, DType::kF16) == value;
  }
  DType format() const {
    if (!any_) return DType::kUnspecified;
    return bf16_ ? DType::kBF16 : f16_ ? DType::kF16 : DType::kUnspecified;
  }

 private:
  bool any_ = false, bf16_ = true, f16_ = true;
};

template <typename Field>
ValueGrid GridOf(const std::vector<RolloutToken>& tokens, const v1::LogprobsSide& side,
                 Field field) {
  ValueGrid grid;
  if (side.has_decimals() && side.decimals() < 300)
    grid.decimal = 0.5 * std::pow(10.0, -static_cast<double>(side.decimals()));
  GridCheck check;
  for (const RolloutToken& t : tokens) {
    if (t.judged) check.See(t.*field);
  }
  grid.format = check.format();
  return grid;
}

// Returns a value from the half that declares it. Prefers the rollout process, because it sampled.
template <typename T, typename Has, typename Get>
T Stated(const v1::LogprobsSequence& rollout, const v1::LogprobsSequence& train, T otherwise,
         Has has, Get get) {
  if ((rollout.*has)()) return static_cast<T>((rollout.*get)());
  return (train.*has)() ? static_cast<T>((train.*get)()) : otherwise;
}

void ReadAttributes(const v1::LogprobsSequence& train, const v1::LogprobsSequence& rollout,
                    RolloutSequence* out) {
  using S = v1::LogprobsSequence;
  out->id = train.id();
  out->worker = rollout.worker().empty() ? train.worker() : rollout.worker();
  out->mode = rollout.mode() != v1::LOGPROB_MODE_ABSENT ? rollout.mode() : train.mode();
  out->selection =
      rollout.selection() != S::SELECTION_ABSENT ? rollout.selection() : train.selection();
  // If one half declares that sequences were dropped, this holds also if the other half does not
  // declare it.
  if (train.selection() == S::SELECTION_FILTERED) out->selection = S::SELECTION_FILTERED;
  out->source = rollout.source() != S::SOURCE_ABSENT ? rollout.source() : train.source();
  const double nan = kNotRecorded;
  out->temperature = Stated(rollout, train, nan, &S::has_temperature, &S::temperature);
  out->top_p = Stated(rollout, train, nan, &S::has_top_p, &S::top_p);
  out->top_k = Stated<int64_t>(rollout, train, -1, &S::has_top_k, &S::top_k);
  out->kept_share = Stated(rollout, train, nan, &S::has_kept_share, &S::kept_share);
  out->rescore_k2 = Stated(rollout, train, nan, &S::has_rescore_k2, &S::rescore_k2);
  out->t_start = Stated(rollout, train, nan, &S::has_t_start, &S::t_start);
  out->t_end = Stated(rollout, train, nan, &S::has_t_end, &S::t_end);
  out->cached_tokens =
      Stated<int64_t>(rollout, train, -1, &S::has_cached_tokens, &S::cached_tokens);
  out->train_version =
      Stated<int64_t>(train, rollout, kNoVersion, &S::has_train_version, &S::train_version);
}

int64_t LagOf(int64_t train_version, int64_t version) {
  int64_t lag = kNoLag;
  if (train_version == kNoVersion || version == kNoVersion) return kNoLag;
  return __builtin_sub_overflow(train_version, version, &lag) ? kNoLag : lag;
}

// Returns the first of two equivalent columns that is present.
const ColumnView& Either(const ColumnView& first, const ColumnView& second, bool* is_first) {
  *is_first = first.data != nullptr;
  return *is_first ? first : second;
}

void Fill(const Half& train, const Half& rollout, bool whole, RolloutSequence* out) {
  const RowMatch match(train, rollout);
  bool version_of_rollout, advantage_of_train, turn_of_rollout, behaviour_of_train;
  const ColumnView& versions = Either(rollout.versions, train.versions, &version_of_rollout);
  const ColumnView& advantages = Either(train.advantages, rollout.advantages, &advantage_of_train);
  const ColumnView& turns = Either(rollout.turns, train.turns, &turn_of_rollout);
  const ColumnView& behaviour = Either(train.behaviour, rollout.behaviour, &behaviour_of_train);
  out->tokens.clear();
  out->tokens.reserve(train.length);
  for (size_t i = 0; i < train.length; ++i) {
    const std::optional<size_t> row = whole ? i : match.Row(train, i);
    if (!row.has_value()) continue;
    const size_t j = *row;
    RolloutToken& t = out->tokens.emplace_back();
    t.token = train.tokens.IntegerAt(i, rollout.tokens.IntegerAt(j, -1));
    t.same_token = t.token == rollout.tokens.IntegerAt(j, t.token);
    t.train = train.logprobs.At(i);
    t.rollout = rollout.logprobs.At(j);
    t.train_entropy = train.entropy.At(i);
    t.train_varentropy = train.varentropy.At(i);
    t.rollout_entropy = rollout.entropy.At(j);
    t.rollout_varentropy = rollout.varentropy.At(j);
    t.behaviour = behaviour.At(behaviour_of_train ? i : j);
    t.advantage = advantages.At(advantage_of_train ? i : j);
    t.version = versions.IntegerAt(version_of_rollout ? j : i, kNoVersion);
    t.lag = LagOf(out->train_version, t.version);
    t.position = train.Position(i);
    t.turn = turns.IntegerAt(turn_of_rollout ? j : i, -1);
    t.judged = train.Unmasked(i) && rollout.Unmasked(j);
    out->judged += t.judged;
    out->differing_ids += t.judged && !t.same_token;
  }
  out->unpaired = train.length + rollout.length - 2 * out->tokens.size();
}

// Marks placeholders. They are 0, or a value that neighbouring masked tokens have in common.
void MarkMasked(RolloutSequence* out) {
  bool prompt = out->judged > 0;
  std::vector<RolloutToken>& all = out->tokens;
  const auto repeats = [&](size_t i, size_t j) {
    return j < all.size() && !all[j].judged &&
           (all[i].rollout == all[j].rollout || all[i].train == all[j].train);
  };
  for (size_t i = 0; i < all.size(); ++i) {
    RolloutToken& t = all[i];
    prompt = prompt && !t.judged;
    const bool values = t.train < 0 && t.rollout < 0 && std::isfinite(t.train + t.rollout);
    t.masked_with_values = !prompt && !t.judged && t.same_token && values && !repeats(i, i + 1) &&
                           !(i > 0 && repeats(i, i - 1));
    out->masked_with_values += t.masked_with_values;
  }
}

}  // namespace

double ValueGrid::HalfUnit(double value) const {
  const double grid = sixteen_bit() && std::isfinite(value) ? 0.5 * UlpOf(value, format) : 0;
  return std::max(grid, decimal);
}

absl::Status DecodeRollout(const v1::LogprobsSequence& train, const v1::LogprobsSequence& rollout,
                           RolloutSequence* out) {
  std::vector<RolloutToken> memory = std::move(out->tokens);
  const int64_t step = out->step;
  const bool later_epoch = out->later_epoch;
  *out = RolloutSequence();
  out->step = step;
  out->later_epoch = later_epoch;
  out->tokens = std::move(memory);
  Half train_half, rollout_half;
  for (const absl::Status& status :
       {Read(train, train.train(), &train_half), Read(rollout, rollout.rollout(), &rollout_half)}) {
    if (!status.ok()) return status;
  }
  ReadAttributes(train, rollout, out);
  const bool whole = &train == &rollout;
  out->from_halves = !whole;
  Fill(train_half, rollout_half, whole, out);
  if (out->judged < out->tokens.size()) MarkMasked(out);
  out->train_grid = GridOf(out->tokens, train.train(), &RolloutToken::train);
  out->rollout_grid = GridOf(out->tokens, rollout.rollout(), &RolloutToken::rollout);
  out->train_entropy_grid = GridOf(out->tokens, train.train(), &RolloutToken::train_entropy);
  out->rollout_entropy_grid =
      GridOf(out->tokens, rollout.rollout(), &RolloutToken::rollout_entropy);
  out->rollout_varentropy_grid =
      GridOf(out->tokens, rollout.rollout(), &RolloutToken::rollout_varentropy);
  return absl::OkStatus();
}

}  // namespace plumbline::analysis
