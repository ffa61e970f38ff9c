// Returns the journal's items of a run, in the order in which they were judged.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/journal/gap_table.h"
#include "server/journal/run_reader.h"

namespace plumbline::server {

// The state of the running server that a reader needs.
struct RunReaderOptions {
  std::string directory;  // of the journal
  std::function<uint64_t()> committed;
  std::function<uint64_t()> judged;
  int64_t window_steps = 0;
  uint64_t run_bytes = 0;
  std::vector<std::string> rules;
  std::vector<std::string> settings;
};

// Makes a reader. Each pass reads the journal twice, because events are written after the batches
// that follow them in judged order. `gaps` must outlive the reader and its cursors. If a pass finds
// new damage, it records the damage in `gaps` and ends with DataLoss. The next pass skips the
// damage.
std::unique_ptr<RunReader> MakeRunReader(RunReaderOptions options, GapTable* gaps);

}  // namespace plumbline::server
