// Writes what was seen of a trainer's calls as a run record.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "audit/calls/process_calls.h"
#include "audit/calls/unseen_calls.h"
#include "plumbline/v1/batch.pb.h"

namespace plumbline::audit {

struct CallRecord {
  std::string folder;  // of the record; created if it does not exist
  std::string run;
  int64_t trainer = 0;               // process number of the command
  std::optional<v1::Ending> ending;  // of that process, if it did not end well
  // If the job was ended from outside: seconds since any process made a collective.
  std::optional<double> blocked_seconds;
};

// Writes FOLDER/calls-PID.plr if there is evidence for a rule: collectives, products of cuBLAS, or
// libraries that were not seen. Sets *written. Returns the error of the file system.
absl::Status WriteCallRecord(const CallRecord& record, const std::vector<ProcessCalls>& processes,
                             const std::vector<UnseenLibrary>& unseen, bool* written);

// Returns "sgemm_ 1,200, ncclAllReduce 40", in the order of the functions; "" if there is no call.
std::string CountsInWords(const std::vector<ProcessCalls>& processes);

}  // namespace plumbline::audit
