// How much memory this process may take before somebody kills it.
#pragma once

#include <cstdint>
#include <string>

namespace plumbline::server {

// The least of the host's memory and the limits of our control groups (systemd's MemoryMax, a
// container's). `root` stands before /proc and /sys, for tests.
uint64_t MemoryLimit(const std::string& root = "");

}  // namespace plumbline::server
