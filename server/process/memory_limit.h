// Finds the amount of memory that this process may use before it is killed.
#pragma once

#include <cstdint>
#include <string>

namespace plumbline::server {

// Returns the least of the host's memory and the limits of our control groups (systemd's MemoryMax,
// a container's). `root` is a prefix of /proc and /sys, for tests.
uint64_t MemoryLimit(const std::string& root = "");

}  // namespace plumbline::server
