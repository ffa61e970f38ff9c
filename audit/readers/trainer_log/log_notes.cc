#include "audit/readers/trainer_log/log_notes.h"

#include "absl/strings/str_format.h"
#include "audit/readers/input/file.h"
#include "audit/readers/scalars/text_file.h"

namespace plumbline::audit {

void UnreadText::Add(uint64_t more, std::string_view text) {
  if (count == 0 && more > 0) first = PlainName(text);
  count += more;
}

void LogNotes::Report(InputReport* report) const {
  const auto note = [&](uint64_t count, std::string_view expected, std::string_view found) {
    if (count == 0) return;
    report->Note("expected " + std::string(expected) + ", found " + std::to_string(count) + " " +
                 std::string(found));
  };
  constexpr char kStep[] = "a step in each line";
  note(refused.count, "a name and a sign before each number",
       "numbers without a name on lines with a step, the first after " + Quoted(refused.first) +
           ": they are ignored");
  note(lists.count, "one number for each name",
       "lists of numbers, the first of " + Quoted(lists.first) + ": they are ignored");
  note(unnamed, "a name for each number",
       "lists without names: the last two numbers are the step and the learning rate, and the "
       "others, value[0], value[1], ..., have no role (--map gives one)");
  note(evaluation_batches, "the end of an evaluation",
       "lines of batches within one: they are ignored");
  note(evaluations, kStep,
       "bars of evaluations: their steps are those that the training had reached before them");
  note(summaries, "rows of a training", "values of its summary: they are ignored");
  note(literals, "rows of a training",
       "more in a printed list: they repeat others, and are ignored");
  note(counted, kStep,
       "rows without one: logged rows are numbered from 1 as steps (logged row N, step "
       "unknown)");
  note(shown, kStep,
       "dictionaries without one: their steps are those of the progress bar below or above");
  note(of_above, kStep,
       "dictionaries without one, of series that have steps: they belong to the step above them");
  const std::string rows =
      stride > 0 ? ", a row every " + std::to_string(stride) + " steps" : std::string();
  note(of_epochs, kStep,
       "dictionaries without one: their steps follow from 'epoch' and the totals (" +
           absl::StrFormat("%.6g", steps_per_epoch) + " steps per epoch" + rows + ")");
  note(shares, kStep, "shares of completed training: a step is a thousandth of the training");
  note(of_bars, kStep, "progress bars: a value on one may belong to the step before or after");
  note(of_batches, "the end of an epoch", "bars within the first one: their batches are the steps");
  if (again > 0)
    report->Note("expected rising steps, found that they restart " + std::to_string(again) +
                 " times while the loss continues: they are continued over epochs");
  if (!axes.empty())
    report->Note("expected one axis of steps, found several: values of " + axes +
                 " have the steps of their own axes");
  if (foreign) report->Note("expected English words, found others: known words are translated");
  if (epochs > 0)
    report->Note(
        "expected a step in each line, found only an epoch: the epoch is used as the step");
}

}  // namespace plumbline::audit
