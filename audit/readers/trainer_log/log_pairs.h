// Names and numbers within a line of a log.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace plumbline::audit {

struct LogPair {
  std::string_view name;
  std::string_view group;  // "tot_loss[loss=0.5, ...]": what the brackets belong to
  double value = 0;
  bool behind_sign = false;   // a ':' or '=' stands before it
  bool named_behind = false;  // "2095134 tok/s"
  bool at_end = false;  // the text ends so close behind that more of the number may have been cut
};

// What the texts in front of numbers mean: a name and a factor, or nothing. A log repeats them, so
// that each is looked at once. Memory is bounded. Not thread-safe.
class LogNames {
 public:
  struct Name {
    std::string_view name;  // within the text; empty: it is none
    double factor = 1;      // of a unit at the name's end
  };
  Name Of(std::string_view text);

 private:
  static constexpr size_t kPlaces = 1024;
  static constexpr size_t kMostText = 128;

  struct Place {
    std::string text;
    size_t begin = 0, size = 0;  // of the name
    double factor = 1;
    Place* next = nullptr;  // of the text that came behind it last
  };
  Place* last_ = nullptr;  // of the text before
  std::vector<Place> places_ = std::vector<Place>(kPlaces);
};

// How a log writes fractions: "2.5" or "2,5".
enum class Decimals { kPoint, kComma };

// Adds the evidence of one line: numbers that only a decimal comma explains ("0,0003", "4,51e-05")
// and numbers with a decimal point.
void CountDecimals(std::string_view line, size_t* commas, size_t* points);

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
  bool TakeNameBehind(LogPair* pair);
  void Refuse(std::string_view text);
  void TakeGroup();
  bool PassParentheses();
  bool TryWrapped(LogPair* pair);

  const char* begin_;
  const char* at_;
  const char* name_;  // where the next name begins
  const char* end_;
  LogNames* names_;
  Decimals decimals_;
  std::string_view group_;
  std::string_view first_refused_;
  size_t refused_ = 0;
};

}  // namespace plumbline::audit
