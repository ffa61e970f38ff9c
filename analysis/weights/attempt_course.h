// Attempts of one live run: detects an optimizer that started again while the weights continued.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "analysis/frame/frame.h"
#include "base/archive.h"

namespace plumbline::analysis {

// Series that run.watch reports for an attempt.
inline constexpr char kAnew[] = "trained/anew";  // 1 if the first update found no optimizer state
inline constexpr char kResumed[] = "trained/resumed";  // steps that the framework counted before it
inline constexpr char kFirstLoss[] = "trained/first_loss";        // mean of its first losses
inline constexpr char kRecentLoss[] = "trained/recent_loss";      // mean of the newest 8
inline constexpr char kRecentSpread[] = "trained/recent_spread";  // their standard deviation

// State of one rank. Not thread-safe.
class AttemptCourse {
 public:
  static bool Reads(std::string_view series);

  // Takes values in the order of the attempts.
  void Take(uint32_t attempt, std::string_view series, double value);

  // Returns the verdict on the newest attempt, once, as soon as its inputs are known. The finding:
  // its optimizer has no state, but its weights are not fresh, because the framework continues its
  // count of steps, or the first losses equal the last ones of the previous attempt, not its first.
  std::optional<v1::Verdict> Judge(uint32_t rank, int64_t step);

  // Between steps resumed_ is empty.
  void Persist(Archive& a) { a(before_, now_, judged_); }

 private:
  struct Attempt {
    uint32_t number = 0;
    std::optional<double> anew, first, recent, spread;
    void Persist(Archive& a) { a(number, anew, first, recent, spread); }
  };

  std::optional<v1::Verdict> JudgeResume(uint32_t rank, int64_t step);

  std::optional<Attempt> before_, now_;
  bool judged_ = false;
  std::optional<double> resumed_;  // of the step that is open; between steps it is empty
};

}  // namespace plumbline::analysis
