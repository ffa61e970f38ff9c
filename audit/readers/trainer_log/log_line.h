// A line of a trainer's log as a record: its step, and the names and numbers of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "audit/readers/log_text/copied_text.h"
#include "audit/readers/log_text/log_bullets.h"
#include "audit/readers/log_text/log_dictionary.h"
#include "audit/readers/log_text/log_language.h"
#include "audit/readers/log_text/log_pairs.h"
#include "audit/readers/log_text/log_result.h"
#include "audit/readers/log_text/log_table.h"
#include "audit/readers/log_text/log_words.h"
#include "audit/readers/log_text/log_wrapping.h"
#include "audit/readers/trainer_log/log_heading.h"

namespace plumbline::audit {

// One line, parsed.
struct LogRecord {
  // kEpoch: the epoch is all that is known of the step. kShown: the step of a progress bar above
  // it.
  enum class Step { kStated, kCounted, kBar, kEpoch, kShown };
  struct Value {
    std::string_view name;
    double value;
    std::string_view group = {};  // "tot_loss" of "tot_loss[loss=0.5]"
    bool evaluation = false;      // of a part of the line: "[valid] loss=0.5"
    double limit = 0;             // of memory, bytes; of a count its total; 0: not stated
  };

  Step how = Step::kStated;
  LogMark mark;
  std::string_view line;    // without colours
  std::string_view prefix;  // of it, before the mark
  bool evaluation = false;
  std::vector<Value> values;
  bool cut = false;                      // a last value was left out
  std::vector<std::string_view> absent;  // names without a value: "loss: None"
  size_t lists = 0;                      // of numbers, which are no values
  std::string_view first_list;
  // Numbers with a sign before them that became no value, and the text before the first of them.
  size_t refused = 0;
  std::string_view first_refused;
  bool summary = false;           // of the whole run
  bool evaluation_batch = false;  // a batch within an evaluation: passed over

  void Clear() {
    values.clear();
    absent.clear();
    lists = 0;
    line = first_list = prefix = first_refused = {};
    evaluation = cut = evaluation_batch = summary = false;
    refused = 0;
    how = Step::kStated;
  }
};

bool HasLetter(std::string_view text);
// True if one of its series is of a training.
bool HasTraining(const LogRecord& record);

// Lines into records. Keeps the line that continues an earlier one. Not thread-safe.
class LogParser {
 public:
  // Looks at the beginning of the log: were its lines copied, and which words do they have?
  void LookAt(std::string_view head) {
    copied_ = CopiedIn(head);
    foreign_ = HasForeignWords(head);
  }
  bool foreign() const { return foreign_; }  // the lines have words that WithEnglishWords knows
  // How fractions are written in the whole log.
  void SetDecimals(Decimals decimals) { decimals_ = decimals; }
  // "3: 5/200 loss 2.5": the lines begin with their epoch, not with a rank.
  void SetLabelsAreEpochs(bool are) { epoch_labels_ = are; }
  // `ended`: the line is whole. The record is valid until the next call and as long as the line.
  bool Parse(std::string_view line, bool ended, LogRecord* record);
  // The record is of a block that ended above the line: parse the line again.
  bool again() const { return again_; }
  // At the end of the log: a block that nothing ended. False: there is none.
  bool Finish(LogRecord* record);
  // The rows of the literal that the line parsed last holds (log_literal.h).
  std::vector<std::string> TakeLiteral() { return std::exchange(literal_, {}); }
  // The step of the newest bar of the training; -1: none was shown.
  int64_t shown() const { return shown_; }
  // Which words the line has that was parsed last (log_signs.h).
  uint32_t Signs(std::string_view line);

 private:
  bool ParseLabelled(std::string_view line, bool ended, LogRecord* record);
  bool ParseLine(std::string_view line, bool ended, LogRecord* record);
  bool ParseUnmarked(std::string_view line, bool ended, LogRecord* record);
  bool Continue(std::string_view line, bool ended, LogRecord* record);
  bool Wrapped(std::string_view line, bool ended, LogRecord* record);
  bool Listed(std::string_view line, bool ended, LogRecord* record);
  bool UnderStep(std::string_view line, bool ended, LogRecord* record);
  bool TakeContinued(std::string_view pairs, bool ended, LogRecord* record);
  bool ParseStep(std::string_view line, bool ended, LogRecord* record);
  bool ParseCounter(std::string_view line, const LogMark& mark, bool ended, LogRecord* record);
  bool ParseWeak(std::string_view line, bool ended, LogRecord* record);
  bool TakeNameless(std::string_view rest, bool ended, LogRecord* record);
  void TakeNamedBefore(std::string_view rest, bool ended, LogRecord* record);
  static void NameOptimum(std::string_view line, LogRecord* record);
  static void TakeEpochOfBar(LogRecord* record);
  bool ParseDictionary(std::string_view text, bool ended, LogRecord* record);
  bool ParseKeras(std::string_view line, bool ended, LogRecord* record);
  bool ParseTable(std::string_view line, LogRecord* record);
  bool ParseInBox(std::string_view line, LogRecord* record);
  static void TakeRow(const LogRow& row, LogRecord* record);
  void TakeResult(LogRecord* record);
  bool ParseSides(std::string_view line, LogRecord* record);
  bool ParseUnder(std::string_view line, bool ended, LogRecord* record);
  bool TakeEvaluationAlone(std::string_view line, bool ended, LogRecord* record);
  bool IsSample() const;
  bool KeepAbove(const LogRecord& record);
  bool ParseBar(std::string_view line, bool ended, LogRecord* record);
  void TakeBefore(std::string_view text, LogRecord* record);
  void TakeGlobalStep(LogRecord* record);
  void TakeAfter(std::string_view rest, bool ended, LogRecord* record);
  void TakePairs(std::string_view text, bool ended, LogRecord* record);
  void TakeParts(std::string_view text, bool ended, LogRecord* record);
  // Returns where the dictionary ends in `text`.
  size_t TakeDictionary(std::string_view text, bool ended, LogRecord* record);
  static void GroupByName(std::string_view before, size_t first, LogRecord* record);
  void OpenBlock(const LogRecord& record);

  static constexpr std::string_view kLossName = "loss";  // of a value that has no name
  static constexpr uint32_t kNoSigns = UINT32_MAX;

  std::string plain_, inner_, joined_, bars_, bullet_;
  LogBullets bullets_;
  uint32_t signs_ = kNoSigns;
  bool named_ = false;  // a record had series with names
  LogNames names_;
  LogDictionary dictionary_;
  OpenDictionary open_dictionary_;
  LogTable table_;
  LogResult result_;
  Decimals decimals_ = Decimals::kPoint;
  bool epoch_labels_ = false, foreign_ = false;
  CopiedText copied_;
  std::string english_, ascii_;
  std::vector<std::string> literal_;
  bool again_ = false;
  int64_t epoch_ = -1;          // that a line began last; -1: none
  bool headed_ = false;         // by a line of its own: "Epoch 3/10"
  bool stamped_below_ = false;  // "epoch: 3" alone: lines with a time belong to it
  LogHeading heading_;
  bool under_evaluation_ = false;  // "Test Error:" stands above
  LogMark mark_above_;             // of a line without values, for a box below it
  std::string prefix_above_;
  bool sides_ = false;  // "Training |  Validation" stands above
  LogHeading sides_heading_;
  static constexpr int kNearAbove = 2;    // lines
  int64_t above_ = -1;                    // the step of a line above that has nothing else
  bool from_above_ = false;               // the record took its step from there
  int above_lines_ = 0;                   // since it
  int64_t shown_ = -1, shown_total_ = 0;  // of the bar of the training
  // A line that has the step, and what goes on below it.
  bool continued_ = false;
  bool listed_ = false;  // by a list that has the step: the next line alone
  bool bare_ = false;    // by a step alone: "Step: 10", and "Loss: 2.5" or a box below it
  static constexpr int kMostWords = 8;
  int words_ = 0;  // lines below it that have no value, before one has
  LogMark continued_mark_;
  LogRecord::Step continued_how_ = LogRecord::Step::kStated;
  bool continued_evaluation_ = false;
  std::string continued_prefix_;
  bool sourced_ = false;      // the line ended in its source: "train.py:52"
  bool wrapped_ = false;      // its source was at its end: a line without one goes on
  std::string wrapped_tail_;  // what stood behind its last number
};

}  // namespace plumbline::audit
