// Parses a line of a trainer's log into a record: its step, names and numbers.
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
#include "audit/readers/trainer_log/log_alone.h"
#include "audit/readers/trainer_log/log_heading.h"

namespace plumbline::audit {

// A parsed line.
struct LogRecord {
  // kEpoch: only the epoch is known. kShown: the step is that of a progress bar above the line.
  // kRollout: the number of a rollout, which may count more slowly than the steps of other lines.
  enum class Step { kStated, kCounted, kBar, kEpoch, kShown, kRollout };
  struct Value {
    std::string_view name;
    double value;
    std::string_view group = {};  // "tot_loss" of "tot_loss[loss=0.5]"
    bool evaluation = false;      // the value is in a part of an evaluation: "[valid] loss=0.5"
    // Limit of a memory in bytes, or total of a count; 0 if not stated.
    double limit = 0;
  };

  // Another step in the record: 5 of 'rollout/step': 5, for values such as 'rollout/reward'.
  struct Axis {
    std::string_view subject;
    int64_t step;
  };

  Step how = Step::kStated;
  LogMark mark;
  std::string_view line;    // the line without colours
  std::string_view prefix;  // text of the line before the mark
  bool evaluation = false;
  std::vector<Value> values;
  std::string_view axis;   // "rollout" if the step is that of "rollout/step"; else empty
  std::vector<Axis> axes;  // other steps
  // The line may be truncated, so its last value was left out.
  bool cut = false;
  std::vector<std::string_view> absent;  // names without a value: "loss: None"
  size_t lists = 0;                      // lists of numbers, which are not values
  std::string_view first_list;
  // Number of numbers after a sign that had no valid name, and the text before the first of them.
  size_t refused = 0;
  std::string_view first_refused;
  bool summary = false;           // the record is a summary of the whole run
  bool evaluation_batch = false;  // the record is of a batch within an evaluation, which is ignored
  bool evaluation_bar = false;    // the record is of an evaluation's bar, at the step before it
  bool evaluated = false;  // the record is the end of an evaluation's bar, at the step before it

  void Clear() {
    values.clear();
    absent.clear();
    axes.clear();
    lists = 0;
    axis = line = first_list = prefix = first_refused = {};
    evaluation = cut = evaluation_batch = evaluation_bar = evaluated = summary = false;
    refused = 0;
    how = Step::kStated;
  }
};

bool HasLetter(std::string_view text);
// True if one of the record's series is of a training.
bool HasTraining(const LogRecord& record);

// Parses lines into records. Keeps a line that continues an earlier one. Not thread-safe.
class LogParser {
 public:
  // Reads the beginning of the log. Detects whether its lines were copied, and the language of its
  // words.
  void LookAt(std::string_view head) {
    copied_ = CopiedIn(head);
    foreign_ = HasForeignWords(head);
    alone_ = alone_ || RowsStandAlone(head);
  }
  bool foreign() const { return foreign_; }  // the lines have words that WithEnglishWords knows
  // Sets the decimal sign of the whole log.
  void SetDecimals(Decimals decimals) { decimals_ = decimals; }
  // Call if the lines begin with their epoch, not with a rank: "3: 5/200 loss 2.5".
  void SetLabelsAreEpochs(bool are) { epoch_labels_ = are; }
  // `ended`: the line is complete. The record is valid until the next call, and as long as the
  // line.
  bool Parse(std::string_view line, bool ended, LogRecord* record);
  // True if the record is of a block that ended above the line. The caller must then parse the line
  // again.
  bool again() const { return again_; }
  // Call at the end of the log. Returns false if no block was open.
  bool Finish(LogRecord* record);
  // Returns the rows of the literal in the line that was parsed last (log_literal.h).
  std::vector<std::string> TakeLiteral() { return std::exchange(literal_, {}); }
  // Returns the step of the newest bar of the training; -1 if there was none.
  int64_t shown() const { return shown_; }
  // Returns the signs of the line that was parsed last (log_signs.h).
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
  bool TakeUnnamed(std::string_view line, bool ended, LogRecord* record);
  bool ParseCounter(std::string_view line, const LogMark& mark, bool ended, LogRecord* record);
  bool ParseWeak(std::string_view line, bool ended, LogRecord* record);
  bool TakeNameless(std::string_view rest, bool ended, LogRecord* record);
  void TakeNamedBefore(std::string_view rest, bool ended, LogRecord* record);
  static void NameOptimum(std::string_view line, LogRecord* record);
  static void TakeEpochOfBar(LogRecord* record);
  bool TakeEvaluationBar(std::string_view description, LogRecord* record);
  void TakeOtherBar(LogRecord* record);
  bool IsOtherKerasBar(std::string_view line);
  bool ParseDictionary(std::string_view text, bool ended, LogRecord* record);
  static void TakeAxes(LogRecord* record);
  static bool TakeTuple(LogRecord* record);
  static bool TakeRollout(LogRecord* record);
  bool ParseKeras(std::string_view line, bool ended, LogRecord* record);
  bool ParseTable(std::string_view line, LogRecord* record);
  bool ParseInBox(std::string_view line, LogRecord* record);
  static void TakeRow(const LogRow& row, LogRecord* record);
  void TakeResult(LogRecord* record);
  bool ParseSides(std::string_view line, LogRecord* record);
  bool ParseUnder(std::string_view line, bool ended, LogRecord* record);
  static void MarkPhases(LogRecord* record);
  bool ParseAlone(std::string_view line, bool ended, LogRecord* record);
  bool OpensHistory(std::string_view line);
  bool TakeOfHistory(std::string_view rest, bool ended, LogRecord* record);
  bool OpensEvaluation(std::string_view line, LogRecord* record);
  void TakeStepOfEvaluation(LogRecord* record);
  bool TakeEvaluationAlone(std::string_view line, bool ended, LogRecord* record);
  bool IsSample() const;
  bool KeepAbove(const LogRecord& record);
  bool ParseBar(std::string_view line, bool ended, LogRecord* record);
  void TakeBefore(std::string_view text, LogRecord* record);
  void TakeGlobalStep(LogRecord* record);
  bool TakeAfter(std::string_view rest, bool ended, LogRecord* record);
  void TakePairs(std::string_view text, bool ended, LogRecord* record);
  void TakeParts(std::string_view text, bool ended, LogRecord* record);
  // Returns the end of the dictionary in `text`.
  size_t TakeDictionary(std::string_view text, bool ended, LogRecord* record);
  static void GroupByName(std::string_view before, size_t first, LogRecord* record);
  void OpenBlock(const LogRecord& record);
  bool EndsEpisode(std::string_view line);

  static constexpr std::string_view kLossName = "loss";  // name of a value without a name
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
  bool alone_ = false;  // no line has a step
  CopiedText copied_;
  std::string english_, ascii_;
  std::vector<std::string> literal_;
  bool again_ = false;
  int64_t epoch_ = -1;          // the epoch that a line began last; -1 if there was none
  bool headed_ = false;         // a separate line states the epoch: "Epoch 3/10"
  bool stamped_below_ = false;  // after a line with only "epoch: 3": lines with a time belong to it
  LogHeading heading_;
  bool under_evaluation_ = false;  // true below "Test Error:"
  // True below "> EVALUATION", where steps are batches of the evaluation.
  bool evaluating_ = false;
  std::string history_;  // "distributed" below "History (loss, distributed):"
  int64_t newest_ = -1;  // the newest step of the training that a line states
  LogMark mark_above_;   // mark of a line without values, for a box below it
  std::string prefix_above_;
  bool sides_ = false;  // below "Training |  Validation"
  LogHeading sides_heading_;
  static constexpr int kNearAbove = 2;    // number of lines
  int64_t above_ = -1;                    // the step of a line above that has nothing else
  bool from_above_ = false;               // the record's step is above_
  int above_lines_ = 0;                   // number of lines since above_
  int64_t shown_ = -1, shown_total_ = 0;  // step and total of the bar of the training
  int64_t bar_total_ = -1;                // total of the newest bar of the training that had values
  bool lost_in_bar_ = false;  // a batch of the evaluation was not finite, and is recorded
  bool bar_trained_ = false;  // a bar of the training had values
  int64_t keras_total_ = 0, keras_epoch_ = -1;  // batches of the epoch's first bar, and that epoch
  // A line above has the step, and its values continue below it.
  bool continued_ = false;
  bool listed_ = false;  // that line is a list with the step; only the next line has values
  // That line has only the step: "Step: 10", with "Loss: 2.5" or a box below it.
  bool bare_ = false;
  // That line is a count of episodes: "day: 2892, episode: 10". A rule or another count ends its
  // block.
  bool of_episode_ = false;
  bool boxed_steps_ = false;  // boxes of the log state their step
  static constexpr int kMostWords = 8;
  int words_ = 0;  // number of lines without a value below that line
  LogMark continued_mark_;
  LogRecord::Step continued_how_ = LogRecord::Step::kStated;
  bool continued_evaluation_ = false;
  std::string continued_prefix_;
  bool sourced_ = false;  // the line ends with its source: "train.py:52"
  bool wrapped_ = false;  // the line above ended with its source; a line without one continues it
  std::string wrapped_tail_;  // text after the last number of the line above
};

}  // namespace plumbline::audit
