// Attempts of one live run: detects an optimizer that started again while the weights continued.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "analysis/frame/frame.h"
#include "base/archive.h"

namespace plumbline::rules {

// Series that run.watch reports for an attempt.
inline constexpr char kAnew[] = "trained/anew";  // 1 if the first update found no optimizer state
inline constexpr char kFirstLoss[] = "trained/first_loss";        // mean of its first losses
inline constexpr char kRecentLoss[] = "trained/recent_loss";      // mean of the newest 8
inline constexpr char kRecentSpread[] = "trained/recent_spread";  // their standard deviation

// State of one rank. Not thread-safe.
class AttemptCourse {
 public:
  static bool Reads(std::string_view series);

  // Takes values in the order of the attempts.
  void Take(uint32_t attempt, std::string_view series, double value);

  // Returns the verdict on the newest attempt once, when all needed values are present. The verdict
  // is a finding if its optimizer has no state, and the loss of its first steps is where the
  // previous attempt ended, not where that one began, so that its weights are not fresh.
  std::optional<v1::Verdict> Judge(uint32_t rank, int64_t step);

  void Persist(Archive& a) { a(before_, now_, told_); }

 private:
  struct Attempt {
    uint32_t number = 0;
    std::optional<double> anew, first, recent, spread;
    void Persist(Archive& a) { a(number, anew, first, recent, spread); }
  };

  std::optional<Attempt> before_, now_;
  bool told_ = false;
};

}  // namespace plumbline::rules
