// The scores by which a router may rank tokens for an expert.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "analysis/routing/call/case.h"

namespace plumbline::analysis {

// Within one expert's column a bias is constant and a sigmoid monotone, so neither gives a new
// order.
enum class KeyKind {
  kRecorded,       // the scores as recorded
  kSoftmax,        // softmax over all experts
  kSoftmaxChosen,  // softmax over the row's k choices
  kShareOfChosen,  // score (sigmoid of logits) divided by its sum over the k choices
  kProbs,          // the recorded probabilities
};

const char* KeyName(KeyKind kind);

// Key and its propagated rounding for one (token, expert).
struct Key {
  double value = 0;
  double tolerance = 0;
};

// Returns the kinds by which this case can be ranked, the likeliest first.
std::vector<KeyKind> KeyKinds(const RoutingCase& c);

// Returns the key of one (token, expert), for witnesses.
double KeyValue(const RoutingCase& c, KeyKind kind, int32_t token, int32_t expert, int16_t rank);

// The divisor of the keys of a row's experts, and its accuracy.
struct KeyScale {
  double max = 0;  // subtracted before exponentials
  double sum = 1;
  double delta = 0;  // largest recorded rounding among the terms
};

// Cache of softmax scales, because several kinds of evidence use the same rows. Thread-safe.
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
    if (!state_[row].compare_exchange_strong(none, State::kTaken)) return;  // another thread has it
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

// Reads the keys of rows one by one. Use one per thread, about 30 KiB. Borrows the case.
//
// Tolerances are one ulp of each recorded value (twice the error of rounding to nearest),
// propagated through the function to first order, plus two fp32 ulp if a function was computed. Two
// keys differ if their distance exceeds both tolerances.
class RowKeyReader {
 public:
  RowKeyReader(const RoutingCase& c, KeyKind kind);
  ~RowKeyReader();

  // Returns keys parallel to c.ChoicesOf(token). Valid until the next call.
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

// Returns the keys of any expert of any row. The constructor computes the data of each row once.
// Borrows the case.
class KeyReader {
 public:
  KeyReader(const RoutingCase& c, KeyKind kind);
  // `rank` is the choice's column if probs are [T,k].
  Key At(int32_t token, int32_t expert, int16_t rank) const;

 private:
  const RoutingCase& case_;
  KeyKind kind_;
  std::vector<KeyScale> rows_;
};

}  // namespace plumbline::analysis
