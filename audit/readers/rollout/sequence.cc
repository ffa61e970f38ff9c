#include "audit/readers/rollout/sequence.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "audit/readers/rollout/words.h"

namespace plumbline::audit {
namespace {

using Column = RolloutColumn;

// Converts the entries of a list that belong to the sequence to the tensor's element type.
template <typename To, typename From>
void Fill(v1::DType dtype, const std::vector<From>& values, const ColumnValue& value, size_t begin,
          size_t tokens, v1::Tensor* tensor) {
  tensor->set_dtype(dtype);
  tensor->add_shape(static_cast<int64_t>(tokens));
  std::string& data = *tensor->mutable_data();
  data.resize(tokens * sizeof(To));
  char* out = data.data();
  for (size_t i = 0; i < tokens; ++i, out += sizeof(To)) {
    const To x = static_cast<To>(values[value.repeated ? 0 : begin + i]);
    std::memcpy(out, &x, sizeof x);
  }
}

class Filler {
 public:
  Filler(const RolloutColumns& columns, const SequenceShape& shape, v1::LogprobsSequence* sequence)
      : columns_(columns), shape_(shape), s_(*sequence) {}

  void Fill(const std::string& id) {
    const ColumnValue& own_id = Of(Column::kSequenceId);
    s_.set_id(own_id.present ? own_id.text : id);
    s_.set_length(shape_.tokens);
    s_.set_first_position(shape_.first_position);
    Side(Column::kRolloutLogprobs, Column::kRolloutEntropy, Column::kRolloutVarentropy,
         [&]() -> v1::LogprobsSide& { return *s_.mutable_rollout(); });
    Side(Column::kTrainLogprobs, Column::kEntropy, Column::kVarentropy,
         [&]() -> v1::LogprobsSide& { return *s_.mutable_train(); });
    Side(Column::kBehaviourLogprobs, std::nullopt, std::nullopt,
         [&]() -> v1::LogprobsSide& { return *s_.mutable_behaviour(); });
    Integers(Column::kTokens, [&] { return s_.mutable_tokens(); });
    Integers(Column::kTurn, [&] { return s_.mutable_turns(); });
    Wide(Column::kPosition, [&] { return s_.mutable_positions(); });
    Wide(Column::kWeightVersions, [&] { return s_.mutable_weight_versions(); });
    Numbers(Column::kAdvantages, [&] { return s_.mutable_advantages(); });
    Scalars();
    Words();
  }

  uint64_t Mask() {
    const ColumnValue& mask = Of(Column::kLossMask);
    if (!mask.present) return shape_.tokens;
    std::string& bytes = *s_.mutable_mask();
    bytes.resize(shape_.tokens);
    uint64_t judged = 0;
    for (size_t i = 0; i < shape_.tokens; ++i) {
      const uint8_t flag = mask.flags[mask.repeated ? 0 : Begin(Column::kLossMask) + i];
      bytes[i] = static_cast<char>(flag);
      judged += flag;
    }
    return judged;
  }

 private:
  const ColumnValue& Of(Column column) const { return At(columns_, column); }
  size_t Begin(Column column) const { return shape_.begin[static_cast<size_t>(column)]; }

  template <typename Target>
  void Numbers(Column column, const Target& target) {
    const ColumnValue& value = Of(column);
    if (!value.present) return;
    audit::Fill<double>(v1::DTYPE_F64, value.numbers, value, Begin(column), shape_.tokens,
                        target());
  }

  template <typename Target>
  void Wide(Column column, const Target& target) {
    const ColumnValue& value = Of(column);
    if (!value.present) return;
    audit::Fill<int64_t>(v1::DTYPE_I64, value.integers, value, Begin(column), shape_.tokens,
                         target());
  }

  // Stores integers in 32 bits if they fit, as token ids do. Masked entries without an integer
  // become -1.
  template <typename Target>
  void Integers(Column column, const Target& target) {
    const ColumnValue& value = Of(column);
    if (!value.present) return;
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    const bool small = std::all_of(value.integers.begin(), value.integers.end(), [](int64_t x) {
      return x == JsonCursor::kNoInteger || (x >= -kMost && x <= kMost);
    });
    if (!small) return Wide(column, target);
    std::vector<int32_t> narrow(value.integers.size());
    std::transform(value.integers.begin(), value.integers.end(), narrow.begin(), [](int64_t x) {
      return x == JsonCursor::kNoInteger ? -1 : static_cast<int32_t>(x);
    });
    audit::Fill<int32_t>(v1::DTYPE_I32, narrow, value, Begin(column), shape_.tokens, target());
  }

  template <typename Make>
  void Side(Column logprobs, std::optional<Column> entropy, std::optional<Column> varentropy,
            const Make& make) {
    const ColumnValue& value = Of(logprobs);
    if (!value.present) return;
    v1::LogprobsSide& side = make();
    Numbers(logprobs, [&] { return side.mutable_logprobs(); });
    if (entropy) Numbers(*entropy, [&] { return side.mutable_entropy(); });
    if (varentropy) Numbers(*varentropy, [&] { return side.mutable_varentropy(); });
    if (!value.written.full) side.set_decimals(static_cast<uint32_t>(value.written.decimals));
  }

  void Scalars() {
    const auto number = [&](Column column, auto set) {
      if (Of(column).present) (s_.*set)(Of(column).number);
    };
    const auto integer = [&](Column column, auto set) {
      if (Of(column).present) (s_.*set)(Of(column).integer);
    };
    number(Column::kTemperature, &v1::LogprobsSequence::set_temperature);
    number(Column::kTopP, &v1::LogprobsSequence::set_top_p);
    number(Column::kKeptShare, &v1::LogprobsSequence::set_kept_share);
    number(Column::kRescoreK2, &v1::LogprobsSequence::set_rescore_k2);
    number(Column::kTStart, &v1::LogprobsSequence::set_t_start);
    number(Column::kTEnd, &v1::LogprobsSequence::set_t_end);
    integer(Column::kTopK, &v1::LogprobsSequence::set_top_k);
    integer(Column::kTrainVersion, &v1::LogprobsSequence::set_train_version);
    integer(Column::kCachedTokens, &v1::LogprobsSequence::set_cached_tokens);
  }

  void Words() {
    s_.set_worker(Of(Column::kWorker).text);
    if (const RolloutWord* word = FindWord(kLogprobModes, Of(Column::kLogprobMode).text))
      s_.set_mode(static_cast<v1::LogprobMode>(word->value));
    if (const RolloutWord* word = FindWord(kSelections, Of(Column::kSelection).text))
      s_.set_selection(static_cast<v1::LogprobsSequence::Selection>(word->value));
    if (const RolloutWord* word = FindWord(kRolloutSources, Of(Column::kRolloutSource).text))
      s_.set_source(static_cast<v1::LogprobsSequence::Source>(word->value));
  }

  const RolloutColumns& columns_;
  const SequenceShape& shape_;
  v1::LogprobsSequence& s_;
};

}  // namespace

void AppendToken(const RolloutColumns& token, size_t before, RolloutColumns* sequence) {
  for (size_t i = 0; i < kRolloutColumns; ++i) {
    const ColumnKind kind = InfoOf(static_cast<Column>(i)).kind;
    const ColumnValue& from = token[i];
    ColumnValue& to = (*sequence)[i];
    if (!from.present && !to.present) continue;
    if (!IsList(kind)) {
      if (!to.present) to = from;
      continue;
    }
    const size_t length = from.present ? before : before + 1;
    if (kind == ColumnKind::kNumbers) {
      to.numbers.resize(length, std::numeric_limits<double>::quiet_NaN());
      to.numbers.insert(to.numbers.end(), from.numbers.begin(), from.numbers.end());
    } else if (kind == ColumnKind::kFlags) {
      to.flags.resize(length, 0);
      to.flags.insert(to.flags.end(), from.flags.begin(), from.flags.end());
    } else {
      to.integers.resize(length, JsonCursor::kNoInteger);
      to.integers.insert(to.integers.end(), from.integers.begin(), from.integers.end());
    }
    to.present = true;
    to.written.full |= from.written.full;
    to.written.decimals = std::max(to.written.decimals, from.written.decimals);
  }
}

bool HasRollout(const RolloutColumns& columns) {
  return At(columns, Column::kRolloutLogprobs).present;
}
bool HasTrain(const RolloutColumns& columns) { return At(columns, Column::kTrainLogprobs).present; }
v1::Role RoleOf(const RolloutColumns& columns) {
  return HasTrain(columns) ? v1::ROLE_TRAINER : v1::ROLE_ROLLOUT;
}

uint64_t FillSequence(const RolloutColumns& columns, const SequenceShape& shape,
                      const std::string& id, v1::LogprobsSequence* sequence) {
  Filler filler(columns, shape, sequence);
  filler.Fill(id);
  return filler.Mask();
}

int64_t SequenceNumber(std::string_view id) {
  constexpr int64_t kMost = int64_t{1} << 53;
  int64_t number = 0;
  const auto parsed = std::from_chars(id.data(), id.data() + id.size(), number);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == id.data() + id.size();
  if (whole && number >= 0 && number < kMost) return number;
  // FNV-1a, then mixed so that the kept bits depend on all bits.
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  hash = (hash ^ (hash >> 32)) * 0xd6e8feb86659fd93u;
  return static_cast<int64_t>(hash >> 11);
}

}  // namespace plumbline::audit
