// Names and numbers within a line of a log.
#pragma once

#include <cstddef>
#include <string_view>

#include "audit/readers/log_text/log_names.h"
#include "audit/readers/log_text/log_numbers.h"

namespace plumbline::audit {

struct LogPair {
  std::string_view name;
  std::string_view group;  // "tot_loss[loss=0.5, ...]": what the brackets belong to
  double value = 0;
  double limit = 0;          // bytes: "78.28GiB(98.84%)", "78.3/79.2GiB"; 0: not stated
  bool after_sign = false;   // a ':' or '=' stands before it
  bool named_after = false;  // "2095134 tok/s"
  bool absent = false;       // "loss: None", "loss: N/A": a name without a value
  bool at_end = false;  // the text ends so close behind that more of the number may have been cut
};

// Returns true if a number or its unit may end in front of `at`.
bool MayStandAfter(const char* at, const char* end);
// Returns true if a ':' or '=' stands in front of `at`, spaces between them or not.
bool AfterSign(const char* from, const char* at);

// "loss: 2.1 | grad norm 0.4, lr=[1e-4] | dt: 393.25ms | mem 25.68GiB(27.05%) | tok/s 1,024".
//
// Values are in seconds, bytes and fractions where a unit is written (12ms: 0.012, 45.3%: 0.453,
// 3.2GB: 3.2e9, 3.2GiB, 1.5K), behind the number or at the end of the name ("time (ms): 12"). What
// has no name, or a name that is a sentence, is passed over, as are dates, times and versions. Of
// "loss=tensor(2.3, device='cuda:0')" the first thing in the parentheses is the value. In a part of
// its own a number may stand before its name: "| 2095134 tok/s |".
class LogPairs {
 public:
  LogPairs(std::string_view text, LogNames* names, Decimals decimals = Decimals::kPoint)
      : begin_(text.data()),
        at_(text.data()),
        name_(text.data()),
        end_(text.data() + text.size()),
        names_(names),
        decimals_(decimals) {}

  // The next; valid as long as the text. False: none is left. The names outlive the pairs.
  bool Next(LogPair* pair);

  // What stands behind the last number: the beginning of a line that goes on.
  std::string_view Tail() const { return {name_, static_cast<size_t>(end_ - name_)}; }
  // Numbers with a sign before them whose text is no name, and the first such text.
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
  bool NamesNext() const;

  const char* begin_;
  const char* at_;
  const char* name_;  // where the next name begins
  const char* end_;
  LogNames* names_;
  Decimals decimals_;
  std::string_view group_;
  bool tuple_ = false;  // a parenthesis ends the group
  std::string_view first_refused_;
  size_t refused_ = 0;
};

}  // namespace plumbline::audit
