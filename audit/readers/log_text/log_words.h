// Finds the mark of a line of a trainer's log: "iteration 10/100", "step: 10", "iter 10", a printed
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
  size_t begin = 0, end = 0;  // place of the mark, of a dictionary's brace, or of a bar's '%'
  int64_t step = 0;
  int64_t total = 0;        // total of the count; 0 if not stated
  int64_t epoch = -1;       // epoch in the mark itself; -1 if not stated
  bool batches = false;     // the count is of batches, and restarts in each epoch
  bool evaluation = false;  // "Iter(val) [10/100]"
  // True if the mark is in its own brackets, alone or with other marks, and nothing follows:
  // "[step=10/100]", "[step=10/100,epoch=0]".
  bool alone = false;
  bool valued = false;        // an epoch without a total, printed like a setting: "epoch: 3"
  bool weak = false;          // the mark counts only if the line has a series of training
  bool nameless = false;      // only a number without a name follows: the loss
  bool named_before = false;  // "Train loss 10 2.5": the name precedes the step
  bool list = false;          // "[200, 0.0001]": the values are in the line below
  bool unnamed = false;       // "[2.1, 0.5, 3400, 1e-4]": values without names, step and rate
  int64_t batch = -1;         // batch of a Keras bar whose epoch has not ended; -1 if it has
  bool share = false;         // the step is the completed share, in thousandths
  size_t subject = 0;  // bytes of "rollout" in "rollout/step=5", at `begin`; 0 for other marks
};

// Returns the offset after "(train)", "(val)", "(test)" or "(eval)" at `at`, and records an
// evaluation in `mark`. If none of them is there, returns `at`.
size_t PassPhase(std::string_view text, size_t at, LogMark* mark);

// Returns the first mark of a line; nullopt if it has none.
std::optional<LogMark> FindMark(std::string_view line);

// Reads "1000" or "1,000" at `at`, at most 15 digits. Returns the end; `at` if there is none.
size_t ReadLogCount(std::string_view text, size_t at, int64_t* count);
// Returns true if `word` is at `at`, in any case, and is not the beginning of a longer name.
bool HasWordAt(std::string_view text, size_t at, std::string_view word);
// True if the word before `at` makes the count a setting or a limit: "max epoch", "every step".
bool IsLimitBefore(std::string_view text, size_t at);

// Reads a label "3: " at the line's beginning, after any spaces. It is a rank (srun --label) or an
// epoch. Returns its end; 0 if there is none.
size_t ReadLabel(std::string_view line, int64_t* label);

// Returns the rank in the text before a mark (a time, a host, a logger, a rank); -1 if it has none.
int64_t RankInPrefix(std::string_view prefix);
int64_t EpochInPrefix(std::string_view prefix);
int64_t TaskInPrefix(std::string_view prefix);
// True for "validation loss at iteration 1000", "[eval] step 10".
bool IsEvaluationPrefix(std::string_view prefix);
// True for the text before the first name in a line below a heading: "Valid metrics: ", "  test: ".
bool IsEvaluationHead(std::string_view head);

// Removes colours and cursor movements. Uses *scratch if there are any.
std::string_view WithoutEscapes(std::string_view line, std::string* scratch);

}  // namespace plumbline::audit
