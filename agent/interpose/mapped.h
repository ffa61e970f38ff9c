// Which watched libraries does this process have?
#pragma once

#include <cstdint>

#include "base/call_table.h"

namespace plumbline::interpose {

constexpr uint32_t kMappedWatched = kMappedBlas | kMappedNccl | kMappedCublas | kMappedGloo;

// Returns the CallMapped bits of the objects that are loaded now.
uint32_t MappedLibraries();

}  // namespace plumbline::interpose
