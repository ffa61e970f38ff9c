// Which of a table's columns is the step, by the names that people use.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace plumbline::audit {

// 0 is asked first: step, _step, global_step, iteration, iter, ... in any case; -1: no such name.
int StepNameRank(std::string_view name);
// An epoch is a step where there is no other.
bool IsEpochName(std::string_view name);
// A word of the name that only trainers use: loss, lr, perplexity, ...
bool HasTrainingWord(std::string_view name);

// Picks the step's column by the first records of a file. Of two that are there alike, the one that
// does not fall back (a step within the epoch does), then the better name.
class StepChoice {
 public:
  explicit StepChoice(std::string wanted) : wanted_(std::move(wanted)) {}

  // Every name that may be it; others are passed over.
  bool MayBe(std::string_view name) const;
  // What a record has there.
  void Offer(std::string_view name, double value);
  // Nothing: no column has whole numbers.
  std::optional<std::string> Best() const;

 private:
  struct Seen {
    uint64_t whole = 0, other = 0, falls = 0;
    double last = -1;
  };
  static constexpr size_t kMostCandidates = 64;

  std::string wanted_;
  std::map<std::string, Seen, std::less<>> seen_;
};

}  // namespace plumbline::audit
