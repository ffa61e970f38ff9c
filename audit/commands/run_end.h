// Completes the record of a trainer that died without a goodbye.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>

#include "plumbline/v1/batch.pb.h"

namespace plumbline::audit {

// Returns how a process with that status of waitpid ended. Empty if it ended well.
std::optional<v1::Ending> EndingOf(int status);

// Appends to the records in `folder` that process `trainer` wrote since `began` and did not finish
// how the process ended: `status` of waitpid. Without this an audit cannot distinguish a dead
// trainer from one that is still running. Records of other processes stay as they are. Errors are
// ignored: the record is judged as it is.
void NoteEnd(const std::string& folder, std::filesystem::file_time_type began, pid_t trainer,
             int status);

}  // namespace plumbline::audit
