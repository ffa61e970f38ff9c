// Gives back what the journal holds of a run, in the order in which it was judged.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/journal/gap_table.h"
#include "server/journal/run_reader.h"

namespace plumbline::server {

// What a reader needs to know of the running server.
struct RunReaderOptions {
  std::string directory;  // of the journal
  std::function<uint64_t()> committed;
  std::function<uint64_t()> judged;
  int64_t window_steps = 0;
  uint64_t run_bytes = 0;
  std::vector<std::string> rules;
  std::vector<std::string> settings;
};

// A pass reads the journal twice: events stand behind the batches that they were decided before.
// `gaps` must outlive the reader and its cursors. Damage that nobody knew of is noted there and
// ends the pass with DataLoss; the next pass goes around it.
std::unique_ptr<RunReader> MakeRunReader(RunReaderOptions options, GapTable* gaps);

}  // namespace plumbline::server
