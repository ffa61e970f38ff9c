#include "audit/certify/tokens.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "audit/render/text_util.h"
#include "base/load.h"

namespace plumbline::audit {
namespace {

constexpr const char* kHalfNames[kHalves] = {"rollout", "train", "behaviour"};

const v1::LogprobsSide* HalfOf(const v1::LogprobsSequence& sequence, size_t half) {
  if (half == 0) return sequence.has_rollout() ? &sequence.rollout() : nullptr;
  if (half == 1) return sequence.has_train() ? &sequence.train() : nullptr;
  return sequence.has_behaviour() ? &sequence.behaviour() : nullptr;
}

size_t CountOf(const v1::Tensor& tensor) {
  const size_t width = DTypeSize(static_cast<DType>(tensor.dtype()));
  return width == 0 ? 0 : tensor.data().size() / width;
}

std::optional<BitValue> ElementOf(const v1::Tensor& tensor, size_t i) {
  if (i >= CountOf(tensor)) return std::nullopt;
  return BitValueAt(tensor.data().data(), static_cast<DType>(tensor.dtype()), i);
}

// The entries of one position: one for each half, since halves may be in separate records.
struct TokenCell {
  struct Entry {
    const v1::LogprobsSequence* sequence = nullptr;
    size_t index = 0;
    bool judged = false;
  };
  std::array<Entry, kHalves> halves;
  Entry any;  // the record that gives the token's id
};
using TokenCells = std::map<int64_t, TokenCell>;

// A later turn repeats its prompt, masked: a judged entry has precedence. Returns false if two
// judged entries have one position.
bool Put(const TokenCell::Entry& entry, TokenCell::Entry* to) {
  if (to->sequence != nullptr && to->judged && entry.judged) return false;
  if (to->sequence == nullptr || (entry.judged && !to->judged)) *to = entry;
  return true;
}

TokenCells CellsOf(const std::vector<v1::LogprobsSequence>& sequences, uint64_t* repeated) {
  TokenCells cells;
  for (const v1::LogprobsSequence& sequence : sequences) {
    for (size_t i = 0; i < sequence.length(); ++i) {
      const int64_t position =
          i < CountOf(sequence.positions())
              ? static_cast<int64_t>(LoadDouble(sequence.positions().data().data(),
                                                static_cast<DType>(sequence.positions().dtype()),
                                                static_cast<int64_t>(i)))
              : sequence.first_position() + static_cast<int64_t>(i);
      const bool judged = i >= sequence.mask().size() || sequence.mask()[i] != 0;
      TokenCell& cell = cells[position];
      const TokenCell::Entry entry{&sequence, i, judged};
      if (cell.any.sequence == nullptr || (judged && !cell.any.judged)) cell.any = entry;
      bool once = true;
      for (size_t half = 0; half < kHalves; ++half) {
        if (HalfOf(sequence, half) != nullptr) once = Put(entry, &cell.halves[half]) && once;
      }
      *repeated += once ? 0 : 1;
    }
  }
  return cells;
}

std::optional<int64_t> TokenOf(const TokenCell& cell) {
  const v1::Tensor& tokens = cell.any.sequence->tokens();
  if (cell.any.index >= CountOf(tokens)) return std::nullopt;
  return static_cast<int64_t>(LoadDouble(tokens.data().data(), static_cast<DType>(tokens.dtype()),
                                         static_cast<int64_t>(cell.any.index)));
}

// Compares the cells of one sequence.
class SequenceComparison {
 public:
  SequenceComparison(const std::string& id, const TokenContext& context, Tally* tally)
      : context_(context), tally_(*tally) {
    place_.sequence = id;
    place_.step = context.step.step;
    if (context.step.attempt > 0) place_.attempt = context.step.attempt;
  }

  void Cells(const TokenCells& a, const TokenCells& b) {
    uint64_t only_a = 0, only_b = 0;
    for (const auto& [position, cell] : a) {
      const auto other = b.find(position);
      if (other == b.end()) {
        ++only_a;
        continue;
      }
      place_.position = position;
      place_.token = TokenOf(cell);
      Token(cell, other->second);
    }
    for (const auto& [position, cell] : b) only_b += a.contains(position) ? 0 : 1;
    tally_.Gap("tokens", "only in A", only_a, true);
    tally_.Gap("tokens", "only in B", only_b, true);
  }

 private:
  void Token(const TokenCell& a, const TokenCell& b) {
    const std::optional<int64_t> of_a = TokenOf(a), of_b = TokenOf(b);
    if (of_a && of_b) {
      BitPlace place = place_;
      place.token.reset();
      const BitValue id_a{DType::kI64, static_cast<uint64_t>(*of_a), ""};
      const BitValue id_b{DType::kI64, static_cast<uint64_t>(*of_b), ""};
      if (!tally_.Take("tokens", place, id_a, id_b))
        return tally_.Gap("logprobs", "other tokens", 1, true);
    } else {
      tally_.Gap("tokens", "no id on a side", 1, false);
    }
    for (const HalfPair& pair : context_.pairs) Half(pair, a.halves[pair.a], b.halves[pair.b]);
  }

  void Half(const HalfPair& pair, const TokenCell::Entry& a, const TokenCell::Entry& b) {
    const std::string kind = absl::StrCat("logprobs:", pair.name);
    if (a.sequence == nullptr || b.sequence == nullptr)
      return tally_.Gap(kind, "no value on a side", 1, true);
    if (!a.judged && !b.judged) return tally_.Gap(kind, "masked", 1, false);
    if (!a.judged || !b.judged) return tally_.Gap(kind, "masked on one side", 1, true);
    const v1::LogprobsSide &of_a = *HalfOf(*a.sequence, pair.a),
                           &of_b = *HalfOf(*b.sequence, pair.b);
    Value(kind, of_a.logprobs(), a.index, of_b.logprobs(), b.index, true);
    Value(absl::StrCat("entropy:", pair.name), of_a.entropy(), a.index, of_b.entropy(), b.index,
          false);
    Value(absl::StrCat("varentropy:", pair.name), of_a.varentropy(), a.index, of_b.varentropy(),
          b.index, false);
  }

  void Value(const std::string& kind, const v1::Tensor& a, size_t i, const v1::Tensor& b, size_t j,
             bool required) {
    const std::optional<BitValue> of_a = ElementOf(a, i), of_b = ElementOf(b, j);
    if (!of_a && !of_b && !required) return;
    if (!of_a || !of_b) return tally_.Gap(kind, "no value on a side", 1, required);
    const bool none = !context_.exact_nan && std::isnan(LoadDouble(&of_a->bits, of_a->dtype, 0)) &&
                      std::isnan(LoadDouble(&of_b->bits, of_b->dtype, 0));
    if (none) return tally_.Gap(kind, "null or NaN in text on both sides", 1, required);
    tally_.Take(kind, place_, *of_a, *of_b);
  }

  const TokenContext& context_;
  Tally& tally_;
  BitPlace place_;
};

uint64_t TokensIn(const std::vector<v1::LogprobsSequence>& records) {
  uint64_t tokens = 0;
  for (const v1::LogprobsSequence& record : records) tokens += record.length();
  return tokens;
}

}  // namespace

std::array<uint64_t, kHalves> TokensByHalf(const HeldStep& step) {
  std::array<uint64_t, kHalves> tokens{};
  for (const auto& [id, records] : step.sequences) {
    for (const v1::LogprobsSequence& record : records) {
      for (size_t half = 0; half < kHalves; ++half)
        tokens[half] += HalfOf(record, half) == nullptr ? 0 : record.length();
    }
  }
  return tokens;
}

const char* NameOfHalf(size_t half) { return kHalfNames[half]; }

std::vector<HalfPair> PairsOf(const HeldStep& a, const HeldStep& b, bool one) {
  const std::array<uint64_t, kHalves> of_a = TokensByHalf(a), of_b = TokensByHalf(b);
  std::vector<HalfPair> pairs;
  for (size_t half = 0; !one && half < kHalves; ++half) {
    if (of_a[half] > 0 && of_b[half] > 0) pairs.push_back({half, half, kHalfNames[half]});
  }
  if (!pairs.empty()) return pairs;
  if (of_a[0] > 0 && of_b[1] > 0) return {{0, 1, "rollout-train"}};
  if (!one && of_a[1] > 0 && of_b[0] > 0) return {{1, 0, "train-rollout"}};
  return {};
}

void CompareSequences(const HeldStep& a, const HeldStep& b, const TokenContext& context,
                      Tally* tally) {
  for (const auto& [id, records] : a.sequences) {
    const auto other = b.sequences.find(id);
    if (other == b.sequences.end()) {
      tally->Gap("tokens", "only in A", TokensIn(records), true);
      continue;
    }
    uint64_t repeated = 0;
    const TokenCells of_a = CellsOf(records, &repeated), of_b = CellsOf(other->second, &repeated);
    tally->Gap("tokens", "two judged values of one position", repeated, true);
    SequenceComparison(id, context, tally).Cells(of_a, of_b);
  }
  for (const auto& [id, records] : b.sequences) {
    if (!a.sequences.contains(id)) tally->Gap("tokens", "only in B", TokensIn(records), true);
  }
}

void NoteSequences(const HeldStep& step, Environment* environment) {
  constexpr size_t kMostWords = 64;
  const auto note = [&](const char* name, const std::string& word) {
    std::set<std::string>& words = (*environment)[name];
    if (words.size() < kMostWords) words.insert(word);
  };
  for (const auto& [id, records] : step.sequences) {
    for (const v1::LogprobsSequence& record : records) {
      if (record.has_temperature()) note("temperature", ExactNumber(record.temperature()));
      if (record.has_top_p()) note("top_p", ExactNumber(record.top_p()));
      if (record.has_top_k()) note("top_k", absl::StrCat(record.top_k()));
      if (!record.worker().empty()) note("worker", record.worker());
      if (record.mode() != v1::LOGPROB_MODE_ABSENT)
        note("logprob mode", v1::LogprobMode_Name(record.mode()));
      if (record.has_train_version()) note("train version", absl::StrCat(record.train_version()));
      for (size_t i = 0; i < CountOf(record.weight_versions()); ++i) {
        const double version = LoadDouble(record.weight_versions().data().data(),
                                          static_cast<DType>(record.weight_versions().dtype()),
                                          static_cast<int64_t>(i));
        note("weight versions", ExactNumber(version));
      }
    }
  }
}

}  // namespace plumbline::audit
