// The scores by which a router may rank tokens for an expert.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "analysis/routing/call/case.h"

namespace plumbline::rules {

// Within one expert's column a bias is constant and a sigmoid monotone: neither makes a new order.
enum class KeyKind {
  kRecorded,       // the scores as recorded
  kSoftmax,        // softmax over all experts
  kSoftmaxChosen,  // softmax over the row's k choices
  kShareOfChosen,  // score (sigmoid of logits) divided by its sum over the k choices
  kProbs,          // the recorded probabilities
};

const char* KeyName(KeyKind kind);

// Key and its carried rounding for one (token, expert).
struct Key {
  double value = 0;
  double tolerance = 0;
};

// The kinds that this case can be ranked by; the likeliest first.
std::vector<KeyKind> KeyKinds(const RoutingCase& c);

// The key of one (token, expert) alone, for witnesses.
double KeyValue(const RoutingCase& c, KeyKind kind, int32_t token, int32_t expert, int16_t rank);

// What the key of a row's experts is divided by, and how well that is known.
struct KeyScale {
  double max = 0;  // subtracted before exponentials
  double sum = 1;
  double delta = 0;  // largest recorded rounding among the summed
};

// Softmax scales that were computed once: several kinds of evidence ask for the same rows.
// Thread-safe.
class SoftmaxScales {
 public:
  explicit SoftmaxScales(int32_t tokens)
      : state_(std::make_unique<std::atomic<State>[]>(static_cast<size_t>(tokens))),
        scale_(std::make_unique_for_overwrite<Scale[]>(static_cast<size_t>(tokens))) {}

  bool Get(int32_t token, KeyScale* out) const {
    const auto row = static_cast<size_t>(token);
    if (state_[row].load(std::memory_order_acquire) != State::kHeld) return false;
    *out = {scale_[row].max, scale_[row].sum, scale_[row].delta};
    return true;
  }
  void Put(int32_t token, const KeyScale& scale) {
    const auto row = static_cast<size_t>(token);
    State none = State::kNone;
    if (!state_[row].compare_exchange_strong(none, State::kTaken)) return;  // another thread's
    scale_[row] = {scale.max, scale.sum, scale.delta};
    state_[row].store(State::kHeld, std::memory_order_release);
  }

 private:
  enum class State : uint8_t { kNone, kTaken, kHeld };
  struct Scale {
    double max, sum, delta;
  };
  std::unique_ptr<std::atomic<State>[]> state_;
  std::unique_ptr<Scale[]> scale_;
};

// Reads the keys of rows one by one. One a thread, about 30 KiB; borrows the case.
//
// Tolerances are one ulp of each recorded value (twice what rounding to nearest can do), carried
// through the function to first order, plus two fp32 ulp where a function was computed. Two keys
// differ when they are further apart than both.
class RowKeyReader {
 public:
  RowKeyReader(const RoutingCase& c, KeyKind kind);
  ~RowKeyReader();

  // Parallel to c.ChoicesOf(token); valid until the next call.
  const std::vector<Key>& Keys(int32_t token);
  KeyScale Scale(int32_t token);

 private:
  struct Softmax;
  KeyScale SoftmaxScale(int32_t token);
  void DivideOverChosen(int32_t token);

  const RoutingCase& case_;
  KeyKind kind_;
  std::unique_ptr<Softmax> softmax_;
  std::vector<Key> keys_;
};

// The keys of any expert of any row; what a row needs is computed once, in the constructor. Borrows
// the case.
class KeyReader {
 public:
  KeyReader(const RoutingCase& c, KeyKind kind);
  // `rank`: the choice's column where probs are [T,k].
  Key At(int32_t token, int32_t expert, int16_t rank) const;

 private:
  const RoutingCase& case_;
  KeyKind kind_;
  std::vector<KeyScale> rows_;
};

}  // namespace plumbline::rules
