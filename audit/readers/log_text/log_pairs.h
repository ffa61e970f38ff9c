// Reads pairs of a name and a number within a log line.
#pragma once

#include <cstddef>
#include <string_view>

#include "audit/readers/log_text/log_names.h"
#include "audit/readers/log_text/log_numbers.h"

namespace plumbline::audit {

struct LogPair {
  std::string_view name;
  std::string_view group;  // the name before the brackets of "tot_loss[loss=0.5, ...]"
  double value = 0;
  double limit = 0;          // bytes: "78.28GiB(98.84%)", "78.3/79.2GiB"; 0: not stated
  bool after_sign = false;   // a ':' or '=' precedes the number
  bool named_after = false;  // the name follows the number: "2095134 tok/s"
  bool absent = false;       // the name has no value: "loss: None", "loss: N/A"
  bool at_end = false;       // the text ends near the number, so the number may be truncated
};

// Returns true if a number or its unit may end before `at`.
bool MayStandAfter(const char* at, const char* end);
// Returns true if a ':' or '=' precedes `at`, with or without spaces between them.
bool AfterSign(const char* from, const char* at);

// Reads "loss: 2.1 | grad norm 0.4, lr=[1e-4] | dt: 393.25ms | mem 25.68GiB(27.05%) | tok/s 1,024".
//
// Converts values with a unit to seconds, bytes or fractions (12ms: 0.012, 45.3%: 0.453,
// 3.2GB: 3.2e9, 3.2GiB, 1.5K). The unit is after the number or at the end of the name ("time (ms):
// 12"). Ignores dates, times, versions, numbers without a name, and numbers whose name is a
// sentence. In "loss=tensor(2.3, device='cuda:0')" the value comes first in the parentheses. A
// "Losses: [2.3, 2.5]" gives "[0]" and "[1]" in the group "Losses". A
// number in a separate part may precede its name: "| 2095134 tok/s |".
class LogPairs {
 public:
  LogPairs(std::string_view text, LogNames* names, Decimals decimals = Decimals::kPoint)
      : begin_(text.data()),
        at_(text.data()),
        name_(text.data()),
        end_(text.data() + text.size()),
        names_(names),
        decimals_(decimals) {}

  // Reads the next pair, which is valid as long as the text. Returns false if there is none.
  // `names` must outlive the pairs.
  bool Next(LogPair* pair);

  // Returns the text after the last number: the beginning of a line that continues.
  std::string_view Tail() const { return {name_, static_cast<size_t>(end_ - name_)}; }
  // Returns how many numbers after a sign had no valid name, and the first such text.
  size_t refused() const { return refused_; }
  std::string_view first_refused() const { return first_refused_; }

 private:
  bool TryNumber(LogPair* pair);
  bool TakeNameAfter(LogPair* pair);
  void Refuse(std::string_view text);
  void TakeGroup();
  bool TakeTuple();
  bool PassParentheses();
  bool TakeLimit(const char* stop, LogPair* pair);
  bool TryWrapped(LogPair* pair);
  bool TakeAbsent(LogPair* pair);
  bool TakeTensor(LogPair* pair);
  bool TakeJoined(LogPair* pair);
  bool TakeSum(LogPair* pair);
  bool TakeListed(LogPair* pair);
  bool NamesNext() const;

  const char* begin_;
  const char* at_;
  const char* name_;  // begin of the next name
  const char* end_;
  LogNames* names_;
  Decimals decimals_;
  std::string_view group_;
  bool tuple_ = false;     // true if a parenthesis ends the group
  std::string_view list_;  // "Losses" within "Losses: [2.3, 2.5]"
  size_t listed_ = 0;      // number of its values so far
  std::string_view first_refused_;
  size_t refused_ = 0;
};

}  // namespace plumbline::audit
