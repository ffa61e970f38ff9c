// What marks a line of a trainer's log: "iteration 10/100", "step: 10", "iter 10", a printed
// dictionary, a progress bar.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace plumbline::audit {

struct LogMark {
  // kEpoch: the line states an epoch and no other count (log_counter.h).
  enum class Kind { kStep, kDictionary, kBar, kEpoch };
  Kind kind = Kind::kStep;
  size_t begin = 0, end = 0;  // of the mark; of a dictionary its brace, of a bar its '%'
  int64_t step = 0;
  int64_t total = 0;        // 0: not said
  int64_t epoch = -1;       // stated by the mark itself; -1: not stated
  bool batches = false;     // counts batches: begins anew in each epoch
  bool evaluation = false;  // "Iter(val) [10/100]"
  // In brackets of its own, with others of its kind or not, and nothing follows: "[step=10/100]",
  // "[step=10/100,epoch=0]".
  bool alone = false;
  bool valued = false;        // of an epoch: "epoch: 3", as settings are written, without a total
  bool weak = false;          // marks the line only if it has a series of training
  bool nameless = false;      // a number without a name is all that follows: the loss
  bool named_before = false;  // "Train loss 10 2.5": the name stands before the step
  bool list = false;          // "[200, 0.0001]": the line below has the values
  int64_t batch = -1;         // of a bar of Keras whose epoch has not ended; -1: it has
  bool share = false;         // the step is the share that is done, in thousandths
};

// Returns the offset after "(train)", "(val)", "(test)" or "(eval)" at `at`, and notes an
// evaluation in `mark`. If there is none of them, returns `at`.
size_t PassPhase(std::string_view text, size_t at, LogMark* mark);

// The first mark of a line; nothing: it has none.
std::optional<LogMark> FindMark(std::string_view line);

// Reads "1000" or "1,000" at `at`, at most 15 digits. Returns the end; `at` itself if there is
// none.
size_t ReadLogCount(std::string_view text, size_t at, int64_t* count);
// Case-insensitive: is `word` at `at`, and no part of a longer name behind it?
bool HasWordAt(std::string_view text, size_t at, std::string_view word);
// True if the word before `at` makes a setting or a limit of the count: "max epoch", "every step".
bool IsLimitBefore(std::string_view text, size_t at);

// Reads "3: " at the line's beginning, spaces before it allowed. Returns its end; 0: there is none.
// It is a rank (srun --label), or an epoch.
size_t ReadLabel(std::string_view line, int64_t* label);

// What stands before a mark: a time, a host, a logger, a rank.
int64_t RankInPrefix(std::string_view prefix);   // -1: none
int64_t EpochInPrefix(std::string_view prefix);  // -1: none
int64_t TaskInPrefix(std::string_view prefix);   // -1: none
// "validation loss at iteration 1000", "[eval] step 10".
bool IsEvaluationPrefix(std::string_view prefix);
// "Valid metrics: ", "  test: ": of a line below a heading, what stands before its first name.
bool IsEvaluationHead(std::string_view head);

// Colours and cursor movements taken out, into *scratch where there are any.
std::string_view WithoutEscapes(std::string_view line, std::string* scratch);

}  // namespace plumbline::audit
