// Records how a log was read, for the notes of the report: content of lines that is in no series,
// and how missing steps were found. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "audit/readers/input/reader.h"

namespace plumbline::audit {

struct UnreadText {
  uint64_t count = 0;
  std::string first;  // text before the first such number

  void Add(uint64_t more, std::string_view text);
};

struct LogNotes {
  UnreadText refused;               // numbers without a name
  UnreadText lists;                 // lists of numbers
  uint64_t evaluation_batches = 0;  // lines within an evaluation
  uint64_t evaluations = 0;         // ends of evaluations' bars
  uint64_t summaries = 0;           // values of a summary, if the log has rows
  uint64_t literals = 0;            // rows of literals that were not read
  uint64_t counted = 0, shown = 0;  // dictionaries without a step
  uint64_t of_epochs = 0;           // dictionaries without a step that have an epoch
  uint64_t of_above = 0;            // dictionaries without a step whose series have steps
  double steps_per_epoch = 0;
  int64_t stride = 0;  // steps between rows of epochs; 0 if unknown
  uint64_t shares = 0, of_bars = 0, epochs = 0, of_batches = 0;
  uint64_t unnamed = 0;  // lines with a list of values without names
  uint64_t again = 0;    // number of restarts of the steps
  bool foreign = false;
  std::string axes;  // subjects of the axes, if the log has several: "rollout, train"

  void Report(InputReport* report) const;
};

}  // namespace plumbline::audit
