// A command on the host of a process, for a person to paste.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace plumbline::analysis {

// Returns "ssh HOST py-spy dump --pid PID" with the real host and number of the process. If the
// host's name could be anything but a name for a shell, returns "": a sender chooses it.
inline std::string StackCommand(const std::string& host, int64_t pid) {
  constexpr char kName[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  if (pid <= 0 || host.empty() || host[0] == '-' || host.find_first_not_of(kName) != host.npos)
    return "";
  return absl::StrCat("ssh ", host, " py-spy dump --pid ", pid);
}

}  // namespace plumbline::analysis
